"""What a pump has in hand is bounded in bytes, too: large messages do not fill the memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from bench.fill import fill
from bench.stage import QUEUE, distant, emulator

PROMISED = 120
"""Megabytes, for the whole process."""


def test_a_pump_of_large_messages_stays_within_its_memory() -> None:  # issue 3: ≤ 120 MB
    # The primary is far away: messages come faster than they can go, and would pile up.
    with emulator(8) as (primary, secondary), distant(primary, 500) as home:
        fill(secondary, QUEUE, 2000, 65_536, 8)
        done = subprocess.run(
            [sys.executable, "-m", "bench.loops", "pump", QUEUE, "2000"],
            env={**os.environ, "PRIMARY": home, "SECONDARY": secondary},
            capture_output=True, text=True, timeout=100, check=True,
        )  # fmt: skip
    result = json.loads(done.stdout)
    assert result["moved"] == 2000
    assert result["megabytes"] <= PROMISED
