"""Senders with failover as the thing under test, and a worker that moves what they leave in the backlog.

The flow of a call, the failover state and the watch over an entity are the product's own. The SDK, which executes the
steps of a flow, is not simulated: here the product's raw links do what the SDK would.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

from syphon.amqp import Properties, data_section, properties_bytes
from syphon.amqp.frames import BATCH_FORMAT
from syphon.backlog import QueueName
from syphon.model import DestinationBusy, EntityPath, Interrupted, RetryPolicy, SyphonError
from syphon.sender import BothSidesFailed, PairOptions
from syphon.sender.entity_state import PrimaryEntity
from syphon.sender.pairing import names
from syphon.sender.send_flow import (
    CreateBacklogBatch,
    Delay,
    FindInBacklog,
    FlowStep,
    SendFlow,
    SendPing,
    SendToBacklog,
    Steps,
    UsePrimary,
    watch_entity,
)
from syphon.sender.shared_failover import BacklogQueuePool, Failover
from syphon.servicebus import RawSender, peek

from .checker import PING_ID
from .connections import connect_and_wait, simulated_namespace
from .incident import FAILOVER, OPERATION_TIMEOUT, PING, SimulatedMessage
from .threads import SimulatedProcess
from .worker_runner import WorkerRunner

if TYPE_CHECKING:
    from .world import World

LARGEST = 256 * 1024
SHORTEST = 1e-6
"""Seconds of the shortest delay: virtual time must go on, or a loop that waits for a moment would never end."""


class SimulatedLink:
    """One link of a sender: as much as a flow asks of the SDK's sender. It is opened when it is first needed."""

    def __init__(self, process: SimulatedProcess, namespace: str, path: str) -> None:
        self.retries = RetryPolicy(0)
        self.limit: int | None = None
        self.path = path
        self._process = process
        self._name = namespace
        self._namespace = simulated_namespace(process, namespace)
        self._sender: RawSender[int] | None = None
        self._generation = 0

    def send(self, payload: bytes, message_format: int, timeout: float, generation: int = 0) -> None:
        """Sends, and waits for the answer. Raises what the SDK raises."""
        if generation != self._generation:
            self._generation = generation
            self._drop()
        until = self._process.clock.now() + timeout
        try:
            sender = self._open(until)
            sender.send(payload, message_format, 0)
            while not sender.results:
                self._turn(until)
            sent = sender.results.popleft()
        except SyphonError as error:
            self._drop()
            raise _as_the_sdk_says(error) from error
        except OperationTimeoutError:
            self._drop()
            raise
        if sent.error is not None:
            self._drop()
            raise _as_the_sdk_says(sent.error)

    def open(self, timeout: float) -> None:
        try:
            self._open(self._process.clock.now() + timeout)
        except SyphonError as error:
            self._drop()
            raise _as_the_sdk_says(error) from error

    def _open(self, until: float) -> RawSender[int]:
        while self._sender is None or not self._sender.has_room():
            connection = self._namespace.connection()
            if connection is None and self._namespace.error is not None:
                raise self._namespace.error
            if connection is not None and self._sender is None and connection.tokens.allow(self.path):
                self._sender = RawSender(connection.wire, self.path)
            if self._sender is not None and self._sender.error is not None:
                raise self._sender.error
            self._turn(until)
        return self._sender

    def _turn(self, until: float) -> None:
        if self._process.clock.now() >= until:
            raise OperationTimeoutError(message="no answer in time")
        connection = self._namespace.connection()
        self._process.runtime.wait([connection.wire] if connection is not None else [], 0.5)
        if connection is not None:
            if connection.wire.failure is not None:
                raise connection.wire.failure
            connection.read()
            connection.tick()

    def _drop(self) -> None:
        """The next use opens a new connection."""
        self._namespace.close()
        self._namespace = simulated_namespace(self._process, self._name)
        self._sender = None


def _as_the_sdk_says(error: SyphonError) -> ServiceBusError:
    if isinstance(error, DestinationBusy):
        return ServiceBusServerBusyError(message=str(error))
    if isinstance(error, Interrupted):
        return ServiceBusConnectionError(message=str(error))
    return ServiceBusError(str(error))


class SimulatedSender:
    """One sender of an application: it sends its messages one after another, each when its time has come."""

    def __init__(self, runner: SenderRunner, path: str, messages: list[SimulatedMessage]) -> None:
        self._runner = runner
        self._world = runner.world
        self._messages = messages
        self._primary = SimulatedLink(runner.process, "contoso", path)
        self._backlog: dict[QueueName, SimulatedLink] = {}
        self._flow = SendFlow(runner.failover, path, self._primary)

    def run(self) -> None:
        process, checker = self._runner.process, self._world.checker
        for message in sorted(self._messages, key=lambda message: message.at):
            process.runtime.event().wait(message.at - self._world.time.now)
            properties = Properties(message_id=message.id, group_id=message.session)
            payload = properties_bytes(properties) + data_section(b"x" * message.size)
            flow = self._flow.send(lambda payload=payload: [payload], 1, self._flow.deadline(None))  # type: ignore[misc]
            try:
                execute(flow, lambda step, payload=payload: self._do(step, payload))  # type: ignore[misc]
            except (ServiceBusError, BothSidesFailed) as error:
                self._world.note("not sent", f"{message.id}: {type(error).__name__} {error}")
                checker.refused(message.id)
            else:
                checker.sent(message.id)

    def _do(self, step: FlowStep, payload: bytes) -> Any:
        if isinstance(step, UsePrimary):
            if self._flow.entity.is_failed_over:
                self._world.checker.fail(f"{self._flow.path} is failed over, and a sender uses the primary")
            return self._primary.send(payload, 0, step.timeout, step.failovers)
        if isinstance(step, Delay):
            return self._runner.process.runtime.event().wait(max(step.seconds, SHORTEST))
        assert isinstance(step, CreateBacklogBatch | SendToBacklog)  # a sender has no other steps
        link = self._backlog.setdefault(step.queue, SimulatedLink(self._runner.process, "contoso-dr", step.queue))
        if isinstance(step, CreateBacklogBatch):
            link.open(step.timeout)
            return ServiceBusMessageBatch(LARGEST)
        batch: Any = step.batch
        sections = b"".join(data_section(bytes(part)) for part in batch._message[5])
        return link.send(sections, BATCH_FORMAT, step.timeout)


def execute(steps: Steps[Any], do: Callable[[FlowStep], Any]) -> None:
    """Executes the steps of a flow, as the sync API does."""
    try:
        step = next(steps)
        while True:
            try:
                result = do(step)
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration:
        return


class SenderRunner(WorkerRunner):
    """Runs the senders of one application beside a worker."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.world = world

    def start(self) -> None:
        super().start()
        world = self.world
        self.process = SimulatedProcess(world.time, world.network, world.clock)
        options = PairOptions(
            operation_timeout=timedelta(seconds=OPERATION_TIMEOUT),
            allow_short_timeouts=True,
            failover_interval=timedelta(seconds=FAILOVER),
            ping_primary_interval=timedelta(seconds=PING),
            session_order=world.incident.keeps_order,
            session_order_wait=timedelta(hours=1),
            on_change=lambda change: world.note("sender:", change),
        )
        queues = [QueueName(path) for path in world.queues]
        self.failover = Failover("contoso", options, queues, world.clock.now, self._watch)
        self.failover._pool = BacklogQueuePool(queues, world.rng.choice)
        by_path: dict[str, list[SimulatedMessage]] = {}
        for message in world.incident.messages:
            by_path.setdefault(message.destination, []).append(message)
        for path, messages in by_path.items():
            self.process.spawn(SimulatedSender(self, path, messages).run, f"send to {path}")

    def _watch(self, entity: PrimaryEntity) -> None:
        self.process.spawn(lambda: execute(watch_entity(self.failover, entity), self._do), f"watch {entity.path}")

    def _do(self, step: FlowStep) -> Any:
        if isinstance(step, Delay):
            return self.process.runtime.event().wait(max(step.seconds, SHORTEST))
        if isinstance(step, FindInBacklog):
            return self._is_in_backlog(step)
        assert isinstance(step, SendPing)  # a watch has no other steps
        link = SimulatedLink(self.process, "contoso", step.path)
        ping = properties_bytes(Properties(message_id=PING_ID)) + data_section(b"")
        link.send(ping, 0, step.timeout)
        return link._drop()

    def _is_in_backlog(self, step: FindInBacklog) -> bool:
        connection, key = connect_and_wait(self.process, "contoso-dr"), EntityPath.of(step.path).key
        try:
            return any(names(message.payload, key) for queue in step.queues for message in peek(connection, queue))
        finally:
            connection.close()

    def end(self) -> None:
        super().end()
        self.world.checker.check_return(self.failover.failed_over())
        self.process.crash()
