"""A pseudo-terminal of a given size: runs a command as an operator does, and shows what is on the screen."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pyte

from tests.support.processes import own_terminal


class Terminal:
    """A command on a terminal. Its lines are those that a person sees now, with the history above them."""

    def __init__(
        self, command: Sequence[str], columns: int = 80, lines: int = 24, folder: Path | None = None, **env: str
    ) -> None:
        self._screen = pyte.HistoryScreen(columns, lines, history=10_000, ratio=1.0)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.Lock()
        self.received = b""
        """All bytes that it got, with what steers it."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self._file = ours
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=_environment(env),
            start_new_session=True,
            preexec_fn=own_terminal,  # so that Ctrl-C is a signal to the command
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read, name="terminal", daemon=True)
        self._reader.start()

    @property
    def lines(self) -> list[str]:
        """The lines on the screen."""
        with self._lock:
            return [line.rstrip() for line in self._screen.display]

    @property
    def history(self) -> list[str]:
        """All lines: those that have scrolled away, and those on the screen."""
        with self._lock:
            width = self._screen.columns
            above = ["".join(line[at].data for at in range(width)).rstrip() for line in self._screen.history.top]
            return above + [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.history)

    def press(self, keys: bytes) -> None:
        os.write(self._file, keys)

    def wait(self, timeout: float) -> int:
        """Waits for the end of the command, and returns its exit code. Everything that it wrote is then shown."""
        code = self.process.wait(timeout)
        self._reader.join(10)
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._reader.join(10)
        os.close(self._file)

    def _read(self) -> None:
        # The end of the command is an error of the terminal that is read.
        with suppress(OSError):
            while data := os.read(self._file, 65_536):
                with self._lock:
                    self.received += data
                    self._stream.feed(data)


@contextmanager
def terminal(
    command: Sequence[str], columns: int = 80, lines: int = 24, folder: Path | None = None, **env: str
) -> Iterator[Terminal]:
    """A terminal that is closed at the end."""
    opened = Terminal(command, columns, lines, folder, **env)
    try:
        yield opened
    finally:
        opened.close()


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    without = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR", "CI")}
    return {**without, "TERM": "xterm-256color", **more}
