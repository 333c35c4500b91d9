"""Time limits on the uses of a link, one after another."""

from __future__ import annotations

import asyncio

import pytest

from syphon.sender.timeouts import Patience

HOUR = 3600.0


async def test_what_takes_too_long_is_broken_off() -> None:
    patience = Patience()
    with pytest.raises(TimeoutError), patience.of(0.01):
        await asyncio.Event().wait()
    await asyncio.sleep(0)  # the task goes on, and is not cancelled


async def test_a_timer_set_for_an_earlier_use_does_not_break_off_a_later_one() -> None:
    patience = Patience()
    with patience.of(0.01):
        pass
    rung = asyncio.Event()
    with patience.of(HOUR):
        asyncio.get_running_loop().call_later(0.05, rung.set)  # after the earlier timer
        await rung.wait()


async def test_a_shorter_use_is_broken_off_although_a_longer_one_came_before() -> None:
    patience = Patience()
    with patience.of(HOUR):
        pass
    with pytest.raises(TimeoutError), patience.of(0.01):
        await asyncio.Event().wait()


async def test_a_longer_use_after_a_short_one_is_broken_off_in_its_turn() -> None:
    patience = Patience()
    with patience.of(0.01):
        pass
    with pytest.raises(TimeoutError), patience.of(0.05):
        await asyncio.Event().wait()


async def test_ending_breaks_off_who_is_within_and_nobody_afterwards() -> None:
    patience = Patience()
    asyncio.get_running_loop().call_soon(patience.end)
    with pytest.raises(TimeoutError), patience.of(HOUR):
        await asyncio.Event().wait()
    patience.end()
    with patience.of(HOUR):
        await asyncio.sleep(0)


async def test_a_task_that_somebody_cancels_is_cancelled_and_not_out_of_time() -> None:
    patience = Patience()

    async def use() -> None:
        with patience.of(HOUR):
            await asyncio.Event().wait()

    task = asyncio.create_task(use())
    await asyncio.sleep(0)
    task.cancel()
    patience.end()
    with pytest.raises(asyncio.CancelledError):
        await task
