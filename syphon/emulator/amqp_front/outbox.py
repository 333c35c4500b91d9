"""What a connection is about to say: collected within a turn of the loop, and held until it is true on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from ..broker.journal import Journal

PILE = 1024 * 1024
"""How many bytes may wait to be written before links that deliver must wait as well."""


class Outbox:
    """Bytes on their way to the socket. `put` gets them when they may leave, and hears which are the last."""

    def __init__(self, journal: Journal, put: Callable[[bytes, bool], None]) -> None:
        self.is_blocked = False
        """Whether the socket has as much as it takes."""
        self._journal = journal
        self._put = put
        self._loop = asyncio.get_running_loop()
        self._out: list[bytes] = []
        self._piled = 0
        self._flushing = False
        self._said_all = False

    @property
    def is_congested(self) -> bool:
        """Whether enough is on its way to the peer: a link that delivered on would fill our memory, not the wire."""
        return self._piled > PILE or self.is_blocked

    def write(self, data: bytes) -> None:
        """Sends bytes, with all else that is written in this turn of the loop. Nothing after the last words."""
        if self._said_all:
            return
        self._out.append(data)
        self._piled += len(data)
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def end(self) -> None:
        """All is said: what was written up to here are the last words."""
        self._said_all = True

    def hush(self) -> None:
        """Drops what was about to be said: it speaks of things that could not be kept."""
        self._piled -= sum(map(len, self._out))
        self._out.clear()

    def _flush(self) -> None:
        """What is said is true on disk first: not only acknowledgements, but deliveries with their locks as well."""
        self._flushing = False
        data, self._out = b"".join(self._out), []
        let_go = partial(self._let_go, data, self._said_all)
        if self._journal.trouble is None:
            self._journal.when_durable(let_go)
        else:
            let_go()  # there is nothing left to say but why the connection ends

    def _let_go(self, data: bytes, last: bool) -> None:
        self._piled -= len(data)
        self._put(data, last)
