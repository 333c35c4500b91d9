"""The ledger writer ends when it is told to, even if the ledger does not answer (D9)."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from syphon.ledger.merging import StoredFile
from syphon.ledger.schema import Attempt
from syphon.ledger.store import Ledger
from syphon.ledger.writer import LedgerWriter
from tests.support.ledger_rows import attempt


class Stuck(Ledger):
    """A ledger on a disk that does not answer."""

    def __init__(self) -> None:
        self.path = "/stuck"
        self.free = threading.Event()

    def put_attempts(self, name: str, attempts: Sequence[Attempt]) -> StoredFile:
        self.free.wait()
        raise OSError


def test_a_ledger_that_is_stuck_does_not_keep_a_worker_from_ending() -> None:
    ledger = Stuck()
    writer = LedgerWriter(ledger)
    writer.start()
    writer.close_job("job-1", (), [attempt(1)])
    ending = threading.Thread(target=writer.finish, args=(0.2,), daemon=True)
    ending.start()
    ending.join(10)
    assert not ending.is_alive()
    assert "not written in time" in writer.error
    ledger.free.set()
