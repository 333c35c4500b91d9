"""Dead letters are put back between real namespaces; the real client checks the result."""

from __future__ import annotations

import pytest

from syphon.amqp import Decimal128, Map, Section, section_bytes
from syphon.backlog import LetterEdit
from syphon.backlog.dead_letters import DeadLetterFilter, dead_letter_path, read_dead_letters
from syphon.emulator import Action, Fault, Kind, Operation
from syphon.model import TimeToLive
from syphon.servicebus.queue_peek import peek
from syphon.transfer.dead_letter_replay import WINDOW, Replay, ReplayResult
from syphon.transfer.route import Route, route_to_backlog, route_to_destination
from tests.integration.operations.conftest import FIRST, Bench, aliased, received

ALL = DeadLetterFilter()


def replay(bench: Bench, route: Route, wanted: DeadLetterFilter = ALL, patience: float = 60.0) -> ReplayResult:
    with bench.connection() as source, bench.connection("contoso", "") as primary:
        chosen = {letter.sequence_number for letter in read_dead_letters(source, FIRST) if wanted.matches(letter)}
        return Replay(FIRST, chosen, source, primary, route, quiet=1.0, patience=patience).carry_out()


def back(bench: Bench) -> ReplayResult:
    """Puts dead letters into the backlog queue, over the connection that they are received on."""
    with bench.connection() as source:
        chosen = {letter.sequence_number for letter in read_dead_letters(source, FIRST)}
        return Replay(FIRST, chosen, source, source, route_to_backlog(FIRST), quiet=1.0).carry_out()


def restored_to(bench: Bench, path: str | None = None, allow: tuple[str, ...] = ("*",)) -> Route:
    return route_to_destination(bench.pair(allow=allow), TimeToLive.RESTORE, LetterEdit.of(path=path))


def test_back_in_the_backlog_a_message_is_what_it_was_before(bench: Bench) -> None:  # X4
    sent = aliased("hello", "orders", "m1", x_ms_sessionid="alice", colour="red")
    bench.bury(sent, reason="DestinationMissing", description="no orders")
    result = back(bench)
    assert (result.chosen, result.completed, result.left) == (1, 1, 0)
    (message,) = bench.take(FIRST, 1, "contoso-dr")
    assert (str(message), message.message_id, message.subject, message.correlation_id) == ("hello", "m1", "s", "c")
    own = {b"x-ms-path": b"orders", b"x-ms-sessionid": b"alice", b"colour": b"red"}
    assert message.application_properties == own
    assert message.dead_letter_source is None
    assert message.delivery_count == 0
    assert bench.counts() == (0, 0)


def test_bytes_that_no_client_could_send_pass_unchanged(bench: Bench) -> None:  # M2, X4
    sent = aliased("price", "orders", "m1", price=Decimal128(bytes(range(16)))) + section_bytes(Section.FOOTER, Map())
    bench.bury(sent, reason="r", description="d")
    assert back(bench).completed == 1
    with bench.connection() as connection:
        (message,) = peek(connection, FIRST)
    assert message.payload.endswith(sent)


def test_straight_to_the_destination_a_message_arrives_restored(bench: Bench) -> None:  # X4, M2
    bench.queue("sessions", requires_session=True)
    sent = [aliased(f"{i}", "sessions", f"m{i}", x_ms_sessionid="alice") for i in range(3)]
    bench.bury(*sent, reason="DestinationMissing")
    assert replay(bench, restored_to(bench)).completed == 3
    with bench.client("contoso").get_queue_receiver("sessions", session_id="alice") as receiver:
        arrived = received(receiver, 3)
        assert sorted(str(message.message_id) for message in arrived) == ["m0", "m1", "m2"]
        assert all(not message.application_properties for message in arrived)
    assert bench.counts() == (0, 0)


def test_a_message_can_be_given_the_destination_it_lacks(bench: Bench) -> None:  # M4, X4
    bench.queue("orders")
    bench.bury(aliased("whose?", None, "stray"), reason="NoDestination")
    result = replay(bench, restored_to(bench))
    assert (result.completed, result.left) == (0, 1)
    assert "x-ms-path is missing" in next(iter(result.why_left))
    assert replay(bench, restored_to(bench, "orders")).completed == 1
    assert [message.message_id for message in bench.take("orders", 1)] == ["stray"]


def test_the_operators_patterns_hold_for_a_replay_too(bench: Bench) -> None:  # D13
    bench.queue("secret")
    bench.bury(aliased("x", "secret"), reason="DestinationNotAllowed")
    result = replay(bench, restored_to(bench, allow=("orders",)))
    assert (result.completed, result.left) == (0, 1)
    assert "'secret'" in next(iter(result.why_left))
    assert bench.take("secret", 0) == []
    assert bench.counts() == (0, 1)


def test_only_chosen_dead_letters_are_put_back_and_the_others_can_be_received_at_once(bench: Bench) -> None:  # X4
    bench.queue("orders")
    bench.bury(*(aliased(f"a{i}", "orders") for i in range(20)), reason="MessageTooLarge")
    bench.bury(*(aliased(f"b{i}", "orders") for i in range(5)), reason="DestinationMissing")
    result = replay(bench, restored_to(bench), DeadLetterFilter(reason="*missing"))
    assert (result.chosen, result.completed, result.left) == (5, 5, 0)
    assert sorted(str(message) for message in bench.take("orders", 5)) == [f"b{i}" for i in range(5)]
    rest = bench.take(FIRST, 20, "contoso-dr", dead=True)
    assert sorted(str(message) for message in rest) == sorted(f"a{i}" for i in range(20))


def test_many_are_put_back_in_batches_each_once(bench: Bench) -> None:
    bench.queue("orders")
    bench.bury(*(aliased(f"{i}", "orders", f"m{i}") for i in range(1200)), reason="x")
    assert replay(bench, restored_to(bench)).completed == 1200
    assert bench.counts() == (0, 0)
    assert sorted(str(message.message_id) for message in bench.take("orders", 1200)) == sorted(
        f"m{i}" for i in range(1200)
    )


def test_a_missing_destination_leaves_its_dead_letters_and_the_others_arrive(bench: Bench) -> None:  # S3, S4
    bench.queue("orders")
    bench.bury(*(aliased(f"{i}", "orders" if i % 2 else "gone") for i in range(20)), reason="DestinationMissing")
    result = replay(bench, restored_to(bench))
    assert (result.chosen, result.completed, result.left) == (20, 10, 10)
    assert all("'gone'" in why for why in result.why_left)
    assert len(bench.take("orders", 10)) == 10
    assert bench.counts() == (0, 10)


def test_one_message_that_is_refused_does_not_hold_up_its_neighbours(bench: Bench) -> None:  # S3, S4
    bench.queue("sessions", requires_session=True)
    bench.bury(aliased("without a session", "sessions"), reason="x")
    bench.bury(*(aliased(f"{i}", "sessions", x_ms_sessionid="alice") for i in range(700)), reason="x")
    result = replay(bench, restored_to(bench))
    assert (result.chosen, result.completed, result.left) == (701, 700, 1)
    assert bench.counts() == (0, 1)


def test_a_replay_waits_for_a_destination_that_cannot_take_messages_yet(bench: Bench) -> None:  # S4
    bench.queue("orders")
    bench.bury(*(aliased(f"{i}", "orders") for i in range(3)), reason="x")
    silent = Fault(Action.ERROR, Operation.SEND, "orders", condition="com.microsoft:timeout", times=1)
    bench.emulator.call(lambda: bench.primary.faults.add(silent))
    result = replay(bench, restored_to(bench))
    assert silent.struck == 1
    assert (result.completed, result.left) == (3, 0)


def test_locks_are_kept_while_copies_are_in_flight(bench: Bench) -> None:  # S6
    queue = "contoso/x-servicebus-transfer/5"
    bench.queue(queue, "contoso-dr", lock_duration=5000)
    bench.queue("orders")
    bench.bury(*(aliased(f"{i}", "orders") for i in range(3)), reason="x", queue=queue)
    slow = Fault(Action.DELAY, Operation.SEND, "orders", seconds=6, times=1)
    bench.emulator.call(lambda: bench.primary.faults.add(slow))
    with bench.connection() as source, bench.connection("contoso", "") as primary:
        result = Replay(queue, {1, 2, 3}, source, primary, restored_to(bench), lock=5.0).carry_out()
    assert slow.struck == 1
    assert (result.completed, result.left, result.possible_duplicates) == (3, 0, 0)


def test_messages_for_a_destination_that_stays_full_are_left_and_not_lost(bench: Bench) -> None:  # S4
    bench.queue("orders")
    bench.bury(*(aliased(f"{i}", "orders") for i in range(3)), reason="x")
    full = Fault(Action.ERROR, Operation.SEND, "orders", condition="amqp:resource-limit-exceeded")
    bench.emulator.call(lambda: bench.primary.faults.add(full))
    result = replay(bench, restored_to(bench), patience=0.0)
    assert (result.completed, result.left) == (0, 3)
    assert "resource-limit-exceeded" in next(iter(result.why_left))
    assert bench.counts() == (0, 3)


def test_waiting_for_one_destination_does_not_end_the_search_for_the_rest(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:  # S3
    monkeypatch.setattr("syphon.transfer.dead_letter_replay.WINDOW", 2)
    for name in ("full", "orders"):
        bench.queue(name)
    bench.bury(*(aliased("x", "full") for _ in range(2)), *(aliased("y", "orders") for _ in range(3)), reason="x")
    full = Fault(Action.ERROR, Operation.SEND, "full", condition="amqp:resource-limit-exceeded")
    bench.emulator.call(lambda: bench.primary.faults.add(full))
    result = replay(
        bench, restored_to(bench), patience=1.5
    )  # longer than the second after which a queue counts as quiet
    assert (result.completed, result.left) == (3, 2)
    assert all("'full'" in why for why in result.why_left)


def test_a_dead_letter_is_completed_only_after_its_copy_was_accepted(bench: Bench) -> None:  # S2
    bench.queue("orders")
    bench.bury(aliased("x", "orders"), reason="x")
    cut = Fault(Action.DROP, Operation.SEND, "orders")
    bench.emulator.call(lambda: bench.primary.faults.add(cut))
    result = replay(bench, restored_to(bench))
    assert (result.chosen, result.completed, result.left, result.possible_duplicates) == (1, 0, 1, 1)
    settled = bench.emulator.call(lambda: bench.secondary.counters.of(dead_letter_path(FIRST), Kind.SETTLE))
    assert bench.counts() == (0, 1)
    assert settled == 1  # released, so that it can be received again at once
    assert len(bench.take(FIRST, 1, "contoso-dr", dead=True)) == 1


@pytest.mark.parametrize(("patience", "told"), [(60.0, (1, 0, 1)), (0.0, (0, 1, 1))])
def test_what_may_have_arrived_before_its_link_was_lost_is_a_possible_duplicate(  # D10
    bench: Bench, patience: float, told: tuple[int, int, int]
) -> None:
    bench.queue("orders")
    bench.bury(aliased("x", "orders", "m1"), reason="r", description="d")
    faults = [Fault(Action.DETACH, Operation.SEND, "orders", times=1)]
    if patience == 0.0:  # and then the destination takes it no more
        faults.append(Fault(Action.ERROR, Operation.SEND, "orders", condition="com.microsoft:server-busy"))
    for fault in faults:
        bench.emulator.call(lambda fault=fault: bench.primary.faults.add(fault))  # type: ignore[misc]
    result = replay(bench, restored_to(bench), patience=patience)
    assert (result.completed, result.left, result.possible_duplicates) == told


def test_a_lost_lock_is_reported_as_a_possible_duplicate(bench: Bench) -> None:  # S6
    bench.queue("orders")
    bench.bury(aliased("x", "orders"), reason="x")
    lost = Fault(Action.LOSE_LOCK, Operation.SETTLE, f"{FIRST}/*", times=1)
    bench.emulator.call(lambda: bench.secondary.faults.add(lost))
    result = replay(bench, restored_to(bench))
    assert (result.completed, result.left, result.possible_duplicates) == (1, 0, 1)
    assert len(bench.take("orders", 1)) == 1


def test_a_dead_letter_that_another_receiver_has_taken_is_reported_and_not_waited_for(bench: Bench) -> None:
    bench.bury(aliased("x", "orders"), reason="x")
    with bench.connection() as source:
        result = Replay(FIRST, {1, 99}, source, source, route_to_backlog(FIRST), quiet=1.0).carry_out()
    assert (result.chosen, result.completed, result.left) == (2, 1, 1)
    assert "not found" in next(iter(result.why_left))


def test_a_stopped_replay_leaves_the_messages_it_has_not_received(bench: Bench) -> None:
    bench.bury(*(aliased(f"{i}", "orders") for i in range(5)), reason="x")
    with bench.connection() as source:
        chosen = {letter.sequence_number for letter in read_dead_letters(source, FIRST)}
        replaying = Replay(FIRST, chosen, source, source, route_to_backlog(FIRST), quiet=1.0)
        replaying.stop()
        result = replaying.carry_out()
    assert (result.chosen, result.completed, result.left) == (5, 0, 5)
    assert bench.counts() == (0, 5)


def test_a_dead_letter_that_is_not_amqp_stays_with_the_reason(bench: Bench) -> None:
    bench.put(b"\x00\x53\x74\xff\xff", queue=dead_letter_path(FIRST))
    result = back(bench)
    assert (result.completed, result.left) == (0, 1)
    assert "not well-formed" in next(iter(result.why_left))
    assert bench.counts() == (0, 1)


def test_a_replay_that_is_stopped_finishes_the_messages_in_flight_and_releases_the_others(  # S2, X4
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syphon.transfer.dead_letter_replay.WINDOW", 5)
    bench.queue("orders")
    bench.bury(*(aliased(f"{i}", "orders") for i in range(40)), reason="x")
    with bench.connection() as source, bench.connection("contoso", "") as primary:
        replaying = Replay(FIRST, set(range(1, 41)), source, primary, restored_to(bench))

        def stop_at_the_first(result: ReplayResult) -> None:
            if result.completed:
                replaying.stop()

        result = replaying.carry_out(stop_at_the_first)
    assert 0 < result.completed < 40
    assert (result.completed + result.left, result.possible_duplicates) == (40, 0)
    assert list(result.why_left) == ["The replay was stopped before it came to this message."]
    assert len(bench.take("orders", result.completed)) == result.completed
    assert len(bench.take(FIRST, result.left, "contoso-dr", dead=True)) == result.left  # at once, not after a minute


def test_a_replay_ends_with_its_connection_and_says_so(bench: Bench) -> None:  # D10
    bench.queue("orders")
    bench.bury(*(aliased(f"{i}", "orders") for i in range(3)), reason="x")
    cut = Fault(Action.DROP, Operation.SETTLE, f"{FIRST}/*", times=1)
    bench.emulator.call(lambda: bench.secondary.faults.add(cut))
    with bench.connection() as source, bench.connection("contoso", "") as primary:
        result = Replay(FIRST, {1, 2, 3, 99}, source, primary, restored_to(bench), quiet=60.0).carry_out()
    assert cut.struck == 1
    assert (result.chosen, result.completed, result.left, result.possible_duplicates) == (4, 3, 1, 3)
    assert "was lost" in next(iter(result.why_left))
    assert len(bench.take("orders", 3)) == 3


def test_a_source_that_cannot_be_received_from_ends_the_replay(bench: Bench) -> None:
    bench.bury(aliased("x", "orders"), reason="x")
    busy = Fault(Action.ERROR, Operation.ATTACH, f"{FIRST}/*", condition="com.microsoft:server-busy")
    bench.emulator.call(lambda: bench.secondary.faults.add(busy))
    with bench.connection() as source:
        result = Replay(FIRST, {1}, source, source, route_to_backlog(FIRST), quiet=0.5, patience=1.0).carry_out()
    assert (result.chosen, result.completed, result.left) == (1, 0, 1)
    assert next(iter(result.why_left)).startswith("The dead letters could not be received: ")
    assert bench.counts() == (0, 1)


def test_a_replay_asks_for_no_more_once_it_has_found_all_that_were_chosen(bench: Bench) -> None:
    """The others would be locked for nothing, however long the chosen one waits for its destination."""
    bench.queue("orders")
    bench.bury(*(aliased(f"{i}", "orders") for i in range(1200)), reason="x")
    busy = Fault(Action.ERROR, Operation.SEND, "orders", condition="com.microsoft:timeout", times=1)
    bench.emulator.call(lambda: bench.primary.faults.add(busy))
    with bench.connection() as source, bench.connection("contoso", "") as target:
        (first, *_) = sorted(letter.sequence_number for letter in read_dead_letters(source, FIRST))
        replaying = Replay(FIRST, {first}, source, target, restored_to(bench), quiet=1.0)
        result = replaying.carry_out()
        assert (result.completed, result.left) == (1, 0)
        assert len(replaying._seen) <= WINDOW


def test_a_lost_connection_is_not_a_stop(bench: Bench) -> None:
    """The command goes on with the next queue, over new connections."""
    bench.queue("orders")
    bench.bury(aliased("x", "orders"), reason="x")
    cut = Fault(Action.DROP, Operation.SEND, "orders", times=1)
    bench.emulator.call(lambda: bench.primary.faults.add(cut))
    with bench.connection() as source, bench.connection("contoso", "") as target:
        chosen = {letter.sequence_number for letter in read_dead_letters(source, FIRST)}
        replaying = Replay(FIRST, chosen, source, target, restored_to(bench), quiet=1.0)
        result = replaying.carry_out()
    assert (result.completed, result.left, replaying.was_stopped) == (0, 1, False)
