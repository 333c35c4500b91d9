"""The cost of syphon, by examples calculated by hand."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from syphon import time_budget
from syphon.cost import estimate
from syphon.cost.estimate import (
    LIST_PRICES,
    Prices,
    PricingTier,
    UnavailableDestination,
    bandwidth_cost,
    crossing_bytes,
    destination_pings_within,
    drain_cost,
    drain_operations,
    idle_cost,
    idle_receives,
    load_prices,
    namespace_cost,
    pings_within,
    ring_receives,
    unavailable_destination,
)
from syphon.model.errors import DestinationFull, DestinationMissing, SyphonError
from syphon.sender import PairOptions
from syphon.servicebus.queue_peek import PAGE
from syphon.transfer import breaker
from syphon.transfer.pump_options import PERMANENT
from syphon.yaml_settings import SettingsError


@pytest.fixture(scope="module")
def prices() -> Prices:
    return load_prices()


def test_ten_idle_queues_take_28_800_receives_in_thirty_days(prices: Prices) -> None:  # S1
    assert idle_receives(10, 30) == 28_800
    assert (idle_receives(10, 1), idle_receives(1, 1)) == (960, 96)
    assert idle_cost(10, 30, prices, PricingTier.STANDARD).operations == 28_800


def test_each_worker_polls_for_itself(prices: Prices) -> None:  # S1
    assert idle_receives(10, 30, workers=3) == 3 * 28_800
    assert idle_cost(10, 30, prices, PricingTier.STANDARD, workers=2).operations == 57_600


def test_a_message_that_rings_is_received_by_the_doorbell_and_by_the_job(prices: Prices) -> None:  # S7
    assert ring_receives(10) == 10
    assert ring_receives(10, workers=2) == 20  # the released message may ring at the other worker as well
    assert ring_receives(1, 65_537) == 2
    lone = drain_cost(1, prices, PricingTier.STANDARD, bells=ring_receives(1))
    assert lone.operations == 5


def test_a_dead_destination_is_tried_after_pauses_that_double() -> None:  # S9
    moments = (1, 30, 31, 90, 91, 210, 211, 330, 331)
    assert [destination_pings_within(seconds) for seconds in moments] == [
        1,
        1,
        2,
        2,
        3,
        3,
        4,
        4,
        5,
    ]


@pytest.mark.parametrize("error", [DestinationMissing(), DestinationFull()])
def test_the_tries_are_those_of_the_breaker(error: SyphonError) -> None:  # S9
    now, tries, found = 0.0, 0, breaker.Breaker("orders", PERMANENT)
    while now < 8 * 3600:
        assert isinstance(found.state_at(now), breaker.Available)
        found.failed(error, now)
        assert isinstance(found.state, breaker.BackingOff)
        now, tries = found.state.until, tries + 1
    assert tries == destination_pings_within(8 * 3600)


def test_eight_hours_at_a_dead_destination_are_one_receive_per_message_and_a_few_pings() -> None:  # S7
    assert unavailable_destination(queues=10, messages=2458, hours=8) == UnavailableDestination(
        first_receives=2458 + 10, browse_peeks=10, pings=242
    )
    two = unavailable_destination(queues=10, messages=2458, hours=8, workers=2)
    assert two.operations == 2458 + 2 * (10 + 10 + 242)
    assert unavailable_destination(queues=10, messages=0, hours=8).operations == 0
    assert unavailable_destination(queues=2, messages=1000, hours=1).browse_peeks == 2 * 3


def test_each_sender_pings_each_failed_over_entity_once_an_interval() -> None:  # F5, S7
    assert pings_within(8) == 480
    assert pings_within(8, entities=20, senders=4) == 20 * 4 * 480
    assert pings_within(0.5, interval=1800) == 1
    assert pings_within(0.01) == 0


def test_a_message_crosses_between_the_regions_twice(prices: Prices, tmp_path: Path) -> None:
    assert crossing_bytes(1_000_000, 1024) == 2_048_000_000
    assert bandwidth_cost(2_048_000_000, prices) == pytest.approx(2_048_000_000 / 2**30 * 0.02)
    file = tmp_path / "prices.yaml"
    file.write_text(LIST_PRICES.read_text().partition("bandwidth:")[0])  # as files were before it was in them
    assert bandwidth_cost(2_048_000_000, load_prices(file)) is None


def test_its_constants_are_those_of_the_transfer() -> None:
    assert PairOptions().ping_primary_interval == timedelta(seconds=estimate.PING_EVERY)
    assert (estimate.LONG_POLL, estimate.DESTINATION_RETRIES.longest) == (
        time_budget.LONG_POLL,
        time_budget.LONGEST_DESTINATION_DELAY,
    )
    assert time_budget.RECHECK_AFTER == DestinationFull.retry_after == estimate.DESTINATION_RETRIES.first
    assert estimate.PEEK_PAGE == PAGE


def test_an_idle_month_is_within_the_free_operations_or_costs_two_cents(prices: Prices) -> None:  # S7
    charge = idle_cost(10, 30, prices, PricingTier.STANDARD)
    assert charge.least == 0
    assert charge.most == pytest.approx(0.0288 * 0.80)


def test_shorter_polls_cost_more(prices: Prices) -> None:
    assert idle_cost(10, 30, prices, PricingTier.STANDARD, long_poll=60).operations == 432_000


def test_each_message_takes_four_operations(prices: Prices) -> None:  # S7
    assert drain_operations(1_000_000) == 4_000_000
    charge = drain_cost(1_000_000, prices, PricingTier.STANDARD)
    assert charge.least == 0
    assert charge.most == pytest.approx(3.20)


def test_a_message_counts_again_for_every_64_kilobytes() -> None:
    assert [drain_operations(1, size) for size in (1, 65_536, 65_537, 262_144)] == [4, 4, 8, 16]


def test_operations_are_billed_step_by_step(prices: Prices) -> None:
    ten_million = drain_cost(10_000_000, prices, PricingTier.STANDARD)  # 40 million operations
    assert ten_million.least == pytest.approx((40 - 13) * 0.80)
    assert ten_million.most == pytest.approx(40 * 0.80)
    billion = drain_cost(1_000_000_000, prices, PricingTier.STANDARD)  # 4,000 million
    assert billion.least == pytest.approx(87 * 0.80 + 2400 * 0.50 + 1500 * 0.20)
    assert billion.most == pytest.approx(87 * 0.80 + 2400 * 0.50 + 1513 * 0.20)


def test_in_premium_operations_are_free_and_hours_are_not(prices: Prices) -> None:
    charge = drain_cost(1_000_000, prices, PricingTier.PREMIUM)
    assert (charge.operations, charge.least, charge.most) == (4_000_000, 0, 0)
    assert namespace_cost(30, prices, PricingTier.PREMIUM, units=2) == pytest.approx(2 * 720 * 0.9275)
    assert namespace_cost(30, prices, PricingTier.STANDARD) == pytest.approx(9.81)


def test_all_mistakes_in_a_price_file_are_reported_at_once(tmp_path: Path) -> None:
    text = LIST_PRICES.read_text()
    text = text.replace("unit_per_hour: 0.9275", "unit_per_hour: -1").replace("up_to: 2500000000", "up_to: 5")
    file = tmp_path / "prices.yaml"
    file.write_text(text.replace("currency: USD\n", "curency: USD\n"))
    with pytest.raises(SettingsError) as caught:
        load_prices(file)
    told = str(caught.value)
    assert all(words in told for words in ("premium.unit_per_hour", "-1", "curency", "standard.operations[1].up_to"))
    assert "rising order" in told


@pytest.mark.parametrize(
    ("steps", "complaint"),
    [
        ("[{up_to: 5, per_million: 1}]", "is not allowed in the last step"),
        ("[{per_million: 1}, {per_million: 2}]", "has no up_to"),
    ],
)
def test_only_the_last_step_has_no_end(tmp_path: Path, steps: str, complaint: str) -> None:
    head, _, tail = LIST_PRICES.read_text().partition("operations:     ")
    file = tmp_path / "prices.yaml"
    file.write_text(f"{head}operations: {steps}\npremium: {{unit_per_hour: 1}}\n")
    with pytest.raises(SettingsError, match=complaint):
        load_prices(file)
    assert tail
