"""Signals: a command that moves messages stops in order at the first one, and leaves at once at the second."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


def stop_on_signal(stop: Callable[[], None], consequence: str) -> None:
    """Calls `stop` on SIGINT or SIGTERM. A second signal ends the process at once; that loses no message either."""
    signalled = False

    def handle(number: int, _: FrameType | None) -> None:
        nonlocal signalled
        if signalled:
            os._exit(128 + number)
        signalled = True
        # Not through Python's stderr: a signal may come while that is written to, and it cannot be entered twice.
        os.write(
            sys.stderr.fileno(), f"{consequence} Once more to leave at once; nothing is lost either way.\n".encode()
        )
        stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)


@contextmanager
def interruptible(consequence: str) -> Iterator[None]:
    """Ends a command that moves no messages on Ctrl-C: prints the consequence, and sets the exit code of SIGINT."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stdout.flush()
        sys.stderr.write(f"\nStopped. {consequence}\n")
        raise SystemExit(128 + signal.SIGINT) from None
