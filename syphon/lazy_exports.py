"""A front door whose modules are loaded when one of their names is first used.

A package uses it if it would otherwise load what most of its users do not need: Spark for `syphon status`, the control
server's libraries on an executor. Type checkers read the imports under `TYPE_CHECKING` instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

Modules = Mapping[str, tuple[str, ...]]
"""Which module of a package has which of the exported names."""


def exported_names(modules: Modules) -> list[str]:
    """The `__all__` of a package."""
    return sorted(name for names in modules.values() for name in names)


def lazy_exports(package: str, modules: Modules) -> Callable[[str], object]:
    """The module `__getattr__` of a package."""

    def load(name: str) -> object:
        for module, names in modules.items():
            if name in names:
                return getattr(import_module(f".{module}", package), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load
