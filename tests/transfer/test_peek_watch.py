"""What a queue costs while all that it holds is for destinations that back off: peeks, and no receives (S7, D16)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from syphon.bus.connection import Connection, wait_for_traffic
from syphon.emulator import Action, Fault, Kind, Operation, QueueDescription
from syphon.model import DestinationMissing, Renames
from syphon.transfer.destinations import DestinationBackoff
from syphon.transfer.doorbell import Doorbell
from syphon.transfer.peek_watch import LOCK, PERIOD, Ring
from syphon.worker.backoffs import Backoffs
from syphon.worker.pauses import Pause, Pauses
from tests.support.waiting import eventually
from tests.transfer.conftest import BACKLOG, ManualTimeNamespaces, aliased


class WatchedQueue:
    """A backlog queue with its doorbell, the back-offs of the worker, and a clock that the test moves."""

    def __init__(self, namespaces: ManualTimeNamespaces, connection: Connection) -> None:
        self.namespaces = namespaces
        self.connection = connection
        self.pauses = Pauses()
        self.backoffs = Backoffs("contoso", self.pauses, namespaces.now)
        self.bell = Doorbell(BACKLOG, namespaces.now, self.backoffs)
        self.rings: list[Ring] = []

    def fails(self, *paths: str, seconds: float = 30.0) -> None:
        """A slot has reported that destinations back off."""
        self.backoffs.learn(DestinationBackoff(path, seconds, "full", 1) for path in paths)

    def put(self, *paths: str) -> None:
        self.namespaces.put(*(aliased("x", path) for path in paths))

    def turn(self) -> None:
        ring = self.bell.listen(self.connection)
        if ring is not None:
            self.rings.append(ring)
        wait_for_traffic([self.connection.wire], 0.01)
        self.connection.read()

    def until(self, condition: Callable[[], bool]) -> None:
        def met() -> bool:
            self.turn()
            return condition()

        eventually(met)

    def rest(self) -> None:
        """Lets the doorbell do all that it can do before the clock moves on."""

        def rests() -> bool:
            peeker = self.bell._watch._peeker
            return not self.bell.is_armed or (peeker is not None and not peeker.is_waiting)

        self.until(rests)

    def advance(self, seconds: float) -> None:
        self.namespaces.advance(seconds)
        self.turn()
        self.rest()

    def browse(self) -> None:
        """A transfer has ended, and left messages."""
        self.bell.arm(browse=True)
        self.turn()
        self.rest()

    def count(self, kind: Kind) -> int:
        return self.namespaces.emulator.call(lambda: self.namespaces.secondary.counters.of(BACKLOG, kind))

    @property
    def receives(self) -> int:
        return self.count(Kind.RECEIVE) + self.count(Kind.EMPTY_RECEIVE)


@contextmanager
def watching(namespaces: ManualTimeNamespaces) -> Iterator[WatchedQueue]:
    connection = Connection(namespaces.client("contoso-dr"), BACKLOG, now=namespaces.now)
    queue = WatchedQueue(namespaces, connection)
    queue.bell.silence()  # a transfer is running
    try:
        yield queue
    finally:
        queue.bell.close()
        connection.close()


@pytest.fixture
def watched(manual: ManualTimeNamespaces) -> Iterator[WatchedQueue]:
    with watching(manual) as queue:
        yield queue


def test_a_thousand_messages_for_a_dead_destination_cost_no_receive_for_ten_minutes(
    watched: WatchedQueue,
) -> None:  # S7
    watched.put(*["dead"] * 1000)
    watched.fails("dead")
    watched.browse()
    assert watched.count(Kind.PEEK) == 1001  # each message once, and the end of the queue
    for _ in range(120):
        watched.advance(5)
        if not watched.bell.is_armed:  # a transfer tries the destination with one message, and fails
            watched.fails("dead")
            watched.browse()
    assert watched.rings == [Ring.TRY] * 6  # each failure doubles the pause: 30, 60, 120, 120 … seconds (S9)
    assert watched.receives == 0
    assert watched.count(Kind.PEEK) <= 1001 + 120
    assert watched.bell.waiting["dead"].messages == 1000


def test_a_newcomer_for_a_destination_that_works_rings_within_a_period(watched: WatchedQueue) -> None:  # S3
    watched.put("dead", "dead")
    watched.fails("dead", seconds=600)
    watched.browse()
    watched.put("dead")
    watched.advance(PERIOD)
    assert watched.rings == []  # a newcomer for the same destination changes nothing
    assert watched.bell.waiting["dead"].messages == 3
    watched.put("news")
    watched.advance(PERIOD)
    assert watched.rings == [Ring.MIXED]
    assert watched.receives == 0


def test_a_message_that_can_be_moved_before_all_others_is_new(watched: WatchedQueue) -> None:
    watched.put("news", "dead")
    watched.fails("dead")
    watched.browse()
    assert watched.rings == [Ring.NEW]
    watched.bell.arm(browse=True)  # the transfer has moved nothing: it is found again
    watched.turn()
    watched.rest()
    assert watched.rings == [Ring.NEW, Ring.NEW]


def test_a_try_rings_when_the_back_off_is_over_and_not_before(watched: WatchedQueue) -> None:  # S9
    watched.put("dead", "dead")
    watched.fails("dead", seconds=12)
    watched.browse()
    watched.advance(11)
    assert watched.rings == []
    watched.advance(1)
    assert watched.rings == [Ring.TRY]


def test_the_end_of_a_pause_rings(watched: WatchedQueue) -> None:  # D16
    pause = Pause(pair="contoso", destination="held")
    watched.pauses.add([pause])
    watched.put("held")
    watched.browse()
    watched.advance(3600)
    assert watched.rings == []
    watched.pauses.end([pause])
    watched.turn()
    assert watched.rings == [Ring.TRY]


def test_after_a_failed_try_it_goes_on_where_it_was(watched: WatchedQueue) -> None:
    watched.put(*["dead"] * 300)
    watched.fails("dead")
    watched.browse()
    peeks = watched.count(Kind.PEEK)
    watched.advance(30)
    watched.fails("dead")
    watched.browse()
    assert watched.rings == [Ring.TRY]
    assert watched.count(Kind.PEEK) <= peeks + 2
    watched.put("news")
    watched.advance(PERIOD)
    assert watched.rings == [Ring.TRY, Ring.MIXED]


def test_with_two_dead_destinations_all_messages_are_read_once_in_a_lock_period(watched: WatchedQueue) -> None:  # S3
    """One message cannot show whether a destination works again if the next message may be for another one."""
    watched.put("dead", "gone", "dead", "gone")
    watched.fails("dead", "gone", seconds=10)
    watched.browse()
    for _ in range(4 * int(LOCK)):
        watched.advance(1)
        if not watched.bell.is_armed:
            watched.fails("dead", "gone", seconds=10)
            watched.browse()
    assert watched.rings == [Ring.MIXED] * 4
    assert watched.receives == 0


def test_a_destination_that_works_again_is_forgotten_and_the_other_is_tried_alone(watched: WatchedQueue) -> None:
    watched.put("dead", "gone")
    watched.fails("dead", seconds=600)
    watched.fails("gone", seconds=10)
    watched.browse()
    watched.advance(10)
    assert watched.rings == [Ring.MIXED]
    line = watched.namespaces.secondary.message_queue(BACKLOG)
    receiver = watched.namespaces.client("contoso-dr").get_queue_receiver(BACKLOG)
    with receiver:
        first, second = receiver.receive_messages(2, max_wait_time=20)
        receiver.complete_message(second)  # the transfer has moved the one for "gone"
        receiver.abandon_message(first)
    assert watched.namespaces.emulator.call(lambda: len(line.peek(0, 10))) == 1
    watched.browse()
    assert set(watched.bell.waiting) == {"dead"}
    watched.advance(590)
    assert watched.rings == [Ring.MIXED, Ring.TRY]


def test_a_deep_queue_is_read_in_pages(watched: WatchedQueue) -> None:
    watched.put(*["dead"] * 2000)
    watched.fails("dead")
    asked = watched.namespaces.fault(Fault(Action.DELAY, Operation.MANAGE, BACKLOG, seconds=0), "contoso-dr")
    largest = 0
    read = watched.bell._watch._read

    def reading(page: list) -> Ring | None:  # type: ignore[type-arg]
        nonlocal largest
        largest = max(largest, len(page))
        return read(page)

    watched.bell._watch._read = reading  # type: ignore[method-assign]
    watched.browse()
    assert watched.bell.waiting["dead"].messages == 2000
    assert largest == 250
    assert asked.struck <= 11


def test_a_throttled_namespace_is_left_alone_for_ten_seconds(watched: WatchedQueue) -> None:  # S5
    watched.put("dead")
    watched.fails("dead", seconds=600)
    busy = Fault(Action.ERROR, Operation.MANAGE, BACKLOG, condition="com.microsoft:server-busy", times=1)
    watched.namespaces.fault(busy, "contoso-dr")
    watched.browse()
    assert busy.struck == 1
    watched.advance(9)
    assert (watched.count(Kind.PEEK), watched.bell.waiting) == (0, {})
    watched.advance(1)
    assert watched.bell.waiting["dead"].messages == 1


def test_a_link_that_is_lost_is_opened_again_and_nothing_is_read_twice(watched: WatchedQueue) -> None:
    watched.put("dead", "dead")
    watched.fails("dead", seconds=600)
    watched.browse()
    peeker = watched.bell._watch._peeker
    assert peeker is not None
    assert peeker._link is not None
    peeker._link.close()
    watched.put("news")
    watched.advance(PERIOD)
    assert watched.rings == [Ring.MIXED]
    assert watched.bell.waiting == {}  # it is silent: a transfer knows more
    assert watched.bell._watch.waiting["dead"].messages == 2


def test_after_a_rename_the_messages_that_were_looked_at_are_looked_at_again(watched: WatchedQueue) -> None:  # S3
    watched.put("dead", "dead")
    watched.fails("dead", seconds=600)
    watched.browse()
    watched.backoffs.renames = Renames.of({"dead": "orders"})
    watched.bell.look_again()
    watched.turn()
    watched.rest()
    assert watched.rings == [Ring.NEW]


def test_after_a_rename_messages_that_are_kept_under_their_locks_are_looked_at_again(watched: WatchedQueue) -> None:
    watched.put("dead", "dead")
    watched.fails("dead", seconds=600)
    watched.bell.arm()
    watched.until(lambda: watched.bell.kept == 2)
    watched.backoffs.renames = Renames.of({"dead": "orders"})
    watched.bell.look_again()
    watched.until(lambda: watched.rings == [Ring.NEW])
    assert watched.bell.kept == 0


def test_a_queue_that_was_deleted_is_read_from_its_start_when_it_is_there_again(watched: WatchedQueue) -> None:
    watched.put("dead", "dead")
    watched.fails("dead", seconds=600)
    watched.browse()
    secondary, emulator = watched.namespaces.secondary, watched.namespaces.emulator
    emulator.call(lambda: secondary.delete(BACKLOG))
    watched.namespaces.advance(PERIOD)
    with pytest.raises(DestinationMissing):
        watched.until(lambda: False)
    emulator.call(lambda: secondary.create_queue(QueueDescription(BACKLOG)))
    watched.put("news")  # its number is the first one again
    watched.advance(PERIOD)
    assert watched.rings == [Ring.NEW]


def test_a_locked_message_does_not_ring_again_and_again_after_a_transfer_that_received_nothing(
    watched: WatchedQueue,
) -> None:
    watched.put("news")
    with watched.namespaces.client("contoso-dr").get_queue_receiver(BACKLOG) as killed:
        (_,) = killed.receive_messages(1, max_wait_time=20)
        watched.browse()
        assert watched.rings == [Ring.NEW]
        watched.bell.arm(browse=False)
        watched.until(lambda: watched.namespaces.credit() == 1)
        watched.namespaces.advance(LOCK - 1)
        watched.turn()
        assert watched.rings == [Ring.NEW]
        watched.namespaces.advance(1)
        watched.until(lambda: watched.rings == [Ring.NEW, Ring.NEW])


def test_a_partitioned_queue_is_received_from_because_its_numbers_are_in_no_order(
    manual: ManualTimeNamespaces,
) -> None:
    secondary = manual.secondary
    manual.emulator.call(lambda: secondary.delete(BACKLOG))
    manual.emulator.call(lambda: secondary.create_queue(QueueDescription(BACKLOG, enable_partitioning=True)))
    with watching(manual) as watched:
        watched.fails("dead", seconds=600)
        for key in range(20):
            manual.put(aliased("x", "dead", partition_key=f"{key}"))
        watched.bell.arm(browse=True)
        watched.until(lambda: watched.bell.kept == 20)
        assert not watched.bell.is_peeking
        watched.bell.arm(browse=True)
        assert not watched.bell.is_peeking
