"""What the paired client and the paired sender of the sync API and of the asyncio API have in common.

`sync` and `aio` add only the waiting: how a step is executed, how a call waits for its turn, and how closing works.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from azure.servicebus import ServiceBusClient

from syphon.backlog import Provisioned, QueueName
from syphon.servicebus import ConnectionDetails, NamespaceStatus, refuse_use

from .entity_state import PrimaryEntity
from .error_classes import PairFaulted, SenderClosed, UsedAfterFork
from .events import SideEnded
from .pair_options import PairOptions
from .pair_state import FindFault, PairCoupling, PairSideState, PairState, Side
from .pairing import NamespaceClient, warn_if_partitioned
from .send_flow import CreateBacklogBatch, Delay, FlowStep, SendFlow, SendToBacklog, UsePrimary
from .sender_links import SenderLinkState
from .shared_failover import Failover

if TYPE_CHECKING:
    import asyncio

    from .embedded import EmbeddedSyphon

ClientT = TypeVar("ClientT", bound=Any)
ReceiverT = TypeVar("ReceiverT")
PairedSenderT = TypeVar("PairedSenderT")
LinkT = TypeVar("LinkT", bound=SenderLinkState[Any])
Action: TypeAlias = Callable[[Any, float], Any]


def embedded_syphon(
    clients: Callable[[], tuple[ServiceBusClient, ServiceBusClient]],
    backlog: Provisioned,
    options: PairOptions,
    now: Callable[[], float],
) -> EmbeddedSyphon | None:
    """Starts the syphon of `enable_syphon`. `clients` gives the sync clients of the primary and the secondary."""
    if not options.enable_syphon:
        return None
    from .embedded import EmbeddedSyphon

    syphon = EmbeddedSyphon(*clients(), backlog.names, now, options.session_order)
    syphon.start()
    return syphon


class PairedClientBase(ABC, Generic[ClientT, ReceiverT, PairedSenderT]):
    """Two namespaces to send with."""

    closing: threading.Event | asyncio.Event
    """Set as soon as the client is being closed, or both sides of the pair have ended: nothing waits any longer."""

    def __init__(
        self,
        primary: NamespaceClient,
        secondary: NamespaceClient,
        backlog: Provisioned,
        *,
        options: PairOptions,
        now: Callable[[], float],
        syphon: EmbeddedSyphon | None,
        find_fault: FindFault,
    ) -> None:
        self.primary: ClientT = primary.client
        """The primary's client, for everything except sending."""
        self.secondary: ClientT = secondary.client
        self.backlog = backlog
        """The backlog queues, and what provisioning found out about them."""
        self.syphon = syphon
        """Moves the backlog to the primary, with `enable_syphon`."""
        self.failover = Failover(
            self.primary.fully_qualified_namespace,
            options,
            backlog.names,
            now,
            self._start_watch,
            sorted(
                (queue.name for queue in (*backlog.queues, *backlog.dropped)),
                key=_index,
            ),
        )
        self._checked: set[PrimaryEntity] = set()
        self._owned_clients: list[ClientT] = [side.client for side in (primary, secondary) if side.is_owned]
        self._senders: set[PairedSenderT] = set()
        self._lock = threading.Lock()  # never held while waiting, so that the asyncio API may use it too
        self._process = os.getpid()
        self._is_closed = False
        hosts = self.primary.fully_qualified_namespace, self.secondary.fully_qualified_namespace
        self.coupling = PairCoupling(*hosts, now, find_fault, self._side_ended)

    @property
    def state(self) -> PairState:
        """Both sides of the pair: opened, closing, closed or faulted."""
        self.check_process()
        return self.coupling.state()

    @property
    def backlog_queue_count(self) -> int:
        """How many backlog queues there are: fewer than requested, if some could not be created."""
        return self.backlog.count

    @property
    def failed_over(self) -> tuple[str, ...]:
        """The entities whose messages currently go to the backlog."""
        self.check_process()
        return self.failover.failed_over()

    def get_queue_sender(self, queue_name: str, **options: Any) -> PairedSenderT:
        """A sender for a queue; options are those of `ServiceBusClient.get_queue_sender`."""
        return self._add_sender(queue_name, lambda: self.primary.get_queue_sender(queue_name, **options))

    def get_topic_sender(self, topic_name: str, **options: Any) -> PairedSenderT:
        """A sender for a topic; options are those of `ServiceBusClient.get_topic_sender`."""
        return self._add_sender(topic_name, lambda: self.primary.get_topic_sender(topic_name, **options))

    def get_queue_receiver(self, queue_name: str, **options: Any) -> ReceiverT:
        """A receiver of the primary."""
        receiver: ReceiverT = self.primary.get_queue_receiver(queue_name, **options)
        return receiver

    def get_subscription_receiver(self, topic_name: str, subscription_name: str, **options: Any) -> ReceiverT:
        """A receiver of the primary."""
        receiver: ReceiverT = self.primary.get_subscription_receiver(topic_name, subscription_name, **options)
        return receiver

    def _add_sender(self, path: str, create: Callable[[], Any]) -> PairedSenderT:
        self.check_open()
        sender = self._new_sender(path, create)
        entity = self.failover.entity(path)
        with self._lock:
            self._senders.add(sender)
            is_new = entity not in self._checked
            self._checked.add(entity)
        if is_new:
            warn_if_partitioned(self._primary_details(), entity.path, self.failover.operation_timeout)
        return sender

    def remove_sender(self, sender: PairedSenderT) -> None:
        """A sender calls this when it has been closed."""
        with self._lock:
            self._senders.discard(sender)

    # --- the end of the pair -------------------------------------------------------------------------------------

    @property
    def is_forked(self) -> bool:
        """Whether this process is a child of the process that made the pair."""
        return self._process != os.getpid()

    def check_process(self) -> None:
        """Raises an error in a child process. It must come before any lock: a thread of the parent may hold one."""
        if self._process != os.getpid():
            raise UsedAfterFork(self._process, os.getpid())

    def check_open(self) -> None:
        """Raises an error if nothing can be sent now."""
        self.check_process()
        if self.closing.is_set():
            raise self.closed_error()

    def check_side(self, side: Side) -> None:
        """Raises an error if a side has ended."""
        if not self.coupling.is_whole and self.coupling.has_ended(side):
            raise self.closed_error()

    def closed_error(self) -> SenderClosed:
        """The error for calls on a closed pair: the application has closed it, or a side has ended."""
        return SenderClosed() if self._is_closed or self.coupling.is_whole else PairFaulted(self.state)

    def _begin_close(self) -> None:
        """The first steps of closing."""
        self._is_closed = True
        self.coupling.stop_watching()
        self.closing.set()

    def _side_ended(self, state: PairSideState) -> None:
        """A side was closed or faulted, in any thread. The rest happens where the events of the pair are handled."""
        if not self.is_forked:  # a child process that closes its copy of a client ends nothing
            self._call_soon(lambda: self._end_pair(state))

    def _end_pair(self, state: PairSideState) -> None:
        has_ended = self.coupling.pair.has_ended
        if not has_ended:
            self._start_grace()
        else:
            self._end_clients()
            self.closing.set()  # before anyone hears of the end, and calls
        self.failover.report(SideEnded(state))

    def _end_clients(self) -> None:
        """Ends the clients of the sides that are faulted: the application's own senders and receivers raise, too (C1).

        A pair whose two sides have not both ended keeps its clients: messages in flight have the five seconds.
        """
        state = self.coupling.state()
        for side, client in ((state.primary, self.primary), (state.secondary, self.secondary)):
            if side.status is NamespaceStatus.FAULTED:
                self._close_all(refuse_use(client, self.closed_error))

    @abstractmethod
    def _primary_details(self) -> ConnectionDetails:
        """How to reach the primary from a thread."""

    @abstractmethod
    def _call_soon(self, work: Callable[[], None]) -> None:
        """Calls a function where `closing` may be set: in this thread, or on the event loop."""

    @abstractmethod
    def _close_all(self, handlers: list[Any]) -> None:
        """Closes senders and receivers of the SDK in the background."""

    @abstractmethod
    def _start_grace(self) -> None:
        """Waits for the rest of the five seconds in the background, and then applies the rule."""

    @abstractmethod
    def _new_sender(self, path: str, create: Callable[[], Any]) -> PairedSenderT:
        """Makes a paired sender; `create` makes the SDK's sender for the primary."""

    @abstractmethod
    def _start_watch(self, entity: PrimaryEntity) -> None:
        """Starts the watch over an entity, which lasts from its first failure until it is healthy."""


class PairedSenderBase(Generic[LinkT]):
    """Sends to one entity of a pair, as the SDK's sender does, or to the backlog while the entity is failed over."""

    _closed: threading.Event | asyncio.Event

    def __init__(
        self,
        client: PairedClientBase[Any, Any, Any],
        path: str,
        primary: LinkT,
        link_to_backlog: Callable[[QueueName], LinkT],
    ) -> None:
        self._pair = client
        self._primary = primary
        self._flow = SendFlow(client.failover, path, primary)
        self._link_to_backlog = link_to_backlog
        self._backlog: tuple[QueueName, LinkT] | None = None

    @property
    def entity_name(self) -> str:
        return self._flow.path

    @property
    def fully_qualified_namespace(self) -> str:
        """The primary's host name."""
        name: str = self._pair.primary.fully_qualified_namespace
        return name

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise SenderClosed
        if self._pair.closing.is_set():
            raise self._pair.closed_error()

    def _check_step(self, step: FlowStep) -> None:
        """Raises an error if the sender is closed, or the side that the step needs has ended."""
        self._check_open()
        if (side := _side_of(step)) is not None:
            self._pair.check_side(side)

    def _explain_failure(self, step: FlowStep, error: Exception) -> Exception:
        """The error that the flow gets for an error of the SDK."""
        if self._closed.is_set():  # the SDK raises various errors on a link that is closed during its use
            return SenderClosed()
        side, coupling = _side_of(step), self._pair.coupling
        if side is None or isinstance(error, SenderClosed):
            return error
        link = self._primary if side == "primary" else self._backlog[1] if self._backlog is not None else None
        if link is not None and link.is_shut_down and not self._pair.closing.is_set():
            coupling.was_closed(side)
        coupling.suspect(side, self._flow.path if side == "primary" else getattr(step, "queue", ""), error)
        return self._pair.closed_error() if coupling.has_ended(side) else error

    def _links(self) -> list[LinkT]:
        """All links of the sender, to be closed."""
        return [self._primary] if self._backlog is None else [self._primary, self._backlog[1]]

    def _use_of_backlog(self, step: FlowStep) -> tuple[LinkT, Action, bool]:
        """What a step does with the backlog: the link, the action, and whether to retry if the link is stale."""
        match step:
            case CreateBacklogBatch():
                return self._backlog_link(step.queue), lambda sender, _: sender.create_message_batch(), False
            case SendToBacklog(queue, batch):
                return self._backlog_link(queue), lambda sender, left: sender.send_messages(batch, timeout=left), True
            case _:
                raise AssertionError(f"a sender cannot execute {step}")

    def _backlog_link(self, queue: QueueName) -> LinkT:
        """The link to the sender's backlog queue. The sender drops its link to any other backlog queue."""
        if self._backlog is None or self._backlog[0] != queue:
            if self._backlog is not None:
                self._backlog[1].drop()
            self._backlog = queue, self._link_to_backlog(queue)
        return self._backlog[1]


def _index(queue: QueueName) -> int:
    return int(queue.rsplit("/", 1)[1])


def _side_of(step: FlowStep) -> Side | None:
    if isinstance(step, UsePrimary):
        return "primary"
    return None if isinstance(step, Delay) else "secondary"


def check_timeout(timeout: float | None) -> None:
    """Refuses a timeout that the SDK refuses, too."""
    if timeout is not None and timeout <= 0:
        raise ValueError("The timeout must be greater than 0.")


def left_after_waiting(timeout: float | None, waited: float) -> float | None:
    """What is left of a call's timeout when it was its turn."""
    return None if timeout is None else max(0.001, timeout - waited)
