"""The package as people install it: wheel and sdist are built, and the command runs from an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import syphon
from tests.support.tools import ROOT

NAME = "syphon-servicebus"
MODULES = ROOT / "syphon"


def run(*command: object, cwd: Path, **environ: str) -> str:
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | environ,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def built(source: Path, target: Path, kind: str) -> Path:
    run(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", target, cwd=source)
    (found,) = target.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return found


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(ROOT, tmp_path_factory.mktemp("sdist"), "sdist")


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made of what the sdist contains, and of nothing else."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    return built(source, tmp_path_factory.mktemp("wheel"), "wheel")


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel. Its dependencies are those of this one, which take minutes to install."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=ROOT)
    python = folder / "bin" / "python"
    pip = ("-m", "pip", "--disable-pip-version-check", "-q", "--python", python)
    run(sys.executable, *pip, "install", "--no-deps", "--no-index", wheel, cwd=ROOT)
    (packages,) = folder.glob("lib/python3*/site-packages")
    # A path in a .pth file is searched, but the .pth files there are not read: not that of our editable installation.
    (packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder


def files_of_the_package() -> set[str]:
    found = (path for path in MODULES.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in found}


def test_both_contain_every_file_of_the_package(sdist: Path, wheel: Path) -> None:
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    assert files_of_the_package() - in_sdist == set()
    assert files_of_the_package() - set(zipfile.ZipFile(wheel).namelist()) == set()


def test_its_name_is_not_that_of_another_project_on_pypi(wheel: Path, sdist: Path) -> None:
    """`syphon` on PyPI is another project: who installs that gets something else."""
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    found = Parser().parsestr(archive.read(metadata).decode())
    assert (found["Name"], found["Version"]) == (NAME, syphon.__version__)
    assert {"otlp", "websockets"} <= set(found.get_all("Provides-Extra", []))
    assert sdist.name == f"syphon_servicebus-{syphon.__version__}.tar.gz"


def test_the_command_runs_from_an_environment_of_its_own(environment: Path, tmp_path: Path) -> None:
    command = environment / "bin" / "syphon"
    where = run(environment / "bin" / "python", "-c", "import syphon; print(syphon.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(environment), "and not our checkout"
    assert syphon.__version__ in run(command, "--version", cwd=tmp_path)
    assert "dead-letters" in run(command, "--help", cwd=tmp_path)
    assert json.loads(run(command, "cost", "--json", cwd=tmp_path))["prices"], "a file of data"
    assert json.loads(run(command, "config-schema", cwd=tmp_path))["title"]
    run(command, "init", cwd=tmp_path)
    assert (tmp_path / "config.yaml").exists()


def test_documents_name_no_other_distribution() -> None:
    pages = [
        *ROOT.glob("*.md"),
        *(path for name in ("docs", "systemd", "helm", "examples") for path in (ROOT / name).rglob("*.md")),
    ]
    wrong = ("pip install syphon\n", "pip install syphon ", "pip install syphon`")
    assert [(page.name, text) for page in pages for text in wrong if text in page.read_text()] == []
    named = [*pages, ROOT / "config.example.yaml", *(ROOT / "syphon").rglob("*.py")]
    assert [page.name for page in named if "syphon[" in page.read_text()] == [], "an extra of another distribution"
    assert NAME in (ROOT / "docs" / "operations.md").read_text()
