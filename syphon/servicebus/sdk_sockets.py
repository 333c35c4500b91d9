"""Opening a connection: the SDK does that, with its private names, and we take its socket over.

The SDK's message objects cannot carry an ordinary .NET message (a decimal property makes its receiver return nothing
forever), and its links settle one message per round trip. So the SDK handles connection strings, credentials, TLS,
SASL and the first token. After that the socket is ours (`wire`), and messages pass as bytes.

`sdk_clients` has the other private names that we use; all are listed in `sdk_private_names`.
"""

from __future__ import annotations

import re
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self

from azure.servicebus import ServiceBusClient, TransportType
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusAuthorizationError

from syphon.model import (
    DestinationMissing,
    DestinationUnreachable,
    Extra,
    Faulted,
    NamespaceGone,
    NotAuthorized,
    SyphonError,
)
from syphon.time_budget import IDLE_TIMEOUT, SDK_WAIT, WEBSOCKET_ANSWER_WITHIN

from .proxy_settings import HttpProxy

if TYPE_CHECKING:
    from .websocket_codec import WebSocketCodec  # comes with an extra


class HandshakeInTime(ssl.SSLContext):
    """Trusts the authorities that the SDK would trust. The SDK would wait forever for the peer's handshake; this one
    has a time limit."""

    within: float
    wrapped: Callable[[], ssl.SSLSocket | None]
    """The last socket that it made, while that is in use."""

    def __new__(cls, ca_file: str, within: float) -> Self:
        context = super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(ca_file)
        context.within = within
        return context

    def wrap_socket(self, sock: socket.socket, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        sock.settimeout(self.within)
        made = super().wrap_socket(sock, *arguments, **options)
        self.wrapped = weakref.ref(made)
        return made


class Watchdog(threading.Thread):
    """Ends an opening that takes too long: the SDK waits forever for a peer that accepts the connection and is silent.

    A load balancer whose service is down is such a peer. Without the watchdog the opening would never be retried.
    """

    CHECK_EVERY = 0.25
    """Seconds between two checks of the handshake."""

    def __init__(
        self, timeout: float, cut_off: Callable[[], None], handshake: float, is_in_handshake: Callable[[], bool]
    ) -> None:
        super().__init__(name="watchdog", daemon=True)
        self.is_handshake_late = False
        self._timeout = timeout
        self._cut_off = cut_off
        self._handshake = handshake
        self._is_in_handshake = is_in_handshake
        self._over = threading.Event()

    def run(self) -> None:
        if self._handshake < self._timeout:
            self._watch_handshake()
        else:
            self._over.wait(self._timeout)
        while not self._over.is_set():
            self._cut_off()
            self._over.wait(1.0)

    def _watch_handshake(self) -> None:
        """Returns when one of the two limits is over."""
        now = began = time.monotonic()
        since: float | None = None
        while now < began + self._timeout and not self._over.wait(self.CHECK_EVERY):
            now = time.monotonic()
            if not self._is_in_handshake():
                since = None
            elif since is None:
                since = now
            elif now - since >= self._handshake:
                self.is_handshake_late = True
                return

    def stop(self) -> None:
        self._over.set()


EMULATOR_PORT = 5672
"""The SDK's port for a local emulator whose connection string names none. Our emulator speaks HTTP there too."""


class WebSocketsNotInstalled(Faulted):
    """AMQP over WebSockets needs packages that are not installed: pip install 'syphon-servicebus[websockets]'."""


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
    """The peer closes the connection if it receives nothing for this many seconds."""
    heartbeat: float
    """We have requested a frame from the peer at least once within this many seconds."""
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
        handler.close = partial(close_with_socket, handler, handler.close)
        if is_websocket:
            handler._socket_timeout = handshake_within
            handler.open = partial(_open_websocket, handler, handler.open)
        if (ca_file := handler._ssl_opts.pop("ca_certs", None)) is not None:
            handler._ssl_opts["context"] = HandshakeInTime(ca_file, handshake_within)

    def cut_off() -> None:
        # There may be no handler or socket yet, or no longer. The watchdog must continue in all cases.
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
    # The SDK must no longer use the socket, not even when its objects are garbage-collected.
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
    if Extra.WEBSOCKETS.missing:
        raise WebSocketsNotInstalled


def _open_websocket(handler: Any, open_handler: Callable[..., None], **options: Any) -> None:
    """Opens a connection whose answers may take long, and then waits for frames no longer than on plain AMQP."""
    open_handler(**options)
    handler._connection._transport.sock.settimeout(SDK_WAIT)


def _take_websocket(websocket: Any) -> tuple[socket.socket, WebSocketCodec]:
    from .websocket_codec import take_over  # it needs an extra

    return take_over(websocket)


def _is_timeout(error: BaseException | None) -> bool:
    """Whether a socket's time limit is the cause of an error. The SDK wraps it."""
    while error is not None:
        if isinstance(error, TimeoutError):
            return True
        error = error.__cause__ or error.__context__
    return False


def close_with_socket(handler: Any, close: Callable[[], None]) -> None:
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


# --- errors of an opening, in the operator's words -------------------------------------------------------------------

REFUSED = (401, 403)
MISSING = 404
NO_SUCH_HOST = ("Name or service not known", "nodename nor servname provided")
NO_CONNECTION = "Failed to initiate the connection due to exception: "
NO_ADDRESS = "Failed to authenticate the connection due to exception: "
"""What the SDK says if a host name cannot be looked up, with WebSockets."""
ERRNO = re.compile(r"^\[Errno -?\d+\] ")
"""What Python puts before the words of the operating system."""


def explain(error: Exception, namespace: str, entity: str, proxy: HttpProxy | None = None) -> SyphonError:
    """Our error for one of the SDK's, in the operator's words. Only the first line of the SDK's text is kept.

    An error of the connection does not name the entity: it is the same for all entities, and is reported once.
    """
    # Errors of the SDK's lower layer begin with a condition that says little. Their description says what happened.
    text = str(getattr(error, "description", None) or error).partition("\n")[0]
    where = f"{namespace}, entity '{entity}'" if entity else namespace
    status: object = getattr(error, "status_code", None)  # a refused token has one; the SDK's other errors have none
    kind = type(error).__name__
    if kind == "WebSocketBadStatusException":
        return DestinationUnreachable(
            f"{namespace}: no connection: the WebSocket was refused with HTTP status {status}"
        )
    if kind == "WebSocketProxyException":
        return _explain_proxy(text, namespace, proxy)
    if isinstance(error, ServiceBusAuthenticationError | ServiceBusAuthorizationError) or status in REFUSED:
        return NotAuthorized(f"{where}: the credentials were refused ({text}). Check the key or role, and its claims.")
    if status == MISSING:
        return DestinationMissing(f"{where}: no queue or topic of that name.")
    # Only for a name that is known not to exist: if the name service itself is down, that is an outage (C3).
    if any(words in text for words in NO_SUCH_HOST):
        if proxy is not None:  # which looks up all other names
            return DestinationUnreachable(f"{namespace}: no connection: the host of the proxy {proxy} is not known")
        return NamespaceGone(f"{namespace}: no such host. Check the namespace's name.")
    is_plain = isinstance(error, TimeoutError) or NO_CONNECTION in text or NO_ADDRESS in text
    text = ERRNO.sub("", text.removeprefix(NO_CONNECTION).removeprefix(NO_ADDRESS))
    what = text if is_plain else f"{kind}: {text}"
    via = f" (through the proxy {proxy})" if proxy is not None else ""
    return DestinationUnreachable(f"{namespace}: no connection{via}: {what}")


def _explain_proxy(text: str, namespace: str, proxy: HttpProxy | None) -> SyphonError:
    # Without settings of a proxy, websocket-client takes one from the environment.
    name = "the proxy of the environment" if proxy is None else f"the proxy {proxy}"
    if text.endswith(" 407"):
        return NotAuthorized(
            f"{namespace}: {name} refused our credentials (407). Check the proxy's username and password."
        )
    return DestinationUnreachable(f"{namespace}: no connection: {name} opened no tunnel: {text}")
