"""The order of sessions while workers are killed, drains run beside them, and the emulator is restarted (X10, D21)."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from syphon.amqp import Message
from tests.faults.checker import check
from tests.faults.environment import PRIMARY, Site, site
from tests.faults.messages import ORDERS, plain
from tests.faults.scenario import kill
from tests.support.waiting import eventually

MESSAGES, SESSIONS, QUEUES = 20_000, 50, 10
RATE, KILLED_AFTER = 400, 3_000
"""Messages per second, and after how many a worker is killed: about ten seconds after its start."""
BESIDE = 20
"""Messages per second of the drain beside the workers: if it were fast, nothing would be left for the last one."""


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_sessions_keep_their_order_through_kills_drains_and_a_restart(tmp_path: Path) -> None:  # X10, D21
    with site(tmp_path, durable=True, queues=QUEUES) as place:
        inputs = [plain(number, ORDERS, session=f"s{number % SESSIONS}") for number in range(MESSAGES)]
        for index, queue in enumerate(place.backlog_names):
            place.load([each for number, each in enumerate(inputs) if number % QUEUES == index], queues=[queue])
        config = place.config(pair={"session_order": True, "rate": RATE})
        drain = None
        for turn in range(4):
            worker = place.worker(config=config)
            if turn == 2:
                drain = place.drain("--json", "--rate", f"{BESIDE}", config=config)
            before = place.moved()
            eventually(lambda: place.moved() >= before + KILLED_AFTER, lambda: worker.said, within=240)  # noqa: B023
            kill(worker)
            if turn == 0:
                place.restart(signal.SIGKILL, lambda settings: None)  # noqa: ARG005
        assert drain is not None
        kill(drain)
        last = place.drain("--json", config=config)
        code, out = last.end()
        assert code == 0, f"{out}\n{last.said}"
        verdict = check(place.attempted, place.acknowledged, place.found(), place.removed)
        assert (verdict.lost, verdict.unexpected) == ([], [])
        assert violations(place) == {}
        assert reported(place) == {"total": SESSIONS, "violated": 0}


def violations(place: Site) -> dict[int, list[int]]:
    """The sessions whose first copies are not in the order of their messages."""
    seen: dict[int, list[int]] = {}
    for payload in place.contents(PRIMARY, ORDERS):
        number = int(str(Message(payload).properties().message_id).rpartition("-")[2])
        numbers = seen.setdefault(number % SESSIONS, [])
        if number not in numbers:
            numbers.append(number)
    return {session: numbers for session, numbers in seen.items() if numbers != sorted(numbers)}


def reported(place: Site) -> dict[str, int]:
    """What `syphon report` says of the sessions."""
    report = place.start("report", "--ledger", str(place.folder / "ledger"), "--json")
    _, out = report.end()
    found: dict[str, int] = json.loads(out)["sessions"]
    return found
