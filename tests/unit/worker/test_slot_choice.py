"""Which of several slots takes a queue that rings. Without Spark and without a network (D15)."""

from __future__ import annotations

from tests.unit.worker.test_dispatcher import FIRST, SECOND, THIRD, Scene


def test_a_queue_that_rings_goes_to_the_slot_that_is_not_saturated() -> None:  # S10
    scene = Scene()
    scene.rings(FIRST)
    scene.jobs[0].reports(is_saturated=True, busy=10)
    busy, idle = scene.jobs
    idle.reports()
    scene.rings(SECOND)
    assert (sorted(busy.orders), sorted(idle.orders)) == ([FIRST], [FIRST, SECOND])
    scene.rings(THIRD)  # although the saturated one has fewer queues
    assert (sorted(busy.orders), sorted(idle.orders)) == ([FIRST], [FIRST, SECOND, THIRD])
