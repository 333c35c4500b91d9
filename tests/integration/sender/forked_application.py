"""An application that forks while it has a pair: run by `test_fork`, because a test process has too many threads.

Arguments: `sync` or `aio`, and the connection strings of both namespaces. It exits with 0 if all was as it should be.
"""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from syphon.sender import PairOptions, UsedAfterFork, aio, pair

OPTIONS = PairOptions(backlog_queue_count=1, primary_name="contoso")


def in_child(work: Any) -> int:
    """Forks, does the work in the child, and returns the child's exit code in the parent."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def refuses(call: Any, *arguments: Any) -> None:
    with pytest.raises(UsedAfterFork) as caught:
        call(*arguments)
    assert str(os.getppid()) in str(caught.value)
    assert str(os.getpid()) in str(caught.value)


def refuses_to_say(client: Any) -> None:
    """The child sees nothing of what happens to the pair from now on."""
    refuses(lambda: client.state)
    refuses(lambda: client.failed_over)


def with_threads(primary: str, secondary: str) -> int:
    with pair(primary, secondary, OPTIONS) as client, client.get_queue_sender("orders") as sender:

        def child() -> None:
            refuses(sender.send_messages, ServiceBusMessage("not sent"))
            refuses(client.get_queue_sender, "orders")
            refuses_to_say(client)
            sender.close()
            client.close()
            with pair(primary, secondary, OPTIONS) as own, own.get_queue_sender("orders") as own_sender:
                own_sender.send_messages(ServiceBusMessage("child"))

        sender.send_messages(ServiceBusMessage("before"))
        with sender._turn:  # as if another thread were sending: in the child that lock is never released
            code = in_child(child)
        sender.send_messages(ServiceBusMessage("after"))
        return code


async def with_tasks(primary: str, secondary: str) -> int:
    async with aio.pair(primary, secondary, OPTIONS) as client, client.get_queue_sender("orders") as sender:

        def run(work: Any) -> None:
            """The child must not use the loop of its parent: here each call ends before it waits for anything."""
            try:
                work.send(None)
            except StopIteration:
                return
            raise AssertionError("the call waits for the loop of the parent")

        def child() -> None:
            refuses(run, sender.send_messages(ServiceBusMessage("not sent")))
            refuses(client.get_queue_sender, "orders")
            refuses_to_say(client)
            run(sender.close())
            run(client.close())
            asyncio._set_running_loop(None)
            asyncio.run(child_with_own_pair())

        async def child_with_own_pair() -> None:
            async with aio.pair(primary, secondary, OPTIONS) as own, own.get_queue_sender("orders") as own_sender:
                await own_sender.send_messages(ServiceBusMessage("child"))

        await sender.send_messages(ServiceBusMessage("before"))
        code = in_child(child)
        await sender.send_messages(ServiceBusMessage("after"))
        return code


if __name__ == "__main__":
    _, api, *sides = sys.argv
    sys.exit(with_threads(*sides) if api == "sync" else asyncio.run(with_tasks(*sides)))
