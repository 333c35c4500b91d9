"""A message that makes a destination fail stays in the backlog, and holds up neither others nor the destination."""

from __future__ import annotations

import pytest

from syphon.amqp import Properties, data_section, properties_bytes
from syphon.emulator import Action, Fault, Operation
from syphon.model.errors import DestinationFailed, MessageTooLarge, NotAllowedByEntity
from syphon.model.outcomes import Result
from syphon.transfer.breaker import Available, BackingOff
from syphon.transfer.destination import Destination
from syphon.transfer.pump import PERMANENT
from tests.integration.transfer.conftest import BACKLOG, TwoNamespaces, aliased
from tests.support.destination_trial import Trial, trial

__all__ = ["trial"]


def fails_on(number: int) -> Fault:
    """The destination fails on this message, alone or in a batch, and does not say why."""
    return Fault(Action.ERROR, Operation.SEND, "orders", "amqp:internal-error", message_id=f"{number}")


def offer(trial: Trial, count: int) -> None:
    for number in range(count):
        head = properties_bytes(Properties(message_id=f"{number}"))
        trial.offer(None, head + data_section(b"x"), message_id=f"{number}")


def left(trial: Trial) -> set[object]:
    return {transfer.restored.message_id for transfer, _, _ in trial.results.left}


@pytest.mark.parametrize("bad", [{0}, {99}, {50}, {7, 8, 93}, {*range(3, 100, 12)}], ids=lambda bad: f"{len(bad)}")
def test_its_companions_arrive_once_and_the_destination_goes_on(trial: Trial, bad: set[int]) -> None:  # S3
    faults = [trial.namespaces.fault(fails_on(number)) for number in bad]
    offer(trial, 100)
    trial.turn(lambda: trial.answered() == 100)
    assert left(trial) == {f"{number}" for number in bad}
    assert all(isinstance(error, DestinationFailed) for _, error, _ in trial.results.left)
    assert {message.message_id for message in trial.namespaces.take("orders", 100 - len(bad))} == {
        f"{number}" for number in set(range(100)) - bad
    }
    assert trial.namespaces.active("orders") == 0
    assert isinstance(trial.destination.state, Available)
    assert sum(fault.struck for fault in faults) <= 8 * len(bad)  # 100, 50, 25, 13, 7, 4, 2, 1


@pytest.mark.parametrize("bad", [range(5), range(40, 50), range(90, 100)])
def test_neighbours_with_the_same_fault_hold_back_no_others(trial: Trial, bad: range) -> None:  # S3
    for number in bad:
        trial.namespaces.fault(fails_on(number))
    offer(trial, 100)
    trial.turn(lambda: trial.answered() == 100)
    assert left(trial) == {f"{number}" for number in bad}
    assert trial.namespaces.active("orders") == 100 - len(bad)


def test_it_is_found_as_well_if_the_link_ends_over_it(trial: Trial) -> None:  # S3
    trial.namespaces.fault(Fault(Action.DETACH, Operation.SEND, "orders", "amqp:internal-error", message_id="7"))
    offer(trial, 100)
    trial.turn(lambda: trial.answered() == 100)
    assert (left(trial), len(trial.results.accepted)) == ({"7"}, 99)
    assert trial.namespaces.active("orders") == 99
    assert isinstance(trial.destination.state, Available)


def test_a_destination_that_fails_over_everything_soon_waits(trial: Trial) -> None:  # S4, S9
    failing = trial.namespaces.fault(Fault(Action.ERROR, Operation.SEND, "orders", "amqp:internal-error"))
    pauses = []
    for tries in (10, 20, 30):
        offer(trial, 100)
        trial.turn(lambda tries=tries: trial.answered() == 10 * tries)  # type: ignore[misc]
        assert failing.struck == tries  # down to the first message, and two from other batches
        state = trial.destination.state
        assert isinstance(state, BackingOff)
        pauses.append(state.until - trial.now)
        trial.now = state.until
    assert pauses == [1, 2, 4]
    trial.namespaces.emulator.call(trial.namespaces.primary.faults.clear)
    offer(trial, 100)
    trial.turn(lambda: len(trial.results.accepted) == 100)


def test_what_others_took_between_two_accidents_speaks_for_the_destination(trial: Trial) -> None:  # S3
    for number in (0, 1, 3, 4, 6, 7):
        trial.namespaces.fault(fails_on(number))
    trial.destination._unsent.pending.batch_limit = 1
    offer(trial, 9)
    trial.turn(lambda: trial.answered() == 9)
    assert (len(trial.results.accepted), len(trial.results.left)) == (3, 6)
    assert isinstance(trial.destination.state, Available)


def test_a_message_that_is_refused_and_may_not_be_given_up_does_not_hold_up_others(trial: Trial) -> None:  # S4
    trial.destination = Destination("orders", PERMANENT - {NotAllowedByEntity, MessageTooLarge})
    trial.namespaces.fault(Fault(Action.REFUSE, Operation.SEND, "orders", message_id="40"))
    offer(trial, 80)
    for number in range(4):
        trial.offer(None, data_section(bytes(300_000)), message_id=f"large {number}")
    trial.turn(lambda: trial.answered() == 84)
    assert (left(trial), trial.results.refused) == ({"40", *(f"large {number}" for number in range(4))}, [])
    assert isinstance(trial.destination.state, Available)


def test_a_message_too_large_for_a_new_link_takes_no_companions_with_it(trial: Trial) -> None:  # M7
    for size in (300_000, 10):
        trial.offer(None, data_section(bytes(size)), message_id=f"{size}")
    together = trial.destination.take_unsent()
    trial.destination._unsent.again.append(together)  # as they were sent over the last link
    trial.turn(lambda: trial.answered() == 2)
    assert [transfer.restored.message_id for transfer, _ in trial.results.refused] == ["300000"]
    assert [transfer.restored.message_id for transfer in trial.results.accepted] == ["10"]


def test_it_stays_in_the_backlog_and_is_reported_with_the_reason(namespaces: TwoNamespaces) -> None:  # S3, S4
    namespaces.queue("orders")
    namespaces.fault(fails_on(7))
    namespaces.put(*(aliased("x", "orders", message_id=f"{number}") for number in range(60)))
    _, outcomes = namespaces.run()
    (stays,) = (outcome for outcome in outcomes if outcome.result is Result.LEFT)
    assert stays.message_id == "7"
    assert stays.reason is not None
    assert "amqp:internal-error" in stays.reason
    assert len(namespaces.take("orders", 59)) == 59
    assert namespaces.active(BACKLOG, "contoso-dr") == 1
