"""The settings of a worker: which namespaces form a pair, and how messages are forwarded."""

from .destinations import DestinationSettings, PermanentError
from .json_schema import config_schema
from .load import Config, ConfigLike, config_from, exposes_keys, load_config, settings_of
from .named_namespaces import named_namespace
from .pairs import (
    CANARY_QUEUE,
    ArmSettings,
    CanarySettings,
    CheckedSide,
    Credential,
    PairSettings,
    ProvisionSettings,
    ProxySettings,
    SideSettings,
    Transport,
    Via,
)
from .worker import (
    ListenAddress,
    LogFormat,
    LogLevel,
    LogSettings,
    PipelineSettings,
    SlotReports,
    StatusSettings,
    TelemetrySettings,
)

__all__ = [
    "CANARY_QUEUE",
    "CanarySettings",
    "config_from",
    "config_schema",
    "load_config",
    "named_namespace",
    "exposes_keys",
    "Config",
    "ConfigLike",
    "settings_of",
    "PairSettings",
    "CheckedSide",
    "SideSettings",
    "Transport",
    "ProxySettings",
    "Credential",
    "ArmSettings",
    "DestinationSettings",
    "PermanentError",
    "ProvisionSettings",
    "Via",
    "PipelineSettings",
    "SlotReports",
    "StatusSettings",
    "ListenAddress",
    "LogSettings",
    "LogLevel",
    "LogFormat",
    "TelemetrySettings",
]
