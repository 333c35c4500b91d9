"""The flow of one call: to the primary, to the primary again, to the backlog, or back to the caller with an error.

A flow is a generator of steps. It yields the next step, receives the result or the error of that step, and returns the
result of the call. The sync API and the asyncio API only execute the steps, so they cannot behave differently.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.exceptions import MessageSizeExceededError, OperationTimeoutError

from syphon.amqp import Message
from syphon.backlog import NotForBacklog, QueueName, to_backlog
from syphon.model import RetryPolicy
from syphon.servicebus import fill
from syphon.time_budget import ORDER_CHECK_EVERY

from .entity_state import OrderedReturn, PrimaryEntity
from .error_classes import (
    BothSidesFailed,
    FailureClass,
    SenderClosed,
    TooLargeForBacklog,
    UnfitForBacklog,
    classify,
    may_have_arrived,
)
from .pair_options import seconds
from .shared_failover import Failover

log = logging.getLogger(__name__)

T = TypeVar("T")

BATCH_OVERHEAD = 8
"""The bytes that a message needs in a batch beyond its own."""


class UsePrimary(NamedTuple):
    """Do what the caller asked for, on a link to the primary that was opened after the last failover."""

    timeout: float
    failovers: int


class CreateBacklogBatch(NamedTuple):
    """Create an empty batch for a backlog queue. The batch knows how many bytes the queue accepts at once."""

    queue: QueueName
    timeout: float


class SendToBacklog(NamedTuple):
    """Send a batch to a backlog queue."""

    queue: QueueName
    batch: ServiceBusMessageBatch
    timeout: float


class SendPing(NamedTuple):
    """Send a ping to an entity of the primary."""

    path: str
    timeout: float


class FindInBacklog(NamedTuple):
    """Find out whether a backlog queue has a message for an entity of the primary. The result is a bool."""

    queues: tuple[QueueName, ...]
    path: str
    timeout: float


class Delay(NamedTuple):
    """Wait."""

    seconds: float


FlowStep: TypeAlias = UsePrimary | CreateBacklogBatch | SendToBacklog | SendPing | FindInBacklog | Delay
Steps: TypeAlias = Generator[FlowStep, Any, T]


class PrimaryResult(NamedTuple):
    """The primary has done what the caller asked for."""

    result: Any


class PrimaryUnavailable(NamedTuple):
    """The entity is failed over."""

    because: Exception
    was_tried: bool
    """This call has tried the primary before."""


class PrimaryLink(Protocol):
    """What a flow needs to know about the sender's link to the primary."""

    retries: RetryPolicy
    """The retries of the application's client. The flow does them, because the entity may fail over between two."""
    limit: int | None
    """The size of the largest message that the link accepts; known after the link was open once."""


class Deadline:
    """How long a call may take.

    A caller's timeout is for the whole call. Without one, the primary gets one operation timeout, and then each backlog
    queue gets one.
    """

    def __init__(self, now: Callable[[], float], operation_timeout: float, timeout: float | None) -> None:
        self._now = now
        self._operation_timeout = operation_timeout
        self._is_callers = timeout is not None
        self.whole = operation_timeout if timeout is None else timeout
        self._at = now() + self.whole

    def left(self) -> float:
        return self._at - self._now()

    def left_for_backlog(self) -> float:
        return self.left() if self._is_callers else self._operation_timeout


class SendFlow:
    """The flow of all calls of one sender: knows the entity it sends to, and the backlog queue it has picked."""

    def __init__(self, failover: Failover, path: str, link: PrimaryLink) -> None:
        self.entity: PrimaryEntity = failover.entity(path)
        self.path = self.entity.path
        self._failover = failover
        self._link = link
        self._queue: QueueName | None = None

    def deadline(self, timeout: float | None) -> Deadline:
        return Deadline(self._failover.now, self._failover.operation_timeout, timeout)

    # --- calls ---------------------------------------------------------------------------------------------------

    def can_skip_steps(self) -> bool:
        """Whether the entity is healthy and not busy.

        Then the first step is always `UsePrimary`. A call may execute it without a generator, and needs the generator
        only if that step fails: most calls end before, and that saves CPU.
        """
        return self.entity.is_healthy and self.entity.busy_error is None

    def record_success(self, count: int) -> None:
        """The primary has accepted `count` messages."""
        self._failover.succeeded(self.entity, count)

    def send(
        self,
        payloads: Callable[[], Sequence[bytes]],
        count: int,
        deadline: Deadline,
        *,
        begins_at_primary: bool = False,
        backlog_result: Any = None,
    ) -> Steps[Any]:
        """Sends messages. Returns the primary's result, or `backlog_result` if the messages went to the backlog.

        `begins_at_primary`: the first step is `UsePrimary`, whatever other senders have found out about the entity
        meanwhile. The caller has executed it already, and throws its error in (see `can_skip_steps`).
        """
        while True:
            outcome = yield from self._use_primary(deadline, payloads, begins_at_primary)
            if isinstance(outcome, PrimaryResult):
                self.record_success(count)
                return outcome.result
            if not self._failover.keeps_order:
                yield from self._send_to_backlog(payloads(), outcome.because, deadline)
                break
            entered = self._failover.enter_backlog(self.entity, deadline.left_for_backlog())
            if isinstance(entered, OrderedReturn):
                try:
                    yield from self._send_in_order(payloads(), outcome.because, deadline)
                finally:
                    self._failover.leave_backlog(entered)
                break
            begins_at_primary = False
            yield Delay(entered)
        if outcome.was_tried and may_have_arrived(outcome.because):
            self._failover.metrics.possible_duplicates(self.path, count)
        return backlog_result

    def create_batch(self, deadline: Deadline) -> Steps[Any]:
        """Creates an empty batch: for the primary, or for a backlog queue while the entity is failed over."""
        outcome = yield from self._use_primary(deadline, lambda: ())
        if isinstance(outcome, PrimaryResult):
            return outcome.result
        _, batch = yield from self._usable_queue(outcome.because, {}, deadline, 0, 0)
        return batch

    def use_primary_only(self, deadline: Deadline) -> Steps[None]:
        """A call that only the primary can serve, such as cancelling: no backlog queue can replace it."""
        yield UsePrimary(deadline.left(), self.entity.failovers)

    # --- the primary ---------------------------------------------------------------------------------------------

    def _use_primary(
        self, deadline: Deadline, payloads: Callable[[], Sequence[bytes]], begins_here: bool = False
    ) -> Steps[PrimaryResult | PrimaryUnavailable]:
        """Tries the primary until it succeeds or is failed over. Raises the errors that the caller must get."""
        failure: Exception | None = None
        retried = 0
        while begins_here or not self._failover.is_failed_over(self.entity):
            busy = self.entity.busy_error
            if not begins_here and busy is not None and (yield from self._wait_while_busy(busy, deadline)):
                continue
            begins_here = False
            try:
                return PrimaryResult((yield UsePrimary(deadline.left(), self.entity.failovers)))
            except Exception as error:
                failure = error
                failure_class = classify(error)
                if failure_class is FailureClass.BUSY:
                    self._failover.was_busy(self.entity, error)
                    continue
                if failure_class is not FailureClass.COUNTS:
                    raise
                self._check_size(payloads, error)
                retried += 1
                delay = self._link.retries.delay(retried)
                if retried <= self._link.retries.total and delay < deadline.left():
                    yield Delay(delay)
                    continue
                self._failover.failed(self.entity, error)
                if not self.entity.is_failed_over or deadline.left_for_backlog() <= 0:
                    raise
        because = failure or self.entity.because or OperationTimeoutError()
        return PrimaryUnavailable(because, failure is not None)

    def _wait_while_busy(self, busy: Exception, deadline: Deadline) -> Steps[bool]:
        """Waits until ten seconds have passed since the entity was busy (S5).

        A call whose deadline comes earlier gets the error of the busy entity.
        """
        seconds = self.entity.busy_until - self._failover.now()
        if seconds <= 0:
            return False
        if seconds >= deadline.left():
            raise busy
        yield Delay(seconds)
        return True

    def _check_size(self, payloads: Callable[[], Sequence[bytes]], error: Exception) -> None:
        """Raises MessageSizeExceededError if a message is too large for the link.

        The service closes the link on which a message is too large, and the SDK reports a broken connection.
        """
        limit = self._link.limit
        if limit is not None:
            size = max(map(len, payloads()), default=0)
            if size > limit:
                text = f"A message for '{self.path}' has {size} bytes, and the entity accepts at most {limit}."
                raise MessageSizeExceededError(message=text) from error

    # --- the backlog ---------------------------------------------------------------------------------------------

    def _send_in_order(self, payloads: Sequence[bytes], failure: Exception, deadline: Deadline) -> Steps[None]:
        """Sends the messages of each session to the session's own backlog queue (D21)."""
        every = [self._with_aliases(payload) for payload in payloads]
        sessions: dict[str | None, list[bytes]] = {}
        for payload, aliased in zip(payloads, every, strict=True):
            sessions.setdefault(session_of(payload), []).append(aliased)
        sent = 0
        for session, some in sessions.items():
            queue = None if session is None else self._failover.queue_of(self.path, session)
            yield from self._put_into_backlog(some, failure, deadline, every, sent, queue)
            sent += len(some)

    def _send_to_backlog(self, payloads: Sequence[bytes], failure: Exception, deadline: Deadline) -> Steps[None]:
        """Sends each message, with its aliases, to a backlog queue."""
        every = [self._with_aliases(payload) for payload in payloads]
        yield from self._put_into_backlog(every, failure, deadline, every)

    def _put_into_backlog(
        self,
        waiting: Sequence[bytes],
        failure: Exception,
        deadline: Deadline,
        every: Sequence[bytes],
        sent: int = 0,
        only: QueueName | None = None,
    ) -> Steps[None]:
        """Puts messages into a backlog queue. A batch that has become too large goes in parts.

        They belong to the messages `every` of the call, of which so many are sent. `only` is the one queue that may be
        used.
        """
        tried: dict[QueueName, Exception] = {}
        while waiting:
            queue, batch = yield from self._usable_queue(failure, tried, deadline, len(every) - sent, len(every), only)
            for payload in waiting if sent else every:  # a message that is too large fails before any is sent
                self._check_fits(payload, queue, batch)
            count = fill(batch, waiting)
            try:
                yield SendToBacklog(queue, batch, deadline.left_for_backlog())
            except Exception as error:
                self._queue_failed(queue, error, tried)
            else:
                self._failover.queue_works(queue)
                self._failover.metrics.accepted(self.path, "backlog", count)
                waiting, sent = waiting[count:], sent + count

    def _usable_queue(
        self,
        failure: Exception,
        tried: dict[QueueName, Exception],
        deadline: Deadline,
        left: int,
        count: int,
        only: QueueName | None = None,
    ) -> Steps[tuple[QueueName, ServiceBusMessageBatch]]:
        """Finds a backlog queue that can be reached, and creates an empty batch for it."""
        while True:
            if only is None:
                queue = self._queue = self._failover.queue_for(self._queue, tried)
            else:
                queue = None if only in tried else only
            if queue is None or deadline.left_for_backlog() <= 0:
                raise BothSidesFailed(self.path, failure, tried, left, count, by_session=only is not None) from failure
            try:
                return queue, (yield CreateBacklogBatch(queue, deadline.left_for_backlog()))
            except Exception as error:
                self._queue_failed(queue, error, tried)

    def _queue_failed(self, queue: QueueName, error: Exception, tried: dict[QueueName, Exception]) -> None:
        if classify(error) is FailureClass.INVALID:
            raise error
        tried[queue] = error
        self._failover.queue_failed(queue, error)

    def _with_aliases(self, payload: bytes) -> bytes:
        try:
            return to_backlog(payload, self.path)
        except NotForBacklog as error:
            raise UnfitForBacklog(f"A message for '{self.path}' cannot go to the backlog: {error}.") from error

    def _check_fits(self, payload: bytes, queue: QueueName, batch: ServiceBusMessageBatch) -> None:
        size, limit = len(payload) + BATCH_OVERHEAD, batch.max_size_in_bytes
        if size > limit:
            raise TooLargeForBacklog(self.path, queue, size, limit)


def watch_entity(failover: Failover, entity: PrimaryEntity) -> Steps[None]:
    """Watches an entity from its first failure until it is healthy: fails it over in time, and pings it (F5)."""
    while True:
        due = failover.due(entity)
        if due is None:
            if failover.end_watch(entity):
                return
            continue
        wait = due - failover.now()
        if wait > 0:
            yield Delay(wait)
        elif not entity.is_failed_over:
            failover.is_failed_over(entity)
        else:
            began = failover.now()
            failure: Exception | None = None
            try:
                yield SendPing(entity.path, failover.operation_timeout)
            except SenderClosed:
                raise
            except Exception as error:
                failure = error
            if failure is None and failover.keeps_order:
                yield from _return_in_order(failover, entity, began)
            else:
                failover.pinged(entity, failure, began)


def _return_in_order(failover: Failover, entity: PrimaryEntity, ping_began: float) -> Steps[None]:
    """Returns an entity to the primary when its backlog is empty (D21), or ends when the next ping is due."""
    while True:
        begun: int | None = failover.sends_to_backlog(entity)
        try:
            if (yield FindInBacklog(failover.order_queues, entity.path, failover.operation_timeout)):
                begun = None
        except SenderClosed:
            raise
        except Exception as error:
            log.info("the backlog of '%s' cannot be peeked at: %s", entity.path, error)
            begun = None
        if failover.return_in_order(entity, begun, ping_began):
            return
        yield Delay(ORDER_CHECK_EVERY)
        if failover.now() >= ping_began + seconds(failover.options.ping_primary_interval):
            return


def session_of(payload: bytes) -> str | None:
    """The session of a message as it is sent; None if it has none."""
    session = Message(payload).properties().group_id
    return None if session is None else str(session)
