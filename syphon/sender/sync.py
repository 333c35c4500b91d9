"""The synchronous front: `pair`, the paired client and its senders. It carries out what `course` decides."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

from azure.core.credentials import TokenCredential
from azure.servicebus import ServiceBusClient, ServiceBusMessageBatch, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError

from syphon.backlog import Provisioned, QueueName
from syphon.bus import way_in

from .entities import Entity
from .errors import SenderClosed
from .failover import Failover
from .links import SenderLink
from .messages import NOT_CANCELLABLE, check_cancellable, count_of, encoded, load_of, ping, scheduled
from .options import PairOptions
from .pairing import Side, set_up
from .send_flow import Course, Deadline, EmptyBatch, IntoBacklog, OnPrimary, Pause, Ping, Step, Way, watching

if TYPE_CHECKING:
    from .embedded import EmbeddedSyphon

T = TypeVar("T")
Given: TypeAlias = str | tuple[str, TokenCredential] | ServiceBusClient

CLOSE_WITHIN = 5.0
"""Seconds a send that is under way gets to finish when its sender is closed."""


class Clock:
    """Time, for real. Tests have another one."""

    def now(self) -> float:
        return time.monotonic()

    def wait(self, event: threading.Event, seconds: float) -> None:
        """Waits for an event, but no longer than that."""
        event.wait(seconds)


def pair(
    primary: Given, secondary: Given, options: PairOptions | None = None, *, clock: Clock | None = None
) -> PairedClient:
    """A primary and a secondary namespace as one client to send with.

    Each is given as a connection string, as a host name with a credential of azure-identity, or as a `ServiceBusClient`
    that you have. When it returns, the backlog queues are there. It raises what is wrong: `NotAuthorized` (for the
    secondary the Manage claim is needed), `NoBacklogQueue`, `BadOptions`, ValueError. A primary that is away is none.

    >>> with pair(primary, secondary) as client, client.get_queue_sender("orders") as sender:
    ...     sender.send_messages(ServiceBusMessage("hello"))
    """
    options = options or PairOptions()
    home, away = Side.of(primary, ServiceBusClient, "primary"), Side.of(secondary, ServiceBusClient, "secondary")
    backlog = set_up(home.client, way_in(away.client), options)
    return PairedClient(home, away, backlog, options, clock or Clock())


class PairedClient:
    """Two namespaces to send with. Any thread may use it."""

    def __init__(
        self, primary: Side, secondary: Side, backlog: Provisioned, options: PairOptions, clock: Clock
    ) -> None:
        self.primary: ServiceBusClient = primary.client
        """The primary's client, for all that is not sending."""
        self.secondary: ServiceBusClient = secondary.client
        self.backlog = backlog
        """The backlog queues, and what was found out about them."""
        self.clock = clock
        self.closing = threading.Event()
        self.failover = Failover(self.primary.fully_qualified_namespace, options, backlog.names, clock.now, self._watch)
        self._sides = primary, secondary
        self._senders: set[PairedSender] = set()
        self._watchers: list[threading.Thread] = []
        self._lock = threading.Lock()
        self.syphon: EmbeddedSyphon | None = None
        """What carries the backlog home, with `enable_syphon`."""
        if options.enable_syphon:
            from .embedded import EmbeddedSyphon

            self.syphon = EmbeddedSyphon(self.primary, self.secondary, backlog.names, clock.now)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def backlog_queue_count(self) -> int:
        """How many backlog queues there are: fewer than asked for, if some could not be made."""
        return self.backlog.count

    @property
    def failed_over(self) -> tuple[str, ...]:
        """The entities whose messages go to the backlog now."""
        return self.failover.failed_over()

    def get_queue_sender(self, queue_name: str, **options: Any) -> PairedSender:
        """A sender for a queue; options are those of `ServiceBusClient.get_queue_sender`."""
        return self._sender(queue_name, lambda: self.primary.get_queue_sender(queue_name, **options))

    def get_topic_sender(self, topic_name: str, **options: Any) -> PairedSender:
        """A sender for a topic; options are those of `ServiceBusClient.get_topic_sender`."""
        return self._sender(topic_name, lambda: self.primary.get_topic_sender(topic_name, **options))

    def get_queue_receiver(self, queue_name: str, **options: Any) -> ServiceBusReceiver:
        """A receiver of the primary's."""
        return self.primary.get_queue_receiver(queue_name, **options)

    def get_subscription_receiver(self, topic_name: str, subscription_name: str, **options: Any) -> ServiceBusReceiver:
        """A receiver of the primary's."""
        return self.primary.get_subscription_receiver(topic_name, subscription_name, **options)

    def _sender(self, path: str, make: Callable[[], ServiceBusSender]) -> PairedSender:
        if self.closing.is_set():
            raise SenderClosed
        sender = PairedSender(self, path, make)
        with self._lock:
            self._senders.add(sender)
        return sender

    def forget(self, sender: PairedSender) -> None:
        """The sender has been closed."""
        with self._lock:
            self._senders.discard(sender)

    def close(self) -> None:
        """Closes all senders, and those clients that were not given. Sends under way get five seconds to finish."""
        self.closing.set()
        if self.syphon is not None:
            self.syphon.close()
        with self._lock:
            senders, watchers = list(self._senders), list(self._watchers)
        # Side by side: the SDK takes half a second for each, and one that is stuck gets its five.
        closers = [threading.Thread(target=sender.close, daemon=True) for sender in senders]
        for closer in closers:
            closer.start()
        until = time.monotonic() + 2 * CLOSE_WITHIN
        for thread in (*closers, *watchers):
            thread.join(max(0.0, until - time.monotonic()))
        for side in self._sides:
            if side.is_ours:
                side.client.close()

    # --- watching ------------------------------------------------------------------------------------------------

    def _watch(self, entity: Entity) -> None:
        """From its first failure until it is healthy, an entity has a thread that looks after it."""
        watcher = threading.Thread(target=self._look_after, args=(entity,), name=f"watch {entity.path}", daemon=True)
        with self._lock:
            self._watchers = [*(thread for thread in self._watchers if thread.is_alive()), watcher]
            watcher.start()

    def _look_after(self, entity: Entity) -> None:
        with contextlib.suppress(SenderClosed):
            _drive(watching(self.failover, entity), self._watch_step)

    def _watch_step(self, step: Step) -> None:
        if isinstance(step, Ping):
            link = SenderLink(lambda: self.primary.get_queue_sender(step.path))
            try:
                link.use(lambda sender, left: sender.send_messages(ping(), timeout=left), step.timeout)
            finally:
                link.drop()
        elif isinstance(step, Pause):
            self.clock.wait(self.closing, step.seconds)
            if self.closing.is_set():
                raise SenderClosed


class PairedSender:
    """Sends to one entity of a pair, as the SDK's sender does; or to the backlog, while the entity is failed over.

    Any thread may use it: calls of several threads take turns. For sends side by side make more senders.
    """

    def __init__(self, client: PairedClient, path: str, make: Callable[[], ServiceBusSender]) -> None:
        self._client = client
        self._primary = SenderLink(make)
        self._way = Way(client.failover, path, self._primary)
        self._backlog: tuple[QueueName, SenderLink] | None = None
        self._turn = threading.Lock()
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def entity_name(self) -> str:
        return self._way.path

    @property
    def fully_qualified_namespace(self) -> str:
        """The primary's host name."""
        return self._client.primary.fully_qualified_namespace

    # --- what the SDK's sender does ------------------------------------------------------------------------------

    def send_messages(self, message: Any, *, timeout: float | None = None) -> None:
        """Sends a message, a list of messages or a batch. When it returns, the primary or the backlog has them.

        Takes what azure-servicebus takes and raises what it raises, and `BothSidesFailed`, `TooLargeForBacklog`,
        `UnfitForBacklog`. `timeout` is for the whole call; without one, each side gets the pair's operation timeout.
        """
        load = load_of(message)
        count = count_of(load)

        def course(deadline: Deadline, failure: Exception | None) -> Course[None]:
            return self._way.sending(lambda: encoded(load), count, deadline, failure)

        self._run(course, timeout, lambda sender, left: sender.send_messages(load, timeout=left), count)

    def schedule_messages(
        self, messages: Any, schedule_time_utc: datetime, *, timeout: float | None = None
    ) -> list[int]:
        """Sends messages that are due later, and returns the numbers they can be cancelled by.

        Messages that go by way of the backlog have none: their number is `NOT_CANCELLABLE`.
        """
        copies = scheduled(load_of(messages), schedule_time_utc)
        numbers = [NOT_CANCELLABLE] * len(copies)

        def course(deadline: Deadline, failure: Exception | None) -> Course[list[int]]:
            return self._way.sending(lambda: encoded(copies), len(copies), deadline, failure, numbers)

        return self._run(
            course, timeout, lambda sender, left: sender.schedule_messages(copies, schedule_time_utc, timeout=left)
        )

    def cancel_scheduled_messages(self, sequence_numbers: int | list[int], *, timeout: float | None = None) -> None:
        """Cancels messages that the primary has and that are not due yet."""
        check_cancellable(sequence_numbers)
        self._run(
            lambda deadline, _: self._way.cancelling(deadline),
            timeout,
            lambda sender, left: sender.cancel_scheduled_messages(sequence_numbers, timeout=left),
        )

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """An empty batch, as large as the entity takes it; while it is failed over, as large as the backlog does."""
        made: ServiceBusMessageBatch = self._run(
            lambda deadline, _: self._way.making_a_batch(deadline),
            None,
            lambda sender, _: sender.create_message_batch(max_size_in_bytes),
        )
        return made

    def close(self) -> None:
        """A send that is under way in another thread gets five seconds to finish, and fails after that."""
        self._closed.set()
        in_turn = self._turn.acquire(timeout=CLOSE_WITHIN)
        self._let_go()
        if in_turn:
            self._turn.release()
        self._client.forget(self)

    def _let_go(self) -> None:
        self._primary.close()
        if self._backlog is not None:
            self._backlog[1].close()

    # --- carrying it out -----------------------------------------------------------------------------------------

    def _run(
        self,
        course: Callable[[Deadline, Exception | None], Course[T]],
        timeout: float | None,
        action: Callable[[ServiceBusSender, float], Any],
        count: int = 0,
    ) -> T:
        """`count`: how many messages are sent, if any are."""
        if timeout is not None and timeout <= 0:
            raise ValueError("The timeout must be greater than 0.")
        left = timeout if self._turn.acquire(blocking=False) else self._wait_for_turn(timeout)
        way, failure = self._way, None
        deadline = way.deadline(left)
        try:
            if count and way.is_clear():
                try:
                    result: T = self._do(OnPrimary(deadline.whole, way.entity.failovers), action)
                except Exception as error:
                    failure = error
                else:
                    way.arrived(count)
                    return result
            return _drive(course(deadline, failure), lambda step: self._do(step, action))
        finally:
            if self._closed.is_set():
                self._let_go()  # a link that has opened since
            self._turn.release()

    def _wait_for_turn(self, timeout: float | None) -> float | None:
        """One call at a time; gives what is left of its time when it is its turn."""
        self._check_open()
        since = time.monotonic()
        if not self._turn.acquire(timeout=-1 if timeout is None else timeout):
            raise OperationTimeoutError(message=f"Other sends to '{self._way.path}' took all the time.")
        return None if timeout is None else max(0.001, timeout - (time.monotonic() - since))

    def _do(self, step: Step, action: Callable[[ServiceBusSender, float], Any]) -> Any:
        self._check_open()
        try:
            if isinstance(step, OnPrimary):
                return self._primary.use(action, step.timeout, generation=step.failovers)
            return self._do_without_primary(step)
        except Exception as error:
            if self._closed.is_set():  # whatever the SDK makes of a link that was closed under its hands
                raise SenderClosed from error
            raise

    def _do_without_primary(self, step: Step) -> Any:
        match step:
            case EmptyBatch():
                return self._backlog_link(step.queue).use(lambda sender, _: sender.create_message_batch(), step.timeout)
            case IntoBacklog(queue, batch, timeout):
                return self._backlog_link(queue).use(
                    lambda sender, left: sender.send_messages(batch, timeout=left), timeout, once_more=True
                )
            case Pause():
                self._client.clock.wait(self._closed, step.seconds)
                self._check_open()
                return None
            case _:
                raise AssertionError(f"{step} is not a sender's to do")

    def _backlog_link(self, queue: QueueName) -> SenderLink:
        """The link to the sender's backlog queue; that to another one is let go."""
        if self._backlog is None or self._backlog[0] != queue:
            if self._backlog is not None:
                self._backlog[1].drop()
            self._backlog = queue, SenderLink(lambda: self._client.secondary.get_queue_sender(queue))
        return self._backlog[1]

    def _check_open(self) -> None:
        if self._closed.is_set() or self._client.closing.is_set():
            raise SenderClosed


def _drive(course: Course[T], do: Callable[[Step], Any]) -> T:
    """Carries a course out, to its end."""
    try:
        step = next(course)
        while True:
            try:
                result = do(step)
            except Exception as error:
                step = course.throw(error)
            else:
                step = course.send(result)
    except StopIteration as done:
        ended: T = done.value
        return ended
