"""The only module that uses private names of azure-servicebus: the SDK opens a connection, and we take its socket over.

A paired sender needs more private names: for a message as the bytes that the SDK would send, and for a batch made of
such bytes.

The SDK's message objects cannot carry an ordinary .NET message (a decimal property makes its receiver return nothing
for ever), and its links settle one message per round trip. So the SDK handles connection strings, credentials, TLS,
SASL and the first token. After that the socket is ours (`wire`), and messages pass as bytes.

All private names in use are listed in `CONTRACT`; a test compares them with the SDK that is installed.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from inspect import iscoroutinefunction, isfunction
from typing import TYPE_CHECKING, Any, Protocol

from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusMessageBatch,
    TransportType,
    __version__,
)
from azure.servicebus.amqp import AmqpAnnotatedMessage

from syphon.model import DestinationMissing, Faulted, NotAuthorized, SyphonError

from .opening_errors import MISSING, explain
from .opening_limits import HandshakeInTime, Watchdog
from .proxy import HttpProxy

if TYPE_CHECKING:
    from .websocket import WebSocketCodec  # comes with an extra

SUPPORTED = "7.15."
EMULATOR_PORT = 5672
"""The SDK's port for a local emulator whose connection string names none. Our emulator speaks HTTP there too."""
IDLE_TIMEOUT = 60
"""The peer must send something within so many seconds, at least a heartbeat. By default the SDK asks for none."""
WEBSOCKET_ANSWER_WITHIN = 10.0
"""Seconds for each answer until a WebSocket is open: of the proxy, of TLS and of the service. The SDK has one second,
which is short for a tunnel through a proxy."""
SDK_WAIT = 0.2
"""Seconds that the SDK waits for a frame: it does that twice in an opening, whether or not one comes."""

CONTRACT: dict[str, tuple[str, ...]] = {
    "azure.servicebus:ServiceBusClient": (
        "_create_session_browser",
        "_config",
        "_credential",
        "_custom_endpoint_address",
        "_handlers",
    ),
    "azure.servicebus._session_browser:_SessionBrowser": ("_open", "_create_handler", "_handler"),
    "azure.servicebus._pyamqp.client:AMQPClient": (
        "_connection",
        "_shutdown",
        "_idle_timeout",
        "_ssl_opts",
        "_socket_timeout",
        "open",
    ),
    "azure.servicebus._pyamqp._connection:Connection": (
        "_transport",
        "state",
        "_remote_max_frame_size",
        "_remote_idle_timeout",
    ),
    "azure.servicebus._pyamqp._transport:_AbstractTransport": ("sock", "connected", "_read_buffer"),
    "azure.servicebus._pyamqp._transport:WebSocketTransport": ("sock",),
    "azure.servicebus._base_handler:ServiceBusSharedKeyCredential": ("policy", "key", "token_type"),
    "azure.servicebus._base_handler:ServiceBusSASTokenCredential": ("token", "token_type"),
    "azure.servicebus._base_handler:BaseHandler": ("_config", "_shutdown"),
    "azure.servicebus._common._configuration:Configuration": (
        "retry_mode",
        "retry_total",
        "retry_backoff_factor",
        "retry_backoff_max",
        "use_tls",
        "connection_verify",
        "transport_type",
        "http_proxy",
    ),
    "azure.servicebus:ServiceBusSender": ("_max_message_size_on_link", "_create_handler", "_handler"),
    "azure.servicebus:ServiceBusMessageBatch": ("_message", "_count"),
    "azure.servicebus.exceptions:ServiceBusError": ("_condition",),
    "azure.servicebus.aio:ServiceBusClient": ("_config", "_credential", "_custom_endpoint_address", "_handlers"),
    "azure.servicebus.aio:ServiceBusSender": ("_max_message_size_on_link", "_create_handler", "_handler"),
    "azure.servicebus._pyamqp.aio._client_async:AMQPClientAsync": ("close_async", "_connection"),
    "azure.servicebus.aio._base_handler_async:BaseHandler": ("_config", "_shutdown"),
}
"""The private names in use, by module and class."""


class WebSocketsNotInstalled(Faulted):
    """AMQP over WebSockets needs packages that are not installed: pip install 'syphon-servicebus[websockets]'."""


class SdkMismatch(SyphonError):
    """The installed azure-servicebus does not have the private names that we use."""


def check_contract(version: str = __version__) -> None:
    """Raises `SdkMismatch` with all that is missing, unless the SDK is one that we know."""
    problems = []
    if not version.startswith(SUPPORTED):
        problems.append(f"its version is {version}, and {SUPPORTED}* is needed")
    for place, names in CONTRACT.items():
        module, _, cls = place.partition(":")
        try:
            found = getattr(importlib.import_module(module), cls)
        except (ImportError, AttributeError):
            problems.append(f"{place} is gone")
            continue
        problems += [f"{place}.{name} is gone" for name in names if not _has(found, name)]
    if problems:
        raise SdkMismatch(
            f"azure-servicebus does not fit: {'; '.join(problems)}. Install azure-servicebus=={SUPPORTED}*, "
            "or adapt syphon/bus/sdk_internals.py and its contract."
        )


def _has(owner: type, name: str) -> bool:
    """Whether a class has the name, or one of its methods uses it: instance attributes are declared nowhere else."""
    own = vars(owner)
    return name in own or any(name in method.__code__.co_names for method in own.values() if isfunction(method))


class ByteSocket(Protocol):
    """A non-blocking socket, as far as a wire uses it: `socket.socket`, or the socket of a simulated network."""

    def recv(self, size: int, /) -> bytes: ...

    def send(self, data: memoryview, /) -> int: ...

    def fileno(self) -> int: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class OpenSocket:
    """A connection that the SDK has opened and authenticated, with one session of the SDK's own on channel 1."""

    socket: ByteSocket
    unread: bytes
    """Bytes that the SDK had read from the socket and not yet used."""
    max_frame_size: int
    idle_timeout: float | None
    """The peer closes the connection if it receives nothing for so many seconds."""
    heartbeat: float
    """The peer was asked to send something at least once in so many seconds."""
    websocket: WebSocketCodec | None = None
    """The WebSocket on the socket, if the transport is AMQP over WebSockets."""


def open_socket(
    client: ServiceBusClient, entity: str, timeout: float, handshake_within: float | None = None
) -> OpenSocket:
    """Lets the SDK open a connection for an entity, and takes its socket over.

    The service refuses a token for an entity that does not exist. Then a token for the namespace opens the connection:
    it may serve other entities, and the link to the missing one fails by itself.

    `timeout` limits the whole opening; an identity service may need much of it. `handshake_within` is a shorter limit
    for the parts that only the peer can delay: for each answer during TLS, and then for SASL and the AMQP open. The SDK
    itself limits the TCP connect, to one second for each address. With WebSockets the limit is for the connect, too.
    """
    handshake_within = min(timeout, handshake_within or timeout)
    try:
        return _open_socket(client, entity, timeout, handshake_within)
    except DestinationMissing:
        with suppress(NotAuthorized):  # the credentials are for some entities only
            return _open_socket(client, "", timeout, handshake_within)
        raise


def _open_socket(client: ServiceBusClient, entity: str, timeout: float, handshake_within: float) -> OpenSocket:
    sdk: Any = client  # private attributes have no types
    is_websocket = sdk._config.transport_type is TransportType.AmqpOverWebsocket
    if is_websocket:
        check_websockets()
        handshake_within = min(handshake_within, WEBSOCKET_ANSWER_WITHIN)
    browser = sdk._create_session_browser(entity, keep_alive=0)
    create_handler = browser._create_handler
    handler: Any = None  # the browser drops it when it fails

    def create_handler_with_heartbeats(auth: Any) -> None:
        nonlocal handler
        create_handler(auth)
        handler = browser._handler
        handler._idle_timeout = IDLE_TIMEOUT
        handler.close = partial(_close_with_socket, handler, handler.close)
        if is_websocket:
            handler._socket_timeout = handshake_within
            handler.open = partial(_open_websocket, handler, handler.open)
        if (ca_file := handler._ssl_opts.pop("ca_certs", None)) is not None:
            handler._ssl_opts["context"] = HandshakeInTime(ca_file, handshake_within)

    def cut_off() -> None:
        # There may be no handler or socket yet, or none any more. The watchdog must continue in all cases.
        with suppress(AttributeError, KeyError, TypeError, OSError):
            held = handler._connection._transport.sock
            if is_websocket:
                # The SDK has no WebSocket before the peer's whole answer has come, but TLS has the socket.
                held = handler._ssl_opts["context"].wrapped() if held is None else held.sock
            socket.socket.shutdown(held, socket.SHUT_RDWR)

    def is_in_handshake() -> bool:
        with suppress(AttributeError):
            connection = handler._connection
            return bool(connection._transport.sock.fileno() >= 0 and connection.state.name != "OPENED")
        return False  # no socket yet: the name is being looked up; or TLS has it, which has its own limit

    browser._create_handler = create_handler_with_heartbeats
    watchdog = Watchdog(timeout, cut_off, handshake_within, is_in_handshake)
    began = time.monotonic()
    watchdog.start()
    try:
        browser._open(timeout)
    except Exception as failed:
        took = time.monotonic() - began
        # Cut off by the watchdog, or by the handshake's own limit.
        is_late = took >= timeout or watchdog.is_handshake_late or (took >= handshake_within and _is_timeout(failed))
        limit = timeout if took >= timeout else handshake_within
        error = TimeoutError(f"no answer within {limit:g} s") if is_late else failed
        proxy = sdk._config.http_proxy
        via = None if proxy is None else HttpProxy.of_sdk(proxy)
        raise explain(error, client.fully_qualified_namespace, entity, via) from None
    finally:
        watchdog.stop()
    connection = browser._handler._connection
    transport = connection._transport
    # The SDK must not use the socket any more, not even when its objects are garbage-collected.
    held, transport.sock = transport.sock, None
    taken, websocket = _take_websocket(held) if is_websocket else (held, None)
    transport.connected = False
    browser._handler._shutdown = True
    taken.setblocking(False)
    taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)
    largest, idle = connection._remote_max_frame_size or 65536, connection._remote_idle_timeout
    return OpenSocket(taken, transport._read_buffer.read(), largest, idle, IDLE_TIMEOUT, websocket)


def check_websockets() -> None:
    """Raises `WebSocketsNotInstalled` if a package for AMQP over WebSockets is missing."""
    if any(importlib.util.find_spec(package) is None for package in ("websocket", "wsproto")):
        raise WebSocketsNotInstalled


def _open_websocket(handler: Any, open_handler: Callable[..., None], **options: Any) -> None:
    """Opens a connection whose answers may take long, and then waits for frames no longer than on plain AMQP."""
    open_handler(**options)
    handler._connection._transport.sock.settimeout(SDK_WAIT)


def _take_websocket(websocket: Any) -> tuple[socket.socket, WebSocketCodec]:
    from .websocket import take_over  # it needs an extra

    return take_over(websocket)


def _is_timeout(error: BaseException | None) -> bool:
    """Whether a socket's time limit is the cause of an error. The SDK wraps it."""
    while error is not None:
        if isinstance(error, TimeoutError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _close_with_socket(handler: Any, close: Callable[[], None]) -> None:
    """Closes the socket too. The SDK leaves it open if there was no session yet, or the peer left without a Close."""
    connection = handler._connection  # `close` drops it
    try:
        close()
    finally:
        if connection is not None:
            transport = connection._transport
            # First, because another thread may wait for the peer, and would keep the transport locked.
            with suppress(AttributeError, TypeError, OSError):
                held = transport.sock
                socket.socket.shutdown(getattr(held, "sock", held), socket.SHUT_RDWR)
            if hasattr(transport.sock, "frame_buffer"):
                transport.sock.shutdown()  # a WebSocket: its `close` would wait for the peer's answer
            transport.close()


async def _close_with_socket_async(handler: Any, close: Callable[[], Awaitable[None]]) -> None:
    """The same for asyncio. The transport's own `close` would wait for a task that waits for the peer."""
    connection = handler._connection
    try:
        await close()
    finally:
        transport = getattr(connection, "_transport", None)
        if (writer := getattr(transport, "writer", None)) is not None:
            writer.transport.abort()
        if (websocket := getattr(transport, "sock", None)) is not None and hasattr(websocket, "close"):
            await websocket.close()
        if (session := getattr(transport, "session", None)) is not None:
            await session.close()


# --- for senders ------------------------------------------------------------------------------------------------------

_UNLIMITED = 2**62
_DATA = 5
"""The field in which a batch keeps its encoded messages."""


def payloads_of(messages: Iterable[ServiceBusMessage | AmqpAnnotatedMessage] | ServiceBusMessageBatch) -> list[bytes]:
    """Messages as the bytes that the SDK would send: it encodes messages that are added to a batch. The messages
    themselves do not change."""
    if not isinstance(messages, ServiceBusMessageBatch):
        batch = ServiceBusMessageBatch(_UNLIMITED)
        for message in messages:
            # The SDK modifies the message that it encodes, so it gets a copy.
            annotated = copy.copy(message.raw_amqp_message if isinstance(message, ServiceBusMessage) else message)
            properties = annotated.application_properties
            annotated.application_properties = None if properties is None else dict(properties)
            batch.add_message(annotated)
        messages = batch
    sdk: Any = messages
    return [bytes(payload) for payload in sdk._message[_DATA]]


def fill(batch: ServiceBusMessageBatch, payloads: Sequence[bytes]) -> int:
    """Puts encoded messages, unchanged, into an empty batch of the SDK. Returns how many fitted into it."""
    size = count = 0
    for payload in payloads:
        size += len(payload) + (5 if len(payload) < 256 else 8)
        if count and size > batch.max_size_in_bytes:
            break
        count += 1
    sdk: Any = batch
    sdk._message[_DATA].extend(payloads[:count])
    sdk._count = count
    return count


def condition_of(error: BaseException) -> str | None:
    """The AMQP condition of an SDK error, which only a private attribute holds."""
    # The service refuses the token for an entity that does not exist. The SDK reports that as a failed authentication.
    if getattr(getattr(error, "inner_exception", None), "status_code", None) == MISSING:
        return "amqp:not-found"
    condition: object = getattr(error, "_condition", None)
    return str(getattr(condition, "value", condition)) if condition is not None else None


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, and after which pauses, a client retries."""

    total: int
    factor: float = 0.8
    longest: float = 120.0
    fixed: bool = False

    def pause(self, retried: int) -> float:
        """Seconds before the next retry, after so many retries."""
        return min(self.longest, self.factor if self.fixed else self.factor * 2.0**retried)


def disable_retries(sender: Any) -> RetryPolicy:
    """Turns off the retries of an SDK sender, sync or async. Returns its policy, for the caller to apply."""
    config = sender._config
    fixed = getattr(config.retry_mode, "value", config.retry_mode) == "fixed"
    retries = RetryPolicy(config.retry_total, config.retry_backoff_factor, config.retry_backoff_max, fixed)
    config.retry_total = 0
    return retries


def release_sockets(sender: Any) -> None:
    """Lets an SDK sender, sync or async, close the sockets of openings that fail. The SDK leaves them to the garbage
    collector: in an outage that drops connections, each try would leave one in CLOSE_WAIT."""
    create_handler = sender._create_handler

    def create_handler_that_closes(auth: Any) -> None:
        create_handler(auth)
        handler = sender._handler
        if hasattr(handler, "close_async"):
            handler.close_async = partial(_close_with_socket_async, handler, handler.close_async)
        else:
            handler.close = partial(_close_with_socket, handler, handler.close)

    sender._create_handler = create_handler_that_closes


def message_limit(sender: Any) -> int:
    """The largest message that an open SDK sender can send."""
    return int(sender._max_message_size_on_link)


@dataclass(frozen=True, slots=True)
class ConnectionDetails:
    """The host, credential, TLS settings and transport of a client: enough to make another client like it."""

    host: str
    credential: Any = field(repr=False)
    plain: bool
    """Without TLS: the namespace is an emulator."""
    ca_file: str | None
    proxy: HttpProxy | None = None
    transport: TransportType = TransportType.Amqp
    endpoint: str | None = None
    """The address to connect to, if that is not the host."""

    def options(self) -> dict[str, Any]:
        """The options of a sync client with this transport."""
        options: dict[str, Any] = {"connection_verify": self.ca_file, "transport_type": self.transport}
        if self.proxy is not None:
            options["http_proxy"] = self.proxy.for_sdk()
        return options | ({} if self.endpoint is None else {"custom_endpoint_address": self.endpoint})

    def connection_string(self) -> str | None:
        """The connection string with a key or a signature; None with a token credential."""
        credential = self.credential
        name, key = getattr(credential, "policy", None), getattr(credential, "key", None)
        if hasattr(credential, "named_key"):
            name, key = credential.named_key
        signature = getattr(credential, "signature", None) or getattr(credential, "token", None)
        if name is not None and key is not None:
            secret = f"SharedAccessKeyName={name};SharedAccessKey={key}"
        elif isinstance(signature, str | bytes):
            secret = f"SharedAccessSignature={signature.decode() if isinstance(signature, bytes) else signature}"
        else:
            return None
        return f"Endpoint=sb://{self.host};{secret}" + (";UseDevelopmentEmulator=true" if self.plain else "")


def connection_details(client: Any) -> ConnectionDetails:
    """The details that an SDK client, sync or async, was made with."""
    config = client._config
    return ConnectionDetails(
        client.fully_qualified_namespace,
        client._credential,
        not config.use_tls,
        config.connection_verify,
        None if config.http_proxy is None else HttpProxy.of_sdk(config.http_proxy),
        config.transport_type,
        client._custom_endpoint_address,
    )


def is_shut_down(sender: Any) -> bool:
    """Whether an SDK sender, sync or async, was closed: by its user, or because its client was closed."""
    return bool(sender._shutdown.is_set())


class CloseWatch:
    """Notices that an SDK client is closed, also one that the application has made and closes itself.

    A client closes all senders and receivers that it has made. The watch joins them as one more, so the client closes
    it too. The client keeps only weak references: the owner of the watch must keep it.
    """

    def __init__(self, client: Any, on_close: Callable[[], None]) -> None:
        """`on_close` is called in the thread or task that closes the client, and must not raise."""
        self._on_close: Callable[[], None] | None = on_close
        client._handlers.add(self)

    def __hash__(self) -> int:
        """Puts the watch at the front of the client's set: `on_close` is called before a sender is closed."""
        return 0

    def close(self) -> None:
        """The client calls this."""
        self.tell()

    def tell(self) -> None:
        if self._on_close is not None:
            self._on_close()

    def stop(self) -> None:
        """Ends the watch. It does not leave the client's set: the client may be going through that set just now."""
        self._on_close = None


class AioCloseWatch(CloseWatch):
    """The same for a client of the asyncio API, which awaits what it closes."""

    async def close(self) -> None:  # type: ignore[override]
        self.tell()


def watch_close(client: Any, on_close: Callable[[], None]) -> CloseWatch:
    """Watches an SDK client, sync or async."""
    return (AioCloseWatch if iscoroutinefunction(client.close) else CloseWatch)(client, on_close)
