"""The checker can fail: it catches transfers that are broken on purpose, each for its own defect."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from syphon.amqp import Map, Message, Section, section_bytes
from syphon.backlog import Restored, Unrestorable, restore
from syphon.model.errors import DestinationMissing
from syphon.model.outcomes import Result
from syphon.servicebus.factory import namespace_of
from syphon.servicebus.links import Arrival, Settled
from syphon.transfer import destination, route
from syphon.transfer.destination import Destination, SendResults
from syphon.transfer.message_transfer import Batch
from syphon.transfer.pump import PERMANENT, Pump, PumpOptions
from syphon.transfer.queue_transfer import QueueTransfer
from syphon.transfer.unsent import encoded
from tests.faults.checker import Verdict, check
from tests.faults.environment import LOCK, PRIMARY, QUEUE, SECONDARY, Site, site
from tests.faults.messages import ORDERS, Input, mixed, plain

MESSAGES = 200


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Site]:
    """A backlog with messages of all kinds."""
    with site(tmp_path) as made:
        made.load(mixed(random.Random(1), MESSAGES))
        yield made


def for_nowhere() -> list[Input]:
    """Messages whose destination does not exist."""
    return [plain(number, "gone") for number in range(20)]


def carried(place: Site, kind: type[Pump] = Pump) -> tuple[Verdict, list[str]]:
    """The checker's verdict after a transfer, and the violations in it."""
    secondary, primary = namespace_of(place.side(SECONDARY), QUEUE), namespace_of(place.side(PRIMARY), "")
    options = PumpOptions(quiet=3.0, lease=60.0, lock=LOCK, permanent=PERMANENT | {DestinationMissing})
    pump = kind(secondary, primary, lambda outcome: None, options)  # noqa: ARG005
    pump.serve(QUEUE)
    tally = pump.run()
    for side in (secondary, primary):
        side.close()
    verdict = check(place.attempted, place.acknowledged, place.found())
    return verdict, verdict.problems(MESSAGES, tally.possible_duplicates)


def test_a_sound_transfer_passes(place: Site) -> None:
    place.control(PRIMARY, "PUT", "quota", {"entity": ORDERS, "bytes": 0})
    place.load(for_nowhere())
    verdict, problems = carried(place)
    assert problems == []
    assert (verdict.dead, verdict.duplicates) == (20, 0)
    assert verdict.backlog > 0


class IgnoresCompletions(QueueTransfer):
    def _settled(self, settled: Settled) -> None:
        """Nothing: completions come before the sends."""


class CompletesBeforeSending(Pump):
    queue_kind = IgnoresCompletions

    def _route(self, queue: QueueTransfer, arrival: Arrival, wall: int) -> None:
        arrival.link.complete(arrival)
        super()._route(queue, arrival, wall)

    def _settle_results(self, destination: Destination, results: SendResults) -> None:
        for transfer in results.accepted:
            transfer.queue.unsettled.finish(transfer.arrival, Result.FORWARDED)
        results.accepted.clear()
        super()._settle_results(destination, results)


def test_a_transfer_that_completes_before_it_sends_is_caught(place: Site) -> None:  # S2
    place.control(PRIMARY, "PUT", "quota", {"entity": ORDERS, "bytes": 0})
    verdict, problems = carried(place, CompletesBeforeSending)
    assert problems[0].startswith("lost: ")
    assert any("for orders" in lost for lost in verdict.lost)


def test_a_transfer_that_drops_a_property_is_caught(place: Site, monkeypatch: pytest.MonkeyPatch) -> None:  # M2
    def careless(payload: bytes, **more: object) -> Restored | Unrestorable:
        restored = restore(payload, **more)  # type: ignore[arg-type]
        if isinstance(restored, Unrestorable):
            return restored
        message = Message(restored.payload)
        pairs = message.application_properties().pairs
        kept = section_bytes(Section.APPLICATION_PROPERTIES, Map(pairs[1:])) if len(pairs) > 1 else b""
        return restored._replace(payload=message.replace(Section.APPLICATION_PROPERTIES, kept))

    monkeypatch.setattr(route, "restore", careless)
    verdict, problems = carried(place)
    assert [problem.partition(":")[0] for problem in problems] == ["lost", "unexpected"]
    assert all("application properties" in found for found in verdict.unexpected)


def test_a_transfer_that_forwards_twice_is_caught(place: Site, monkeypatch: pytest.MonkeyPatch) -> None:

    def twice(batch: Batch) -> tuple[bytes, int]:
        return encoded(batch + batch)

    monkeypatch.setattr(destination, "encoded", twice)
    verdict, problems = carried(place)
    assert problems == [f"{verdict.duplicates} duplicates, where 0 can be allowed_duplicates"]
    assert not verdict.lost


class SwallowsRefusals(Pump):
    def _settle_results(self, destination: Destination, results: SendResults) -> None:
        results.accepted += [transfer for transfer, _ in results.refused]
        results.refused.clear()
        super()._settle_results(destination, results)


def test_a_transfer_that_swallows_a_refusal_is_caught(place: Site) -> None:  # S4
    place.load(for_nowhere())
    verdict, problems = carried(place, SwallowsRefusals)
    assert problems[0].startswith("lost: 20: ")
    assert all("for gone" in lost for lost in verdict.lost)
