"""The timeout for one use of a link after another."""

from __future__ import annotations

import asyncio

import pytest

from syphon.sender.aio_links import ReusableTimeout

HOUR = 3600.0


async def test_a_use_that_takes_too_long_is_broken_off() -> None:
    timeout = ReusableTimeout()
    with pytest.raises(TimeoutError), timeout.limit(0.01):
        await asyncio.Event().wait()
    await asyncio.sleep(0)  # the task goes on, and is not cancelled


async def test_a_timer_set_for_an_earlier_use_does_not_break_off_a_later_one() -> None:
    timeout = ReusableTimeout()
    with timeout.limit(0.01):
        pass
    rung = asyncio.Event()
    with timeout.limit(HOUR):
        asyncio.get_running_loop().call_later(0.05, rung.set)  # after the earlier timer
        await rung.wait()


async def test_a_shorter_use_is_broken_off_although_a_longer_one_came_before() -> None:
    timeout = ReusableTimeout()
    with timeout.limit(HOUR):
        pass
    with pytest.raises(TimeoutError), timeout.limit(0.01):
        await asyncio.Event().wait()


async def test_a_longer_use_after_a_short_one_is_broken_off_in_its_turn() -> None:
    timeout = ReusableTimeout()
    with timeout.limit(0.01):
        pass
    with pytest.raises(TimeoutError), timeout.limit(0.05):
        await asyncio.Event().wait()


async def test_expiring_breaks_off_the_present_use_and_no_later_one() -> None:
    timeout = ReusableTimeout()
    asyncio.get_running_loop().call_soon(timeout.expire)
    with pytest.raises(TimeoutError), timeout.limit(HOUR):
        await asyncio.Event().wait()
    timeout.expire()
    with timeout.limit(HOUR):
        await asyncio.sleep(0)


async def test_a_task_that_other_code_cancels_is_cancelled_and_not_out_of_time() -> None:
    timeout = ReusableTimeout()

    async def use() -> None:
        with timeout.limit(HOUR):
            await asyncio.Event().wait()

    task = asyncio.create_task(use())
    await asyncio.sleep(0)
    task.cancel()
    timeout.expire()
    with pytest.raises(asyncio.CancelledError):
        await task
