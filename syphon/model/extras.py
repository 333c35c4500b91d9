"""The optional parts of an installation: which packages each needs, and what to type when they are missing."""

from __future__ import annotations

import importlib.util
from enum import StrEnum


class ExtraMissing(ImportError):
    """Packages that an extra brings are not installed. The text says what needs them, and how to install them."""


class Extra(StrEnum):
    """An extra of the distribution, as in `pip install 'syphon-servicebus[spark]'`."""

    SPARK = "spark"
    WEBSOCKETS = "websockets"
    OTLP = "otlp"
    CONNECT = "connect"

    @property
    def remedy(self) -> str:
        return f"pip install 'syphon-servicebus[{self}]'"

    @property
    def missing(self) -> list[str]:
        """The modules of this extra that are not installed."""
        return [module for module in _MODULES[self] if not _is_installed(module)]

    def require(self, what: str, *modules: str) -> None:
        """Raise `ExtraMissing` if `what`, the subject of the sentence, lacks one of these modules, or of all."""
        missing = [module for module in self.missing if not modules or module in modules]
        if missing:
            raise ExtraMissing(f"{what} needs packages that are not installed ({', '.join(missing)}): {self.remedy}")


_MODULES = {
    # Java is not here: the machine may have one.
    Extra.SPARK: ("pyspark", "pyarrow", "pandas", "jinja2", "opentelemetry.sdk", "prometheus_client"),
    Extra.WEBSOCKETS: ("websocket", "wsproto"),
    Extra.OTLP: ("opentelemetry.exporter.otlp.proto.http",),
    # What PySpark needs for Connect, whatever its version. Version 4 needs zstandard, too, and says so.
    Extra.CONNECT: ("grpc", "grpc_status", "google.rpc"),
}


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
