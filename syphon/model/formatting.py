"""Numbers, times, foreign texts and tables, formatted for people: as text, and as HTML for notebooks.

Destinations and reasons come from messages, which anyone may have written who can send to the backlog. So every text in
HTML is escaped, and control characters are replaced. The markup uses no scripts and no styles beyond the alignment of
numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime


def plural(number: int, noun: str) -> str:
    """1 message, 1,234 messages."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """At most two units: 740 ms, 12.5 s, 3 min 20 s, 2 h 5 min, 1 d 4 h."""
    if round(seconds, 3) < 1:
        return f"{round(seconds * 1000)} ms"
    if round(seconds, 1) < 60:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    for size, name, part, rest in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min")):
        if whole >= size:
            return _units(whole // size, name, whole % size // part, rest)
    return _units(whole // 60, "min", whole % 60, "s")


def _units(amount: int, name: str, rest: int, rest_name: str) -> str:
    return f"{amount} {name}" + (f" {rest} {rest_name}" if rest else "")


def utc_time(when: datetime) -> str:
    """A time in UTC, as syphon writes all times."""
    return f"{when:%Y-%m-%d %H:%M:%S} UTC"


def volume(size: int) -> str:
    for unit, name in ((2**40, "TB"), (2**30, "GB"), (2**20, "MB"), (2**10, "KB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"


def printable(text: str) -> str:
    """A text from outside, made safe to print: it can neither control a terminal nor turn the direction of a line."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def short_queue_names(names: Sequence[str]) -> list[str]:
    """Names of backlog queues for a narrow terminal: …/7 if all of them begin alike, contoso/…/7 otherwise."""
    stems = {name.rpartition("/")[0] for name in names}
    if len(stems) == 1 and len(names) > 1:
        return [f"…/{name.rpartition('/')[2]}" for name in names]
    return [name.replace("/x-servicebus-transfer/", "/…/") for name in names]


def by_cause(errors: Iterable[tuple[str, str]]) -> list[str]:
    """A line for each error, not for each queue that has it: all queues of a pair usually have the same.

    Errors that differ in the name of their queue alone are the same.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for queue, error in errors:
        found.setdefault(error.replace(queue, "…"), []).append((queue, error))
    return [
        f"{same[0][0]}: {same[0][1]}" if len(same) == 1 else f"{len(same)} queues: {cause}"
        for cause, same in found.items()
    ]


def first_line(error: Exception | str) -> str:
    """What went wrong, without the stack trace that Spark adds: an error of Python's stands at the end of its trace."""
    text = str(error).strip()
    found = re.search(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)$", text, re.MULTILINE)
    return found[1] if found else text.partition("\n")[0].rstrip(";")


def html_line(text: str, strong: bool = False) -> str:
    """A paragraph."""
    return f"<p><strong>{_escaped(text)}</strong></p>" if strong else f"<p>{_escaped(text)}</p>"


def html_table(titles: Sequence[str], rows: Sequence[Sequence[object]], most: int = 1000) -> str:
    """Rows under their titles. Numbers stand to the right, with thousands separators; None is blank."""
    head = "".join(f"<th>{_escaped(title)}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows[:most])
    more = html_line(f"… and {len(rows) - most:,} more") if len(rows) > most else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f'<td style="text-align: right">{value:,}</td>'
    return f"<td>{'' if value is None else _escaped(str(value))}</td>"


def _escaped(text: str) -> str:
    from html import escape  # loads a table of entities: only a notebook needs it, and every sender imports this module

    return escape(printable(text))
