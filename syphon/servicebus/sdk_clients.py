"""Clients, senders and messages of the SDK, as far as a paired sender needs their private names.

It needs a message as the bytes that the SDK would send, a batch made of such bytes, the way in which a client retries
and is closed, and what a client was made with. All private names are listed in `sdk_private_names`.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, NoReturn

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch, TransportType
from azure.servicebus.amqp import AmqpAnnotatedMessage

from syphon.model import RetryPolicy

from .proxy_settings import HttpProxy
from .sdk_sockets import MISSING, close_with_socket

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
            handler.close = partial(close_with_socket, handler, handler.close)

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


MAKERS = ("get_queue_sender", "get_topic_sender", "get_queue_receiver", "get_subscription_receiver")
"""The methods of a client that make senders and receivers."""


def refuse_use(client: Any, error: Callable[[], Exception]) -> list[Any]:
    """Lets an SDK client, sync or async, and all senders and receivers that it has made, raise an error when they are
    used. Returns these for the caller to close.

    `client.close` is not enough: a closed client makes new senders as if nothing had happened, and its old ones do not
    say why they do not work. It also must not run twice at the same time, and the application may call it just now.
    """

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise error()

    for name in MAKERS:
        setattr(client, name, refuse)
    handlers = [handler for handler in _handlers_of(client) if not isinstance(handler, CloseWatch)]
    for handler in handlers:
        handler._check_live = refuse
    return handlers


def _handlers_of(client: Any) -> list[Any]:
    while True:
        try:
            return list(client._handlers)
        except RuntimeError:  # another thread has just changed the set
            continue


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
