"""The record of simulated incidents: it goes on where it ends, and survives being killed."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation import results, run
from tests.simulation.results import Record, VersionResults, chunks, joined, missing, run_recorded, table
from tests.simulation.run import Summary, run_many
from tests.simulation.world import World
from tests.support.waiting import eventually


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "record.json"


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "CHUNK", 3)


def test_ranges_that_touch_or_overlap_become_one() -> None:
    assert joined([(6, 9), (0, 3), (3, 6), (20, 30), (25, 27)]) == [(0, 9), (20, 30)]


def test_what_is_missing_lies_before_between_and_after_what_is_known() -> None:
    assert missing([(0, 30)], [(3, 6), (9, 12)]) == [(0, 3), (6, 9), (12, 30)]
    assert missing([(4, 10)], [(3, 6), (9, 12)]) == [(6, 9)]
    assert missing([(3, 6)], [(0, 10)]) == []
    assert missing([(0, 5), (8, 9)], []) == [(0, 5), (8, 9)]


@pytest.mark.usefixtures("small_chunks")
def test_chunks_begin_at_multiples_of_their_size_wherever_the_record_ends() -> None:
    assert list(chunks((1, 12), [(4, 5)])) == [(1, 3), (3, 4), (5, 6), (6, 9), (9, 12)]


def test_a_record_is_read_as_it_was_written(file: Path) -> None:
    sums = Summary(3, 20, 21, 12.5, Counter({"cut": 2}), Counter({"pump": 2, "drain": 1}), {2: "lost: m00001"})
    written = Record([VersionResults("aaaa", [(0, 3)], sums), VersionResults("bbbb", [(3, 6), (9, 12)], Summary())])
    written.write(file)
    assert Record.read(file) == written
    assert os.listdir(file.parent) == [file.name]


def test_there_is_no_record_before_the_first_run(file: Path) -> None:
    assert Record.read(file) == Record()


def test_a_chunk_that_two_processes_ran_counts_once() -> None:
    record = Record()
    record.add("aaaa", (0, 3), Summary(3))
    record.add("bbbb", (0, 3), Summary(3))
    record.add("aaaa", (3, 6), Summary(3))
    assert [(each.version, each.ranges, each.sums.runs) for each in record.versions] == [("aaaa", [(0, 6)], 6)]


@pytest.mark.usefixtures("small_chunks")
def test_a_recorded_run_goes_on_where_the_record_ends(file: Path) -> None:
    assert run_recorded(file, 0, 3, 1, None).runs == 3
    assert run_recorded(file, 0, 6, 1, None).runs == 3
    assert run_recorded(file, 0, 6, 1, None).runs == 0
    record = Record.read(file)
    assert record.ranges == [(0, 6)]
    assert (record.total.runs, record.total.modes.total(), record.total.failed) == (6, 6, {})


@pytest.mark.usefixtures("small_chunks")
def test_another_version_of_the_code_runs_the_seeds_that_no_version_has_run(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "current_version", lambda: "aaaa")
    run_recorded(file, 3, 3, 1, None)
    monkeypatch.setattr(results, "current_version", lambda: "bbbb")
    assert run_recorded(file, 0, 9, 1, None).runs == 6
    assert [(each.version, each.ranges) for each in Record.read(file).versions] == [
        ("aaaa", [(3, 6)]),
        ("bbbb", [(0, 3), (6, 9)]),
    ]


@pytest.mark.usefixtures("small_chunks")
def test_two_processes_record_what_one_would(file: Path) -> None:
    run_recorded(file, 0, 10, 2, None)
    record, alone = Record.read(file), run_many(0, 10, most_failures=10)
    assert record.ranges == [(0, 10)]
    # Where the sums of seconds were added up in another order, their last bits differ.
    assert record.total.virtual_seconds == pytest.approx(alone.virtual_seconds)
    assert {**record.total.values(), "virtual_seconds": 0} == {**alone.values(), "virtual_seconds": 0}


@pytest.mark.usefixtures("small_chunks")
def test_a_run_ends_when_its_time_is_over(file: Path) -> None:
    assert run_recorded(file, 0, 10**9, 1, 0.0).runs == 0


@pytest.mark.usefixtures("small_chunks")
def test_a_process_that_was_killed_is_an_error(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "run_many", lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(EOFError):
        run_recorded(file, 0, 3, 1, None)


def test_a_run_that_is_killed_keeps_what_it_has_added_and_leaves_no_process(file: Path) -> None:
    command = [sys.executable, "-c", RUN_IN_CHUNKS_OF_TWO, str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        workers = [int(run.stdout.readline()) for _ in range(2)]
        eventually(lambda: Record.read(file).total.runs >= 4, "the first chunks are on record")
        run.kill()
    eventually(lambda: not any(_is_alive(worker) for worker in workers), "the workers have ended")
    record = Record.read(file)
    assert sum(end - first for first, end in record.ranges) == record.total.runs
    assert run_recorded(file, 0, record.ranges[-1][1], 1, None).runs + record.total.runs == record.ranges[-1][1]


RUN_IN_CHUNKS_OF_TWO = """
import multiprocessing, sys, threading, time
from pathlib import Path
from tests.simulation import results, run

def say_workers():
    while len(multiprocessing.active_children()) < 2:
        time.sleep(0.01)
    for child in multiprocessing.active_children():
        print(child.pid, flush=True)

results.CHUNK = 2
threading.Timer(0.0, say_workers).start()
results.run_recorded(Path(sys.argv[1]), 0, 10**6, 2, None)
"""


def _is_alive(process: int) -> bool:
    state = Path(f"/proc/{process}/stat")
    return state.exists() and state.read_text().rsplit(") ", 1)[1][0] != "Z"


def test_adding_to_the_record_waits_for_another_process_that_does(file: Path) -> None:
    order: list[str] = []

    def add() -> None:
        with results.locked(file):
            order.append("second")

    with results.locked(file):
        other = threading.Thread(target=add)
        other.start()
        other.join(0.1)
        order.append("first")
    other.join()
    assert order == ["first", "second"]


def test_the_version_is_the_commit_that_last_changed_the_code() -> None:
    version = results.current_version()
    assert version == "" or len(version.rstrip("+")) == 10


def test_the_table_shows_modes_faults_versions_and_failed_seeds() -> None:
    sums = Summary(
        1200, 2000, 2100, 7200.0, Counter({"cut": 2, "slow": 1, "crash": 1}), Counter({"pump": 1200}), {7: "lost: m1"}
    )
    lines = list(table(Record([VersionResults("aaaa", [(0, 600), (700, 1300)], sums)])))
    assert "| pump | 1,200 |" in lines
    assert "| **all** | **1,200** |" in lines
    assert "| cut | 2 | crash | 1 |" in lines
    assert "| slow | 1 | | |" in lines
    assert "| aaaa | 0 to 1299, with gaps | 1,200 | 2,000 | 2,100 | 2 | 1 |" in lines
    assert "- seed 7 (aaaa): lost: m1" in lines


def test_the_file_stays_small(file: Path) -> None:
    record = Record()
    for first in range(0, 1_000_000, 10_000):
        record.add("aaaa", (first, first + 10_000), Summary(10_000, failed={first: "stuck: m00001"}))
    record.write(file)
    assert len(json.loads(file.read_text())) == 1
    assert file.stat().st_size < 10_000


def test_many_runs_keep_no_world_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "FULL_COLLECTION", 20)
    gc.collect()
    before = _worlds()
    run_many(30_020, 20)  # two of them leave finalizers behind
    assert _worlds() == before


def _worlds() -> int:
    return sum(isinstance(each, World) for each in gc.get_objects())
