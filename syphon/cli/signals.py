"""What signals do to a command that carries messages: the first ends it with care, the second leaves at once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
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
