"""Close and fault: the two sides of a pair end together."""

from __future__ import annotations

import pytest

from syphon.model.errors import NotAuthorized
from syphon.servicebus.connection import Connection
from syphon.servicebus.namespace import Lifecycle, Namespace, NamespaceStatus
from syphon.servicebus.pair import Pair, PartnerEnded


class HandClock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


def never() -> Connection:
    raise AssertionError("the rule needs no connection")


@pytest.fixture
def pair(clock: HandClock) -> Pair:
    return Pair(Namespace("contoso", never, clock), Namespace("contoso-dr", never, clock))


def test_a_healthy_pair_stays_open_however_long_it_lives(pair: Pair, clock: HandClock) -> None:  # C3
    clock.seconds += 1_000_000
    pair.check()
    assert [side.status for side in pair.sides] == [NamespaceStatus.OPENED, NamespaceStatus.OPENED]
    assert pair.deadline() is None


@pytest.mark.parametrize("ends", ["closed", "faulted"])
@pytest.mark.parametrize("which", [0, 1])
def test_the_other_side_is_faulted_after_exactly_five_seconds(  # C1
    pair: Pair, clock: HandClock, ends: str, which: int
) -> None:
    ended, other = pair.sides[which], pair.sides[1 - which]
    if ends == "closed":
        ended.close()
    else:
        ended.fault(NotAuthorized("the key was refused"))
    clock.seconds += 4.999
    pair.check()
    assert not other.has_ended
    clock.seconds += 0.001
    pair.check()
    assert other.status is NamespaceStatus.FAULTED
    assert isinstance(other.reason, PartnerEnded)
    assert "contoso" in str(other.reason)
    assert "contoso-dr" in str(other.reason)
    assert ends in str(other.reason)
    assert ("the key was refused" in str(other.reason)) is (ends == "faulted")
    assert pair.has_ended


def test_a_side_that_closes_in_time_is_closed_and_not_faulted(pair: Pair, clock: HandClock) -> None:  # C1
    pair.primary.close()
    clock.seconds += 4.9
    pair.secondary.closing()
    pair.secondary.close()
    clock.seconds += 10
    pair.check()
    assert pair.secondary.status is NamespaceStatus.CLOSED
    assert pair.has_ended
    assert pair.fault is None


def test_a_side_that_is_still_closing_after_five_seconds_is_faulted(pair: Pair, clock: HandClock) -> None:  # C1
    pair.primary.close()
    pair.secondary.closing()
    clock.seconds += 5
    pair.check()
    assert pair.secondary.status is NamespaceStatus.FAULTED
    assert "closing" in str(pair.secondary.reason)


def test_the_pair_has_not_ended_while_one_side_is_open(pair: Pair) -> None:  # C2
    pair.primary.close()
    assert not pair.has_ended


def test_the_fault_of_a_pair_is_that_of_the_side_that_faulted_first(pair: Pair, clock: HandClock) -> None:  # C1
    reason = NotAuthorized("the key was refused")
    pair.secondary.fault(reason)
    clock.seconds += 5
    pair.check()
    assert pair.fault is reason


def test_a_side_that_has_ended_keeps_its_status(pair: Pair) -> None:
    pair.primary.close()
    pair.primary.fault(NotAuthorized("too late"))
    pair.primary.closing()
    assert pair.primary.status is NamespaceStatus.CLOSED


OPENED, CLOSING, CLOSED, FAULTED = NamespaceStatus


@pytest.mark.parametrize(
    ("state", "on_closing", "on_close", "on_fault"),
    [
        (OPENED, CLOSING, CLOSED, FAULTED),
        (CLOSING, CLOSING, CLOSED, FAULTED),
        (CLOSED, CLOSED, CLOSED, CLOSED),
        (FAULTED, FAULTED, FAULTED, FAULTED),
    ],
)
def test_the_first_end_of_a_namespace_counts(  # C1
    clock: HandClock,
    state: NamespaceStatus,
    on_closing: NamespaceStatus,
    on_close: NamespaceStatus,
    on_fault: NamespaceStatus,
) -> None:
    def brought_to(status: NamespaceStatus, side: Lifecycle) -> Lifecycle:
        if status is CLOSING:
            side.closing()
        elif status is CLOSED:
            side.close()
        elif status is FAULTED:
            side.fault(NotAuthorized())
        return side

    sides = [brought_to(state, Lifecycle("contoso", clock)) for _ in range(3)]
    one, two, three = map(brought_to, (CLOSING, CLOSED, FAULTED), sides)
    assert (one.status, two.status, three.status) == (on_closing, on_close, on_fault)
    assert (one.has_ended, two.has_ended, three.has_ended) == (state in (CLOSED, FAULTED), True, True)
