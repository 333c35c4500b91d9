"""How one call goes: to the primary, again, to the backlog, or back to the caller. Decided here, done by the fronts.

A course is a generator. It yields what is to be done next, is sent the result or thrown the error, and returns what the
call returns. So the synchronous sender and the asynchronous one cannot differ: they only carry out steps.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.exceptions import MessageSizeExceededError, OperationTimeoutError

from syphon.backlog import NotForBacklog, QueueName, to_backlog
from syphon.bus import Retries, condition_of, fill

from .entities import HEALTHY, Entity, FailedOver
from .error_classes import BY_CONDITION, Verdict, judge
from .errors import BothSidesFailed, TooLargeForBacklog, UnfitForBacklog
from .failover import Failover

T = TypeVar("T")


class OnPrimary(NamedTuple):
    """Do what was called for, on a link to the primary that is younger than the last failover."""

    timeout: float
    failovers: int


class EmptyBatch(NamedTuple):
    """Make an empty batch for a backlog queue: it knows how much the queue takes at a time."""

    queue: QueueName
    timeout: float


class IntoBacklog(NamedTuple):
    """Send a batch to a backlog queue."""

    queue: QueueName
    batch: ServiceBusMessageBatch
    timeout: float


class Ping(NamedTuple):
    """Send a ping to an entity of the primary."""

    path: str
    timeout: float


class Pause(NamedTuple):
    """Wait."""

    seconds: float


Step: TypeAlias = OnPrimary | EmptyBatch | IntoBacklog | Ping | Pause
Course: TypeAlias = Generator[Step, Any, T]


class Deadline:
    """How long a call may take: as long as its caller said, or one operation timeout for the primary and then one for
    each backlog queue."""

    def __init__(self, failover: Failover, timeout: float | None) -> None:
        self._now = failover.now
        self._otherwise = failover.operation_timeout
        self._is_callers = timeout is not None
        self.whole = self._otherwise if timeout is None else timeout
        self._at = self._now() + self.whole

    def left(self) -> float:
        return self._at - self._now()

    def left_for_backlog(self) -> float:
        return self.left() if self._is_callers else self._otherwise


class Done(NamedTuple):
    """The primary has done what was called for."""

    result: Any


class Away(NamedTuple):
    """The entity is failed over."""

    because: Exception
    was_tried: bool
    """This very call has tried it before."""


class LinkFacts(Protocol):
    """What is to be known of a sender's link to the primary."""

    retries: Retries
    """The client's own, which are taken over: between two tries the entity may have failed over."""
    limit: int | None
    """The largest message it takes, once it has been open."""


class Way:
    """One sender's way: the entity it sends to, and the backlog queue it has picked."""

    def __init__(self, failover: Failover, path: str, link: LinkFacts) -> None:
        self.entity: Entity = failover.entity(path)
        self.path = self.entity.path
        self._failover = failover
        self._link = link
        self._queue: QueueName | None = None

    def deadline(self, timeout: float | None) -> Deadline:
        return Deadline(self._failover, timeout)

    # --- what can be called for ----------------------------------------------------------------------------------

    def is_clear(self) -> bool:
        """Whether all is well. A call may then take its first step, which is always the same, without a course: it
        needs one only if that fails, and most calls are over before."""
        return self.entity.state is HEALTHY and self.entity.busy is None

    def arrived(self, count: int) -> None:
        """So many messages have arrived at the primary."""
        self._failover.succeeded(self.entity, count)

    def sending(
        self,
        payloads: Callable[[], Sequence[bytes]],
        count: int,
        deadline: Deadline,
        first_failure: Exception | None = None,
        in_backlog: Any = None,
    ) -> Course[Any]:
        """Messages to the entity: what the primary gives back, or `in_backlog` if they go there."""
        done = yield from self._on_primary(deadline, payloads, first_failure)
        if isinstance(done, Done):
            self.arrived(count)
            return done.result
        yield from self._into_backlog(payloads(), done.because, deadline)
        if done.was_tried and condition_of(done.because) not in BY_CONDITION:
            self._failover.telemetry.possible_duplicates(self.path, count)
        return in_backlog

    def making_a_batch(self, deadline: Deadline) -> Course[Any]:
        """An empty batch: the primary's, or a backlog queue's."""
        done = yield from self._on_primary(deadline, lambda: (), None)
        if isinstance(done, Done):
            return done.result
        _, batch = yield from self._first_queue(done.because, {}, deadline, 0, 0)
        return batch

    def cancelling(self, deadline: Deadline) -> Course[None]:
        """What concerns the primary alone: no queue can stand in for it."""
        yield OnPrimary(deadline.left(), self.entity.failovers)

    # --- the primary ---------------------------------------------------------------------------------------------

    def _on_primary(
        self, deadline: Deadline, payloads: Callable[[], Sequence[bytes]], first_failure: Exception | None
    ) -> Course[Done | Away]:
        """What the primary gives; or that it is away. Raises what is the caller's to know."""
        failure: Exception | None = None
        retried = 0
        while first_failure is not None or not self._failover.is_failed_over(self.entity):
            busy = self.entity.busy
            if first_failure is None and busy is not None and (yield from self._keep_quiet(busy, deadline)):
                continue
            try:
                if first_failure is not None:
                    raise first_failure
                return Done((yield OnPrimary(deadline.left(), self.entity.failovers)))
            except Exception as error:
                failure, first_failure = error, None
                verdict = judge(error)
                if verdict is Verdict.BUSY:
                    self._failover.was_busy(self.entity, error)
                    continue
                if verdict is not Verdict.COUNTS:
                    raise
                self._check_size(payloads, error)
                retried += 1
                pause = self._link.retries.pause(retried)
                if retried <= self._link.retries.total and pause < deadline.left():
                    yield Pause(pause)
                    continue
                self._failover.failed(self.entity, error)
                if not self.entity.is_failed_over or deadline.left_for_backlog() <= 0:
                    raise
        state = self.entity.state
        because = state.because if isinstance(state, FailedOver) else OperationTimeoutError()
        return Away(failure or because, failure is not None)

    def _keep_quiet(self, busy: Exception, deadline: Deadline) -> Course[bool]:
        """A busy entity is left alone for ten seconds; who has not so much time hears that it is busy (S5)."""
        quiet = self.entity.quiet_until - self._failover.now()
        if quiet <= 0:
            return False
        if quiet >= deadline.left():
            raise busy
        yield Pause(quiet)
        return True

    def _check_size(self, payloads: Callable[[], Sequence[bytes]], error: Exception) -> None:
        """The service cuts the link of who sends too large a message, and the SDK takes it for a broken connection."""
        limit = self._link.limit
        if limit is not None:
            size = max(map(len, payloads()), default=0)
            if size > limit:
                text = f"A message for '{self.path}' has {size} bytes, and it takes {limit}."
                raise MessageSizeExceededError(message=text) from error

    # --- the backlog ---------------------------------------------------------------------------------------------

    def _into_backlog(self, payloads: Sequence[bytes], failure: Exception, deadline: Deadline) -> Course[None]:
        """Each message to a backlog queue, aliased. A batch that has grown too large goes in parts."""
        waiting = [self._aliased(payload) for payload in payloads]
        tried: dict[QueueName, Exception] = {}
        while waiting:
            queue, batch = yield from self._first_queue(failure, tried, deadline, len(waiting), len(payloads))
            for payload in waiting:
                self._check_fit(payload, queue, batch)
            count = fill(batch, waiting)
            try:
                yield IntoBacklog(queue, batch, deadline.left_for_backlog())
            except Exception as error:
                self._queue_failed(queue, error, tried)
            else:
                self._failover.queue_works(queue)
                self._failover.telemetry.accepted(self.path, "backlog", count)
                waiting = waiting[count:]

    def _first_queue(
        self, failure: Exception, tried: dict[QueueName, Exception], deadline: Deadline, left: int, count: int
    ) -> Course[tuple[QueueName, ServiceBusMessageBatch]]:
        """A queue that can be reached, and an empty batch for it."""
        while True:
            queue = self._queue = self._failover.queue_for(self._queue, tried)
            if queue is None or deadline.left_for_backlog() <= 0:
                raise BothSidesFailed(self.path, failure, tried, left, count) from failure
            try:
                return queue, (yield EmptyBatch(queue, deadline.left_for_backlog()))
            except Exception as error:
                self._queue_failed(queue, error, tried)

    def _queue_failed(self, queue: QueueName, error: Exception, tried: dict[QueueName, Exception]) -> None:
        if judge(error) is Verdict.INVALID:
            raise error
        tried[queue] = error
        self._failover.queue_failed(queue, error)

    def _aliased(self, payload: bytes) -> bytes:
        try:
            return to_backlog(payload, self.path)
        except NotForBacklog as error:
            raise UnfitForBacklog(f"A message for '{self.path}' cannot go to the backlog: {error}.") from error

    def _check_fit(self, payload: bytes, queue: QueueName, batch: ServiceBusMessageBatch) -> None:
        size, limit = len(payload) + BATCH_OVERHEAD, batch.max_size_in_bytes
        if size > limit:
            raise TooLargeForBacklog(self.path, queue, size, limit)


BATCH_OVERHEAD = 8
"""What a message costs in a batch beyond its own bytes."""


def watching(failover: Failover, entity: Entity) -> Course[None]:
    """Looks after an entity from its first failure until it is healthy: fails it over on time, and pings it (F5)."""
    while (due := failover.due(entity)) is not None:
        wait = due - failover.now()
        if wait > 0:
            yield Pause(wait)
        elif not entity.is_failed_over:
            failover.is_failed_over(entity)
        else:
            began = failover.now()
            failure: Exception | None = None
            try:
                yield Ping(entity.path, failover.operation_timeout)
            except Exception as error:
                failure = error
            failover.pinged(entity, failure, began)
