"""`syphon drain` on real Spark: a process of its own, between two namespaces in another."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import DESTINATIONS, Plant, aliased, eventually, plant

pytestmark = [pytest.mark.timeout(600)]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Plant]:
    with plant(tmp_path) as site:
        yield site


def ids(numbers: range) -> Counter[str]:
    return Counter(f"m{number}" for number in numbers)


def test_everything_is_carried_home_and_the_backlog_is_proven_empty(site: Plant) -> None:  # X2, S2, D4
    site.put([aliased(number, DESTINATIONS[number % 3]) for number in range(600)])
    site.put([aliased(number, DESTINATIONS[number % 3]) for number in range(600, 900)], index=1)
    code, result = site.drained()
    assert code == 0, result
    assert site.arrived(*DESTINATIONS) == ids(range(900))
    assert not site.in_backlog(0)
    assert not site.in_backlog(1)
    account = result["account"]
    assert account["received"] == 900 == account["forwarded"]
    assert (account["dead_lettered"], account["left"], account["unaccounted"]) == (0, 0, 0)
    assert [queue["state"] for queue in result["queues"]] == ["empty", "empty"]
    assert result["remaining"] == 0
    assert result["verdict"] == "Nothing is left: 900 forwarded."


def test_what_can_never_arrive_is_dead_lettered_and_said(site: Plant) -> None:  # M4, S4, D12
    site.put([aliased(1, "orders"), aliased(2, "nowhere"), aliased(3, "")])
    code, result = site.drained()
    assert code == 1
    assert site.arrived("orders") == ids(range(1, 2))
    assert site.in_backlog(0, dead=True) == ids(range(2, 4))
    assert result["account"]["dead_lettered"] == 2
    assert "2 went to the dead letters" in result["verdict"]


def test_a_limit_is_kept_to_the_message(site: Plant) -> None:
    site.put([aliased(number, "orders") for number in range(50)])
    site.put([aliased(number, "orders") for number in range(50, 53)], index=1)
    code, result = site.drained("--limit", "37")
    assert code == 1
    assert result["account"]["forwarded"] == 37
    assert result["remaining"] == 16
    assert sum(site.arrived("orders").values()) == 37


def test_only_what_was_asked_for_is_moved(site: Plant) -> None:
    site.put([aliased(number, DESTINATIONS[number % 3]) for number in range(30)])
    code, result = site.drained("--destination", "billing/*", "--after", "1h")
    assert code == 0, result
    assert site.arrived(*DESTINATIONS) == Counter(f"m{number}" for number in range(1, 30, 3))
    assert result["verdict"].startswith("Nothing that was asked for is left: 10 forwarded")
    assert sum(site.in_backlog(0).values()) == 20
    code, result = site.drained("--before", "2020-01-01")
    assert (code, result["account"]["forwarded"]) == (0, 0)


def test_a_destination_that_takes_nothing_does_not_hold_up_the_others(site: Plant) -> None:  # S3, S4
    site.control("contoso", "PUT", "quota", {"entity": "orders", "bytes": 0})
    site.put([aliased(number, DESTINATIONS[number % 3]) for number in range(90)])
    drain = site.drain("--json", "--patience", "8s")
    code, out = drain.end()
    result = json.loads(out)
    assert code == 1, drain.said
    assert site.arrived("billing/invoices", "news") == Counter(f"m{n}" for n in range(90) if n % 3)
    assert result["remaining"] == 30
    assert result["queues"][0]["state"] == "stuck"
    assert result["waiting"][0]["path"] == "orders"
    account = result["account"]
    assert account["received"] == account["forwarded"] + account["dead_lettered"] + account["left"]
    # and with room again, the rest follows
    site.control("contoso", "PUT", "quota", {"entity": "orders", "bytes": 1_000_000_000})
    code, result = site.drained()
    assert code == 0, result
    assert site.arrived(*DESTINATIONS) == ids(range(90))


def test_ctrl_c_finishes_what_is_in_hand_and_gives_back_the_rest(site: Plant) -> None:
    site.put([aliased(number, "orders") for number in range(2000)])
    drain = site.drain("--json", "--rate", "100")
    eventually(lambda: drain.progress().get("moved", 0) > 50, explain=lambda: drain.said)
    code, out = drain.stop(signal.SIGINT)
    result = json.loads(out)
    assert code == 1, drain.said
    assert "Once more to leave at once" in drain.said
    arrived, left = site.arrived("orders"), site.in_backlog(0)
    assert arrived + left == ids(range(2000))
    assert result["account"]["forwarded"] == sum(arrived.values())
    assert result["remaining"] == sum(left.values())
    assert result["account"]["possible_duplicates"] == 0
    # nothing stays locked: a second drain gets all of it
    code, result = site.drained()
    assert code == 0, result
    assert site.arrived("orders") == ids(range(2000))


def test_two_drains_at_once_move_every_message_once(site: Plant) -> None:  # X1
    site.put([aliased(number, DESTINATIONS[number % 3]) for number in range(3000)])
    drains = [site.drain("--json", "--rate", "600", config=site.config(f"{name}.yaml")) for name in ("a", "b")]
    results = [(drain.end(), drain) for drain in drains]
    forwarded = 0
    for (code, out), drain in results:
        assert code == 0, drain.said
        forwarded += json.loads(out)["account"]["forwarded"]
    assert forwarded == 3000
    assert site.arrived(*DESTINATIONS) == ids(range(3000))
