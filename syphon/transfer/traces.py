"""Traces of batches: when a batch was received, sent, answered and settled, and which spans of senders it belongs to.

A batch is traced if the sender of one of its messages records a trace. Few are kept at a time, so that a trace costs
little however many messages pass: they are taken about once a second, and what comes in between is not traced.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from syphon.backlog import TraceContext, trace_context

if TYPE_CHECKING:
    from .destination import Answer

MOST = 50
"""Batches that are being traced or have not been taken yet."""
MOST_LINKS = 32
"""Senders that are remembered of a batch."""


@dataclass(slots=True, eq=False)
class BatchTrace:
    """A batch on its way. Times are nanoseconds since 1970. No body and no message id is in here."""

    destination: str
    messages: int
    senders: list[TraceContext]
    received: int
    """The oldest of its messages."""
    sent: int
    answered: int
    error: str = ""
    """What kind of refusal the answer was, if it was one."""
    settled: int | None = None
    """The last of its messages. None where the answer was a refusal: another batch tells of them, or dead letters."""
    unsettled: int = 0


class Traces:
    """Of one pump. What has ended may be taken by another thread."""

    def __init__(self) -> None:
        self.are_wanted = False
        self._open = 0
        self._ended: deque[BatchTrace] = deque()

    def enable(self, wanted: bool) -> None:
        """Switches tracing on or off. Another thread may call it."""
        self.are_wanted = wanted

    def note(self, destination: str, answer: Answer, now: float) -> None:
        """A destination has answered. Costs nothing where nobody wants traces."""
        if not self.are_wanted or self._open + len(self._ended) >= MOST:
            return
        senders = _senders(answer)
        if not senders:
            return
        wall, error = time.time_ns(), answer.error
        oldest = min(transfer.arrival.received_at for transfer in answer.batch)
        trace = BatchTrace(
            destination,
            len(answer.batch),
            senders,
            wall - _nanoseconds(now - oldest),
            wall - _nanoseconds(answer.seconds),
            wall,
            "" if error is None else error.condition or type(error).__name__,
        )
        if error is not None:
            self._ended.append(trace)
            return
        self._open += 1
        trace.unsettled = len(answer.batch)
        for transfer in answer.batch:
            transfer.trace = trace

    def settle(self, trace: BatchTrace) -> None:
        """One of its messages has been settled."""
        trace.unsettled -= 1
        if not trace.unsettled:
            trace.settled = max(trace.answered, time.time_ns())  # clocks step back
            self._open -= 1
            self._ended.append(trace)

    def take(self) -> tuple[BatchTrace, ...]:
        """Those that have ended, once."""
        return tuple(self._ended.popleft() for _ in range(len(self._ended)))


def _senders(answer: Answer) -> list[TraceContext]:
    found: list[TraceContext] = []
    for transfer in answer.batch:
        context = trace_context(transfer.restored.payload)
        if context is not None:
            found.append(context)
            if len(found) == MOST_LINKS:
                break
    return found


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
