"""What cuts the connection: a destination is blamed for two messages, and each try begins with others."""

from __future__ import annotations

from syphon.transfer.suspicion import BETWEEN_HALVES, LOSSES, Suspicion, Verdict

ONE = ("backlog", 1)


def on_trial() -> Suspicion:
    """A destination that is suspected, and tried alone."""
    suspicion = Suspicion()
    suspicion.suspect()
    suspicion.is_alone = True
    return suspicion


def test_one_lost_connection_is_no_reason_to_suspect_a_destination_that_works() -> None:  # S3
    suspicion = Suspicion()
    for _ in range(LOSSES):
        assert suspicion.limit is None
        assert suspicion.lost(10, 0.0, fails=False) is Verdict.NOTHING
    assert suspicion.limit == 1


def test_a_destination_that_has_failed_before_is_suspected_at_the_first_lost_connection() -> None:  # S3
    suspicion = Suspicion()
    suspicion.lost(10, 0.0, fails=True)
    assert suspicion.limit == 1


def test_one_message_that_is_lost_alone_waits_although_its_destination_has_failed_before() -> None:  # S3
    suspicion = on_trial()
    assert suspicion.lost(1, 0.0, fails=True) is Verdict.MESSAGE
    suspicion.set_aside(ONE, 0.0)
    assert set(suspicion.waiting) == {ONE}


def test_two_messages_that_are_lost_alone_make_the_destination_back_off() -> None:  # S3
    suspicion = on_trial()
    suspicion.lost(1, 0.0, fails=False)
    suspicion.set_aside(ONE, 0.0)
    assert suspicion.lost(1, BETWEEN_HALVES, fails=False) is Verdict.DESTINATION
    assert suspicion.waiting == {}


def test_a_trial_goes_on_with_a_message_that_is_far_from_the_lost_one() -> None:  # S3
    suspicion = on_trial()
    assert suspicion.first_of(10, failures=0) == 0
    suspicion.set_aside(ONE, 0.0)
    assert suspicion.first_of(9, failures=0) == 4


def test_however_many_messages_are_to_blame_each_one_is_tried_first_at_some_time() -> None:  # S3
    suspicion = on_trial()
    assert {suspicion.first_of(7, failures) for failures in range(7)} == set(range(7))


def test_once_the_destination_has_answered_its_messages_are_tried_in_their_order() -> None:  # S3
    suspicion = on_trial()
    suspicion.answered()
    suspicion.lost(2, 0.0, fails=False)
    assert suspicion.limit == 1
    assert suspicion.first_of(10, failures=3) is None


def test_without_messages_there_is_none_to_try() -> None:
    assert on_trial().first_of(0, failures=1) is None
