"""A drain as a platform may run it: for a user id without a name, on a host whose name does not resolve, with a strict
umask, in a folder into which others may write. One drain shows all of it.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.processes import EmulatedPair, aliased, emulated_pair

pytestmark = pytest.mark.timeout(600)

AS_STRANGER = ("unshare", "--user", "--map-user=54321", "--map-group=54321", "--keep-caps", "--uts")
"""Starts a process whose user id is in no list of users. Files of ours are its own, and it may set its host's name."""
NO_SUCH_HOST = "syphon-no-such-host"
IN_THE_WAY = ("queue", "pickle", "yaml", "click", "pydantic", "pyspark", "py4j", "pyarrow", "socketserver")
"""Modules that a drain, Spark's Python workers or the SDK import."""


@dataclass(frozen=True)
class Drained:
    """A drain that has ended."""

    code: int
    output: str
    pair: EmulatedPair
    imported: Path
    """Exists if a module of the working directory was imported."""


@pytest.fixture(scope="module")
def drained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drained]:
    folder = tmp_path_factory.mktemp("stranger")
    probe = ("sh", "-c", f"hostname {NO_SUCH_HOST}")
    if shutil.which(AS_STRANGER[0]) is None or subprocess.run([*AS_STRANGER, *probe], check=False).returncode:
        pytest.skip("this machine does not allow user namespaces: unshare --user fails")
    imported, work = folder / "imported", folder / "work"
    work.mkdir()
    for name in IN_THE_WAY:
        (work / f"{name}.py").write_text(f"open({str(imported)!r}, 'a').write('{name} ')\nraise SystemExit(99)\n")
    cache = os.environ.get("SYPHON_CACHE") or Path.home() / ".cache" / "syphon"
    with emulated_pair(folder / "pair", queues=1) as pair:
        pair.put([aliased(number, "orders") for number in range(20)])
        command = [sys.executable, "-m", "syphon", "drain", "-c", str(pair.config()), "--yes"]
        done = subprocess.run(
            [*AS_STRANGER, "sh", "-c", f'hostname {NO_SUCH_HOST} && exec "$@"', "sh", *command],
            cwd=work,
            umask=0o077,
            text=True,
            capture_output=True,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HOME": "/", "SYPHON_CACHE": str(cache)},
        )
        yield Drained(done.returncode, done.stdout + done.stderr, pair, imported)


def test_spark_starts_for_a_user_without_a_name_on_a_host_that_does_not_resolve(drained: Drained) -> None:  # X2
    assert drained.code == 0, drained.output
    assert "The backlog is empty: 20 forwarded." in drained.output
    assert len(drained.pair.arrived("orders")) == 20


def test_nothing_is_imported_from_the_working_directory(drained: Drained) -> None:  # T6
    assert drained.code == 0, drained.output
    assert not drained.imported.exists(), drained.imported.read_text()


def test_the_ledger_respects_the_umask(drained: Drained) -> None:  # T7
    files = list((drained.pair.folder / "ledger").rglob("*"))
    assert [file for file in files if file.suffix == ".parquet"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files if file.is_file()} == {0o600}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files if file.is_dir()} == {0o700}
