"""Destinations that the operator has renamed: where messages go, what holds for them, and what is on record."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from syphon.config import Config
from syphon.model import EntityPath, PathPatterns, Renames, Result
from syphon.transfer.backoff_gate import BackoffGate
from syphon.transfer.destinations import DestinationBackoff
from syphon.transfer.pump import PumpOptions
from tests.integration.transfer.conftest import PATIENT, TwoNamespaces, aliased


def renaming(options: PumpOptions = PATIENT, *, allow: tuple[str, ...] = ("*",), **renames: str) -> PumpOptions:
    return dataclasses.replace(options, rename=Renames.of(renames), allow=PathPatterns.of(allow))


def test_a_message_goes_to_the_new_name_and_both_names_are_on_record(namespaces: TwoNamespaces) -> None:  # D13, D9
    namespaces.queue("orders-v2")
    namespaces.queue("billing")
    namespaces.put(aliased("one", "/Orders", message_id="1"), aliased("two", "billing", message_id="2"))
    _, outcomes = namespaces.run(renaming(orders="orders-v2"))
    assert {(found.destination, found.renamed_to, found.result) for found in outcomes} == {
        ("Orders", "orders-v2", Result.FORWARDED),
        ("billing", None, Result.FORWARDED),
    }
    (arrived,) = namespaces.take("orders-v2", 1)
    assert (str(arrived), arrived.message_id) == ("one", "1")


def test_what_is_allowed_is_about_the_name_in_the_message(namespaces: TwoNamespaces) -> None:  # D13
    """A message reaches the new name by way of the old one only: it cannot choose the new one itself."""
    namespaces.queue("orders-v2")
    namespaces.put(aliased("one", "orders"), aliased("two", "orders-v2"))
    _, outcomes = namespaces.run(renaming(allow=("orders",), orders="orders-v2"))
    results = {found.destination: (found.result, found.renamed_to) for found in outcomes}
    assert results == {
        "orders": (Result.FORWARDED, "orders-v2"),
        "orders-v2": (Result.DEAD_LETTERED, None),
    }


def test_a_message_whose_name_is_not_allowed_is_not_saved_by_a_rename(namespaces: TwoNamespaces) -> None:  # D13
    namespaces.queue("orders")
    namespaces.put(aliased("x", "secret"))
    _, (outcome,) = namespaces.run(renaming(allow=("orders",), secret="orders"))
    assert (outcome.result, outcome.renamed_to) == (Result.DEAD_LETTERED, None)
    assert namespaces.active("orders") == 0


def test_two_names_for_one_entity_share_its_link_and_its_state(namespaces: TwoNamespaces) -> None:  # D5
    namespaces.put(aliased("one", "orders"), aliased("two", "orders-v2"))
    pump, outcomes = namespaces.run(renaming(orders="orders-v2"))
    assert [found.path for found in pump.backing_off()] == ["orders-v2"], "which is missing"
    assert {(found.destination, found.renamed_to) for found in outcomes} == {
        ("orders", "orders-v2"),
        ("orders-v2", None),
    }
    assert all(found.result is Result.LEFT for found in outcomes)


def test_a_pause_and_a_back_off_are_of_the_entity(namespaces: TwoNamespaces) -> None:
    namespaces.queue("orders-v2")
    namespaces.put(aliased("one", "orders"))
    with namespaces.pump(renaming(orders="orders-v2")) as (pump, outcomes):
        pump.pause(frozenset([EntityPath.of("orders-v2")]))
        namespaces.finish(pump)
    assert [found.result for found in outcomes] == [Result.LEFT]
    with namespaces.pump(renaming(orders="orders-v2")) as (pump, _):
        pump.back_off(DestinationBackoff("orders-v2", 60.0, "full", 1))
        assert [found.path for found in pump.backing_off()] == ["orders-v2"]


def test_a_listener_knows_that_a_message_waits_for_the_new_name() -> None:  # D16
    from tests.unit.worker.test_pausable_gate import aliased as payload

    gate = BackoffGate("contoso", lambda: 0.0)
    gate.renames = Renames.of({"orders": "orders-v2"})
    gate.record([DestinationBackoff("orders-v2", 10.0, "full", 1)])
    assert not gate.is_worth_a_job("q", payload("Orders", 1))
    assert gate.is_worth_a_job("q", payload("billing", 1))
    found = gate.destination_of(payload("orders", 1))
    assert found is not None
    assert found.name == "orders-v2"


def test_the_settings_of_a_pair_reach_the_pump(tmp_path: Path) -> None:
    from tests.unit.config.test_config import load, pair

    destinations = "  destinations: {allow: [orders, billing], rename: {orders: orders-v2}}\n"
    config: Config = load(tmp_path, pair(more=destinations))
    options = PumpOptions.for_pair(config.pairs[0])
    assert options.rename.actual(EntityPath.of("ORDERS")).name == "orders-v2"
    assert config.pairs[0].primary_entity == "orders-v2", "its token opens the connection"
