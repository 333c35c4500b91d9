"""The settings of a worker: which namespaces form a pair, and how messages are forwarded."""

from .destinations import DestinationSettings, PermanentError
from .loading import Config, config_from, exposes_keys, load_config
from .pairs import (
    ArmSettings,
    Credential,
    PairSettings,
    ProvisionSettings,
    ProxySettings,
    Side,
    SideSettings,
    TimeToLive,
    Transport,
    Via,
)
from .schema import config_schema
from .worker import (
    ListenAddress,
    LogFormat,
    LogLevel,
    LogSettings,
    PipelineSettings,
    StatusSettings,
    TelemetrySettings,
)

__all__ = [
    "config_from",
    "config_schema",
    "load_config",
    "exposes_keys",
    "Config",
    "PairSettings",
    "Side",
    "SideSettings",
    "Transport",
    "ProxySettings",
    "Credential",
    "ArmSettings",
    "DestinationSettings",
    "PermanentError",
    "TimeToLive",
    "ProvisionSettings",
    "Via",
    "PipelineSettings",
    "StatusSettings",
    "ListenAddress",
    "LogSettings",
    "LogLevel",
    "LogFormat",
    "TelemetrySettings",
]
