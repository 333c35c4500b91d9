"""A local Service Bus: real AMQP 1.0 on real sockets, for development and tests.

The rest of syphon never imports it; only the command line does, and tests.
"""

from .background import BackgroundEmulator
from .broker.counters import Kind
from .broker.descriptions import (
    Claim,
    EntityStatus,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    Tier,
    TopicDescription,
)
from .broker.faults import Action, Fault, Operation, Outage
from .clock import FakeClock, SystemClock
from .server import Emulator, RunningNamespace
from .settings import EmulatorSettings, NamespaceSettings, PolicySettings, load_settings

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
    "RuleDescription",
    "RunningNamespace",
    "SubscriptionDescription",
    "SystemClock",
    "Tier",
    "TopicDescription",
    "load_settings",
]
