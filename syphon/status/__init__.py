"""All that an operator sees of a worker or a drain: status server, page, metrics, traces, logs, progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syphon.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .drain_display import drain_progress
    from .logs import set_up_logging
    from .server import PortTaken
    from .service import running_ops
    from .snapshot import PairStatus, SideStatus, WorkerStatus

_MODULES = {
    "drain_display": ("drain_progress",),
    "logs": ("set_up_logging",),
    "server": ("PortTaken",),
    "service": ("running_ops",),
    "snapshot": (
        "PairStatus",
        "SideStatus",
        "WorkerStatus",
    ),
}
__all__ = [
    "PairStatus",
    "PortTaken",
    "SideStatus",
    "WorkerStatus",
    "drain_progress",
    "running_ops",
    "set_up_logging",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_exports(__name__, _MODULES)
