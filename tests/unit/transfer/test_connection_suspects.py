"""What a lost connection says about the destinations that had something in flight: pure, without a connection (S3)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from types import SimpleNamespace

from syphon.amqp import data_section
from syphon.backlog import BrokerStamps, Restored
from syphon.model import EntityPath, Interrupted, MessageTooLarge
from syphon.servicebus import Arrival, LinkState, Sent
from syphon.time_budget import BETWEEN_SUSPECTS, ISOLATED_WITHIN
from syphon.transfer.connection_suspects import (
    ENOUGH,
    FIRST_WAIT,
    LONGEST_WAIT,
    Isolation,
    MessageKey,
    Suspicion,
    Verdict,
)
from syphon.transfer.destination import Destination, SendResults
from syphon.transfer.message_transfer import MessageTransfer
from syphon.transfer.pump import PERMANENT

NOW = 1000.0
MESSAGES = [("backlog/0", number) for number in range(1, 11)]
FIRST, SECOND, THIRD, FOURTH = MESSAGES[:4]


def suspected() -> Suspicion:
    """A suspicion whose test batch is in flight, with nothing else."""
    suspicion = Suspicion()
    suspicion.suspect()
    suspicion.is_alone = True
    return suspicion


def transfer_of(key: MessageKey) -> MessageTransfer:
    payload, (queue, number) = data_section(b"x"), key
    stamps = BrokerStamps(sequence_number=number)
    restored = Restored(payload, EntityPath.of("orders"), "1", None, None, len(payload), stamps)
    arrival = Arrival(SimpleNamespace(path=queue), 0, b"", b"", 0.0, 0.0)
    return MessageTransfer(None, arrival, restored, 1)  # type: ignore[arg-type]


# --- one destination --------------------------------------------------------------------------------------------------


def test_a_destination_is_suspected_after_two_losses_in_a_row() -> None:
    suspicion = Suspicion()
    assert suspicion.lost(MESSAGES[:5], NOW, has_failed=False) is Verdict.NOTHING
    assert suspicion.limit is None
    suspicion.answered()
    assert suspicion.lost(MESSAGES[:5], NOW, has_failed=False) is Verdict.NOTHING
    assert suspicion.limit is None
    assert suspicion.lost(MESSAGES[:5], NOW, has_failed=False) is Verdict.NOTHING
    assert suspicion.limit == 1


def test_each_answer_allows_a_larger_trial_until_one_of_a_hundred_ends_the_suspicion() -> None:
    suspicion, limits = suspected(), []
    while suspicion.limit is not None:
        limits.append(suspicion.limit)
        suspicion.answered()
    assert limits == [1, 4, 16, 64, 256]
    assert limits[-2] < ENOUGH <= limits[-1]


def test_a_destination_stays_suspected_while_something_is_to_be_sent_again() -> None:
    suspicion = suspected()
    for _ in range(10):
        suspicion.answered(has_more=True)
    assert suspicion.limit is not None


def test_a_loss_during_which_others_had_something_in_flight_says_nothing() -> None:
    suspicion = suspected()
    suspicion.is_alone = False
    assert suspicion.lost([FIRST], NOW, has_failed=True) is Verdict.NOTHING
    assert suspicion.not_before == 0.0


def test_a_batch_that_is_lost_alone_is_tried_in_halves_with_a_pause_for_the_others() -> None:
    suspicion = suspected()
    assert suspicion.lost(MESSAGES[:9], NOW, has_failed=False) is Verdict.BATCH
    assert (suspicion.limit, suspicion.not_before) == (4, NOW + BETWEEN_SUSPECTS)
    assert suspicion.lost(MESSAGES[:2], NOW, has_failed=False) is Verdict.BATCH
    assert suspicion.limit == 1


def test_two_single_messages_that_are_lost_without_an_answer_are_the_fault_of_the_destination() -> None:
    suspicion = suspected()
    assert suspicion.lost([FIRST], NOW, has_failed=False) is Verdict.MESSAGE
    assert suspicion.lost([SECOND], NOW, has_failed=False) is Verdict.DESTINATION
    assert suspicion.waiting == {}  # the message that was set aside was not the cause


def test_a_message_that_is_lost_alone_again_says_nothing_new_about_its_destination() -> None:  # S3
    """Otherwise one message that cuts the connection would make its destination back off, and hold up later ones."""
    suspicion = suspected()
    for _ in range(5):
        assert suspicion.lost([FIRST], NOW, has_failed=False) is Verdict.MESSAGE
        suspicion.allow_retry()


def test_a_message_that_has_waited_does_not_clear_a_destination_that_has_answered_nothing_since() -> None:  # S3
    suspicion = suspected()
    suspicion.lost([FIRST], NOW, has_failed=False)
    suspicion.allow_retry()
    assert suspicion.lost([SECOND], NOW, has_failed=False) is Verdict.DESTINATION


def test_a_link_that_cuts_the_connection_when_it_is_attached_is_the_fault_of_the_destination() -> None:
    assert suspected().lost([], NOW, has_failed=False) is Verdict.DESTINATION


def test_after_an_answer_the_first_three_messages_that_are_lost_alone_are_the_cause() -> None:  # S3
    suspicion = suspected()
    suspicion.answered()
    for key in (FIRST, SECOND, THIRD):
        assert suspicion.lost([key], NOW, has_failed=True) is Verdict.MESSAGE
    assert suspicion.waiting.keys() == {FIRST, SECOND, THIRD}


def test_a_destination_that_has_answered_backs_off_after_four_messages_that_are_lost_alone() -> None:  # S3
    """It may have begun to cut the connection since: it must not do so once for each of its messages."""
    suspicion = suspected()
    suspicion.answered()
    verdicts = [suspicion.lost([key], NOW, has_failed=False) for key in (FIRST, SECOND, THIRD, FOURTH)]
    assert verdicts == [Verdict.MESSAGE] * 3 + [Verdict.DESTINATION]
    assert suspicion.waiting.keys() == {FIRST, SECOND, THIRD}  # they are still likely to be the cause
    verdicts = [suspicion.lost([key], NOW, has_failed=False) for key in MESSAGES[4:6]]
    assert verdicts == [Verdict.MESSAGE, Verdict.DESTINATION]  # that answer is out of date
    assert suspicion.waiting.keys() == {FIRST, SECOND, THIRD}


def test_messages_that_have_waited_are_no_proof_against_their_destination_however_many_are_lost_again() -> None:  # S3
    suspicion = suspected()
    suspicion.answered()
    for key in (FIRST, SECOND, THIRD):
        suspicion.lost([key], NOW, has_failed=False)
    for key in (FIRST, SECOND, THIRD) * 2:
        suspicion.allow_retry()
        assert suspicion.lost([key], NOW, has_failed=False) is Verdict.MESSAGE


def test_a_message_that_has_waited_is_tried_with_one_message_at_a_time() -> None:  # S3
    working = Suspicion()
    working.allow_retry()
    assert working.limit == 1
    suspicion = suspected()
    suspicion.answered()
    suspicion.allow_retry()
    assert suspicion.limit == 1
    assert suspicion.first_of(10, failures=3) is None  # it has answered, and does not begin again


def test_an_answer_between_messages_that_are_lost_alone_clears_the_destination() -> None:  # S3
    suspicion = suspected()
    for key in MESSAGES:
        assert suspicion.lost([key], NOW, has_failed=False) is Verdict.MESSAGE
        suspicion.answered()


def test_an_answer_proves_that_the_messages_before_it_were_the_cause() -> None:
    suspicion = suspected()
    suspicion.lost([FIRST], NOW, has_failed=False)
    suspicion.answered()
    suspicion.suspect()
    assert suspicion.lost([], NOW, has_failed=False) is Verdict.DESTINATION
    assert suspicion.waiting.keys() == {FIRST}


def test_a_suspicion_begins_without_an_answer() -> None:
    """What the destination took long ago says nothing: it may be down by now."""
    suspicion = Suspicion()
    suspicion.answered()
    for _ in range(2):
        suspicion.lost([FIRST], NOW, has_failed=False)
    suspicion.is_alone = True
    suspicion.lost([FIRST], NOW, has_failed=False)
    assert suspicion.lost([SECOND], NOW, has_failed=False) is Verdict.DESTINATION


def test_a_message_that_cuts_the_connection_waits_twice_as_long_each_time_up_to_two_minutes() -> None:
    suspicion, waits = suspected(), []
    for _ in range(4):
        suspicion.lost([FIRST], NOW, has_failed=False)
        waits.append(suspicion.waiting[FIRST][0] - NOW)
    assert waits == [FIRST_WAIT, 2 * FIRST_WAIT, LONGEST_WAIT, LONGEST_WAIT]


def test_a_message_that_was_accepted_in_the_end_waits_no_more() -> None:
    """Otherwise each such message would stay in memory, and be tried alone if it ever came again."""
    destination, results = Destination("orders", PERMANENT), SendResults()
    transfer = transfer_of(FIRST)
    destination.suspicion.waiting = dict.fromkeys((FIRST, SECOND), (NOW, 1))
    destination._handle(Sent([transfer]), results, NOW)
    assert results.accepted == [transfer]
    assert destination.suspicion.waiting.keys() == {SECOND}


def test_a_message_that_is_too_large_to_be_sent_is_no_answer_of_its_destination() -> None:  # S3
    destination, results = Destination("orders", PERMANENT), SendResults()
    destination.suspicion.suspect()
    destination._handle(Sent([transfer_of(FIRST)], MessageTooLarge("too large")), results, NOW)
    assert destination.suspicion.limit == 1


def test_an_answer_that_came_before_a_loss_does_not_make_up_for_it() -> None:  # S3
    """Both are found in one check of the link. The next loss is the second one in a row, and not the third."""
    destination, results = Destination("orders", PERMANENT), SendResults()
    accepted, unknown = transfer_of(FIRST), transfer_of(SECOND)
    destination._sender = SimpleNamespace(  # type: ignore[assignment]
        awaits_answer_since=lambda: None,
        error=Interrupted(),
        results=deque((Sent([accepted]), Sent([unknown], Interrupted(), unknown=True))),
        state=LinkState.LOST,
        was_open=True,
        wire=SimpleNamespace(failure=Interrupted()),
    )
    destination.suspicion.lost([FIRST], NOW, has_failed=False)
    destination._collect(results, NOW)
    assert results.accepted == [accepted]
    assert destination.suspicion.limit is None  # the answer made up for the loss before it
    destination.suspicion.lost([SECOND], NOW, has_failed=False)
    assert destination.suspicion.limit == 1


# --- which message is tried first ------------------------------------------------------------------------------------


def test_a_destination_that_has_failed_before_is_suspected_at_the_first_lost_connection() -> None:  # S3
    suspicion = Suspicion()
    suspicion.lost(MESSAGES, NOW, has_failed=True)
    assert suspicion.limit == 1


def test_one_message_that_is_lost_alone_waits_although_its_destination_has_failed_before() -> None:  # S3
    suspicion = suspected()
    assert suspicion.lost([FIRST], NOW, has_failed=True) is Verdict.MESSAGE
    assert set(suspicion.waiting) == {FIRST}


def test_a_trial_goes_on_with_a_message_that_is_far_from_the_lost_one() -> None:  # S3
    suspicion = suspected()
    assert suspicion.first_of(10, failures=0) == 0
    suspicion.lost([FIRST], NOW, has_failed=False)
    assert suspicion.first_of(10, failures=0) == 6


def test_messages_beside_one_that_was_lost_alone_are_not_tried_next_although_the_destination_has_answered() -> (
    None
):  # S3
    """If five messages that cut the connection were next to each other, the destination would be blamed for them."""
    suspicion, tried = suspected(), []
    suspicion.answered()
    suspicion.lost(MESSAGES[:2], NOW, has_failed=False)
    for key in MESSAGES[:3]:
        suspicion.lost([key], NOW, has_failed=False)
        tried.append(suspicion.first_of(100, failures=0))
    assert tried == [61, 23, 85]


def test_however_many_messages_are_to_blame_each_one_is_tried_first_at_some_time() -> None:  # S3
    suspicion = suspected()
    assert {suspicion.first_of(7, failures) for failures in range(7)} == set(range(7))


def test_once_the_destination_has_answered_its_messages_are_tried_in_their_order() -> None:  # S3
    suspicion = suspected()
    suspicion.answered()
    suspicion.lost(MESSAGES[:2], NOW, has_failed=False)
    assert suspicion.limit == 1
    assert suspicion.first_of(10, failures=3) is None


def test_without_messages_there_is_none_to_try() -> None:
    assert suspected().first_of(0, failures=1) is None


# --- isolation --------------------------------------------------------------------------------------------------------


@dataclass
class Tried:
    """A destination, as far as isolation know it."""

    suspicion: Suspicion = field(default_factory=Suspicion)
    awaits_answer: bool = False
    links: bool = True

    def wants_isolation(self, now: float) -> bool:
        return self.suspicion.limit is not None and now >= self.suspicion.not_before

    def has_link(self) -> bool:
        return self.links


def suspect(links: bool = True) -> Tried:
    tried = Tried(links=links)
    tried.suspicion.suspect()
    return tried


def test_without_a_suspicion_all_may_send() -> None:
    isolation, others = Isolation(), [Tried(), Tried(awaits_answer=True)]
    assert all(map(isolation.may_send, others))
    isolation.begin_round(others, 5, NOW)
    assert all(map(isolation.may_send, others))
    assert not isolation.is_active


def test_a_trial_begins_when_nothing_else_awaits_answer_and_the_others_wait_for_it() -> None:
    isolation, tried, other = Isolation(), suspect(), Tried(awaits_answer=True)
    isolation.begin_round([tried, other], 5, NOW)
    assert (isolation.may_send(tried), isolation.may_send(other)) == (False, False)
    other.awaits_answer = False
    isolation.begin_round([tried, other], 5, NOW + 1)
    assert (isolation.may_send(tried), isolation.may_send(other)) == (True, False)
    assert tried.suspicion.is_alone


def test_a_trial_has_five_seconds_and_after_that_the_others_have_their_turn() -> None:
    isolation, tried, other = Isolation(), suspect(), Tried()
    isolation.begin_round([tried, other], 5, NOW)
    tried.awaits_answer = tried.suspicion.was_tried = True
    isolation.begin_round([tried, other], 5, NOW + ISOLATED_WITHIN)
    assert (isolation.is_active, isolation.may_send(other)) == (True, False)
    isolation.begin_round([tried, other], 5, NOW + ISOLATED_WITHIN + 0.1)
    assert (isolation.is_active, isolation.may_send(other)) == (False, True)
    assert tried.suspicion.not_before == NOW + 2 * ISOLATED_WITHIN + 0.1
    assert not tried.suspicion.is_alone


def test_a_trial_that_was_answered_is_over_and_the_next_one_begins_at_once() -> None:
    isolation, first, second = Isolation(), suspect(), suspect()
    isolation.begin_round([first, second], 5, NOW)
    assert (isolation.may_send(first), isolation.may_send(second)) == (True, False)
    first.suspicion.was_tried, first.suspicion.limit = True, None
    isolation.begin_round([first, second], 5, NOW)
    assert (isolation.may_send(first), isolation.may_send(second)) == (False, True)


def test_a_trial_waits_five_seconds_for_the_others_and_then_begins_beside_them() -> None:
    isolation, tried, slow = Isolation(), suspect(), Tried(awaits_answer=True)
    isolation.begin_round([tried, slow], 5, NOW)
    isolation.begin_round([tried, slow], 5, NOW + ISOLATED_WITHIN)
    assert not isolation.is_active
    isolation.begin_round([tried, slow], 5, NOW + ISOLATED_WITHIN + 0.1)
    assert isolation.may_send(tried)
    assert not tried.suspicion.is_alone  # so a loss would say nothing


def test_a_suspect_for_which_there_is_no_link_holds_up_no_other() -> None:
    isolation, tried, other = Isolation(), suspect(links=False), Tried()
    isolation.begin_round([tried, other], 0, NOW)
    assert (isolation.is_active, isolation.may_send(other)) == (False, True)
    isolation.begin_round([tried, other], 1, NOW)
    assert (isolation.is_active, isolation.may_send(other)) == (True, False)
