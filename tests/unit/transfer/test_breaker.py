"""The breaker as a table: the state that each failure leads to from each state, and for how long."""

from __future__ import annotations

import pytest

from syphon.model.errors import (
    DestinationBusy,
    DestinationDisabled,
    DestinationFull,
    DestinationMissing,
    DestinationSilent,
    Interrupted,
    LockLost,
    NotAllowedByEntity,
    NotAuthorized,
    SyphonError,
)
from syphon.transfer.breaker import TRANSITIONS, Available, BackingOff, Breaker, Failure, Rejecting, State

NOW = 1000.0
PERMANENT: frozenset[type[SyphonError]] = frozenset((NotAllowedByEntity, DestinationMissing))
OLDER = DestinationSilent()
FROM: list[State] = [Available(), BackingOff(NOW + 0.5, OLDER), Rejecting(NOW + 0.5, OLDER)]


def breaker_in(state: State) -> Breaker:
    breaker = Breaker("orders", PERMANENT)
    breaker.state = state
    breaker.failures = 1 if isinstance(state, BackingOff) else 0
    return breaker


@pytest.mark.parametrize("state", FROM, ids=lambda state: type(state).__name__)
@pytest.mark.parametrize(
    ("error", "next_state", "seconds"),
    [
        (DestinationBusy(), BackingOff, 10),
        (DestinationSilent(), BackingOff, 1),
        (DestinationFull(), BackingOff, 30),
        (DestinationDisabled(), BackingOff, 30),
        (DestinationMissing(), Rejecting, 30),
        (NotAllowedByEntity(), Rejecting, 30),
        (NotAuthorized(), BackingOff, 60),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, SyphonError) else None,
)
def test_a_failure_leads_to_the_same_state_from_every_state(  # S4, S5, S9
    state: State, error: SyphonError, next_state: type[BackingOff] | type[Rejecting], seconds: float
) -> None:
    breaker = breaker_in(state)
    breaker.failed(error, NOW)
    assert breaker.state == next_state(NOW + seconds, error)
    assert breaker.state_at(NOW + seconds - 0.1) == breaker.state
    assert breaker.state_at(NOW + seconds) == Available()


@pytest.mark.parametrize("state", FROM, ids=lambda state: type(state).__name__)
@pytest.mark.parametrize("error", [Interrupted("lost"), LockLost("lost")], ids=lambda error: type(error).__name__)
def test_two_broken_links_change_nothing_and_the_third_backs_off(state: State, error: SyphonError) -> None:  # S3
    breaker = breaker_in(state)
    breaker.failed(error, NOW)
    breaker.failed(error, NOW)
    assert breaker.state == state
    breaker.failed(error, NOW)
    assert breaker.state == BackingOff(NOW + 1, error)


def test_a_destination_that_cuts_the_connection_backs_off_for_fifteen_seconds() -> None:
    breaker = breaker_in(Available())
    breaker.cut_off(NOW)
    assert isinstance(breaker.state, BackingOff)
    assert breaker.state.until == NOW + 15


def test_every_failure_has_a_next_state() -> None:
    assert set(TRANSITIONS) == set(Failure)
