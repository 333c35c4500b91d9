"""What signals do to a command. One that carries messages ends with care at the first, and at once at the second."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


def stop_on_signal(stop: Callable[[], None], what: str) -> None:
    """On SIGINT or SIGTERM `stop` is called; on a second one the process is gone: nothing that was in hand is lost."""
    signalled = False

    def handle(number: int, _: FrameType | None) -> None:
        nonlocal signalled
        if signalled:
            os._exit(128 + number)
        signalled = True
        # Past Python's own stderr: a signal may come while that is being written to, and it can be entered but once.
        os.write(sys.stderr.fileno(), f"{what} Once more to leave at once; nothing is lost either way.\n".encode())
        stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)


@contextmanager
def stopped_by_hand(consequence: str) -> Iterator[None]:
    """Ctrl-C in a command that has nothing in hand: what it means is told, and the exit code says what happened."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stdout.flush()
        sys.stderr.write(f"\nStopped. {consequence}\n")
        raise SystemExit(128 + signal.SIGINT) from None
