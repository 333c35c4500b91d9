"""`make sim`: runs incidents from a seed on, and explains the first that fails a check."""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

from .incident import Kind
from .results import Record, run_recorded, table
from .run import explain, run_many


def main() -> int:
    parser = argparse.ArgumentParser(prog="make sim")
    parser.add_argument("--runs", type=int, help="how many incidents to run")
    parser.add_argument("--minutes", type=float, help="how long to run")
    parser.add_argument("--seed", type=int, help="the seed of the first incident; chosen at random if there is none")
    parser.add_argument("--no-shrinking", action="store_true", help="show a failed incident as it was")
    parser.add_argument("--results", type=Path, help="record the runs in this file, and go on where it ends")
    parser.add_argument("--processes", type=int, default=1, help="processes that run incidents, with --results")
    parser.add_argument("--ordered", action="store_true", help="run incidents whose sessions have an order")
    parser.add_argument("--ordered-sends", action="store_true", help="the same, from the senders on")
    parser.add_argument("--table", action="store_true", help="print what the file of --results holds, and run nothing")
    given = parser.parse_args()
    if given.table:
        if given.results is None:
            parser.error("--table needs --results: the file to read")
        print("\n".join(table(Record.read(given.results))))
        return 0
    seed = given.seed if given.seed is not None else 0 if given.results is not None else random.randrange(10**9)
    runs = given.runs if given.runs is not None or given.minutes is not None else 2000
    seconds = None if given.minutes is None else 60 * given.minutes
    print(f"from seed {seed}", flush=True)
    kind = Kind.ORDER if given.ordered else Kind.ORDER_OF_SENDS if given.ordered_sends else None
    began = time.monotonic()
    if given.results is not None:
        summary = run_recorded(given.results, seed, runs or 10**9, given.processes, seconds, kind)
    else:
        summary = run_many(seed, runs, seconds, kind=kind)
    took = time.monotonic() - began
    print(summary)
    print(f"{took:.1f} s, {60 * summary.runs / took:.0f} incidents a minute")
    for failed in list(summary.failed)[:3]:
        for line in explain(failed, not given.no_shrinking, kind):
            print(line)
        option = "" if kind is None else " --ordered" if kind is Kind.ORDER else " --ordered-sends"
        print(f"again: python -m tests.simulation --seed {failed} --runs 1{option}")
    return 1 if summary.failed else 0


if __name__ == "__main__":
    sys.exit(main())
