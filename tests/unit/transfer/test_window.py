"""The window, the rate and the limit of a pump are shared fairly by its queues."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from syphon.transfer.destinations import BURST
from syphon.transfer.window import BASE, Demand, RateLimiter, ReceiveLimit, SharedWindow, share

IDLE = Demand(in_flight=0, bytes_in_flight=0, arrived=0, credit=BASE, most=10_000, size=1000)
BUSY = IDLE._replace(arrived=BASE, credit=0)
USES = st.lists(st.tuples(st.integers(0, 3000), st.booleans()), min_size=1, max_size=20)


def window() -> SharedWindow:
    return SharedWindow(4000, 16 * 1024 * 1024)


def test_one_queue_has_the_whole_window() -> None:  # D15
    assert window().credits([IDLE], None) == [4000]
    assert window().credits([BUSY._replace(in_flight=1000, bytes_in_flight=1_000_000)], None) == [3000]


@given(
    st.builds(
        Demand,
        st.integers(0, 5000),
        st.integers(0, 20_000_000),
        st.integers(0, 500),
        st.integers(-5, 500),
        st.integers(0, 6000),
        st.integers(1, 300_000),
    ),
    st.none() | st.integers(-5, 500),
    st.integers(1, 4000),
)
def test_a_queue_alone_has_what_sharing_with_no_other_queue_would_give_it(
    demand: Demand, allowed: int | None, messages: int
) -> None:
    shared, size, base = SharedWindow(messages, 1 << 24), 1 << 24, max(1, min(BASE, messages // 2))
    (by_count,) = share(messages, [demand.in_flight], [True], base)
    (by_size,) = share(size, [demand.bytes_in_flight], [True], size * base // messages)
    room = min(by_count.room, max(by_size.room // demand.size, not demand.in_flight), demand.most - demand.in_flight)
    expected = room if allowed is None else min(room, allowed)
    assert shared.credits([demand], allowed) == [max(0, expected)]
    assert shared.is_full is (by_count.is_used_up or by_size.is_used_up)


def test_a_busy_queue_leaves_each_idle_one_its_base_credit() -> None:  # S10
    assert window().credits([BUSY, IDLE, IDLE], None) == [3900, BASE, BASE]
    hundred = window().credits([BUSY] + [IDLE] * 99, None)
    assert (hundred[0], set(hundred[1:])) == (2020, {20})


def test_busy_queues_have_equal_shares_and_one_that_has_more_waits_until_it_has_less() -> None:  # S10
    assert window().credits([BUSY, BUSY], None) == [2000, 2000]
    late = window().credits([BUSY._replace(in_flight=3900, bytes_in_flight=3_900_000), BUSY], None)
    assert late == [0, 100]


def test_a_queue_that_uses_up_its_base_credit_is_busy() -> None:  # S10
    few = IDLE._replace(arrived=BASE // 2 - 1)
    assert window().credits([few, IDLE], None) == [BASE, BASE]
    assert window().credits([few._replace(arrived=BASE // 2), IDLE], None)[0] == 4000 - BASE
    assert window().credits([few._replace(arrived=1, credit=0), IDLE], None)[0] == 4000 - BASE


def test_a_queue_that_starts_slowly_has_no_more_than_it_may() -> None:  # S7
    assert window().credits([IDLE._replace(most=200, in_flight=150)], None) == [50]
    assert window().credits([IDLE._replace(most=1), BUSY], None) == [1, 4000 - BASE]


def test_large_messages_are_bounded_by_bytes_and_one_always_has_room() -> None:  # D5
    large = IDLE._replace(size=64 * 1024)
    assert window().credits([large], None) == [256]
    assert window().credits([large._replace(size=100_000_000)] * 2, None) == [1, 1]
    assert window().credits([large._replace(in_flight=1, bytes_in_flight=16 * 1024 * 1024)], None) == [0]


def test_a_window_is_full_when_a_busy_queue_has_used_up_its_share() -> None:  # D15
    shared = window()
    for in_flight, full in ((1700, False), (1900, True)):
        shared.credits([BUSY._replace(in_flight=in_flight, bytes_in_flight=in_flight), BUSY], None)
        assert shared.is_full is full
    shared.credits([], None)
    assert not shared.is_full


def test_the_rate_is_shared_and_no_queue_starves() -> None:  # D7, S10
    assert window().credits([BUSY, IDLE], 100) == [75, 25]
    assert window().credits([BUSY, IDLE, IDLE], 1) == [1, 1, 1]
    assert window().credits([BUSY, IDLE], 0) == [0, 0]


@given(uses=USES, total=st.integers(1, 5000))
def test_the_shares_are_no_more_than_the_total_beside_the_base(uses: list[tuple[int, bool]], total: int) -> None:
    base = max(1, min(BASE, total // (2 * len(uses))))
    used, busy = [taken for taken, _ in uses], [is_busy for _, is_busy in uses]
    parts = share(total, used, busy, base)
    assert sum(part.room for part in parts) <= max(0, total - sum(used)) + base * len(uses)
    for part, taken in zip(parts, used, strict=True):
        assert min(base, part.share) - taken <= part.room <= max(0, part.share - taken)


@given(limit=st.integers(0, 500), waiting=st.lists(st.integers(0, 300), min_size=1, max_size=8), chance=st.randoms())
def test_the_limit_is_exact_whichever_queue_has_the_messages(limit: int, waiting: list[int], chance: Random) -> None:
    """Queues receive what they may in any order; one without messages ends, and returns what it did not use."""
    shared, received = ReceiveLimit(limit), [0] * len(waiting)
    served = set(range(len(waiting)))
    while served and sum(received) < limit:
        queue = chance.choice(sorted(served))
        room = shared.room(f"{queue}", received[queue], len(served))
        assert room is not None
        if waiting[queue] == received[queue]:
            served.discard(queue)
            shared.return_unused(f"{queue}", received[queue])
        received[queue] += min(room, waiting[queue] - received[queue])
    assert sum(received) == min(limit, sum(waiting))


@given(st.floats(1.0, 10_000.0), st.floats(0.005, 0.24))
def test_a_paced_sender_reaches_its_rate_however_long_its_turns_are(rate: float, turn: float) -> None:  # S5
    limiter, sent, turns = RateLimiter(0.0, BURST), 0, int(60 / turn)
    for number in range(1, turns + 1):
        room = limiter.room(rate, number * turn)
        assert room is not None
        sent += room
        limiter.spend(room)
    assert 0.98 * rate * turns * turn - 1 <= sent <= rate * turns * turn + 1
