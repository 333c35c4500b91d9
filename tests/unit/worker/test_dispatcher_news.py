"""What wakes the thread that turns the dispatcher: it must not sleep over news. Without Spark and without a network."""

from __future__ import annotations

from syphon.transfer import Ring
from tests.unit.worker.test_dispatcher import FIRST, Scene


def test_a_ring_wakes_the_dispatcher_at_once() -> None:  # S10
    scene = Scene()
    assert not scene.dispatcher.news.is_set()
    scene.dispatcher.ring(FIRST, Ring.NEW)
    assert scene.dispatcher.news.is_set()
    scene.dispatcher.turn()
    assert not scene.dispatcher.news.is_set()


def test_other_settings_wake_the_dispatcher_at_once() -> None:
    scene = Scene()
    scene.dispatcher.renew()
    assert scene.dispatcher.news.is_set()


def test_the_end_of_a_job_wakes_the_dispatcher_at_once() -> None:  # S10
    scene = Scene()
    scene.rings(FIRST)
    (job,) = scene.jobs
    woken = []
    turn = scene.dispatcher.turn
    scene.dispatcher.turn = lambda: woken.append(scene.dispatcher.news.is_set())  # type: ignore[method-assign]
    job.ends()
    assert woken == [True]
    turn()
    assert not scene.dispatcher.is_working
