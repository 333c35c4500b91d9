"""Traces of batches: when a batch was received, sent, answered and settled, and which spans of senders it belongs to.

A batch is traced if the sender of one of its messages records a trace. The pump keeps few traces at a time, so that
tracing costs little at any message rate: the reader takes them about once per second, and batches that come while the
store is full are not traced.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from syphon.backlog import TraceContext, trace_context

if TYPE_CHECKING:
    from .destination import Answer

MOST_TRACED = 50
"""Traces at a time: those of batches in flight, and those that were not taken yet."""
MOST_LINKS = 32
"""Senders that are kept for a batch, at most."""


@dataclass(slots=True, eq=False)
class BatchTrace:
    """One batch. Times are nanoseconds since 1970. It contains no body and no message id."""

    destination: str
    messages: int
    senders: list[TraceContext]
    received: int
    """When the oldest of its messages was received."""
    sent: int
    answered: int
    error: str = ""
    """The kind of refusal, if the destination refused the batch."""
    settled: int | None = None
    """When the last of its messages was settled. None after a refusal: its messages go into other batches, or become
    dead letters."""
    unsettled: int = 0
    queue: str = ""
    """The backlog queue of its oldest message."""


class Traces:
    """The traces of one pump. Another thread may take the traces that have ended."""

    def __init__(self) -> None:
        self.are_wanted = False
        self._open = 0
        self._ended: deque[BatchTrace] = deque()

    def enable(self, wanted: bool) -> None:
        """Switches tracing on or off. Another thread may call it."""
        self.are_wanted = wanted

    def record(self, destination: str, answer: Answer, now: float) -> None:
        """Notes the answer of a destination. Costs nothing unless traces are wanted."""
        if not self.are_wanted or self._open + len(self._ended) >= MOST_TRACED:
            return
        senders = _senders(answer)
        if not senders:
            return
        wall, error = time.time_ns(), answer.error
        oldest = min((transfer.arrival for transfer in answer.batch), key=lambda arrival: arrival.received_at)
        trace = BatchTrace(
            destination,
            len(answer.batch),
            senders,
            wall - _nanoseconds(now - oldest.received_at),
            wall - _nanoseconds(answer.seconds),
            wall,
            "" if error is None else error.condition or type(error).__name__,
            queue=oldest.link.path,
        )
        if error is not None:
            self._ended.append(trace)
            return
        self._open += 1
        trace.unsettled = len(answer.batch)
        for transfer in answer.batch:
            transfer.trace = trace

    def settle(self, trace: BatchTrace) -> None:
        """Notes that one message of the batch was settled."""
        trace.unsettled -= 1
        if not trace.unsettled:
            trace.settled = max(trace.answered, time.time_ns())  # the wall clock can step back
            self._open -= 1
            self._ended.append(trace)

    def take(self) -> tuple[BatchTrace, ...]:
        """Removes and returns the traces that have ended."""
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
