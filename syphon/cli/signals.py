"""Signals: a command that forwards messages stops gracefully on the first and exits immediately on the second."""

from __future__ import annotations

import os
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import click


def stop_on_signal(
    stop: Callable[[], None], consequence: str, hangup: bool = False, is_shown: Callable[[], bool] = lambda: False
) -> None:
    """Call `stop` on SIGINT or SIGTERM. A second signal ends the process immediately; that loses no message either.

    With `hangup` also on SIGHUP, which is sent when the command's terminal is closed; from then on, output is
    discarded. While `is_shown`, a live table says that the command is stopping, and an extra line would corrupt it.
    """
    signalled = False

    def handle(number: int, _: FrameType | None) -> None:
        nonlocal signalled
        if number == signal.SIGHUP:
            write_to_nowhere()
            if signalled:
                return None  # a closed terminal may send it twice, and the command is stopping already
        elif signalled:
            os._exit(128 + number)
        signalled = True
        if is_shown():
            return stop()
        # Not through Python's stderr, which is not reentrant: the signal may interrupt a write to it.
        with suppress(OSError, ValueError):
            os.write(
                sys.stderr.fileno(), f"{consequence} Press Ctrl-C again to exit now; no message is lost.\n".encode()
            )
        return stop()

    for number in (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hangup else [])):
        signal.signal(number, handle)


def write_to_nowhere() -> None:
    """Redirect stdout and stderr to /dev/null if they were a terminal: it is closed, and writing to it fails."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (1, 2):
        # isatty fails on a closed terminal, as it does on a file; but a file can still be written to.
        with suppress(OSError):
            if stat.S_ISCHR(os.fstat(number).st_mode):
                os.dup2(nowhere, number)
    os.close(nowhere)


@contextmanager
def interruptible(consequence: str) -> Iterator[None]:
    """On Ctrl-C, print the consequence and exit with the code of SIGINT. For commands that forward no messages.

    In a prompt, click turns Ctrl-C and the end of the input into `Abort`.
    """
    try:
        yield
    except (KeyboardInterrupt, click.Abort):
        sys.stdout.flush()
        sys.stderr.write(f"\nStopped. {consequence}\n")
        raise SystemExit(128 + signal.SIGINT) from None
