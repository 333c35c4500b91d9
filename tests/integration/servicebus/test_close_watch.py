"""The close of an SDK client is noticed, also of one that the application has made (C1)."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient
from azure.servicebus.aio import ServiceBusClient as AioServiceBusClient

from syphon.servicebus import CloseWatch, is_shut_down, watch_close

STRING = "Endpoint=sb://contoso.servicebus.windows.net;SharedAccessKeyName=n;SharedAccessKey=a2V5;"
SENDERS = 100


async def close(client: Any) -> None:
    closing = client.close()
    if closing is not None:
        await closing


@pytest.fixture(params=[ServiceBusClient, AioServiceBusClient], ids=["sync", "aio"])
def client(request: pytest.FixtureRequest) -> Any:
    return request.param.from_connection_string(STRING)


async def test_the_event_comes_before_any_sender_is_closed(client: Any) -> None:
    told: list[int] = []
    senders: list[Any] = []
    watch = watch_close(client, lambda: told.append(sum(map(is_shut_down, senders))))
    senders += [client.get_queue_sender(f"queue-{number}") for number in range(SENDERS)]
    await close(client)
    assert told == [0]
    assert all(map(is_shut_down, senders))
    del watch


async def test_a_watch_that_was_stopped_or_dropped_is_not_called(client: Any) -> None:
    told: list[str] = []
    stopped = watch_close(client, lambda: told.append("stopped"))
    watch_close(client, lambda: told.append("dropped"))
    gc.collect()
    stopped.stop()
    await close(client)
    assert told == []


async def test_a_watch_may_be_stopped_while_the_client_closes(client: Any) -> None:
    """The SDK goes through a set at that moment, and such a set must not change."""
    watches: list[CloseWatch] = []

    def stop_all() -> None:
        for watch in watches:
            watch.stop()

    watches += [watch_close(client, stop_all), watch_close(client, stop_all)]
    senders = [client.get_queue_sender(f"queue-{number}") for number in range(SENDERS)]
    await close(client)
    assert all(map(is_shut_down, senders))


async def test_several_pairs_may_watch_one_client(client: Any) -> None:
    told: list[int] = []
    watches = [watch_close(client, lambda number=number: told.append(number)) for number in range(5)]  # type: ignore[misc]
    await close(client)
    assert sorted(told) == list(range(len(watches)))
