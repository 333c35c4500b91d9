"""`syphon drill` as an operator runs it, on the entity of an emulator."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from syphon.servicebus import AllowedUse
from syphon.servicebus.data_plane_administration import DataPlaneAdministration
from tests.support.processes import EmulatedPair, aliased, emulated_pair
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedPair]:
    with emulated_pair(tmp_path_factory.mktemp("drill"), queues=1, destinations=("orders", "news")) as found:
        yield found


def state_of(pair: EmulatedPair, entity: str) -> AllowedUse | None:
    with DataPlaneAdministration.from_connection_string(pair.primary) as administration:
        return administration.entity_state(entity)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_drill_that_is_stopped_leaves_the_entity_active(pair: EmulatedPair, number: int) -> None:
    config = str(pair.config())
    drill = pair.start("drill", "-c", config, "--entity", "orders", "--for", "10m", "--yes", "--json")
    drill.until("Disabled sending to 'orders'")
    assert state_of(pair, "orders") is AllowedUse.SEND_DISABLED
    code, said = drill.stop(number)
    assert (code, state_of(pair, "orders")) == (1, AllowedUse.ACTIVE), drill.said
    found = json.loads(said)
    assert found["verdict"] == "The drill ended early: it was stopped. 'orders' was restored."
    assert found["restored_at"] is not None


def test_after_a_drill_that_was_killed_a_person_restores_the_entity(pair: EmulatedPair) -> None:
    config = str(pair.config())
    drill = pair.start("drill", "-c", config, "--entity", "orders", "--for", "10m", "--yes")
    drill.until("Disabled sending to 'orders'")
    drill.process.kill()
    drill.end()
    again = pair.start("drill", "-c", config, "--entity", "orders", "--yes")
    assert again.end()[0] == 1
    assert "'orders' is SendDisabled: a drill begins and ends with an active entity" in again.said
    restored = pair.start("drill", "-c", config, "--entity", "orders", "--restore")
    assert restored.end()[0] == 0, restored.said
    assert state_of(pair, "orders") is AllowedUse.ACTIVE


def test_a_drill_whose_page_has_no_folder_does_not_begin(pair: EmulatedPair) -> None:
    page = str(pair.folder / "nowhere" / "drill.html")
    drill = pair.start("drill", "-c", str(pair.config()), "--entity", "orders", "--yes", "--html", page)
    assert drill.end()[0] == 2
    assert "Disabled" not in drill.said
    assert "does not exist" in " ".join(drill.said.split())


def test_a_page_that_cannot_be_written_does_not_lose_the_result(pair: EmulatedPair) -> None:
    folder = pair.folder / "removed"
    folder.mkdir()
    page = str(folder / "drill.html")
    config = str(pair.config())
    drill = pair.start("drill", "-c", config, "--entity", "orders", "--for", "10m", "--yes", "--json", "--html", page)
    drill.until("Disabled sending to 'orders'")
    folder.rmdir()
    code, said = drill.stop(signal.SIGTERM)
    assert (code, json.loads(said)["exit_code"]) == (1, 1), drill.said
    assert "drill.html cannot be written" in drill.said
    assert "Traceback" not in drill.said


def test_what_fails_over_is_counted_drained_and_reported_on_a_page(pair: EmulatedPair) -> None:
    page = Path(pair.folder) / "drill.html"
    config = str(pair.config())
    drill = pair.start("drill", "-c", config, "--entity", "news", "--for", "5s", "--yes", "--json", "--html", str(page))
    drill.until("Disabled sending to 'news'")
    pair.put([*(aliased(number, "news") for number in range(5)), aliased(9, "orders")])
    drill.until("The first message failed over after")
    code, said = drill.end()
    found = json.loads(said)
    counts = (found["failed_over"], found["forwarded"], found["by_others"], found["dead_lettered"], found["remaining"])
    assert (code, counts) == (0, (5, 5, 0, 0, 0)), drill.said
    assert state_of(pair, "news") is AllowedUse.ACTIVE
    assert eventually(lambda: len(pair.arrived("news")) == 5)
    assert "5 messages failed over; 5 of them were forwarded by this drain" in page.read_text()
