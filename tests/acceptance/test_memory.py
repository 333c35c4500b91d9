"""Messages in flight are bounded in bytes, too: large messages do not fill the memory."""

from __future__ import annotations

from bench.fill import fill
from bench.stage import QUEUE, distant, emulator, run
from bench.task import Task
from bench.workloads import Workload

PROMISED = 120
"""Megabytes, for the whole process."""
LARGE = Workload("large", {"pump": 2000}, size=65_536)


def test_a_pump_of_large_messages_stays_within_its_memory() -> None:  # 120 MB
    # The primary is far away: messages come faster than they can go, and would pile up.
    with emulator([f"d{number}" for number in range(8)]) as place, distant(place.primary, 500) as home:
        fill(place.secondary, QUEUE, 2000, LARGE.size, LARGE.destination)
        taken = run("pump", Task(home, place.secondary, place.secondary_http, [QUEUE], 2000, 2000))
    assert taken.moved == 2000
    assert taken.megabytes <= PROMISED
