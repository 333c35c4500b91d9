"""Signals: a command that moves messages stops in order at the first one, and leaves at once at the second."""

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
    """Calls `stop` on SIGINT or SIGTERM. A second signal ends the process at once; that loses no message either.

    With `hangup` also on SIGHUP, which comes when the terminal of the command is closed. What the command writes from
    then on has no reader, and must not be an error. While `is_shown`, a live table says that the command stops, and a
    line between would spoil it.
    """
    signalled = False

    def handle(number: int, _: FrameType | None) -> None:
        nonlocal signalled
        if number == signal.SIGHUP:
            write_to_nowhere()
            if signalled:
                return None  # a terminal that is closed may send it twice, and nothing more than an ending is asked for
        elif signalled:
            os._exit(128 + number)
        signalled = True
        if is_shown():
            return stop()
        # Not through Python's stderr: a signal may come while that is written to, and it cannot be entered twice.
        with suppress(OSError, ValueError):
            os.write(
                sys.stderr.fileno(), f"{consequence} Once more to leave at once; nothing is lost either way.\n".encode()
            )
        return stop()

    for number in (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hangup else [])):
        signal.signal(number, handle)


def write_to_nowhere() -> None:
    """Leads stdout and stderr to nowhere, as far as they were a terminal: it is closed, and writing to it fails."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (1, 2):
        # A closed terminal answers no question about itself, and neither does a file: only a file can still be written.
        with suppress(OSError):
            if stat.S_ISCHR(os.fstat(number).st_mode):
                os.dup2(nowhere, number)
    os.close(nowhere)


@contextmanager
def interruptible(consequence: str) -> Iterator[None]:
    """Ends a command that moves no messages on Ctrl-C: prints the consequence, and sets the exit code of SIGINT.

    In a question, click turns Ctrl-C and the end of the input into `Abort`.
    """
    try:
        yield
    except (KeyboardInterrupt, click.Abort):
        sys.stdout.flush()
        sys.stderr.write(f"\nStopped. {consequence}\n")
        raise SystemExit(128 + signal.SIGINT) from None
