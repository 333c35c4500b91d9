"""Shrinks an incident that fails a check: leaves parts of it out as long as it fails the same check."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from .incident import Incident


def shrink(incident: Incident, fails: Callable[[Incident], bool], tries: int = 300) -> Incident:
    """The smallest incident that was found within so many tries."""
    progress = True
    while progress and tries > 0:
        progress = False
        for smaller in _smaller(incident):
            tries -= 1
            if fails(smaller):
                incident, progress = smaller, True
                break
            if tries <= 0:
                break
    return incident


def _smaller(incident: Incident) -> Iterator[Incident]:
    """Incidents with a little less, the boldest cuts first."""
    for number in range(len(incident.faults)):
        yield replace(incident, faults=incident.faults[:number] + incident.faults[number + 1 :])
    used = {message.destination for message in incident.messages}
    for path in incident.destinations:
        if path not in used or len(used) == 1:
            continue
        messages = tuple(message for message in incident.messages if message.destination != path)
        yield replace(
            incident, messages=messages, destinations=tuple(each for each in incident.destinations if each != path)
        )
    messages = incident.messages
    size = len(messages) // 2
    while size:
        for start in range(0, len(messages), size):
            rest = messages[:start] + messages[start + size :]
            if rest:
                yield replace(incident, messages=rest)
        size //= 2 if size > 8 else size + 1
    plain: dict[str, Any] = {
        "jitter": 0.0,
        "splits": 0.0,
        "drift": 1.0,
        "broker_ahead": 0.0,
        "lease": None,
        "linger": 0.0,
        "max_links": 200,
        "detects_duplicates": frozenset[str](),
        "sent_before": frozenset[int](),
    }
    for name, value in plain.items():
        if getattr(incident, name) != value:
            yield replace(incident, **{name: value})
    if any(message.session for message in messages):
        yield replace(incident, messages=tuple(replace(message, session=None) for message in messages))
    if any(message.at for message in messages):
        yield replace(incident, messages=tuple(replace(message, at=0.0) for message in messages))
