"""The house: every package has a front door that opens, and one name means one thing."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from importlib import import_module

import pytest

from tests.support.tools import ROOT

PACKAGES = sorted(init.parent.name for init in (ROOT / "syphon").glob("*/__init__.py"))
LAZY = [package for package in PACKAGES if hasattr(import_module(f"syphon.{package}"), "_MODULES")]
SHARED = {
    # Public classes of two modules that an application chooses between, as in the Azure SDK.
    "PairedClient": {"sender.aio", "sender.sync"},
    "PairedSender": {"sender.aio", "sender.sync"},
}
"""Class names that stand in more than one module, each with its reason."""


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_that_a_package_exports_exists(package: str) -> None:
    module = import_module(f"syphon.{package}")
    assert len(module.__all__) == len(set(module.__all__))
    for name in module.__all__:
        assert getattr(module, name) is not None, name


@pytest.mark.parametrize("package", LAZY)
def test_a_lazy_front_door_has_the_names_that_type_checkers_see(package: str) -> None:
    module = import_module(f"syphon.{package}")
    source = ast.parse((ROOT / "syphon" / package / "__init__.py").read_text())
    (typed,) = (node for node in source.body if isinstance(node, ast.If))
    imports = [node for node in typed.body if isinstance(node, ast.ImportFrom)]
    seen = {(node.module, alias.name) for node in imports for alias in node.names}
    assert seen == {(name, each) for name, names in module._MODULES.items() for each in names}
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        module.Nothing  # noqa: B018


def test_commands_without_spark_do_not_load_it() -> None:  # D11
    code = "import syphon.cli, syphon.status, syphon.worker, sys; print('pyspark' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert told.stdout.strip() == "False"


def test_a_class_name_means_one_thing() -> None:
    places = defaultdict(set)
    for file in (ROOT / "syphon").rglob("*.py"):
        module = ".".join(file.relative_to(ROOT / "syphon").with_suffix("").parts)
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].add(module)
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert twice == SHARED
