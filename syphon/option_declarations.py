"""The options of a command, declared once: its flags, the keywords of its Python function, and its reference.

A dataclass declares them, one `Option` per field. The command makes its flags from it, the function its keywords
(`called_with`), docs/commands.md its table; the code reads the fields. To add an option, declare it and use it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import wraps
from inspect import Parameter, getattr_static, signature
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar, overload

from syphon.model import InvalidOption
from syphon.sql import BadExpression, Where

Given = TypeVar("Given")
Value = TypeVar("Value")
Choice = TypeVar("Choice", bound=StrEnum)
P = ParamSpec("P")
Arguments = TypeVar("Arguments")
Result = TypeVar("Result")

Moment: TypeAlias = str | datetime | timedelta
"""A point in time: ISO-8601 or a date, `2h` or a timedelta ago, or a datetime (UTC if it has no zone)."""
Span: TypeAlias = str | float | timedelta
"""A duration: `5m`, seconds, or a timedelta."""
Names: TypeAlias = str | Iterable[str]
"""One name, pattern or word, or several."""
Queues: TypeAlias = str | int | Iterable[str | int]
"""Backlog queues: an index, a name or a pattern, or several of these."""


@dataclass(frozen=True, slots=True)
class OptionKind(Generic[Given, Value]):
    """How an option is written, and what code reads of it. `read` accepts its own results."""

    metavar: str
    read: Callable[[Given], Value]
    choices: tuple[str, ...] = ()
    repeatable: bool = False
    is_flag: bool = False
    least: int | None = None


class Option(Generic[Given, Value]):
    """One option, as a field of a dataclass: callers pass a Given, such as `2h`, and code reads a Value, a datetime.

    `help` is for the command line; `details` is what only the reference adds.
    """

    name = ""

    @overload
    def __init__(
        self: Option[Given, Value],
        flag: str,
        kind: OptionKind[Given, Value],
        help: str,
        *,
        default: Given,
        metavar: str = "",
        details: str = "",
    ) -> None: ...

    @overload
    def __init__(
        self: Option[Given | None, Value | None],
        flag: str,
        kind: OptionKind[Given, Value],
        help: str,
        *,
        metavar: str = "",
        details: str = "",
    ) -> None: ...

    def __init__(
        self,
        flag: str,
        kind: OptionKind[Any, Any],
        help: str,
        *,
        default: Any = None,
        metavar: str = "",
        details: str = "",
    ) -> None:
        self.flag = flag
        self.kind = kind
        self.help = help
        self.default = default
        self.metavar = metavar or kind.metavar
        self.details = details

    @property
    def default_value(self) -> Value | None:
        """What code reads without the option."""
        return None if self.default is None else self.kind.read(self.default)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type | None = None) -> Value:
        # dataclass asks the class for the default
        found: Value = self.default if instance is None else instance.__dict__[self.name]
        return found

    def __set__(self, instance: object, given: Given) -> None:
        if self.name in instance.__dict__:
            raise AttributeError(f"{self.name} cannot be changed: options are read-only")
        try:
            instance.__dict__[self.name] = None if given is None else self.kind.read(given)
        except InvalidOption as error:
            raise InvalidOption(f"{self.name}: {error}") from None


def options_of(model: type) -> list[Option[Any, Any]]:
    """The options that a dataclass declares, in order."""
    found = (getattr_static(model, field.name, None) for field in fields(model))
    return [option for option in found if isinstance(option, Option)]


def called_with(arguments: Callable[P, Arguments]) -> Callable[[Callable[[Arguments], Result]], Callable[P, Result]]:
    """Give a function the parameters of a dataclass: callers pass keywords, and the function gets one object."""

    def decorated(function: Callable[[Arguments], Result]) -> Callable[P, Result]:
        parameters = signature(arguments)
        shown = [each.replace(annotation=_given(each)) for each in parameters.parameters.values()]

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Result:
            try:
                parameters.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{function.__name__}(): {error}") from None
            return function(arguments(*args, **kwargs))

        returns = signature(function).return_annotation
        vars(call)["__signature__"] = parameters.replace(parameters=shown, return_annotation=returns)
        return call

    return decorated


def _given(parameter: Parameter) -> Any:
    """The annotation that `help()` shows: what a caller may pass, without what the code reads."""
    found = re.fullmatch(r"Option\[(.+?), .+]", str(parameter.annotation))
    return found[1] if found else parameter.annotation


# --- kinds -----------------------------------------------------------------------------------------------------------


def read_moment(value: Moment, ends_a_period: bool = False) -> datetime:
    """A point in time. A date alone means its first moment, or its last if it ends a period."""
    if isinstance(value, timedelta):
        return datetime.now(UTC) - value
    try:
        return _in_utc(value) if isinstance(value, datetime) else _moment(value.strip(), ends_a_period)
    except (ValueError, OverflowError):
        raise InvalidOption(
            f"'{value}' is not a time: use 2026-11-16T14:30, 2026-11-16, or 2h (two hours ago)."
        ) from None


def _moment(text: str, ends_a_period: bool) -> datetime:
    if (ago := _milliseconds(text)) is not None:
        return datetime.now(UTC) - timedelta(milliseconds=ago)
    moment = _in_utc(datetime.fromisoformat(text))
    if ends_a_period and re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        moment += timedelta(days=1)
    return moment


def _in_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def read_duration(value: Span) -> float:
    """A duration in seconds."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, float | int):
        return float(value)
    found = _milliseconds(value)
    if not found:
        raise InvalidOption(f"'{value}' is not a duration: use 30s, 5m or 1h30m.")
    return found / 1000


def _milliseconds(text: str) -> int | None:
    from syphon.yaml_settings import InvalidSetting, parse_duration  # loads pydantic, which --help does not need

    try:
        return parse_duration(text)
    except InvalidSetting:
        return None


def read_rate(value: str | float) -> float:
    """A rate in messages per second."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(?:/s)?", str(value).strip())
    if found is None or float(found[1]) <= 0:
        raise InvalidOption(f"'{value}' is not a rate: use 500 or 500/s.")
    return float(found[1])


def read_count(value: int) -> int:
    """A number of things, at least one."""
    if value < 1:
        raise InvalidOption(f"{value} is too small: it must be 1 or more.")
    return value


def read_where(value: str | Where) -> Where:
    """A filter expression."""
    try:
        return value if isinstance(value, Where) else Where(value)
    except BadExpression as error:
        raise InvalidOption(str(error)) from None


def read_names(value: Queues) -> tuple[str, ...]:
    """Names or patterns; an index of a queue may be a number."""
    return (str(value),) if isinstance(value, str | int) else tuple(map(str, value))


TIME = OptionKind("TIME", read_moment)
END_TIME: OptionKind[Moment, datetime] = OptionKind("TIME", lambda value: read_moment(value, ends_a_period=True))
DURATION = OptionKind("DURATION", read_duration)
RATE = OptionKind("N/s", read_rate)
COUNT = OptionKind("N", read_count, least=1)
WHERE: OptionKind[str | Where, Where] = OptionKind("EXPRESSION", read_where)
TEXT: OptionKind[str, str] = OptionKind("TEXT", str)
FLAG: OptionKind[bool, bool] = OptionKind("", bool, is_flag=True)
NAMES: OptionKind[Names, tuple[str, ...]] = OptionKind("NAME", read_names, repeatable=True)
QUEUES: OptionKind[Queues, tuple[str, ...]] = OptionKind("QUEUE", read_names, repeatable=True)


def one_of(choices: type[Choice]) -> OptionKind[str, Choice]:
    """One value of an enum."""
    texts = tuple(str(choice) for choice in choices)

    def read(value: str) -> Choice:
        if value not in texts:
            raise InvalidOption(f"'{value}' is unknown: use {' or '.join(texts)}.")
        return choices(value)

    return OptionKind("|".join(texts), read, choices=texts)


def words(*known: str) -> OptionKind[Names, frozenset[str]]:
    """One or more words, separated by commas."""

    def read(value: Names) -> frozenset[str]:
        texts = value.split(",") if isinstance(value, str) else value
        found = frozenset(word.strip().lower() for word in texts)
        for word in sorted(found.difference(known)):
            raise InvalidOption(f"'{word}' is unknown: use {', '.join(known)}, or {','.join(known)}.")
        return found

    return OptionKind("WORDS", read)


@dataclass(kw_only=True)
class QueueSelection:
    """The backlog queues that a command works on."""

    pairs: Option[Names, tuple[str, ...]] = Option("--pair", NAMES, "Only this pair. Repeatable.", default=())
    queues: Option[Queues, tuple[str, ...]] = Option(
        "--queue",
        QUEUES,
        "Only this backlog queue: its index (0), name, or a pattern (*/1?). Repeatable.",
        default=(),
    )
