"""How many messages a doorbell receives: one after a ring, and a stuck one once in a lock period (S7)."""

from __future__ import annotations

from azure.servicebus import ServiceBusReceiveMode

from syphon.emulator import Kind, QueueDescription
from syphon.transfer.doorbell import BEFORE_THE_END
from syphon.transfer.peek_watch import LOCK, Ring
from tests.transfer.conftest import BACKLOG, ManualTimeNamespaces, aliased
from tests.transfer.test_peek_watch import WatchedQueue, watched, watching

__all__ = ["watched"]


def test_a_doorbell_that_has_read_many_stuck_messages_asks_for_one_message_after_a_ring(
    watched: WatchedQueue,
) -> None:  # S7
    """With the credit that it needed for the stuck ones it would receive many new ones, only to release them."""
    watched.fails("dead", seconds=600)
    watched.put(*["dead"] * 20)
    watched.bell.arm()
    watched.until(lambda: watched.bell.kept == 20)
    watched.put("news")
    watched.until(lambda: watched.rings == [Ring.MIXED])
    with watched.namespaces.client("contoso-dr").get_queue_receiver(
        BACKLOG, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
    ) as transfer:
        assert len(transfer.receive_messages(1, max_wait_time=20)) == 1
    watched.until(lambda: watched.namespaces.credit() == 0)
    watched.bell.arm()
    watched.until(lambda: watched.namespaces.credit() > 0)
    assert watched.namespaces.credit() == 1


def test_a_stuck_message_of_a_partitioned_queue_is_received_once_in_a_lock_period(
    manual: ManualTimeNamespaces,
) -> None:  # S7
    secondary = manual.secondary
    manual.emulator.call(lambda: secondary.delete(BACKLOG))
    manual.emulator.call(lambda: secondary.create_queue(QueueDescription(BACKLOG, enable_partitioning=True)))
    with watching(manual) as watched:
        watched.fails("dead", seconds=600)
        for key in range(4):
            manual.put(aliased("x", "dead", partition_key=f"{key}"))
        watched.bell.arm(browse=True)  # the first peek shows that the queue has partitions
        watched.until(lambda: watched.bell.kept == 4)
        for _ in range(2):
            received, polls = watched.count(Kind.RECEIVE), watched.bell.polls
            manual.advance(LOCK - BEFORE_THE_END)
            for _ in range(5):
                watched.turn()
            assert (watched.bell.kept, watched.bell.polls) == (0, polls + 1)  # the same messages would come again
            manual.advance(BEFORE_THE_END)
            watched.until(lambda: watched.bell.kept == 4)
            assert watched.count(Kind.RECEIVE) == received + 4
        assert watched.rings == []
