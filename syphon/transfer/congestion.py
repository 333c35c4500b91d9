"""Congestion control: how many messages per second a namespace takes from us, found from its answers (S5, D26).

A namespace throttles as a whole. It does not say what it allows; it answers *busy*, and asks for ten seconds without
requests to that entity. So each busy answer is expensive, and the controller wants few of them, and much from each:

- Until the first busy answer there is no limit: a service that does not throttle is used at full speed. At full speed
  we also take what other clients would have taken, so the rate at the first busy answer is only a guess.
- After a busy answer the limit begins at half of the *ceiling*, and grows by a tenth per second up to `rate_share` of
  it: the plateau. The rest is head-room for the other clients of the namespace.
- A limit that grows slowly makes the next busy answer a measurement: the ceiling is between what was accepted in the
  last second and the limit, which differ little, whatever else uses the namespace.
- After a minute on the plateau (20 s if the ceiling is a guess) the limit grows again, until the service says no, or
  the limit no longer holds anybody back. A probe that fails doubles the next wait, to ten minutes at most.

This is the slow start of TCP, but slow enough to measure, and then a plateau like that of CUBIC. Plain AIMD probes all
the time, and with ten seconds of silence for each probe that fails it would be silent for a tenth of the time and
disturb the live traffic as often. No clock, no I/O: time is an argument.
"""

from __future__ import annotations

from collections import deque

DEFAULT_SHARE = 0.8
"""The share of what was found to work that syphon uses, unless the operator decides otherwise."""
SAME_EPISODE = 2.0
"""Seconds after a busy answer in which others say nothing new: they answer what was sent before the rate fell."""
FIRST_CEILING = 25.0
"""Messages per second: the least ceiling after the first busy answer. A batch may have been larger than what a slow
namespace accepts per second, so that hardly anything was accepted."""
EXACT = 5
"""If fewer batches than these were accepted, the first ceiling is far too low, and the limit grows past it at once."""
SLOWEST = 1.0
"""Messages per second: the limit never falls below it."""
START = 0.5
"""The share of the ceiling from which the limit grows after a busy answer."""
GROWTH = 0.1
"""By how much the limit grows per second."""
KEEP_AT_LEAST = 0.7
"""The new ceiling is at least this share of the limit: one busy answer must not reduce it to nothing. What was
accepted may be less: another client came for a moment, or a second is too short to count few messages."""
FIRST_PLATEAU, FIRST_HOLD, LONGEST_HOLD = 20.0, 60.0, 600.0
"""Seconds on the plateau before a probe: when the ceiling is not exact; when it is; and the most, because each probe
that fails doubles them."""
BINDING = 5.0
"""Seconds since the limit last held a message back, after which it counts as not binding: then it does not grow."""
USED = 0.5
"""The share of the limit from which on what passes may be why other requests are refused."""
FORGET_AFTER = 900.0
"""Seconds without a busy answer and without need for the limit, after which it is dropped."""
NO_LIMIT_FROM = 50_000.0
"""Messages per second: a limit as high as this limits nobody."""


class Meter:
    """Messages per second, over the last second."""

    SLICE = 0.05

    def __init__(self) -> None:
        self._slices: deque[tuple[float, int]] = deque()
        self._count = 0

    def add(self, messages: int, now: float) -> None:
        if self._slices and now - self._slices[-1][0] < self.SLICE:
            at, before = self._slices.pop()
            self._slices.append((at, before + messages))
        else:
            self._slices.append((now, messages))
        self._count += messages
        self._forget_old(now)  # a driver adds for months, and may never ask

    def per_second(self, now: float) -> float:
        self._forget_old(now)
        return float(self._count)

    def _forget_old(self, now: float) -> None:
        while self._slices and now - self._slices[0][0] > 1.0:
            self._count -= self._slices.popleft()[1]


class Congestion:
    """The limit of one namespace, as one process or the driver of several knows it. Only for one thread."""

    def __init__(self, share: float = DEFAULT_SHARE) -> None:
        self.busy_answers = 0
        """Busy answers so far."""
        self.refused_batch = 1
        """The messages of the batch that was last refused."""
        self._refused_at_rate = 0.0
        """What the service took in the second before the last cut."""
        self.share = share
        """The share of the ceiling that is used."""
        self._meter = Meter()
        self._ceiling: float | None = None
        self._rate: float | None = None
        self._cut_at = -SAME_EPISODE
        self._resumed_at: float | None = None
        """When the first message was accepted after the last cut; None before that."""
        self._is_first = False
        """Whether the last cut was the first one, from full speed."""
        self._is_guess = False
        """Whether the ceiling is known to be far too low: the limit grows past it."""
        self._grown_at = 0.0
        """Until when the growth of the limit is counted."""
        self._hold = FIRST_HOLD
        self._probe_at: float | None = None
        """When the limit grows beyond the plateau; None before it has reached that."""
        self._bound_at = 0.0
        self._follows = False
        """Whether the driver sets the limit."""
        self._order: float | None = None

    # --- what happens --------------------------------------------------------------------------------------------

    def accepted(self, messages: int, now: float) -> None:
        """The service accepted `messages` messages."""
        self._meter.add(messages, now)
        if self._resumed_at is None and now - self._cut_at >= SAME_EPISODE:
            self._resumed_at = self._grown_at = now

    def busy(self, now: float, batch: int = 1, per_second: float | None = None) -> None:
        """The service refused a batch of `batch` messages with busy.

        `per_second` is what it accepted before, if the caller knows better.
        """
        self.busy_answers += 1
        self.refused_batch = batch
        found = self._meter.per_second(now) if per_second is None else per_second
        if now - self._cut_at < SAME_EPISODE:
            if self._is_first and found > (self._ceiling or found):
                self._cut_to(found)  # the report of another slot, which had accepted more than was known
            return
        rate = self._rate_at(now)
        self._cut_at, self._refused_at_rate = now, found
        if self._follows:
            self._order = max(SLOWEST, START * (found if self._order is None else min(self._order, found)))
        if self._resumed_at is None:
            return  # nothing was accepted since the last cut: an outage, which says nothing about a rate
        self._is_first = rate is None
        if rate is None:
            self._is_guess = found < max(FIRST_CEILING, EXACT * batch)
            self._hold = FIRST_PLATEAU
            self._cut_to(max(found, FIRST_CEILING))
        else:
            ceiling = min(max(found, KEEP_AT_LEAST * rate), rate)
            self._hold, self._is_guess = self._next_hold(ceiling, now), False
            self._cut_to(ceiling)
        self._resumed_at = None

    def _next_hold(self, ceiling: float, now: float) -> float:
        """How long to stay on the next plateau, after a busy answer that has shown this ceiling."""
        if self._probe_at is None:
            return max(FIRST_HOLD, self._hold)  # on the way to the plateau: the ceiling is exact
        if now < self._probe_at:
            return FIRST_PLATEAU  # for a moment others used more, or for good: the next probe shows which
        has_failed = self._ceiling is not None and ceiling < 1.5 * self._ceiling
        return max(FIRST_HOLD, min(2 * self._hold, LONGEST_HOLD) if has_failed else 0.0)

    def _cut_to(self, ceiling: float) -> None:
        self._ceiling = max(SLOWEST, ceiling)
        self._rate = max(SLOWEST, START * self._ceiling)
        self._probe_at = None

    def bound(self, now: float) -> None:
        """The limit has just held a message back."""
        self._bound_at = now

    # --- the limit -----------------------------------------------------------------------------------------------

    def limit(self, now: float) -> float | None:
        """Messages per second that may be sent now; None means any number."""
        return self._order if self._follows else self._rate_at(now)

    def per_second(self, now: float) -> float:
        """What the service took in the last second, or in the second before it said that it is busy."""
        return self._refused_at_rate if now - self._cut_at < SAME_EPISODE else self._meter.per_second(now)

    def is_used(self, now: float) -> bool:
        """Whether so much passes that it may explain busy answers to other requests."""
        limit, found = self.limit(now), self._meter.per_second(now)
        return found > 0 if limit is None else found >= USED * limit

    def is_binding(self, now: float) -> bool:
        """Whether the limit has held messages back within the last seconds."""
        return self.limit(now) is not None and now - self._bound_at <= BINDING

    def follow(self, limit: float | None, heard: int) -> None:
        """Uses the limit of the driver, which knows all slots and has heard of `heard` busy answers of this one.

        An order that is older than the last busy answer does not count: the answer itself has cut the limit.
        """
        if heard >= self.busy_answers:
            self._follows, self._order = True, limit

    def _rate_at(self, now: float) -> float | None:
        """The limit that was found. It grows while it holds messages back."""
        if self._rate is None or self._ceiling is None:
            return None
        if now - max(self._cut_at, self._bound_at) > FORGET_AFTER:
            self._drop()
            return None
        if self._resumed_at is None:
            return self._rate  # the first message after the cut goes ahead
        seconds, self._grown_at = max(0.0, now - self._grown_at), max(now, self._grown_at)
        usual = max(SLOWEST, self.share * self._ceiling)
        if self._probe_at is None and self._rate >= usual:
            self._probe_at = now + (0.0 if self._is_guess else self._hold)
        if now - self._bound_at > BINDING:
            return self._rate
        grown = self._rate * (1 + GROWTH) ** seconds
        if self._probe_at is None or now < self._probe_at:
            grown = min(grown, usual)
        self._rate = grown
        if grown > NO_LIMIT_FROM:
            self._drop()
        return self._rate

    def _drop(self) -> None:
        self._ceiling = self._rate = self._probe_at = None
        self._hold = FIRST_HOLD
