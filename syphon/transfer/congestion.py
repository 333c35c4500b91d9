"""Congestion control: how many messages per second a namespace takes from us, found from its answers (S5, D26).

A namespace throttles as a whole. It does not say what it allows; it answers *busy*, and asks for ten seconds without
requests to that entity. So each busy answer is expensive, and the controller wants few of them:

- Until the first busy answer there is no limit: a service that does not throttle is used at full speed.
- A busy answer shows the *ceiling*: the rate at which the service said no. The rate falls to half of it, and rises
  within ten seconds to `rate_share` of it. The rest is head-room for the other clients of the namespace.
- It stays there for a minute (20 s after the first busy answer), then probes: it raises the ceiling by 5 %, 10 %,
  20 %, … every five seconds, until the service says no again (and the next probe comes later, ten minutes at most) or
  the limit no longer holds anybody back.

This is multiplicative decrease, a plateau like that of TCP CUBIC, and then exponential probing. Plain AIMD probes all
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
namespace takes in a second, so that hardly anything was accepted."""
EXACT = 5
"""If fewer batches than these were accepted, the first ceiling is a guess, and the probe begins at once."""
SLOWEST = 1.0
"""Messages per second: the limit never falls below it."""
KEEP_AT_LEAST, KEEP_AT_LEAST_WHEN_SLOW, SLOW_BELOW = 0.5, 0.8, 50.0
"""The new ceiling is at least so much of the rate before; the second value below `SLOW_BELOW` messages per second."""
RAMP = 10.0
"""Seconds from half of the ceiling to the share of it that is used."""
FIRST_PLATEAU, FIRST_HOLD, LONGEST_HOLD = 20.0, 60.0, 600.0
"""Seconds before a probe: after the first busy answer, when the ceiling was found at full speed and is not exact; after
the next ones; and the most, because each probe that fails doubles them."""
PROBE_EVERY = 5.0
"""Seconds between two steps of a probe."""
FIRST_STEP, LARGEST_STEP = 0.05, 1.0
"""By how much the first step of a probe raises the ceiling; each step that works doubles it."""
BINDING = 5.0
"""Seconds since the limit last held a message back, after which it counts as not binding: then there is no probe."""
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
        self._first_rate = 0.0
        """The limit before the first step of the probe."""
        self._hold = FIRST_HOLD
        self._step = FIRST_STEP
        self._next_step = 0.0
        self._bound_at = 0.0
        self._order: float | None = None
        self._ordered_at: float | None = None

    # --- what happens --------------------------------------------------------------------------------------------

    def accepted(self, messages: int, now: float) -> None:
        """The service has taken so many messages."""
        self._meter.add(messages, now)
        if self._resumed_at is None:
            self._resumed_at = now

    def busy(self, now: float, batch: int = 1, per_second: float | None = None) -> None:
        """The service has refused a batch of so many messages with busy.

        `per_second` is what it took before, if the caller knows better.
        """
        self.busy_answers += 1
        self.refused_batch = batch
        found = self._meter.per_second(now) if per_second is None else per_second
        if now - self._cut_at < SAME_EPISODE:
            if self._is_first and found > (self._ceiling or found):
                self._set_ceiling(found)  # the report of another slot, which had accepted more than was known
            return
        self._cut_at, self._refused_at_rate = now, found
        if self._resumed_at is None:
            return  # nothing was accepted since the last cut: an outage, which says nothing about a rate
        self._is_first = self._rate is None
        if self._rate is None:
            self._hold = FIRST_PLATEAU if found >= max(FIRST_CEILING, EXACT * batch) else 0.0
            self._set_ceiling(max(found, FIRST_CEILING))
        else:
            has_failed_probe = self._step > FIRST_STEP and self._rate < 1.5 * self._first_rate
            self._hold = max(FIRST_HOLD, min(2 * self._hold, LONGEST_HOLD) if has_failed_probe else 0.0)
            # If less was accepted, others have used the namespace, or a second is too short to count few messages. One
            # answer must not take everything from us.
            least = self._rate * (KEEP_AT_LEAST if self._rate >= SLOW_BELOW else KEEP_AT_LEAST_WHEN_SLOW)
            self._set_ceiling(max(SLOWEST, min(max(found, least), self._rate)))
        self._resumed_at, self._step = None, FIRST_STEP

    def _set_ceiling(self, ceiling: float) -> None:
        self._ceiling = ceiling
        self._rate = max(SLOWEST, ceiling / 2)
        self._first_rate = max(SLOWEST, self.share * ceiling)

    def bound(self, now: float) -> None:
        """The limit has just held a message back."""
        self._bound_at = now

    # --- the limit -----------------------------------------------------------------------------------------------

    def limit(self, now: float) -> float | None:
        """Messages per second that may be sent now; None means any number."""
        if self._ordered_at is not None and self._ordered_at >= self._cut_at:
            return self._order
        if self._rate is None:
            return None
        self._advance(self._rate, now)
        return self._rate

    def per_second(self, now: float) -> float:
        """What the service took in the last second, or in the second before it said that it is busy."""
        return self._refused_at_rate if now - self._cut_at < SAME_EPISODE else self._meter.per_second(now)

    def is_binding(self, now: float) -> bool:
        """Whether the limit has held messages back within the last seconds."""
        return self.limit(now) is not None and now - self._bound_at <= BINDING

    def follow(self, limit: float | None, now: float) -> None:
        """Uses the limit of the driver, which knows all slots. A busy answer counts at once, until it has heard."""
        if now - self._cut_at >= SAME_EPISODE:
            self._order, self._ordered_at = limit, now

    def _advance(self, rate: float, now: float) -> None:
        ceiling = self._ceiling or rate
        if now - max(self._cut_at, self._bound_at) > FORGET_AFTER:
            self._ceiling = self._rate = None
            self._hold = FIRST_HOLD
            return
        if self._resumed_at is None:
            return  # the first message after the cut goes ahead
        since = now - self._resumed_at
        usual = max(SLOWEST, self.share * ceiling)
        if since < RAMP:
            first = min(ceiling / 2, usual)
            self._rate = max(SLOWEST, first + (usual - first) * since / RAMP)
            self._next_step = self._resumed_at + RAMP + self._hold
            return
        self._rate = usual
        if now < self._next_step or now - self._bound_at > BINDING:
            return
        self._ceiling = ceiling * (1 + self._step)
        self._step = min(2 * self._step, LARGEST_STEP)
        self._next_step = now + PROBE_EVERY
        if self.share * self._ceiling > NO_LIMIT_FROM:
            self._ceiling = self._rate = None
            self._hold = FIRST_HOLD
