"""All that an operator sees of a worker or a drain: status server, page, metrics, traces, logs, progress."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .logs import set_up_logging
    from .progress import drain_progress
    from .runtime import running_ops
    from .server import PortTaken
    from .status import PairStatus, SideStatus, WorkerStatus
    from .telemetry import OtlpMissing

_MODULES = {
    "logs": ("set_up_logging",),
    "progress": ("drain_progress",),
    "runtime": ("running_ops",),
    "server": ("PortTaken",),
    "status": (
        "PairStatus",
        "SideStatus",
        "WorkerStatus",
    ),
    "telemetry": ("OtlpMissing",),
}
__all__ = [
    "OtlpMissing",
    "PairStatus",
    "PortTaken",
    "SideStatus",
    "WorkerStatus",
    "drain_progress",
    "running_ops",
    "set_up_logging",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Loads a module at the first use of one of its names: `syphon status` must not wait for Spark."""
        for module, names in _MODULES.items():
            if name in names:
                return getattr(import_module(f".{module}", __name__), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
