"""A front door whose modules are loaded when one of their names is first asked for.

A package uses it if it would otherwise load what most of its users do not need: Spark for `syphon status`, the control
server's libraries on an executor. Type checkers read the imports under `TYPE_CHECKING` instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_exports(package: str, modules: Mapping[str, tuple[str, ...]]) -> Callable[[str], object]:
    """The module `__getattr__` of a package: `modules` says which module of the package has which names."""

    def load(name: str) -> object:
        for module, names in modules.items():
            if name in names:
                return getattr(import_module(f".{module}", package), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load
