"""The canaries of a worker: probes at regular intervals, and what became of them."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from syphon.config import CanarySettings, PairSettings
from syphon.time_budget import CANARY_LOOKS_EVERY
from syphon.transfer import ProbeResult, send_probe

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CanaryRecord:
    """What became of the probes of one pair."""

    arrived: int = 0
    lost: int = 0
    """Probes that did not arrive in time, while both sides were connected."""
    failed: int = 0
    """Probes that could not be sent or waited for."""
    seconds: float | None = None
    """How long the last one took that arrived."""
    last: ProbeResult | None = None
    at: float = 0.0
    """When the last one ended, in seconds since 1970."""

    def including(self, result: ProbeResult, at: float) -> CanaryRecord:
        if result.has_arrived:
            return replace(self, arrived=self.arrived + 1, seconds=result.seconds, last=result, at=at)
        if result.failure is not None:
            return replace(self, failed=self.failed + 1, last=result, at=at)
        return replace(self, lost=self.lost + 1, last=result, at=at)


class Canaries:
    """Sends the probes of each pair that has a canary, in a thread of its own, while the pair is able to move them."""

    def __init__(
        self,
        pairs: Iterable[PairSettings],
        open_queues: Callable[[str], Sequence[str]],
        send: Callable[..., ProbeResult] = send_probe,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`open_queues` are those of a pair that a probe may take: none while it is paused or a side unreachable."""
        self.records: dict[str, CanaryRecord] = {}
        self._open_queues = open_queues
        self._send = send
        self._wall = wall
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(pair, pair.canary), name=f"canary {pair.name}", daemon=True)
            for pair in pairs
            if pair.canary is not None
        ]

    def __enter__(self) -> Canaries:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()

    def _run(self, pair: PairSettings, canary: CanarySettings) -> None:
        self.records[pair.name] = CanaryRecord()
        pause = CANARY_LOOKS_EVERY
        for number in itertools.count():
            while not self._over.wait(pause) and not (queues := self._open_queues(pair.name)):
                pause = CANARY_LOOKS_EVERY
            if self._over.is_set():
                return
            # Another queue each time: each of them is proven to work.
            result = self._send(
                pair, queues[number % len(queues)], canary.destination, canary.within / 1000, self._over.is_set
            )
            self._record(pair.name, result)
            pause = canary.every / 1000

    def _record(self, pair: str, result: ProbeResult) -> None:
        if self._over.is_set() or not (result.has_arrived or self._open_queues(pair)):
            return  # an outage has begun meanwhile: that has alerts of its own
        self.records[pair] = self.records[pair].including(result, self._wall())
        log.log(logging.DEBUG if result.has_arrived else logging.WARNING, "%s", result)
