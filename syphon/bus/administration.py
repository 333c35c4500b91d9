"""Queues and topics as things to be looked at and made: one port, with two ways in (P6).

`data_plane` asks the namespace itself, `arm` asks Azure Resource Manager. Both say the same in the same words, and turn
what the SDKs raise into our errors: those of the SDKs hold the request, and the request holds the token.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Protocol, TypeVar

import requests
from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError, ResourceNotFoundError

from syphon.model import NotAuthorized, SyphonError

T = TypeVar("T")

FOREVER: Final = 922_337_203_685_477
"""TimeSpan.MaxValue in milliseconds: how the service says "never"."""

FOREVER_TEXT: Final = "P10675199DT2H48M5.4775807S"

OPERATION_TIMEOUT: Final = 60.0
"""How long an answer may take, in seconds."""


# What is asked for and found ------------------------------------------------------------------------------------------


class QueueDescription(Protocol):
    """What is said of a queue when it is made; all else is left to the service. Durations are in milliseconds."""

    @property
    def max_size_in_megabytes(self) -> int: ...
    @property
    def max_delivery_count(self) -> int: ...
    @property
    def default_message_time_to_live(self) -> int: ...
    @property
    def auto_delete_on_idle(self) -> int: ...
    @property
    def lock_duration(self) -> int: ...
    @property
    def dead_lettering_on_message_expiration(self) -> bool: ...
    @property
    def enable_batched_operations(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """What a queue was found to be: first what we describe ourselves, then what is left to the service."""

    max_size_in_megabytes: int
    max_delivery_count: int
    default_message_time_to_live: int
    auto_delete_on_idle: int
    lock_duration: int
    dead_lettering_on_message_expiration: bool
    enable_batched_operations: bool

    requires_session: bool
    requires_duplicate_detection: bool
    enable_partitioning: bool
    enable_express: bool
    forward_to: str | None
    forward_dead_lettered_messages_to: str | None
    status: str


class Administration(Protocol):
    """Who can tell what is in a namespace, and make queues there.

    Every operation may raise `NotAuthorized`, `NamespaceGone` or a kind of `AdministrationFailed`, with a text that
    names the namespace and the entity, and never a secret. Nothing is tried twice: that is the caller's to decide.
    """

    @property
    def namespace(self) -> str:
        """What to call the namespace in a report."""

    def get_queue(self, name: str) -> QueueFacts | None:
        """The queue, or None if there is no queue of that name."""

    def create_queue(self, name: str, description: QueueDescription) -> None:
        """Makes a queue. Look first whether it is there: Resource Manager would change it instead of saying so."""

    def queue_names(self, prefix: str) -> list[str]:
        """The names of all queues that begin so, case aside."""

    def entity_names(self) -> list[str]:
        """The names of all queues and topics."""

    def exists(self, entity: str) -> bool:
        """Whether there is a queue or topic of that name."""

    def active_messages(self, queue: str) -> int | None:
        """How many messages the queue says it has: a hint. None if there is no such queue, or it does not say."""

    def close(self) -> None:
        """Lets go of the connections."""


# What goes wrong ------------------------------------------------------------------------------------------------------


class AdministrationFailed(SyphonError):
    """The administration of the namespace did not do what was asked."""


class Unanswered(AdministrationFailed):
    """No answer, or none but that the namespace is busy or broken. Later it may work."""


class Unreachable(Unanswered):
    """Not even a connection, or silence: whatever else is asked for now will fare no better."""


class Refused(AdministrationFailed):
    """The answer was no, for a reason that has nothing to do with credentials."""


class Conflict(Refused):
    """Something of that name is there already, or is being changed at this moment."""


def answer(call: Callable[[], T], explain: Callable[[Exception], SyphonError]) -> T:
    """What the call gives, or our error in place of the SDK's."""
    try:
        return call()
    except (AzureError, UnicodeError) as error:
        ours = explain(error)
    # Raised out here, it does not keep the SDK's error, request, token and all, as its context.
    raise ours


def found(call: Callable[[], T]) -> T | None:
    """What the call finds, or None if it finds nothing."""
    try:
        return call()
    except ResourceNotFoundError:
        return None


def failure(error: Exception, where: str, task: str, is_denied: bool, remedy: str) -> SyphonError:
    """Our error for one of the SDK's: who said no to what, why, and what can be done about it."""
    cause = cause_of(error)
    status = error.status_code if isinstance(error, HttpResponseError) else None
    if status is None and isinstance(error, ClientAuthenticationError):
        advice = "Sign in, or name another credential in the settings."
        return NotAuthorized(f"{where} could not be asked to {task}: no token could be had: {cause}. {advice}")
    if is_denied:
        return NotAuthorized(f"{where} does not let us {task}: {cause}. {remedy}")
    if status == 409:
        advice = "Look for a topic of that name, or for another change that is under way."
        return Conflict(f"{where} could not {task}: {cause}. {advice}")
    if status is None:
        return Unreachable(f"{where} cannot be reached: {cause}. {_way_out(cause)}")
    if status in (408, 429) or status >= 500:
        return Unanswered(f"{where} could not {task}: {cause}. Try again later.")
    return Refused(f"{where} refused to {task}: {cause}. Set that right, or make the entity by hand.")


def _way_out(cause: str) -> str:
    if "WRONG_VERSION_NUMBER" in cause:
        return "It does not speak TLS there: an emulator's connection string has UseDevelopmentEmulator=true."
    return "Check the name, and that the network lets HTTPS through (port 443), or try again later."


def is_unauthenticated(error: Exception) -> bool:
    """Whether the credentials were refused, could not be had, or cannot be sent at all."""
    status = error.status_code if isinstance(error, HttpResponseError) else None
    return status == 401 or (status is None and isinstance(error, ClientAuthenticationError)) or _is_unsendable(error)


def cause_of(error: Exception) -> str:
    """What the service or the network had to say, in a line without secrets."""
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
"""What means nothing to an operator: an object of Python's, and what the service wants to be quoted in a ticket."""
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
    told = _DETAIL.search(body)
    return html.unescape(told[1]).strip() if told else ""


# Between us and the SDKs ----------------------------------------------------------------------------------------------

_DURATIONS = ("default_message_time_to_live", "auto_delete_on_idle", "lock_duration")
_NUMBERS = ("max_size_in_megabytes", "max_delivery_count")
_SWITCHES = ("dead_lettering_on_message_expiration", "enable_batched_operations")
_MILLISECOND = timedelta(milliseconds=1)
_FOREVER_SPAN = timedelta(days=10_675_199, hours=2, minutes=48, seconds=5, microseconds=477_580)
"""As near to TimeSpan.MaxValue as Python comes without going beyond. `plain_http` gives it back its last digit."""


def settings_of(description: QueueDescription) -> dict[str, int | bool | timedelta]:
    """A description as the SDKs take it, by names that both have."""
    plain = {name: getattr(description, name) for name in (*_NUMBERS, *_SWITCHES)}
    return plain | {name: _span(getattr(description, name)) for name in _DURATIONS}


def facts_of(queue: Any) -> QueueFacts:
    """What an SDK's object says of a queue: both SDKs have the same attributes."""
    return QueueFacts(
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


def _span(millis: int) -> timedelta:
    return _FOREVER_SPAN if millis >= FOREVER else timedelta(milliseconds=millis)


def _millis(span: timedelta | None) -> int:
    """Milliseconds; what the SDKs, rounding one way or the other, have made of TimeSpan.MaxValue is `FOREVER` again."""
    return FOREVER if span is None or span.days >= _FOREVER_SPAN.days else span // _MILLISECOND


def iso8601(span: timedelta) -> str:
    """A duration as the service reads it, and TimeSpan.MaxValue to the last digit."""
    if span >= _FOREVER_SPAN:
        return FOREVER_TEXT
    seconds, milliseconds = divmod(span // _MILLISECOND, 1000)
    return f"PT{seconds}.{milliseconds:03}S" if milliseconds else f"PT{seconds}S"
