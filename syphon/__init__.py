"""syphon forwards messages from the backlog queues of a secondary Service Bus namespace to their primary.

`drain`, `dry_run`, `inspect`, `move` and `report` are the commands of these names as functions. They need the extra
`spark`, and are loaded on first use: `import syphon` takes no time, and an executor needs only what a task needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from syphon.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from syphon.operations import drain, dry_run, inspect, move, report

__version__ = "0.2.0"
__all__ = ["drain", "dry_run", "inspect", "move", "report", "__version__"]

if not TYPE_CHECKING:
    _load = lazy_exports(__name__, {"operations": ("drain", "dry_run", "inspect", "move", "report")})

    def __getattr__(name: str) -> object:
        if name in __all__:
            from syphon.model import Extra

            Extra.SPARK.require(f"syphon.{name}", "pyspark", "pyarrow")
        return _load(name)
