"""Signals: a closed terminal is handled as SIGTERM, and what is written to it is no error (X9)."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = """
import sys, time
from syphon.cli.signals import stop_on_signal
told = []
stop_on_signal(lambda: told.append(1), "Stopping.", hangup=True)
print("ready", flush=True)
while not told:
    time.sleep(0.01)
print("a line for a terminal that is closed", flush=True)
print("another one", file=sys.stderr, flush=True)
open(sys.argv[1], "w").write("in order")
sys.exit(3)
"""


def test_a_terminal_that_is_closed_stops_the_command_in_order(tmp_path: Path) -> None:
    place = str(tmp_path / "ended")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, place],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: _take_terminal(theirs),
    )
    os.close(theirs)
    said = b""
    while b"ready" not in said:
        said += os.read(ours, 1000)
    os.close(ours)  # the kernel sends SIGHUP
    assert process.wait(60) == 3
    assert Path(place).read_text() == "in order"


def _take_terminal(terminal: int) -> None:
    import fcntl
    import termios

    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_each_of_these_signals_stops_it(number: int, tmp_path: Path) -> None:
    with _running(str(tmp_path / "ended")) as process:
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 3, err
    assert "a line for a terminal" in out, "a pipe is no terminal, and is still read"
    assert "Stopping." in err


def _running(place: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, place], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process
