"""The writer ends when it is told to, whatever has become of the ledger (D9)."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from syphon.ledger.schema import Attempt
from syphon.ledger.store import Ledger
from syphon.ledger.writer import MOST_WAITING, LedgerWriter


class Stuck(Ledger):
    """On a disk that has stopped answering."""

    def __init__(self) -> None:
        self.path = "/stuck"
        self.free = threading.Event()

    def note(self, attempts: Sequence[Attempt]) -> None:
        self.free.wait()


def test_a_ledger_that_is_stuck_does_not_keep_a_worker_from_ending() -> None:
    ledger = Stuck()
    writer = LedgerWriter(ledger)
    writer.start()
    for _ in range(MOST_WAITING + 1):
        writer.write(None, ())  # from here on there is no room for another word
    ending = threading.Thread(target=writer.finish, args=(0.2,), daemon=True)
    ending.start()
    ending.join(10)
    assert not ending.is_alive()
    assert "not written in time" in writer.error
    ledger.free.set()
