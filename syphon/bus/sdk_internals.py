"""The one place that touches azure-servicebus below its public surface: the SDK opens a connection, we take its socket.
A paired sender needs a little more of it: a message as the bytes that would be sent, and a batch made of such bytes.

The SDK's message objects cannot carry an ordinary .NET message (a decimal property makes its receiver return nothing
for ever), and its links settle one message per round trip. So the SDK does what it is good at: connection strings,
credentials, TLS, SASL, the first token. From then on the socket is ours (`wire`), and messages pass as bytes.

All private names in use are listed in `CONTRACT`; a test compares them with the SDK that is installed.
"""

from __future__ import annotations

import copy
import importlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from inspect import isfunction
from typing import Any, Self

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusMessageBatch, __version__
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusAuthorizationError

from syphon.model import DestinationUnreachable, NamespaceGone, NotAuthorized, SyphonError

SUPPORTED = "7.15."
REFUSED = (401, 403)
IDLE_TIMEOUT = 60
"""Seconds within which we want to hear from the peer, were it only a heartbeat. By itself the SDK asks for none."""
NO_SUCH_HOST = ("Name or service not known", "nodename nor servname provided")
NO_CONNECTION = "Failed to initiate the connection due to exception: "

CONTRACT: dict[str, tuple[str, ...]] = {
    "azure.servicebus:ServiceBusClient": ("_create_session_browser", "_config", "_credential"),
    "azure.servicebus._session_browser:_SessionBrowser": ("_open", "_create_handler", "_handler"),
    "azure.servicebus._pyamqp.client:AMQPClient": ("_connection", "_shutdown", "_idle_timeout", "_ssl_opts"),
    "azure.servicebus._pyamqp._connection:Connection": (
        "_transport",
        "_remote_max_frame_size",
        "_remote_idle_timeout",
    ),
    "azure.servicebus._pyamqp._transport:_AbstractTransport": ("sock", "connected", "_read_buffer"),
    "azure.servicebus._base_handler:ServiceBusSharedKeyCredential": ("policy", "key", "token_type"),
    "azure.servicebus._base_handler:ServiceBusSASTokenCredential": ("token", "token_type"),
    "azure.servicebus._base_handler:BaseHandler": ("_config",),
    "azure.servicebus._common._configuration:Configuration": (
        "retry_mode",
        "retry_total",
        "retry_backoff_factor",
        "retry_backoff_max",
        "use_tls",
        "connection_verify",
    ),
    "azure.servicebus:ServiceBusSender": ("_max_message_size_on_link",),
    "azure.servicebus:ServiceBusMessageBatch": ("_message", "_count"),
    "azure.servicebus.exceptions:ServiceBusError": ("_condition",),
    "azure.servicebus.aio:ServiceBusClient": ("_config", "_credential"),
    "azure.servicebus.aio:ServiceBusSender": ("_max_message_size_on_link",),
    "azure.servicebus.aio._base_handler_async:BaseHandler": ("_config",),
}
"""What we rely on, by module and class."""


class SdkMismatch(SyphonError):
    """The installed azure-servicebus is not the one this seam was made for."""


def check_contract(version: str = __version__) -> None:
    """Raises `SdkMismatch`, saying what is missing, unless the SDK is one we know."""
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
            "or mend syphon/bus/sdk_internals.py and its contract."
        )


def _has(owner: type, name: str) -> bool:
    """Whether a class has it, or its own methods speak of it: what an instance has is written down nowhere else."""
    own = vars(owner)
    return name in own or any(name in method.__code__.co_names for method in own.values() if isfunction(method))


@dataclass(frozen=True, slots=True)
class OpenSocket:
    """A connection that the SDK has opened and authenticated, with one session of the SDK's own on channel 1."""

    socket: socket.socket
    unread: bytes
    """What the SDK had read from the socket and not yet used."""
    max_frame_size: int
    idle_timeout: float | None
    """The peer closes the connection if it hears nothing for so many seconds."""
    heartbeat: float
    """The peer has been asked to say something at least so often."""


def open_socket(client: ServiceBusClient, entity: str, timeout: float) -> OpenSocket:
    """Opens a connection for an entity the SDK's way, and takes its socket over."""
    sdk: Any = client  # its private side has no types
    browser = sdk._create_session_browser(entity, keep_alive=0)
    create_handler = browser._create_handler
    handler: Any = None  # the browser forgets it when it fails

    def create_handler_with_heartbeats(auth: Any) -> None:
        nonlocal handler
        create_handler(auth)
        handler = browser._handler
        handler._idle_timeout = IDLE_TIMEOUT
        handler.close = partial(_close_and_hang_up, handler, handler.close)
        if (trusted := handler._ssl_opts.pop("ca_certs", None)) is not None:
            handler._ssl_opts["context"] = _HandshakeInTime(trusted, timeout)

    def cut_off() -> None:
        # No handler yet, no socket yet, or none any more: whatever it is, the next bite must come.
        with suppress(AttributeError, TypeError, OSError):
            socket.socket.shutdown(handler._connection._transport.sock, socket.SHUT_RDWR)

    browser._create_handler = create_handler_with_heartbeats
    watchdog = _Watchdog(timeout, cut_off)
    began = time.monotonic()
    watchdog.start()
    try:
        browser._open(timeout)
    except Exception as failed:
        is_late = time.monotonic() - began >= timeout  # whoever noticed: the watchdog, or the handshake's own limit
        error = TimeoutError(f"no answer within {timeout:g} s") if is_late else failed
        raise explain(error, client.fully_qualified_namespace, entity) from None
    finally:
        watchdog.stop()
    connection = browser._handler._connection
    transport = connection._transport
    taken: socket.socket = transport.sock
    # The SDK forgets the socket: what it would still do with it when it is collected must not happen.
    transport.sock = None
    transport.connected = False
    browser._handler._shutdown = True
    taken.setblocking(False)
    taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)
    largest, idle = connection._remote_max_frame_size or 65536, connection._remote_idle_timeout
    return OpenSocket(taken, transport._read_buffer.read(), largest, idle, IDLE_TIMEOUT)


def _close_and_hang_up(handler: Any, close: Callable[[], None]) -> None:
    """The SDK leaves a socket open that did not come as far as a session, or whose peer left before its farewell."""
    connection = handler._connection  # which it forgets
    try:
        close()
    finally:
        if connection is not None:
            connection._transport.close()


class _HandshakeInTime(ssl.SSLContext):
    """Trusts whom the SDK would trust, and does not wait for ever for the peer's half of the handshake, as it would."""

    within: float

    def __new__(cls, trusted: str, within: float) -> Self:
        context = super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(trusted)
        context.within = within
        return context

    def wrap_socket(self, sock: socket.socket, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        sock.settimeout(self.within)
        return super().wrap_socket(sock, *arguments, **options)


class _Watchdog(threading.Thread):
    """Ends an opening that takes too long: the SDK waits for ever for a peer that takes the connection and is silent.

    A load balancer whose service is gone is such a peer. Without this nobody would ever try again.
    """

    def __init__(self, patience: float, bite: Callable[[], None]) -> None:
        super().__init__(name="watchdog", daemon=True)
        self._patience = patience
        self._bite = bite
        self._over = threading.Event()

    def run(self) -> None:
        patience = self._patience
        while not self._over.wait(patience):
            patience = 1.0
            self._bite()

    def stop(self) -> None:
        self._over.set()


def explain(error: Exception, namespace: str, entity: str) -> SyphonError:
    """What an SDK error means to us, in the operator's words. Of its own text only the first line is kept."""
    # Errors of the SDK's lower layer begin with a condition that says little; what happened is their description.
    text = str(getattr(error, "description", None) or error).partition("\n")[0]
    where = f"{namespace}, entity '{entity}'" if entity else namespace
    status: object = getattr(error, "status_code", None)  # of a refused token; the SDK's other errors have none
    if isinstance(error, ServiceBusAuthenticationError | ServiceBusAuthorizationError) or status in REFUSED:
        return NotAuthorized(f"{where}: the credentials were refused ({text}). Check the key or role, and its claims.")
    # Only a name that is known not to exist: a name service that is away itself is an outage, and no fault (C3).
    if any(words in text for words in NO_SUCH_HOST):
        return NamespaceGone(f"{where}: no such host. Check the namespace's name.")
    is_plain = NO_CONNECTION in text or isinstance(error, TimeoutError)
    what = text.removeprefix(NO_CONNECTION) if is_plain else f"{type(error).__name__}: {text}"
    return DestinationUnreachable(f"{where}: no connection: {what}")


# --- for senders ------------------------------------------------------------------------------------------------------

_UNLIMITED = 2**62
_DATA = 5
"""Where a batch keeps its encoded messages."""


def payloads_of(messages: Iterable[ServiceBusMessage | AmqpAnnotatedMessage] | ServiceBusMessageBatch) -> list[bytes]:
    """Messages as the bytes the SDK would send. It encodes what is added to a batch; the messages stay as they are."""
    if not isinstance(messages, ServiceBusMessageBatch):
        batch = ServiceBusMessageBatch(_UNLIMITED)
        for message in messages:
            # The SDK writes onto what it encodes: here onto a copy.
            annotated = copy.copy(message.raw_amqp_message if isinstance(message, ServiceBusMessage) else message)
            properties = annotated.application_properties
            annotated.application_properties = None if properties is None else dict(properties)
            batch.add_message(annotated)
        messages = batch
    sdk: Any = messages
    return [bytes(payload) for payload in sdk._message[_DATA]]


def fill(batch: ServiceBusMessageBatch, payloads: Sequence[bytes]) -> int:
    """Puts encoded messages into an empty batch of the SDK's, as they are; returns how many it had room for."""
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
    """The AMQP condition behind an error of the SDK's. It has it on its private side, and in no public one."""
    condition: object = getattr(error, "_condition", None)
    return str(getattr(condition, "value", condition)) if condition is not None else None


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, and after which pauses, a client tries again."""

    total: int
    factor: float = 0.8
    longest: float = 120.0
    fixed: bool = False

    def pause(self, retried: int) -> float:
        """Seconds before the try of that number."""
        return min(self.longest, self.factor if self.fixed else self.factor * 2.0**retried)


def disable_retries(sender: Any) -> RetryPolicy:
    """The retries of a sender of the SDK's, sync or async; from now on it makes none by itself."""
    config = sender._config
    fixed = getattr(config.retry_mode, "value", config.retry_mode) == "fixed"
    retries = RetryPolicy(config.retry_total, config.retry_backoff_factor, config.retry_backoff_max, fixed)
    config.retry_total = 0
    return retries


def message_limit(sender: Any) -> int:
    """The largest message that an open sender of the SDK's can send."""
    return int(sender._max_message_size_on_link)


@dataclass(frozen=True, slots=True)
class ConnectionDetails:
    """Where a client goes, and with what: enough to go there by other means, such as the administration."""

    host: str
    credential: Any = field(repr=False)
    plain: bool
    """Without TLS: an emulator."""
    ca_file: str | None

    def connection_string(self) -> str | None:
        """With a key or a signature there is one; with a token credential there is none."""
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
    """What a client of the SDK's, sync or async, was made with."""
    config = client._config
    return ConnectionDetails(
        client.fully_qualified_namespace, client._credential, not config.use_tls, config.connection_verify
    )
