"""What an operator sees of a worker or a drain: logs, progress, status."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .logs import set_up_logging
    from .progress import shown
    from .runtime import attending
    from .server import PortTaken
    from .status import PairStatus, Side, Status
    from .telemetry import OtlpMissing

_MODULES = {
    "logs": ("set_up_logging",),
    "progress": ("shown",),
    "runtime": ("attending",),
    "server": ("PortTaken",),
    "status": (
        "PairStatus",
        "Side",
        "Status",
    ),
    "telemetry": ("OtlpMissing",),
}
__all__ = [
    "OtlpMissing",
    "PairStatus",
    "PortTaken",
    "Side",
    "Status",
    "attending",
    "set_up_logging",
    "shown",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Loads a module when one of its names is first asked for: `syphon status` must not wait for Spark."""
        for module, names in _MODULES.items():
            if name in names:
                return getattr(import_module(f".{module}", __name__), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
