"""The real command, in a process of its own."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


def run_syphon(*arguments: str, timeout: float = 100) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    command = [sys.executable, "-m", "syphon", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


class Syphon:
    """A command that is running."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._read = b""

    def stdout_until(self, what: str, within: float = 60) -> str:
        """What it has printed, as soon as `what` is in it."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + within
        while what.encode() not in self._read:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, left))
            chunk = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            if not chunk:
                raise AssertionError(f"no {what!r} in {self._read!r}, exit code {self.process.poll()}")
            self._read += chunk
        return self._read.decode()

    def stop(self, signal_number: int, within: float = 60) -> tuple[int, str, str]:
        """Send a signal; the exit code, and all that was printed on stdout and stderr."""
        self.process.send_signal(signal_number)
        out, err = self.process.communicate(timeout=within)
        return self.process.returncode, (self._read + out).decode(), err.decode()


@contextmanager
def syphon(*arguments: str) -> Iterator[Syphon]:
    """Start a command, and make sure that it does not outlive the test."""
    command = [sys.executable, "-m", "syphon", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield Syphon(process)
        finally:
            if process.poll() is None:
                process.kill()
