"""What signals do to a command that carries messages: the first ends it with care, the second leaves at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType

import click


def stop_on_signal(stop: Callable[[], None], what: str) -> None:
    """On SIGINT or SIGTERM `stop` is called; on a second one the process is gone: nothing that was in hand is lost."""
    signalled = False

    def handle(number: int, _: FrameType | None) -> None:
        nonlocal signalled
        if signalled:
            os._exit(128 + number)
        signalled = True
        click.echo(f"{what} Once more to leave at once; nothing is lost either way.", err=True)
        stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
