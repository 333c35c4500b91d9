"""The canaries of a worker: when they send, over which queue, and what they count."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from syphon.config import PairSettings
from syphon.model import NotAuthorized
from syphon.status import canary
from syphon.status.canary import Canaries, CanaryRecord
from syphon.transfer import ProbeResult

PAIR = PairSettings.model_validate(
    {
        "name": "contoso",
        "primary": {"namespace": "contoso.example"},
        "secondary": {"namespace": "contoso-dr.example"},
        "canary": {"every": "1m"},
    }
)


class Sending:
    """Stands for the namespaces: each probe has the next result; then the canary is stopped."""

    def __init__(self, *results: Callable[[str], ProbeResult]) -> None:
        self.results = list(results)
        self.queues: list[str] = []
        self.closed_for = 0
        """How often the pair is found unable to move a probe."""
        self.is_over = threading.Event()

    def __call__(
        self, pair: PairSettings, queue: str, destination: str, within: float, is_stopped: Callable[[], bool]
    ) -> ProbeResult:
        assert (pair.name, destination, within) == ("contoso", "syphon-canary", 60.0)
        assert not is_stopped()
        self.queues.append(queue)
        return self.results.pop(0)(queue)


def arrived(queue: str) -> ProbeResult:
    return ProbeResult("contoso", queue, "syphon-canary", 1.5)


def lost(queue: str) -> ProbeResult:
    return ProbeResult("contoso", queue, "syphon-canary", None)


def failed(queue: str) -> ProbeResult:
    return ProbeResult("contoso", queue, "syphon-canary", None, NotAuthorized("no Send"))


def run(sending: Sending, monkeypatch: pytest.MonkeyPatch) -> CanaryRecord:
    """Sends all probes that have a result, without the pauses between them. The last one must arrive."""
    monkeypatch.setattr(canary, "CANARY_LOOKS_EVERY", 0.001)
    pair = PAIR.model_copy(update={"canary": PAIR.canary and PAIR.canary.model_copy(update={"every": 1})})

    def open_queues(_: str) -> list[str]:
        if not sending.results:
            sending.is_over.set()  # the last one was counted before this
            return []
        if sending.closed_for:
            sending.closed_for -= 1
            return []
        return ["q0", "q1"]

    with Canaries([pair], open_queues, send=sending, wall=lambda: 1_000.0) as canaries:
        assert sending.is_over.wait(60)
    return canaries.records["contoso"]


def test_probes_take_each_queue_in_turn_and_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    sending = Sending(arrived, failed, lost, arrived)
    record = run(sending, monkeypatch)
    assert sending.queues == ["q0", "q1", "q0", "q1"]
    assert (record.arrived, record.failed, record.lost) == (2, 1, 1)
    assert (record.seconds, record.at, record.last) == (1.5, 1_000.0, arrived("q1"))


def test_a_probe_that_an_outage_stops_is_not_called_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    sending = Sending()

    def stopped(queue: str) -> ProbeResult:
        sending.closed_for = 3  # it is noticed when the probe has not arrived
        return lost(queue)

    sending.results = [stopped, arrived]
    record = run(sending, monkeypatch)
    assert (record.arrived, record.lost) == (1, 0)
