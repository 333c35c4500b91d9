"""Messages that a drain cannot move: those that wait, those that are given up, and that the dry run predicts both (S4).

The commands share one Spark session; another process runs the two namespaces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.on_the_pump import administration
from tests.support.processes import EmulatedPair, aliased, emulated_pair

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("spark")]

PATIENCE = ("--patience", "5s")
LARGE = 300_000
"""More bytes than an entity of a Standard namespace takes."""


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[EmulatedPair]:
    """Messages for a healthy, a missing and a disabled destination; one is too large, and one not allowed."""
    with emulated_pair(tmp_path, queues=2, destinations=("orders", "closed", "secret"), away_tier="Premium") as pair:
        become(pair, "closed", "Disabled")
        pair.put([aliased(number, "orders") for number in range(5)])
        pair.put([aliased(number, "Gone") for number in range(10, 13)])
        pair.put([aliased(number, "gone") for number in range(13, 15)], index=1)
        pair.put([aliased(20, "closed"), aliased(30, "secret")], index=1)
        pair.put([aliased(41, "orders", body=b"x" * LARGE)])
        yield pair


def become(pair: EmulatedPair, path: str, status: str) -> None:
    with administration(pair.primary) as client:
        queue = client.get_queue(path)
        queue.status = status
        client.update_queue(queue)


def config(pair: EmulatedPair, *permanent: str) -> Path:
    destinations: dict[str, Any] = {"allow": ["orders", "gone", "closed"]}
    if permanent:
        destinations["permanent_errors"] = list(permanent)
    return pair.config(pair={"destinations": destinations})


def predicted(pair: EmulatedPair, settings: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    return pair.drained_here("--dry-run", *arguments, config=settings)


def waits(result: dict[str, Any]) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for waiting in result["waiting"]:
        found[waiting["path"].lower(), waiting["error"]] += waiting["left"]
    return found


def test_messages_for_missing_and_disabled_destinations_wait_and_the_dry_run_says_so_before(
    pair: EmulatedPair,
) -> None:  # S4
    settings = config(pair)
    predicted_code, foreseen = predicted(pair, settings)
    code, result = pair.drained_here(*PATIENCE, config=settings)
    assert code == 1 == result["exit_code"] == predicted_code == foreseen["exit_code"]
    assert waits(result) == waits(foreseen) == {("gone", "DestinationMissing"): 5, ("closed", "DestinationDisabled"): 1}
    reasons = Counter({found["reason"]: found["messages"] for found in foreseen["dead_letters"]})
    assert reasons == {"MessageTooLarge": 1, "DestinationNotAllowed": 1}
    assert result["account"]["dead_lettered"] == reasons.total()
    assert pair.in_backlog(0, dead=True) + pair.in_backlog(1, dead=True) == Counter(["m41", "m30"])
    assert result["remaining"] == 6 == (pair.in_backlog(0) + pair.in_backlog(1)).total()
    assert (
        result["verdict"]
        .lower()
        .endswith(
            "6 messages are waiting for gone (missing), closed (disabled): create or enable the entity "
            "and drain again, or dead-letter them with --give-up missing,disabled --destination name."
        )
    )
    # Once they are there, the messages arrive.
    with administration(pair.primary) as client:
        client.create_queue("gone")
    become(pair, "closed", "Active")
    code, result = pair.drained_here(config=settings)
    assert (code, result["waiting"], result["account"]["forwarded"]) == (0, [], 6)
    assert pair.arrived("gone", "closed") == Counter(f"m{number}" for number in (10, 11, 12, 13, 14, 20))


@pytest.mark.parametrize("way", ["option", "settings"])
def test_what_is_given_up_is_dead_lettered_and_the_rest_waits_as_predicted(pair: EmulatedPair, way: str) -> None:  # S4
    settings = config(pair)
    option: tuple[str, ...] = ("--give-up", "missing")
    if way == "settings":
        settings, option = config(pair, "entity-not-found", "message-too-large", "not-allowed"), ()
    predicted_code, foreseen = predicted(pair, settings, *option)
    code, result = pair.drained_here(*PATIENCE, *option, config=settings)
    assert code == 1 == predicted_code
    assert waits(result) == waits(foreseen) == {("closed", "DestinationDisabled"): 1}
    reasons: Counter[str] = Counter()
    for found in foreseen["dead_letters"]:
        reasons[found["reason"]] += found["messages"]
    assert reasons == {"MessageTooLarge": 1, "DestinationNotAllowed": 1, "DestinationMissing": 5}
    assert result["account"]["dead_lettered"] == reasons.total()
    assert result["give_up"] == foreseen["give_up"] == [word for word in option if word == "missing"]
    assert "--give-up disabled" in result["verdict"]


def test_a_healthy_backlog_is_predicted_to_be_drained_and_a_limit_to_leave_the_rest(pair: EmulatedPair) -> None:
    only = ("--destination", "orders", "--before", "2100-01-01", "--queue", pair.backlog(1))
    settings = config(pair)
    pair.put([aliased(number, "orders") for number in range(50, 53)], index=1)
    for limit, expected in ((("--limit", "2"), 1), ((), 0)):
        code, foreseen = predicted(pair, settings, *only, *limit)
        assert (code, foreseen["waiting"], foreseen["dead_letters"]) == (expected, [], [])
        code, result = pair.drained_here(*only, *limit, config=settings)
        assert code == expected, result
        assert result["account"]["forwarded"] == foreseen["messages"]
