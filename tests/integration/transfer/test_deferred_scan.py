"""What messages for unavailable destinations cost in a queue: one receive each, and few peeks (S7, D16)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from syphon.emulator import Action, Fault, Kind, Operation, QueueDescription
from syphon.model import DestinationMissing, Renames
from syphon.servicebus import MessageState
from syphon.servicebus.clocks_and_threads import wait_for_traffic
from syphon.servicebus.connection import Connection
from syphon.time_budget import LOCK_DURATION, PEEK_ALL_EVERY
from syphon.transfer.deferred_scan import Ring
from syphon.transfer.destinations import DestinationBackoff
from syphon.transfer.doorbell import Doorbell
from syphon.worker.pausable_gate import PausableGate
from syphon.worker.pauses import Pause, Pauses
from tests.integration.transfer.conftest import BACKLOG, ManualTimeNamespaces, aliased
from tests.support.waiting import eventually


class WatchedQueue:
    """A backlog queue with its doorbell, the back-offs of the worker, and a clock that the test moves."""

    def __init__(self, namespaces: ManualTimeNamespaces, connection: Connection) -> None:
        self.namespaces = namespaces
        self.connection = connection
        self.pauses = Pauses()
        self.backoffs = PausableGate("contoso", self.pauses, namespaces.now)
        self.bell = Doorbell(BACKLOG, namespaces.now, self.backoffs)
        self.rings: list[Ring] = []

    def fails(self, *paths: str, seconds: float = 30.0) -> None:
        """A slot has reported that destinations back off."""
        self.backoffs.record(DestinationBackoff(path, seconds, "full", 1) for path in paths)

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
        self.until(lambda: not self.bell.is_armed or (not self.bell._scan.is_scanning and self.namespaces.credit() > 0))
        self.until(lambda: not self.bell.is_armed or MessageState.ACTIVE not in self.states())

    def advance(self, seconds: float) -> None:
        self.namespaces.advance(seconds)
        self.turn()
        self.rest()

    def arm(self, scan: bool = True) -> None:
        """A transfer has ended."""
        self.bell.arm(scan)
        self.turn()
        self.rest()

    def states(self) -> list[int]:
        line = self.namespaces.secondary.message_queue(BACKLOG)
        return self.namespaces.emulator.call(lambda: [int(message.state) for message in line.peek(0, 10_000)])

    def defer(self, *paths: str) -> None:
        """Puts messages into the queue, and defers them, as a pump does. The doorbell is silent meanwhile."""
        self.bell.silence()
        self.until(lambda: self.namespaces.credit() == 0)
        self.put(*paths)
        with self.namespaces.client("contoso-dr").get_queue_receiver(BACKLOG) as receiver:
            left = len(paths)
            while left:
                for message in receiver.receive_messages(left, max_wait_time=20):
                    receiver.defer_message(message)
                    left -= 1

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


def is_peeking(watched: WatchedQueue) -> bool:
    peeker = watched.bell._scan._peeker
    return peeker is not None and peeker.is_waiting


def test_a_thousand_messages_for_a_dead_destination_are_received_once_in_ten_minutes(
    watched: WatchedQueue,
) -> None:  # S7
    watched.put(*["dead"] * 1000)
    watched.fails("dead")
    watched.arm()
    for _ in range(120):
        watched.advance(5)
        if not watched.bell.is_armed:  # a transfer pings the destination, and fails
            watched.fails("dead")
            watched.arm(scan=False)
    assert watched.rings == [Ring.DEFERRED] * 6  # each failure doubles the pause: 30, 60, 120, 120 … seconds (S9)
    assert watched.count(Kind.RECEIVE) == 1000
    assert watched.count(Kind.PEEK) <= 1001
    assert watched.bell.waiting["dead"].messages == 1000


def test_a_message_behind_those_of_dead_destinations_rings_at_once(watched: WatchedQueue) -> None:  # S3
    watched.put("dead", "gone")
    watched.fails("dead", "gone", seconds=600)
    watched.arm()
    watched.put("dead")
    watched.until(lambda: watched.bell.waiting["dead"].messages == 2)
    assert watched.rings == []
    watched.put("news")
    watched.until(lambda: watched.rings == [Ring.NEW])
    assert watched.count(Kind.RECEIVE) == 4


def test_deferred_messages_are_found_when_the_worker_starts(watched: WatchedQueue) -> None:  # X2
    watched.defer("orders")
    watched.arm()
    assert watched.rings == [Ring.DEFERRED]
    assert set(watched.bell.waiting) == {"orders"}


def test_those_that_a_transfer_has_deferred_are_found_without_reading_the_others_again(watched: WatchedQueue) -> None:
    watched.defer(*["dead"] * 300)
    watched.fails("dead", "gone", seconds=600)
    watched.arm()
    peeks = watched.count(Kind.PEEK)
    watched.defer("gone")
    watched.arm()
    assert {key: found.messages for key, found in watched.bell.waiting.items()} == {"dead": 300, "gone": 1}
    assert watched.count(Kind.PEEK) <= peeks + 2


def test_what_a_transfer_defers_after_a_scan_has_passed_it_rings_after_the_back_off(watched: WatchedQueue) -> None:
    watched.put("dead", "news")
    watched.fails("dead", seconds=30)
    watched.bell.arm(True)
    watched.until(lambda: watched.rings == [Ring.NEW])
    with watched.namespaces.client("contoso-dr").get_queue_receiver(BACKLOG) as transfer:
        for settle in (transfer.defer_message, transfer.complete_message):
            (message,) = transfer.receive_messages(1, max_wait_time=20)
            settle(message)
    watched.arm()
    watched.advance(30)
    assert watched.rings == [Ring.NEW, Ring.DEFERRED]


def test_a_destination_with_deferred_messages_gets_no_ring_for_each_new_one(watched: WatchedQueue) -> None:  # S7
    """Its back-off is over, and a ping will show whether it is available: the new message would be received twice."""
    watched.defer("dead")
    watched.fails("dead", seconds=10)
    watched.arm()
    watched.put("dead")
    watched.until(lambda: watched.bell.waiting["dead"].messages == 2)
    watched.namespaces.advance(10)
    watched.until(lambda: watched.rings == [Ring.DEFERRED])


def test_it_rings_when_the_back_off_is_over_and_not_before(watched: WatchedQueue) -> None:  # S9
    watched.put("dead", "dead")
    watched.fails("dead", seconds=12)
    watched.arm()
    watched.advance(11)
    assert watched.rings == []
    watched.advance(1)
    assert watched.rings == [Ring.DEFERRED]


def test_the_end_of_a_pause_rings(watched: WatchedQueue) -> None:  # D16
    pause = Pause(pair="contoso", destination="held")
    watched.pauses.add([pause])
    watched.put("held")
    watched.arm()
    watched.advance(3600)
    assert watched.rings == []
    watched.pauses.end([pause])
    watched.turn()
    assert watched.rings == [Ring.DEFERRED]


def test_after_a_transfer_a_destination_that_is_available_counts_as_emptied_and_is_looked_for_once(
    watched: WatchedQueue,
) -> None:
    """Some of its messages may have been locked by a slot that was killed."""
    watched.defer("back", "dead")
    watched.fails("dead", seconds=3600)
    watched.fails("back", seconds=10)
    watched.arm()
    watched.advance(10)
    watched.backoffs.forget("back")
    watched.arm(scan=False)
    assert (watched.rings, set(watched.bell.waiting)) == ([Ring.DEFERRED], {"dead"})
    watched.namespaces.advance(LOCK_DURATION)
    watched.until(lambda: watched.rings == [Ring.DEFERRED] * 2)


def test_what_somebody_else_has_deferred_is_found_after_some_hours(watched: WatchedQueue) -> None:
    watched.arm()
    watched.defer("orders")
    watched.arm(scan=False)
    assert watched.rings == []
    watched.namespaces.advance(PEEK_ALL_EVERY)
    watched.until(lambda: watched.rings == [Ring.DEFERRED])


def test_a_deep_queue_is_read_in_pages(watched: WatchedQueue) -> None:
    watched.defer(*["dead"] * 600)
    watched.fails("dead")
    asked = watched.namespaces.fault(Fault(Action.DELAY, Operation.MANAGE, BACKLOG, seconds=0), "contoso-dr")
    watched.arm()
    assert watched.bell.waiting["dead"].messages == 600
    assert asked.struck == 5  # 32, 250, 250, 68 and none


def test_a_throttled_namespace_is_left_alone_for_ten_seconds(watched: WatchedQueue) -> None:  # S5
    watched.defer("dead")
    watched.fails("dead", seconds=600)
    busy = Fault(Action.ERROR, Operation.MANAGE, BACKLOG, condition="com.microsoft:server-busy", times=1)
    watched.namespaces.fault(busy, "contoso-dr")
    watched.bell.arm(True)
    watched.until(lambda: busy.struck == 1 and not is_peeking(watched))
    watched.namespaces.advance(9)
    watched.turn()
    assert (watched.count(Kind.PEEK), watched.bell.waiting) == (0, {})
    watched.advance(1)
    assert watched.bell.waiting["dead"].messages == 1


def test_after_a_rename_the_messages_that_were_read_are_read_again(watched: WatchedQueue) -> None:  # S3
    watched.put("dead", "dead")
    watched.fails("dead", seconds=600)
    watched.arm()
    watched.backoffs.renames = Renames.of({"dead": "orders"})
    watched.bell.rescan()
    watched.until(lambda: watched.rings == [Ring.DEFERRED])


def test_a_queue_that_was_deleted_and_created_again_is_read_from_its_start(watched: WatchedQueue) -> None:
    watched.defer("dead", "dead")
    watched.fails("dead", seconds=600)
    watched.arm()
    secondary, emulator = watched.namespaces.secondary, watched.namespaces.emulator
    emulator.call(lambda: secondary.delete(BACKLOG))
    watched.bell.arm(True)
    with pytest.raises(DestinationMissing):
        watched.until(lambda: False)
    with pytest.raises(DestinationMissing):  # the link, and then the peek
        watched.until(lambda: False)
    emulator.call(lambda: secondary.create_queue(QueueDescription(BACKLOG)))
    watched.put("news")  # its number is the first one again
    watched.until(lambda: watched.rings == [Ring.NEW])


def test_a_locked_message_does_not_ring_again_and_again_after_a_transfer_that_received_nothing(
    watched: WatchedQueue,
) -> None:
    watched.put("news")
    with watched.namespaces.client("contoso-dr").get_queue_receiver(BACKLOG) as killed:
        (_,) = killed.receive_messages(1, max_wait_time=20)
        watched.bell.arm(True)
        watched.until(lambda: watched.rings == [Ring.NEW])
        watched.bell.arm(False)
        watched.until(lambda: watched.namespaces.credit() == 1)
        watched.namespaces.advance(LOCK_DURATION - 1)
        watched.turn()
        assert watched.rings == [Ring.NEW]
        watched.namespaces.advance(1)
        watched.until(lambda: watched.rings == [Ring.NEW, Ring.NEW])


def test_the_deferred_messages_of_a_partitioned_queue_are_each_counted_once(manual: ManualTimeNamespaces) -> None:
    """Its numbers are in no order, and a peek may show a message twice."""
    secondary = manual.secondary
    manual.emulator.call(lambda: secondary.delete(BACKLOG))
    manual.emulator.call(lambda: secondary.create_queue(QueueDescription(BACKLOG, enable_partitioning=True)))
    with watching(manual) as watched:
        watched.fails("dead", seconds=600)
        for key in range(40):
            manual.put(aliased("x", "dead", partition_key=f"{key}"))
        watched.arm()
        assert watched.count(Kind.RECEIVE) == 40
        for _ in range(2):
            watched.arm()
            assert watched.bell.waiting["dead"].messages == 40
