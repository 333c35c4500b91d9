"""The windows of duplicate detection are asked for once, and one that is not known is not taken for none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from syphon.emulator.broker.descriptions import QueueDescription
from syphon.emulator.broker.faults import Action, Fault, Operation
from syphon.model import EntityPath, NotAuthorized
from syphon.servicebus.data_plane_administration import DataPlaneAdministration
from syphon.transfer import DuplicateWindows
from tests.support.administrations import SENDERS_KEY, Site, site, with_connection_string

ORDERS, PLAIN = EntityPath.of("Orders"), EntityPath.of("plain")


@pytest.fixture
def here() -> Iterator[Site]:
    with site() as running:
        running.do(
            lambda space: space.create_queue(QueueDescription("orders", requires_duplicate_detection=True)),
            lambda space: space.create_queue(QueueDescription("plain")),
        )
        yield running


def requests(here: Site) -> int:
    return sum(counts.get("manage", 0) for counts in here.emulator.call(here.namespace.counters.by_entity).values())


def test_each_entity_is_requested_once_however_it_is_written(here: Site) -> None:
    windows = DuplicateWindows(lambda: with_connection_string(here))
    assert (windows.of(ORDERS), windows.of(EntityPath.of("orders")), windows.of(PLAIN)) == (600_000, 600_000, 0)
    assert (requests(here), windows.trouble) == (2, None)
    windows.close()


def test_without_the_claim_no_window_is_known_and_the_namespace_is_asked_once(here: Site) -> None:  # P5
    opened = []

    def administration() -> DataPlaneAdministration:
        opened.append(1)
        return DataPlaneAdministration.from_connection_string(here.connection_string("Sender", SENDERS_KEY))

    windows = DuplicateWindows(administration)
    assert [windows.of(EntityPath.of(f"queue-{number}")) for number in range(50)] == [None] * 50
    assert isinstance(windows.trouble, NotAuthorized)
    assert len(opened) == 1
    assert requests(here) <= 1
    windows.close()


def test_a_window_that_is_not_known_stays_unknown_for_the_whole_command(here: Site) -> None:
    here.arm(Fault(Action.ERROR, Operation.MANAGE, "orders", condition="amqp:internal-error", times=1))
    windows = DuplicateWindows(lambda: with_connection_string(here))
    assert windows.of(ORDERS) is None
    assert windows.of(ORDERS) is None, "what a dry look could not know is not known when the message is sent"
    assert windows.trouble is not None
    windows.close()
