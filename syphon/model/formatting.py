"""How numbers, times and other people's texts are written for a reader."""

from __future__ import annotations

from datetime import datetime


def counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Two units at the most: 740 ms, 12.5 s, 3 min 20 s, 2 h 5 min, 1 d 4 h."""
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


def moment(when: datetime) -> str:
    """In UTC, as every time of ours."""
    return f"{when:%Y-%m-%d %H:%M:%S} UTC"


def volume(size: int) -> str:
    for unit, name in ((2**40, "TB"), (2**30, "GB"), (2**20, "MB"), (2**10, "KB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"


def harmless(text: str) -> str:
    """A text that somebody else has chosen: nothing in it steers a terminal or turns the direction of a line."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
