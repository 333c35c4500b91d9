"""Tables and lines as HTML, for the `_repr_html_` of results in notebooks.

Destinations and reasons come from messages, which anyone may have written who can send to the backlog. So every text is
escaped, and control characters are replaced. The markup uses no scripts and no styles beyond the alignment of numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from .formatting import printable


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
    return escape(printable(text))
