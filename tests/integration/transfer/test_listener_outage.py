"""The listener while the primary is unreachable: it receives nothing, and notices the end in five seconds (D16)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from syphon.emulator import Kind, Outage
from syphon.servicebus.connection import Connection
from syphon.servicebus.namespace import Namespace
from syphon.servicebus.pair import Pair
from syphon.time_budget import HANDSHAKE_WITHIN, NOTICING_DELAY
from syphon.transfer import backlog_listener as listening_module
from syphon.transfer.backlog_listener import Listener
from syphon.transfer.deferred_scan import Ring
from syphon.transfer.destinations import DestinationBackoff
from syphon.worker.pausable_gate import PausableGate
from tests.integration.transfer.conftest import BACKLOG, ManualTimeNamespaces, aliased
from tests.support.waiting import eventually


class CountingListener(Listener):
    """Counts its turns, so that a test can wait for one."""

    turns = 0

    def _turn(self) -> None:
        super()._turn()
        self.turns += 1


class Listening:
    """A listener on a clock that the test moves, and what it has said."""

    def __init__(self, namespaces: ManualTimeNamespaces) -> None:
        self.namespaces = namespaces
        self.rings: list[Ring] = []
        self.tries: list[float] = []
        self.backoffs = PausableGate("contoso", now=namespaces.now)
        pair = Pair(self._side("contoso", ""), self._side("contoso-dr", BACKLOG))
        self.listener = CountingListener(
            "contoso", pair, [BACKLOG], lambda _, ring: self.rings.append(ring), gate=self.backoffs, now=namespaces.now
        )

    def _side(self, name: str, entity: str) -> Namespace:
        client, now = self.namespaces.client(name), self.namespaces.now

        def connect() -> Connection:
            if name == "contoso":
                self.tries.append(now())
            return Connection(client, entity, now=now, handshake_within=HANDSHAKE_WITHIN)

        return Namespace(name, connect, now, longest_delay=NOTICING_DELAY)

    @property
    def primary(self) -> Namespace:
        return self.listener.pair.primary

    def outage(self, kind: Outage | None) -> None:
        faults = self.namespaces.primary.faults
        self.namespaces.emulator.call(faults.end_outage if kind is None else lambda: faults.begin_outage(kind))

    def turns(self, count: int = 2) -> None:
        """Waits until the listener has turned, with what the test has just changed."""
        for _ in range(count):
            seen = self.listener.turns
            eventually(lambda seen=seen: self.listener.turns > seen)  # type: ignore[misc]

    def advance(self, seconds: float) -> None:
        """Moves the clock, and lets a try that is due come to its end."""
        self.namespaces.advance(seconds)
        self.turns()
        eventually(lambda: not self.primary._opening)
        self.turns()

    @property
    def receives(self) -> int:
        return self.namespaces.received(BACKLOG)

    def operations(self) -> int:
        counters = self.namespaces.secondary.counters
        kinds = (Kind.RECEIVE, Kind.EMPTY_RECEIVE, Kind.PEEK)
        return self.namespaces.emulator.call(lambda: sum(counters.of(BACKLOG, kind) for kind in kinds))


@contextmanager
def listening(namespaces: ManualTimeNamespaces, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listening]:
    monkeypatch.setattr(listening_module, "LISTENER_TURN", 0.02)
    here = Listening(namespaces)
    here.listener.start()
    try:
        yield here
    finally:
        here.listener.stop()
        assert here.listener.failure is None


@pytest.fixture
def here(manual: ManualTimeNamespaces, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listening]:
    with listening(manual, monkeypatch) as found:
        yield found


def go_out(here: Listening, kind: Outage = Outage.REFUSE) -> None:
    eventually(lambda: here.namespaces.credit() > 0)
    here.outage(kind)
    eventually(lambda: not here.primary.is_connected and here.primary.error is not None)
    eventually(lambda: here.namespaces.credit() == 0)
    here.turns()


def test_an_outage_of_ten_minutes_costs_no_receive_and_its_end_arms_the_doorbells_again(here: Listening) -> None:  # S7
    go_out(here)
    before = here.operations()
    here.namespaces.put(*(aliased("x", "orders") for _ in range(1000)))
    for _ in range(120):
        here.advance(5)
    assert (here.operations(), here.rings) == (before, [])
    here.outage(None)
    here.advance(5)
    eventually(lambda: here.rings == [Ring.NEW])
    eventually(lambda: here.namespaces.locked() == 0)
    assert here.receives == 1


def test_the_return_is_noticed_within_five_seconds_after_hours(here: Listening) -> None:  # D16
    go_out(here)
    for _ in range(3):
        for _ in range(20):
            here.advance(3)
        here.namespaces.advance(3600)
    tries = len(here.tries)
    here.turns()
    eventually(lambda: not here.primary._opening)
    for _ in range(10):
        here.advance(5)
    assert len(here.tries) >= tries + 10
    here.outage(None)
    here.advance(NOTICING_DELAY)
    assert here.primary.is_connected


def test_a_slot_that_reaches_the_primary_makes_the_listener_try_at_once(here: Listening) -> None:  # D16
    go_out(here)
    here.turns()
    eventually(lambda: not here.primary._opening)
    here.turns()
    here.outage(None)
    assert not here.primary.is_reachable
    here.listener.reached_primary()
    assert (here.primary.is_reachable, here.primary.error) == (True, None)
    eventually(lambda: here.primary.is_connected)  # and the clock stands still
    here.namespaces.put(aliased("x", "orders"))
    eventually(lambda: here.rings == [Ring.NEW])


def test_a_slot_that_misses_the_primary_makes_the_listener_connect_again(here: Listening) -> None:
    eventually(lambda: here.namespaces.credit() == 1)
    tries = len(here.tries)
    here.outage(Outage.HANG)  # the connection looks alive
    here.listener.missed_primary()
    eventually(lambda: len(here.tries) > tries)
    eventually(lambda: here.namespaces.credit() == 0)
    here.outage(None)


def test_deferred_messages_are_known_after_the_outage_and_cost_nothing_in_it(here: Listening) -> None:
    here.backoffs.record([DestinationBackoff("dead", 600, "full", 1)])
    eventually(lambda: here.namespaces.credit() == 1)
    here.namespaces.put(aliased("x", "dead"))
    eventually(lambda: "dead" in here.listener.waiting(BACKLOG))
    here.outage(Outage.REFUSE)
    eventually(lambda: not here.primary.is_connected and here.primary.error is not None)
    here.turns()
    before = here.operations()
    here.advance(60)
    assert here.operations() == before
    here.outage(None)
    here.advance(5)
    eventually(lambda: here.namespaces.credit() == 1)
    assert here.listener.waiting(BACKLOG)["dead"].messages == 1


def test_a_peer_that_accepts_and_is_silent_does_not_hold_up_the_next_try(
    manual: ManualTimeNamespaces, monkeypatch: pytest.MonkeyPatch
) -> None:  # D16
    with listening(manual, monkeypatch) as here:
        eventually(lambda: manual.credit() == 1)
        here.outage(Outage.HANG)
        here.listener.missed_primary()
        eventually(lambda: here.primary.error is not None)
        assert f"no answer within {HANDSHAKE_WITHIN:g} s" in str(here.primary.error)
        here.outage(None)
        here.advance(NOTICING_DELAY)
        assert here.primary.is_connected
