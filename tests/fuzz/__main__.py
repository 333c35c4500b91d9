"""Fuzzes the parsers for a given time: `python -m tests.fuzz --minutes 10 [--seed 7]`.

Valid values, frames and messages of every kind, drawn once by hypothesis, are damaged at random and given to every
property of `targets`. A finding is printed with its bytes in hex. The process may take half a gigabyte more than it has
at the beginning, and no input may take a second: what grows without bound is a finding too.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import TypeVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis.strategies import SearchStrategy

from syphon.amqp import encode
from syphon.amqp.frames import Accepted, Disposition, Transfer
from syphon.backlog import to_backlog
from syphon.emulator.broker.message import BrokeredMessage
from tests.fuzz.targets import NOW, TARGETS
from tests.support.amqp_strategies import values
from tests.support.backlog_messages import Sent, sent

T = TypeVar("T")
DRAWN = 1500
ROOM = 512 * 1024 * 1024
LONGEST = 1.0
LIMIT = 65_536
PIECES = [
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x00\x00\x00\x00",
    b"\xff",
    b"\x00" * 80,
    b"\x00\x43" * 80,
    b"\x45" * 300,
    b"\xd0\x00\x00\x00\x05\xff\xff\xff\xff",
    b"\xf0\x00\x00\x00\x05\x00\xff\xff\xff\x40",
    b"\xc0\x02\x01" * 40,
    b"\xa1\x09x-ms-path\xa1\x06orders",
    b"\xa1\x0ex-ms-sessionid\xa1\x01s",
    b"\xa1\x0fx-ms-timetolive",
    b"\xa1\x1cx-ms-scheduledenqueuetimeutc",
    b"\xa1\x04PT1M",
    b"\xa1\x142026-02-30T00:00:00Z",
    b"\x00\x53\x74",
    b"\x00\xa3\x16com.microsoft:timespan\x81\x7f\xff\xff\xff\xff\xff\xff\xff",
    b"\x83\x80" + bytes(7),
]
"""Bytes that often break parsers: wrong sizes, nesting, the names of the aliases."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Damage valid AMQP at random and see what the code makes of it.")
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    options = parser.parse_args()
    return fuzz(options.minutes, options.seed)


def fuzz(minutes: float, seed: int) -> int:
    rng, found, runs = random.Random(seed), Counter[str](), 0
    print(f"seed {seed}", flush=True)
    corpus = valid(seed)
    _limit_memory()
    began = time.monotonic()
    while time.monotonic() - began < 60 * minutes:
        data = damaged(rng, corpus)
        for target in TARGETS:
            runs += 1
            started = time.process_time()
            try:
                target(data)
            except Exception as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                what = f"{target.__name__}: {type(error).__name__} in {where.name}, line {where.lineno}"
                _report(found, what, data, str(error))
            if time.process_time() - started > LONGEST:
                _report(found, f"{target.__name__}: slow", data)
    took, peak = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"seed {seed}: {runs:,} executions in {took:.0f} s, {len(found)} findings, peak memory {peak} MB")
    return 1 if found else 0


def _report(found: Counter[str], what: str, data: bytes, why: str = "") -> None:
    found[what] += 1
    if found[what] == 1:
        print(f"{what}: {why[:300]}\n    {data.hex()}", flush=True)


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def valid(seed: int) -> list[bytes]:
    """Values, frames and messages: plain, aliased, and as a broker delivers them."""
    found: list[bytes] = [
        Transfer(0, 7, b"t" * 16, 0).to_bytes() + b"\x00\x53\x75\xa0\x01x",
        Disposition(True, 7, 7, True, Accepted()).to_bytes(),
    ]
    found += [encode(value) for value in drawn(values, seed)]
    messages: list[Sent] = drawn(sent, seed)
    rng = random.Random(seed)
    some = drawn(values, seed + 1)
    for message in messages:
        aliased = to_backlog(message.payload, "orders")
        found += [message.payload, aliased]
        brokered = BrokeredMessage.parse(aliased)
        brokered.ordinal, brokered.enqueued_at, brokered.locked_until = 7, NOW - 5_000, NOW
        brokered.lock_token, brokered.delivery_count = b"t" * 16, 2
        found.append(brokered.to_bytes())
        found.append(by_hand(rng, [encode(value) for value in rng.sample(some, min(3, len(some)))]))
    return found


def by_hand(rng: random.Random, some: list[bytes]) -> bytes:
    """A message whose aliases have arbitrary values."""
    names = rng.sample(["x-ms-sessionid", "x-ms-timetolive", "x-ms-scheduledenqueuetimeutc"], len(some))
    pairs = [encode(name) + value for name, value in zip(names, some, strict=True) if rng.random() < 0.5]
    pairs.append(encode("x-ms-path") + (encode("orders") if rng.random() < 0.9 else rng.choice(some)))
    body = b"".join(pairs)
    size = (len(body) + 4).to_bytes(4, "big") + (2 * len(pairs)).to_bytes(4, "big")
    return b"\x00\x53\x74\xd1" + size + body + b"\x00\x53\x75\xb0\x00\x00\x00\x01x"


def drawn(strategy: SearchStrategy[T], seed: int) -> list[T]:
    found: list[T] = []

    @seeded(seed)
    @settings(
        max_examples=DRAWN,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def draw(one: T) -> None:
        found.append(one)

    draw()
    return found


def damaged(rng: random.Random, corpus: list[bytes]) -> bytes:
    data = bytearray(rng.choice(corpus))
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3, 8))):
        place, length = rng.randrange(len(data) + 1), rng.choice((1, 1, 2, 4, 8, 64))
        match rng.randrange(8):
            case 0:
                data[place : place + 1] = rng.randbytes(1)
            case 1:
                data[place : place + length] = rng.randbytes(length)
            case 2:
                del data[place : place + length]
            case 3:
                data[place:place] = data[place : place + length] * rng.choice((1, 2, 50))
            case 4:
                data[place:place] = rng.choice(PIECES)
            case 5:
                piece = rng.choice(PIECES)
                data[place : place + len(piece)] = piece
            case 6:  # the start of this one, the end of another
                other = rng.choice(corpus)
                data[place:] = other[rng.randrange(len(other) + 1) :]
            case _:
                if place < len(data):
                    data[place] = (data[place] + rng.choice((-1, 1))) % 256
    return bytes(data[:LIMIT])


if __name__ == "__main__":
    warnings.simplefilter("error")
    sys.exit(main())
