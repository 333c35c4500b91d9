"""Control of slots: what a slot and the driver tell each other while it works (D7, D15), and how it all ends in time.

An executor imports this package too, and has neither the control server's libraries nor a use for them: its names are
loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from syphon.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .control_server import ControlServer
    from .protocol import ControlAddress, HandOver, QueueReport, SlotOrder, SlotReport, Traffic
    from .reporter import ControlClient, HttpControlClient, Reporter
    from .shutdown import FAULTED, STOPPED, Ending, Shares, Step
    from .slot_control import RateLimit, SlotControl, Traced
    from .totals import QueueAttempt, QueueTotals, Totals

_MODULES = {
    "protocol": (
        "ControlAddress",
        "HandOver",
        "QueueReport",
        "SlotOrder",
        "SlotReport",
        "Traffic",
    ),
    "reporter": (
        "ControlClient",
        "HttpControlClient",
        "Reporter",
    ),
    "control_server": ("ControlServer",),
    "shutdown": (
        "Ending",
        "FAULTED",
        "STOPPED",
        "Shares",
        "Step",
    ),
    "slot_control": (
        "RateLimit",
        "SlotControl",
        "Traced",
    ),
    "totals": (
        "QueueAttempt",
        "QueueTotals",
        "Totals",
    ),
}
__all__ = [
    "ControlAddress",
    "ControlClient",
    "ControlServer",
    "Ending",
    "FAULTED",
    "HandOver",
    "HttpControlClient",
    "QueueAttempt",
    "QueueReport",
    "QueueTotals",
    "RateLimit",
    "Reporter",
    "STOPPED",
    "Shares",
    "SlotControl",
    "SlotOrder",
    "SlotReport",
    "Step",
    "Totals",
    "Traced",
    "Traffic",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_exports(__name__, _MODULES)
