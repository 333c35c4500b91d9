"""`syphon cost`: the numbers of `syphon.cost`, for people and for programs (S7)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from syphon.cli.cost import cost


def asked(*arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(cost, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.output)
    return found


def test_an_idle_month_is_all_that_is_estimated_by_default() -> None:  # S1
    found = asked()
    assert (found["idle"]["operations"], found["drain"], found["outage"]) == (28_800, None, None)
    assert asked("--workers", "2")["idle"]["operations"] == 57_600


@pytest.mark.parametrize(
    ("arguments", "bells"),
    [((), 10), (("--rings", "0"), 0), (("--rings", "1000"), 1000), (("--workers", "3"), 30), (("--queues", "2"), 2)],
)
def test_the_transfer_includes_the_receives_of_doorbells(arguments: tuple[str, ...], bells: int) -> None:  # S7
    drain = asked("--messages", "1000", *arguments)["drain"]
    assert drain["operations"] == 4000 + bells == sum(share["operations"] for share in drain["shares"])
    assert drain["shares"][-1] == {"what": "wake-up receive", "whose": "syphon", "operations": bells}


def test_an_outage_of_the_primary_costs_few_peeks_and_a_dead_destination_peeks_and_tries() -> None:  # S7
    outage = asked("--messages", "2458", "--outage", "8")["outage"]
    assert outage["primary_unreachable"]["operations"] == 10 * 8 * 360  # a queue every ten seconds
    dead = outage["unavailable_destination"]
    assert dead["operations"] == dead["first_receives"] + dead["browse_peeks"] + dead["pings"]
    assert dead["pings"] == 242
    assert asked("--outage", "0.5")["outage"]["messages"] == 10  # one for each queue


def test_an_outage_has_pings_and_bandwidth() -> None:  # F5
    outage = asked("--messages", "1000000", "--outage", "8", "--entities", "20", "--senders", "4")["outage"]
    assert outage["pings"]["operations"] == 20 * 4 * 480
    assert outage["bandwidth"] == {"bytes": 2_048_000_000, "cost": pytest.approx(0.038, abs=0.001)}
    assert asked("--outage", "8", "--ping-interval", "30")["outage"]["pings"]["operations"] == 960


def test_people_read_the_same() -> None:
    done = CliRunner().invoke(cost, ["--messages", "2458", "--outage", "8", "--workers", "2"])
    assert done.exit_code == 0
    for line in (
        "Idle for 30 days: 10 backlog queues, 2 workers, 15-minute long polls",
        "               20  wake-up receives          syphon's, one per idle queue",
        "Primary unreachable for 8 hours",
        "              484  pings, to check whether the destination is available",
        "Pings in 8 hours: 1 entity failed over, 1 sender, every 60 seconds",
        "              480  operations",
        "Bandwidth for 2,458 messages of 1,024 bytes through the backlog",
    ):
        assert line in done.output.splitlines(), done.output
    assert CliRunner().invoke(cost, ["--outage", "0"]).exit_code == 2
