"""syphon forwards messages from the backlog queues of a secondary Service Bus namespace to their primary.

`drain`, `dry_run`, `inspect` and `report` are the commands of these names as functions. They are loaded when they are
first asked for: `import syphon` takes no time, and an executor needs only what a task needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from syphon.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from syphon.operations import drain, dry_run, inspect, report

__version__ = "0.1.0"
__all__ = ["drain", "dry_run", "inspect", "report", "__version__"]

if not TYPE_CHECKING:
    __getattr__ = lazy_exports(__name__, {"operations": ("drain", "dry_run", "inspect", "report")})
