"""Runs random scenarios for a given time: `python -m tests.faults.soak --minutes 60 [--seed 7]`.

The seed decides which scenarios run, how each ends, and when its fault happens: the same seed repeats the same rounds.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.faults.scenario import Ending, run_scenario
from tests.faults.table import ALL
from tests.support.processes import hear_signals


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs random fault scenarios, one after another.")
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    options = parser.parse_args()
    hear_signals()  # `nohup make soak &` would make it deaf to those that scenarios send
    return soak(options.minutes, options.seed)


def soak(minutes: float, seed: int) -> int:
    rng, began, sums = random.Random(seed), time.monotonic(), Counter[str]()
    print(f"seed {seed}", flush=True)
    while time.monotonic() - began < 60 * minutes:
        kind, ending, round_seed = rng.choice(ALL), rng.choice(list(Ending)), rng.randrange(1_000_000)
        sums["rounds"] += 1
        title = f"round {sums['rounds']}: {kind.name()}, {ending}, seed {round_seed}"
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="syphon-soak-") as folder:
            try:
                verdict = run_scenario(kind, ending, round_seed, Path(folder))
            except AssertionError as error:
                print(f"{title}: FAILED\n{error}", flush=True)
                sums["failed"] += 1
                continue
        print(f"{title}: {verdict}; {time.monotonic() - started:.0f} s", flush=True)
        sums.update(acknowledged=verdict.acknowledged, duplicates=verdict.duplicates)
    print(
        f"seed {seed}: {sums['rounds']} rounds, {sums['failed']} of them failed; in the others {sums['acknowledged']} "
        f"messages were acknowledged and accounted for, {sums['duplicates']} came twice"
    )
    return 1 if sums["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
