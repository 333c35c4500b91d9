"""What a filter may name beside application properties, and how it writes times and durations.

There are two languages with one grammar: that of subscription rules, as the service has it, and that of `--where`, for
a message in a queue. The second also knows why a message is a dead letter, and the values in a JSON body.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_SPAN = re.compile(r"(\d+)(ms|[smhd])")


class Written(NamedTuple):
    """How a text is read that is compared with a property. `read` raises ValueError."""

    read: Callable[[str], object]
    expected: str


def _time(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def _span(text: str) -> timedelta:
    if re.fullmatch(f"(?:{_SPAN.pattern})+", text) is None:
        raise ValueError(text)
    return sum((timedelta(**{_UNITS[unit]: int(number)}) for number, unit in _SPAN.findall(text)), timedelta())


A_TIME = Written(_time, "a time such as '2026-11-16T14:30'")
A_SPAN = Written(_span, "a duration such as '1h30m'")


@dataclass(frozen=True)
class Language:
    """The names of a language."""

    system: Mapping[str, str]
    """The names allowed after `sys.`, and the system property of each."""
    written: Mapping[str, Written] = field(default_factory=dict)
    """The system properties that are compared with text as it is read here. Elsewhere text is only text."""
    has_body: bool = False

    @property
    def scopes(self) -> str:
        return "sys, user or body" if self.has_body else "sys or user"


_OF_RULES = (
    "messageid",
    "correlationid",
    "to",
    "replyto",
    "label",
    "sessionid",
    "replytosessionid",
    "contenttype",
    "timetolive",
    "enqueuedtimeutc",
    "sequencenumber",
    "deliverycount",
    "partitionkey",
    "scheduledenqueuetimeutc",
)
_OF_DEAD_LETTERS = ("deadletterreason", "deadlettererrordescription", "deadlettersource")
_NAMES = {name: name for name in _OF_RULES} | {"subject": "label"}  # newer SDKs call the label a subject

RULES = Language(_NAMES)
MESSAGES = Language(
    _NAMES | {name: name for name in _OF_DEAD_LETTERS},
    {"enqueuedtimeutc": A_TIME, "scheduledenqueuetimeutc": A_TIME, "timetolive": A_SPAN},
    has_body=True,
)
