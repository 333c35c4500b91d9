"""What both administrations need to use the SDKs' HTTP clients: a transport, durations, and our errors for theirs.

The errors of the SDKs contain the request, and the request contains the token. So they are never passed on.
"""

from __future__ import annotations

import html
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import requests
from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError, ResourceNotFoundError
from azure.core.pipeline.transport import RequestsTransport

from syphon.model import NotAuthorized, SyphonError

from .administration import (
    AdministrationRefused,
    AdministrationUnavailable,
    AdministrationUnreachable,
    DuplicateDetection,
    EntityConflict,
    NewQueue,
    QueueInfo,
)
from .proxy_settings import HttpProxy

T = TypeVar("T")

FOREVER: Final = 922_337_203_685_477
"""TimeSpan.MaxValue in milliseconds: the service's value for "never"."""

FOREVER_TEXT: Final = "P10675199DT2H48M5.4775807S"

_FOREVER_XML = f">{FOREVER_TEXT}<".encode()
_ROUNDED_FOREVER_XML = b">P10675199DT2H48M5.47758S<"


wall = time.time


class ManagementTransport(RequestsTransport):  # type: ignore[misc]  # azure.core loads its transports too late for mypy
    """Sends the requests of the SDKs' HTTP clients, and corrects two things that the clients cannot express.

    - TimeSpan.MaxValue ends in …4775807 ticks, and Python's durations end at microseconds. The administration client
      sends …47758S, which is another value, or, if it gets text, rounds up to a value that Azure refuses.
    - The local emulator speaks plain HTTP. The administration client always uses https, and the client for Resource
      Manager sends its token over https only. So both clients use https, and with `plain` the scheme is changed here.
    """

    def __init__(
        self, *, timeout: float, plain: bool = False, ca_file: str | None = None, proxy: HttpProxy | None = None
    ) -> None:
        # The environment may name a proxy. None of them can reach an emulator on this machine.
        more: dict[str, Any] = {"use_env_settings": False} if plain else {}
        if ca_file is not None:
            more["connection_verify"] = ca_file
        super().__init__(connection_timeout=timeout, read_timeout=timeout, **more)
        self._plain = plain
        self.clock_skew: float | None = None
        """How many seconds this machine's clock is ahead of the service's, by its last answer."""
        self._proxies = None if plain or proxy is None else proxy.for_requests()

    def send(self, request: Any, **kwargs: Any) -> Any:
        if isinstance(request.body, bytes) and _ROUNDED_FOREVER_XML in request.body:
            request.set_bytes_body(request.body.replace(_ROUNDED_FOREVER_XML, _FOREVER_XML))
            request.headers["Content-Length"] = str(len(request.body))
        if self._plain and request.url.startswith("https://"):
            request.url = request.url.replace("https://", "http://", 1)
            # A proxy that terminates TLS does the same: links in the answers then keep the client's scheme.
            request.headers["X-Forwarded-Proto"] = "https"
        answered = super().send(request, **({"proxies": self._proxies} | kwargs))
        with suppress(ValueError, TypeError):  # no date, or a malformed one
            self.clock_skew = wall() - parsedate_to_datetime(answered.headers.get("Date")).timestamp()
        return answered


# --- errors -----------------------------------------------------------------------------------------------------------


def answer(call: Callable[[], T], explain: Callable[[Exception], SyphonError]) -> T:
    """Returns the result of the call, or raises our error in place of the SDK's."""
    try:
        return call()
    except (AzureError, UnicodeError) as error:
        ours = explain(error)
    # Raised outside of the handler: the SDK's error, with its request and token, must not become its context.
    raise ours


def found(call: Callable[[], T]) -> T | None:
    """The result of the call, or None if it finds nothing."""
    try:
        return call()
    except ResourceNotFoundError:
        return None


def failure(error: Exception, where: str, task: str, is_denied: bool, remedy: str) -> SyphonError:
    """Our error for one of the SDK's: what was refused, by which service, why, and what to do about it."""
    cause = cause_of(error)
    status = error.status_code if isinstance(error, HttpResponseError) else None
    if status is None and isinstance(error, ClientAuthenticationError):
        advice = "Sign in, or name another credential in the settings."
        return NotAuthorized(f"{where} could not be asked to {task}: there is no token: {cause}. {advice}")
    if status is None and "407 Proxy Authentication" in cause:  # as over AMQP: no later try will do better
        advice = "Check the proxy's username and password."
        return NotAuthorized(f"{where} could not be asked to {task}: the proxy refused our credentials (407). {advice}")
    if is_denied:
        return NotAuthorized(f"{where} refused to {task}: {cause}. {remedy}")
    if status == 409:
        advice = "Look for a topic of that name, or for another change in progress."
        return EntityConflict(f"{where} could not {task}: {cause}. {advice}")
    if status is None:
        return AdministrationUnreachable(f"{where} is unreachable: {cause}. {_connection_advice(cause, where)}")
    if status in (408, 429) or status >= 500:
        return AdministrationUnavailable(f"{where} could not {task}: {cause}. Retry later.")
    return AdministrationRefused(f"{where} refused to {task}: {cause}. Correct that, or create the entity by hand.")


def _connection_advice(cause: str, where: str) -> str:
    if "WRONG_VERSION_NUMBER" in cause:
        return "The server does not speak TLS: an emulator's connection string has UseDevelopmentEmulator=true."
    port = where.rpartition(":")[2]
    return (
        f"Check the name, and that the network allows HTTPS (port {port if port.isdecimal() else 443}), or retry later."
    )


def is_unauthenticated(error: Exception) -> bool:
    """Whether the credentials were refused, are not available, or cannot be sent at all."""
    status = error.status_code if isinstance(error, HttpResponseError) else None
    return status == 401 or (status is None and isinstance(error, ClientAuthenticationError)) or _is_unsendable(error)


def cause_of(error: Exception) -> str:
    """The reason that the service or the network gave, in one line without secrets."""
    if _is_unsendable(error):
        return "the credentials contain a character that cannot be sent, such as a line break"
    if isinstance(error, HttpResponseError) and error.status_code is not None:
        detail = _detail(error)
        text = f"{error.status_code} {error.reason or ''}".strip() + (f": {detail}" if detail else "")
    else:
        text = str(getattr(error, "message", error))
    text = _NOISE.sub("", " ".join(text.split()))
    return _SECRET.sub(r"\g<name>***", text)[:1000].rstrip(".") or type(error).__name__


_NOISE = re.compile(
    r"<[\w.]+ object at 0x[0-9a-f]+>:? ?|HTTPS?Connection(?:Pool)?\([^)]*\): ?"
    r"|[\s.]*\bTrackingId:\S+(?: SystemTracker:\S+)?(?: Timestamp:\S+)?"
)
"""Parts of a text that do not help an operator: Python objects, and the numbers that the service adds for tickets."""
_SECRET = re.compile(
    r"(?P<name>\bsig=|\bBearer |\bSharedAccessKey=|\bSharedAccessSignature )[^\s;&'\"]+", re.IGNORECASE
)
_DETAIL = re.compile(r"<Detail>(.*?)</Detail>", re.DOTALL)


def _is_unsendable(error: Exception) -> bool:
    # Neither error may be quoted: both have the whole header in their text or repr.
    cause = getattr(error, "inner_exception", None)
    return isinstance(error, UnicodeError) or isinstance(cause, requests.exceptions.InvalidHeader)


def _detail(error: HttpResponseError) -> str:
    """The reason in the body: Service Bus gives it in XML, Resource Manager in JSON."""
    if error.error is not None:
        return f"{error.error.code}: {error.error.message}"
    body = "" if error.response is None else str(error.response.text())
    detail = _DETAIL.search(body)
    return html.unescape(detail[1]).strip() if detail else ""


# --- queues -----------------------------------------------------------------------------------------------------------

_DURATIONS = ("default_message_time_to_live", "auto_delete_on_idle", "lock_duration")
_NUMBERS = ("max_size_in_megabytes", "max_delivery_count")
_SWITCHES = ("dead_lettering_on_message_expiration", "enable_batched_operations")
_MILLISECOND = timedelta(milliseconds=1)
_FOREVER_SPAN = timedelta(days=10_675_199, hours=2, minutes=48, seconds=5, microseconds=477_580)
"""The largest timedelta that is not above TimeSpan.MaxValue. `ManagementTransport` restores the last digit."""


def sdk_options(queue: NewQueue) -> dict[str, int | bool | timedelta]:
    """The settings of a new queue as both SDKs accept them: they use the same names."""
    plain = {name: getattr(queue, name) for name in (*_NUMBERS, *_SWITCHES)}
    return plain | {name: _span(getattr(queue, name)) for name in _DURATIONS}


def queue_info(queue: Any) -> QueueInfo:
    """A queue as an SDK describes it: both SDKs use the same attributes."""
    return QueueInfo(
        max_size_in_megabytes=queue.max_size_in_megabytes,
        max_delivery_count=queue.max_delivery_count,
        default_message_time_to_live=_millis(queue.default_message_time_to_live),
        auto_delete_on_idle=_millis(queue.auto_delete_on_idle),
        lock_duration=_millis(queue.lock_duration),
        dead_lettering_on_message_expiration=bool(queue.dead_lettering_on_message_expiration),
        enable_batched_operations=bool(queue.enable_batched_operations),
        requires_session=bool(queue.requires_session),
        requires_duplicate_detection=bool(queue.requires_duplicate_detection),
        enable_partitioning=bool(queue.enable_partitioning),
        enable_express=bool(queue.enable_express),
        forward_to=queue.forward_to or None,
        forward_dead_lettered_messages_to=queue.forward_dead_lettered_messages_to or None,
        status=str(getattr(queue.status, "value", queue.status)),
    )


def duplicate_detection(entity: Any, forwarding: Iterable[Any] = ()) -> DuplicateDetection:
    """What a queue or topic does with duplicates; `forwarding` is the queue itself, or the topic's subscriptions."""
    window = _millis(entity.duplicate_detection_history_time_window) if entity.requires_duplicate_detection else 0
    # The namespace writes an address, sb://contoso.servicebus.windows.net/billing/eu, Resource Manager a name.
    targets = (urlsplit(one.forward_to).path.strip("/").replace("~", "/") for one in forwarding if one.forward_to)
    return DuplicateDetection(window, tuple(targets))


def _span(millis: int) -> timedelta:
    return _FOREVER_SPAN if millis >= FOREVER else timedelta(milliseconds=millis)


def _millis(span: timedelta | None) -> int:
    """Milliseconds. The SDKs round TimeSpan.MaxValue up or down; both results become `FOREVER` again."""
    return FOREVER if span is None or span.days >= _FOREVER_SPAN.days else span // _MILLISECOND


def iso8601(span: timedelta) -> str:
    """A duration as the service reads it, with TimeSpan.MaxValue exact to the last digit."""
    if span >= _FOREVER_SPAN:
        return FOREVER_TEXT
    seconds, milliseconds = divmod(span // _MILLISECOND, 1000)
    return f"PT{seconds}.{milliseconds:03}S" if milliseconds else f"PT{seconds}S"
