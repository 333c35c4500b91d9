"""The watch of Spark's JVM: its end is noticed without a call, and an ending that hangs is cut short (X9)."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from syphon.spark.classic import JvmWatch

HANGS = """
import subprocess, sys, time
from syphon.control.shutdown_budget import Ending, Shares
from syphon.spark.classic import JvmWatch
from syphon.spark.session_access import EndingGuard
jvm = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(jvm.pid, flush=True)
ending = Ending()
guard = EndingGuard(ending, JvmWatch(jvm).kill)
guard.start()
ending.begin(Shares(0, 0, 0, 0))
ending.exit_code = 7
time.sleep(600)
"""


@pytest.fixture
def jvm() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing: all that the watch checks is whether it runs."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def test_a_jvm_that_runs_is_no_failure(jvm: subprocess.Popen[bytes]) -> None:
    assert JvmWatch(jvm).failure is None


def test_the_end_of_the_jvm_is_said_with_its_reason_and_the_consequence(jvm: subprocess.Popen[bytes]) -> None:
    watch = JvmWatch(jvm)
    jvm.send_signal(signal.SIGKILL)
    lost = watch.wait_for_failure(60)
    assert lost is not None
    assert "killed by signal 9 (SIGKILL)" in str(lost)
    assert "No message is lost" in str(lost)


def test_a_jvm_that_is_ended_on_purpose_is_no_failure(jvm: subprocess.Popen[bytes]) -> None:
    watch = JvmWatch(jvm)
    watch.stop()
    jvm.kill()
    jvm.wait()
    assert watch.failure is None


def test_without_a_jvm_of_our_own_there_is_nothing_to_watch() -> None:
    assert JvmWatch(None).wait_for_failure(60) is None


def test_an_ending_that_hangs_is_cut_short_and_takes_the_jvm_with_it() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HANGS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        out, err = process.communicate(timeout=100)
    assert process.returncode == 7
    assert "was aborted" in err
    jvm = int(out)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and _runs(jvm):
        time.sleep(0.05)
    assert not _runs(jvm)


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
