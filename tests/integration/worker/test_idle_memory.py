"""An idle worker is small on any machine: measured as PSS, over all of its processes (X8)."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from syphon.spark.jvm_archive import archive_file
from tests.support.processes import EmulatedPair, Running, aliased, emulated_pair, python_workers
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(600)

PROMISED = 90
"""Megabytes, with ten queues. Measured: 60 before the first message, 69 after it."""
WITH_SPARK = 500
"""Megabytes while Spark runs and waits. Measured: 406."""
GIB = 1024**3


def megabytes(running: Running) -> int:
    """The memory of a command and all that it has started; what they share counts once."""
    kilobytes = 0
    for pid in (running.process.pid, *(pid for pid, _ in running.descendants())):
        with suppress(OSError):  # a process that has just ended
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            kilobytes += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kilobytes // 1024


def own_cache(folder: Path) -> dict[str, str]:
    """A copy of the archive of Spark's JVM: pages that the JVMs of other tests share would count only in part."""
    cache, archive = folder / "cache", archive_file()
    cache.mkdir(mode=0o700)
    if archive is not None and archive.exists():
        shutil.copy2(archive, cache)
    return {"SYPHON_CACHE": str(cache), "SYPHON_JVM_ARCHIVE": "use"}


def waiting_spark(pair: EmulatedPair, folder: Path, environment: dict[str, str]) -> Running:
    """A worker whose Spark never stops and waits. The Python worker that was warmed up ends after a minute."""
    config = pair.config(pipeline={"idle_shutdown": "0s"})
    worker = pair.start("run", "-c", str(config), environment={**own_cache(folder), **environment})
    worker.until("listening on")
    worker.until("Spark runs, after")
    assert len(python_workers(worker)) <= 1, "no more is warmed up than the first ring needs"
    eventually(lambda: not python_workers(worker), what=lambda: worker.said, within=180)
    return worker


def test_an_idle_worker_is_small_before_its_first_message_and_after_its_last(tmp_path: Path) -> None:  # X8
    with emulated_pair(tmp_path, queues=10) as pair:
        worker = pair.worker(config=pair.config(pipeline={"idle_shutdown": "2s"}))
        assert megabytes(worker) <= PROMISED
        pair.put([aliased(number, "orders") for number in range(100)])
        worker.until("Spark has stopped", within=400)  # a start, a job and a stop of Spark
        eventually(lambda: not worker.descendants(), what=lambda: worker.descendants())
        assert len(pair.arrived("orders")) == 100
        assert megabytes(worker) <= PROMISED
        assert worker.stop()[0] == 0


@pytest.mark.nightly
def test_on_a_machine_with_64_cores(tmp_path: Path) -> None:
    cores = {"PYTHON_CPU_COUNT": "64", "JAVA_TOOL_OPTIONS": "-XX:ActiveProcessorCount=64"}
    with emulated_pair(tmp_path, queues=10) as pair:
        worker = waiting_spark(pair, tmp_path, cores)
        assert megabytes(worker) <= WITH_SPARK
        assert worker.stop()[0] == 0


@pytest.mark.nightly
def test_in_a_container_of_one_gibibyte(tmp_path: Path) -> None:
    group = tmp_path / "root" / "sys" / "fs" / "cgroup"
    group.mkdir(parents=True)
    (tmp_path / "root" / "proc" / "self").mkdir(parents=True)
    (tmp_path / "root" / "proc" / "self" / "cgroup").write_text("0::/\n")
    (group / "memory.max").write_text(str(GIB))
    with emulated_pair(tmp_path / "pair", queues=10) as pair:
        environment = {"SYPHON_SYSTEM_ROOT": str(tmp_path / "root"), "PYTHON_CPU_COUNT": "64"}
        worker = waiting_spark(pair, tmp_path, environment)
        assert megabytes(worker) <= WITH_SPARK
        assert worker.stop()[0] == 0
