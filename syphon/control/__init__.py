"""Control of slots: what a slot and the driver tell each other while it works (D7, D15), and how it all ends in time.

An executor imports this package too, and has neither the control server's libraries nor a use for them: its names are
loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from syphon.lazy_exports import exported_names, lazy_exports

if TYPE_CHECKING:
    from .control_server import ControlServer as ControlServer
    from .protocol import ControlAddress as ControlAddress
    from .protocol import HandOver as HandOver
    from .protocol import QueueReport as QueueReport
    from .protocol import SlotOrder as SlotOrder
    from .protocol import SlotReport as SlotReport
    from .protocol import Traffic as Traffic
    from .reporter import ControlClient as ControlClient
    from .reporter import DriverUnreachable as DriverUnreachable
    from .reporter import HttpControlClient as HttpControlClient
    from .reporter import Reporter as Reporter
    from .shutdown_budget import FAULTED as FAULTED
    from .shutdown_budget import STOPPED as STOPPED
    from .shutdown_budget import Ending as Ending
    from .shutdown_budget import Shares as Shares
    from .shutdown_budget import Step as Step
    from .slot_control import RateLimit as RateLimit
    from .slot_control import SlotControl as SlotControl
    from .slot_control import Traced as Traced
    from .totals import Account as Account
    from .totals import QueueAttempt as QueueAttempt
    from .totals import QueueTotals as QueueTotals
    from .totals import Totals as Totals
    from .unattended_control import UnattendedControl as UnattendedControl
    from .unattended_control import split_result as split_result
else:
    _MODULES = {
        "protocol": ("ControlAddress", "HandOver", "QueueReport", "SlotOrder", "SlotReport", "Traffic"),
        "reporter": ("ControlClient", "DriverUnreachable", "HttpControlClient", "Reporter"),
        "control_server": ("ControlServer",),
        "shutdown_budget": ("Ending", "FAULTED", "STOPPED", "Shares", "Step"),
        "slot_control": ("RateLimit", "SlotControl", "Traced"),
        "totals": ("Account", "QueueAttempt", "QueueTotals", "Totals"),
        "unattended_control": ("UnattendedControl", "split_result"),
    }
    __all__ = exported_names(_MODULES)
    __getattr__ = lazy_exports(__name__, _MODULES)
