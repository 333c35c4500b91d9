"""All that an operator sees of a worker or a drain: status server, page, metrics, traces, logs, progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syphon.lazy_exports import exported_names, lazy_exports

if TYPE_CHECKING:
    from .drain_display import drain_progress as drain_progress
    from .drain_display import is_screen as is_screen
    from .logs import set_up_logging as set_up_logging
    from .snapshot import PairStatus as PairStatus
    from .snapshot import SideStatus as SideStatus
    from .snapshot import WorkerStatus as WorkerStatus
    from .status_server import PortTaken as PortTaken
    from .status_service import serving_status as serving_status
else:
    _MODULES = {
        "drain_display": ("drain_progress", "is_screen"),
        "logs": ("set_up_logging",),
        "status_server": ("PortTaken",),
        "status_service": ("serving_status",),
        "snapshot": ("PairStatus", "SideStatus", "WorkerStatus"),
    }
    __all__ = exported_names(_MODULES)
    __getattr__ = lazy_exports(__name__, _MODULES)
