"""The sync API: `pair`, the paired client and its senders. It executes the steps of `send_flow` in threads."""

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

from syphon.backlog import Provisioned
from syphon.model import Faulted
from syphon.servicebus import ConnectionDetails, connection_details
from syphon.time_budget import CLOSE_WITHIN

from .base import PairedClientBase, PairedSenderBase, check_timeout, embedded_syphon, left_after_waiting
from .entity_state import PrimaryEntity
from .error_classes import SenderClosed
from .pair_options import PairOptions
from .pair_state import Side
from .pairing import NamespaceClient, administration_details, find_fault, is_in_backlog, set_up
from .send_calls import CancelMessages, CreateBatch, ScheduleMessages, SenderCall, SendMessages, ping_message
from .send_flow import Delay, FindInBacklog, FlowStep, SendPing, Steps, UsePrimary, watch_entity
from .sender_links import SenderLink, close_quietly

if TYPE_CHECKING:
    from .embedded import EmbeddedSyphon

T = TypeVar("T")
NamespaceSource: TypeAlias = str | tuple[str, TokenCredential] | ServiceBusClient


def pair(
    primary: NamespaceSource,
    secondary: NamespaceSource,
    options: PairOptions | None = None,
    *,
    provision: bool = True,
    secondary_administration: str | tuple[str, TokenCredential] | None = None,
    clock: SyncClock | None = None,
) -> PairedClient:
    """A primary and a secondary namespace as one client to send with.

    Each is a connection string, a host name with a credential of azure-identity, or a `ServiceBusClient` that you have.
    When `pair` returns, the backlog queues exist. It raises an error if something is wrong: `NotAuthorized` (the
    secondary needs the Manage claim), `NoBacklogQueue`, `BadOptions`, ValueError. An unavailable primary is no error.

    An application without the Manage claim gives `secondary_administration` another credential for the secondary, only
    for provisioning: a connection string, or a host name with a credential. With `provision=False` it uses the queues
    that others have made.

    >>> with pair(primary, secondary) as client, client.get_queue_sender("orders") as sender:
    ...     sender.send_messages(ServiceBusMessage("hello"))
    """
    options, clock = options or PairOptions(), clock or SyncClock()
    first = NamespaceClient.of(primary, ServiceBusClient, "primary")
    second = NamespaceClient.of(secondary, ServiceBusClient, "secondary")
    administration = administration_details(secondary_administration, connection_details(second.client), provision)
    backlog = set_up(first.client, second.client, options, administration)
    syphon = embedded_syphon(lambda: (first.client, second.client), backlog, options, clock.now)
    return PairedClient(first, second, backlog, options=options, clock=clock, syphon=syphon)


class SyncClock:
    """The real clock of the sync API. Tests use another one."""

    def now(self) -> float:
        return time.monotonic()

    def wait(self, event: threading.Event, seconds: float) -> None:
        """Waits for an event, but not longer than `seconds`."""
        event.wait(seconds)


class PairedClient(PairedClientBase[ServiceBusClient, ServiceBusReceiver, "PairedSender"]):
    """Two namespaces to send with. Any thread may use it."""

    def __init__(
        self,
        primary: NamespaceClient,
        secondary: NamespaceClient,
        backlog: Provisioned,
        *,
        options: PairOptions,
        clock: SyncClock,
        syphon: EmbeddedSyphon | None,
    ) -> None:
        super().__init__(
            primary,
            secondary,
            backlog,
            options=options,
            now=clock.now,
            syphon=syphon,
            find_fault=self._find_fault,
        )
        self.clock = clock
        self.closing: threading.Event = threading.Event()
        self._watchers: list[threading.Thread] = []
        self.coupling.watch(self.primary, self.secondary, syphon)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes all senders, and the clients that `pair` has made. Sends in flight get five seconds to finish."""
        if self.is_forked:  # the connections are the parent's
            return
        self._begin_close()
        if self.syphon is not None:
            self.syphon.close()
        with self._lock:
            senders, watchers = list(self._senders), list(self._watchers)
        # In parallel: the SDK takes half a second to close a sender, and a stuck sender gets its five seconds.
        closers = [threading.Thread(target=sender.close, daemon=True) for sender in senders]
        for closer in closers:
            closer.start()
        until = time.monotonic() + 2 * CLOSE_WITHIN
        for thread in (*closers, *watchers):
            thread.join(max(0.0, until - time.monotonic()))
        for client in self._owned_clients:
            client.close()
        self.coupling.close()

    def _new_sender(self, path: str, create: Callable[[], ServiceBusSender]) -> PairedSender:
        return PairedSender(self, path, create)

    def _primary_details(self) -> ConnectionDetails:
        return connection_details(self.primary)

    # --- the end of the pair -------------------------------------------------------------------------------------

    def _call_soon(self, work: Callable[[], None]) -> None:
        work()

    def _close_all(self, handlers: list[Any]) -> None:
        for handler in handlers:
            threading.Thread(target=close_quietly, args=(handler,), name="close faulted", daemon=True).start()

    def _start_grace(self) -> None:
        threading.Thread(target=self._wait_for_partner, name="five seconds", daemon=True).start()

    def _wait_for_partner(self) -> None:
        while (left := self.coupling.seconds_left()) is not None and not self.closing.is_set():
            self.clock.wait(self.closing, left)
            self.coupling.pair.check()

    def _find_fault(self, side: Side, path: str) -> Faulted | None:
        client = self.primary if side == "primary" else self.secondary
        return find_fault(client, path)

    # --- the watch over an entity --------------------------------------------------------------------------------

    def _start_watch(self, entity: PrimaryEntity) -> None:
        watcher = threading.Thread(target=self._watch, args=(entity,), name=f"watch {entity.path}", daemon=True)
        with self._lock:
            self._watchers = [*(thread for thread in self._watchers if thread.is_alive()), watcher]
            watcher.start()

    def _watch(self, entity: PrimaryEntity) -> None:
        with contextlib.suppress(SenderClosed):
            _execute(watch_entity(self.failover, entity), self._execute_watch_step)

    def _execute_watch_step(self, step: FlowStep) -> bool | None:
        if isinstance(step, SendPing):
            self.check_side("primary")
            link = SenderLink(lambda: self.primary.get_queue_sender(step.path))
            try:
                link.use(lambda sender, left: sender.send_messages(ping_message(), timeout=left), step.timeout)
            except Exception as error:
                self.coupling.suspect("primary", step.path, error)
                raise
            finally:
                link.drop()
        elif isinstance(step, FindInBacklog):
            return is_in_backlog(self.secondary, step.queues, step.path)
        elif isinstance(step, Delay):
            self.clock.wait(self.closing, step.seconds)
            if self.closing.is_set():
                raise self.closed_error()
        return None


class PairedSender(PairedSenderBase[SenderLink]):
    """Sends to one entity of a pair, as the SDK's sender does, or to the backlog while the entity is failed over.

    Any thread may use it: calls of several threads take turns. For parallel sends make more senders.
    """

    def __init__(self, client: PairedClient, path: str, create: Callable[[], ServiceBusSender]) -> None:
        super().__init__(
            client, path, SenderLink(create), lambda queue: SenderLink(lambda: client.secondary.get_queue_sender(queue))
        )
        self._client = client
        self._turn = threading.Lock()
        self._closed: threading.Event = threading.Event()

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- the methods of the SDK's sender -------------------------------------------------------------------------

    def send_messages(self, message: Any, *, timeout: float | None = None) -> None:
        """Sends a message, a list of messages or a batch. When it returns, the primary or the backlog has them.

        Takes what azure-servicebus takes and raises what it raises, and `BothSidesFailed`, `TooLargeForBacklog`,
        `UnfitForBacklog`. `timeout` is for the whole call; without one, each side gets the pair's operation timeout.
        """
        self._run(SendMessages(message), timeout)

    def schedule_messages(
        self, messages: Any, schedule_time_utc: datetime, *, timeout: float | None = None
    ) -> list[int]:
        """Sends messages that are due later, and returns the sequence numbers to cancel them with.

        Messages that go through the backlog have no such number: they get `NOT_CANCELLABLE`.
        """
        return self._run(ScheduleMessages(messages, schedule_time_utc), timeout)

    def cancel_scheduled_messages(self, sequence_numbers: int | list[int], *, timeout: float | None = None) -> None:
        """Cancels messages that the primary has and that are not due yet."""
        self._run(CancelMessages(sequence_numbers), timeout)

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """An empty batch with the entity's size limit, or with that of the backlog while the entity is failed over."""
        return self._run(CreateBatch(max_size_in_bytes), None)

    def close(self) -> None:
        """Closes the sender. A send in flight in another thread gets five seconds to finish, and then fails."""
        if self._client.is_forked:
            return
        self._closed.set()
        has_turn = self._turn.acquire(timeout=CLOSE_WITHIN)
        self._close_links()
        if has_turn:
            self._turn.release()
        self._client.remove_sender(self)

    def _close_links(self) -> None:
        for link in self._links():
            link.close()

    # --- executing a call ----------------------------------------------------------------------------------------

    def _run(self, call: SenderCall[T], timeout: float | None) -> T:
        check_timeout(timeout)
        self._client.check_process()
        left = timeout if self._turn.acquire(blocking=False) else self._wait_for_turn(timeout)
        flow, failure = self._flow, None
        deadline = flow.deadline(left)
        try:
            if call.count and flow.can_skip_steps():
                try:
                    result: T = self._execute_step(UsePrimary(deadline.whole, flow.entity.failovers), call)
                except Exception as error:
                    failure = error
                else:
                    flow.record_success(call.count)
                    return result
            steps = call.steps(flow, deadline, begins_at_primary=failure is not None)
            return _execute(steps, lambda step: self._execute_step(step, call), failure)
        finally:
            if self._closed.is_set():
                self._close_links()  # a link may have been opened since
            self._turn.release()

    def _wait_for_turn(self, timeout: float | None) -> float | None:
        """Waits until no other call uses the sender; returns what is left of the timeout then."""
        self._check_open()
        since = time.monotonic()
        if not self._turn.acquire(timeout=-1 if timeout is None else timeout):
            raise OperationTimeoutError(message=f"Other sends to '{self._flow.path}' used up all the time.")
        return left_after_waiting(timeout, time.monotonic() - since)

    def _execute_step(self, step: FlowStep, call: SenderCall[Any]) -> Any:
        self._check_step(step)
        try:
            if isinstance(step, UsePrimary):
                return self._primary.use(call.use_primary, step.timeout, generation=step.failovers)
            if isinstance(step, Delay):
                self._client.clock.wait(self._closed, step.seconds)
                return self._check_open()
            link, action, retry_if_stale = self._use_of_backlog(step)
            return link.use(action, step.timeout, retry_if_stale=retry_if_stale)
        except Exception as error:
            explained = self._explain_failure(step, error)
            if explained is error:
                raise
            raise explained from error


def _execute(steps: Steps[T], execute: Callable[[FlowStep], Any], failure: Exception | None = None) -> T:
    """Executes the steps of a flow until it ends; returns its result. `failure`: that of an executed first step."""
    try:
        step = next(steps)
        if failure is not None:
            step = steps.throw(failure)
        while True:
            try:
                result = execute(step)
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        value: T = end.value
        return value
