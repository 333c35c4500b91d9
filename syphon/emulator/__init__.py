"""A local Service Bus: real AMQP 1.0 on real sockets, for development and tests.

The other packages of syphon never import it. Only the command line and the tests do.
"""

from .background import BackgroundEmulator
from .broker import (
    Action,
    Claim,
    EntityStatus,
    Fault,
    Kind,
    Operation,
    Outage,
    QueueDescription,
    Refusal,
    RuleDescription,
    SubscriptionDescription,
    Tier,
    TopicDescription,
)
from .clock import FakeClock, SystemClock
from .server import Emulator, RunningNamespace
from .settings import (
    EmulatorSettings,
    NamespaceSettings,
    PolicySettings,
    default_settings,
    load_settings,
    parse_namespace_option,
    with_default_ports,
)
from .state import StateUnusable

__all__ = [
    "Action",
    "BackgroundEmulator",
    "Claim",
    "Emulator",
    "EmulatorSettings",
    "EntityStatus",
    "FakeClock",
    "Fault",
    "Kind",
    "NamespaceSettings",
    "Operation",
    "Outage",
    "PolicySettings",
    "QueueDescription",
    "Refusal",
    "RuleDescription",
    "RunningNamespace",
    "StateUnusable",
    "SubscriptionDescription",
    "SystemClock",
    "Tier",
    "TopicDescription",
    "default_settings",
    "load_settings",
    "parse_namespace_option",
    "with_default_ports",
]
