"""Congestion control finds what a namespace accepts, uses a share of it, and probes seldom."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from syphon.transfer.congestion import Congestion, Meter
from syphon.transfer.window import RateLimiter

STEP = 0.05


class Service:
    """A namespace that accepts so many messages in each second, and one client that sends to it as it may.

    One entity: after a busy answer nothing is sent for ten seconds (S5), and then one message goes ahead.
    """

    def __init__(self, credits_per_second: Callable[[float], float], full_speed: int = 5000, batch: int = 100) -> None:
        self.congestion = Congestion()
        self.now = 1000.0
        self.accepted: list[tuple[float, int]] = []
        self.busy: list[float] = []
        self._credits = credits_per_second
        self._full_speed = full_speed
        self._batch = batch
        self._second, self._spent = 0, 0
        self._quiet_until = 0.0
        self._goes_ahead = False
        self._pace = RateLimiter(self.now, 0.1)

    def run(self, seconds: float, demand: float = 1e9) -> None:
        """Sends for some seconds, at most `demand` messages per second."""
        end = self.now + seconds
        while self.now < end:
            self.now += STEP
            limit = self.congestion.limit(self.now)
            room = self._pace.room(limit, self.now)
            wanted = int(min(demand, self._full_speed) * STEP)
            most = wanted if room is None else min(room, wanted)
            if room is not None and room < wanted:
                self.congestion.bound(self.now)
            self._send(1 if self._goes_ahead and most else most)

    def _send(self, messages: int) -> None:
        while messages > 0 and self.now >= self._quiet_until:
            batch = min(messages, self._batch)
            messages -= batch
            self._pace.spend(batch)
            if int(self.now) != self._second:
                self._second, self._spent = int(self.now), 0
            if self._spent + batch > self._credits(self.now):
                self.congestion.busy(self.now, batch)
                self.busy.append(self.now)
                self._quiet_until, self._goes_ahead = self.now + 10.0, True
            else:
                self._spent += batch
                self._goes_ahead = False
                self.accepted.append((self.now, batch))
                self.congestion.accepted(batch, self.now)

    def per_second(self, last: float) -> float:
        return sum(count for at, count in self.accepted if at > self.now - last) / last


def test_without_a_busy_answer_there_is_no_limit() -> None:
    service = Service(lambda _: 1e9)
    service.run(100)
    assert service.congestion.limit(service.now) is None
    assert service.per_second(50) == pytest.approx(5000, rel=0.01)


@pytest.mark.parametrize("limit", [10, 100, 1000, 3000])
def test_most_of_the_share_is_used_in_the_long_run(limit: int) -> None:  # S5
    service = Service(lambda _: limit)
    service.run(600)
    assert service.per_second(400) >= 0.85 * 0.8 * limit
    assert len(service.busy) <= 8  # each of them is ten seconds, and disturbs others


def test_a_limit_that_falls_is_followed() -> None:
    service = Service(lambda now: 1000 if now < 1100 else 100)
    service.run(300)
    assert 0.6 * 100 <= service.per_second(60) <= 100


def test_a_limit_that_is_lifted_is_noticed_within_three_minutes() -> None:
    service = Service(lambda now: 100 if now < 1060 else 1e9)
    service.run(60 + 180)
    assert service.per_second(10) == pytest.approx(5000, rel=0.01)


def test_an_outage_in_which_nothing_is_accepted_does_not_change_the_rate() -> None:
    service = Service(lambda now: 0 if 1030 <= now < 1090 else 1e9)
    service.run(30)
    service.run(60)
    service.run(60)
    assert service.per_second(10) >= 0.75 * 5000


def test_it_does_not_probe_while_no_slot_needs_more() -> None:
    service = Service(lambda _: 1000)
    service.run(40)
    before = len(service.busy)
    service.run(600, demand=100)
    assert len(service.busy) == before


def test_a_limit_is_forgotten_when_it_has_not_been_needed_for_long() -> None:
    service = Service(lambda _: 1000)
    service.run(40)
    service.run(1000, demand=20)
    assert service.congestion.limit(service.now) is None


def test_a_follower_uses_the_limit_of_the_driver_until_its_own_busy_answer() -> None:
    congestion = Congestion()
    congestion.accepted(1000, 10.0)
    congestion.follow(400.0, heard=0)
    assert congestion.limit(10.1) == 400.0
    congestion.busy(10.2)
    assert congestion.limit(10.3) == 200.0
    congestion.follow(400.0, heard=0)  # the driver has not heard of it yet, however late that is
    assert congestion.limit(13.1) == 200.0
    congestion.follow(300.0, heard=1)
    assert congestion.limit(13.2) == 300.0


def test_the_meter_counts_the_last_second() -> None:
    meter = Meter()
    for step in range(40):
        meter.add(5, step * 0.05)
    assert meter.per_second(1.95) == pytest.approx(100, abs=5)
    assert meter.per_second(10.0) == 0


def test_a_meter_that_is_never_read_does_not_grow() -> None:
    meter = Meter()
    for second in range(10_000):
        meter.add(5, float(second))
    assert len(meter._slices) <= 2


@pytest.mark.parametrize("others", [50, 500, 700])
def test_beside_another_client_what_it_leaves_is_found(others: int) -> None:
    """The first busy answer shows too much: at full speed we take what the other client would have taken."""
    service = Service(lambda now: 1000 - others if now > 1000.5 else 1000)
    service.run(90)
    left = 1000 - others
    assert 0.85 * 0.8 * left <= service.per_second(20) <= left


def test_a_burst_of_another_client_costs_a_minute_at_most() -> None:
    service = Service(lambda now: 200 if 1100 <= now < 1102 else 1000)
    service.run(100)
    service.run(60)
    service.run(60)
    assert service.per_second(30) >= 0.85 * 0.8 * 1000


def test_a_limit_that_is_too_low_grows_before_the_plateau_ends() -> None:
    """The first batch was as large as all that the namespace accepts in a second: what was accepted says nothing."""
    congestion = Congestion()
    congestion.accepted(5, 10.0)
    congestion.busy(10.1, batch=100)
    congestion.accepted(1, 20.0)
    for step in range(400):
        congestion.bound(20.0 + 0.1 * step)
        limit = congestion.limit(20.0 + 0.1 * step)
    assert limit is not None
    assert limit >= 300


def test_what_passes_explains_busy_answers_to_other_requests_only_if_it_is_much() -> None:
    congestion = Congestion()
    assert not congestion.is_used(0.0)
    congestion.accepted(3, 1.0)
    assert congestion.is_used(1.0)  # no limit is known yet
    for tenth in range(10, 50):
        congestion.accepted(10, tenth / 10)
    congestion.busy(5.0)
    assert congestion.limit(5.0) == 50
    congestion.accepted(30, 10.0)
    assert congestion.is_used(10.0)
    congestion.accepted(10, 12.0)
    assert not congestion.is_used(12.0)
