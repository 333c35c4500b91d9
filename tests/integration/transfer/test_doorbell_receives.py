"""How many messages a doorbell receives: one after a ring (S7)."""

from __future__ import annotations

from azure.servicebus import ServiceBusReceiveMode

from syphon.transfer.deferred_scan import Ring
from tests.integration.transfer.conftest import BACKLOG
from tests.integration.transfer.test_deferred_scan import WatchedQueue, watched

__all__ = ["watched"]


def test_a_doorbell_that_has_read_many_stuck_messages_asks_for_one_message_after_a_ring(
    watched: WatchedQueue,
) -> None:  # S7
    """With the credit that it needed for the stuck ones it would receive many new ones, only to release them."""
    watched.fails("dead", seconds=600)
    watched.put(*["dead"] * 20)
    watched.arm()
    assert watched.bell.waiting["dead"].messages == 20
    watched.put("news")
    watched.until(lambda: watched.rings == [Ring.NEW])
    with watched.namespaces.client("contoso-dr").get_queue_receiver(
        BACKLOG, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
    ) as transfer:
        assert len(transfer.receive_messages(1, max_wait_time=20)) == 1
    watched.until(lambda: watched.namespaces.credit() == 0)
    watched.bell.arm()
    watched.until(lambda: watched.namespaces.credit() > 0)
    assert watched.namespaces.credit() == 1
