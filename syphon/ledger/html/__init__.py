"""The report as one HTML file: without scripts, and without anything from another server.

Ids, destinations and reasons come with messages, so they are untrusted text: `elements` escapes them.
"""

from __future__ import annotations

from datetime import datetime
from importlib.resources import files

from syphon.model import utc_time

from ..report_values import Report
from .elements import Markup, tag, together
from .sections import sections

__all__ = ["html_page"]


def html_page(report: Report, made_at: datetime) -> str:
    """The whole page of a report."""
    style = Markup(files(__package__).joinpath("style.css").read_text("utf-8"))
    # If a text ever got through as markup, the browser would still run and fetch nothing.
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"Syphon report – {_subject(report)}"),
        tag("style", style),
    )
    body = tag("body", _header(report), tag("main", *sections(report)), _footer(report, made_at))
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _subject(report: Report) -> str:
    return report.pair or ", ".join(report.pairs) or "no pair"


def _header(report: Report) -> Markup:
    headline, *rest = report.sentences
    return tag(
        "header",
        tag("p", f"Syphon report · {_subject(report)} · {_period(report)}", class_="about"),
        tag("h1", headline),
        tag("p", " ".join(rest), class_="lede") if rest else None,
        class_="empty" if report.empty else "complete" if report.complete else "attention",
    )


def _period(report: Report) -> str:
    start, end = report.period.since or report.first, report.period.until or report.last
    return f"{utc_time(start)} to {utc_time(end)}" if start and end else "no time"


def _footer(report: Report, made_at: datetime) -> Markup:
    words = (
        ("received", "received from a backlog queue of the secondary namespace, under a lock"),
        ("forwarded", "accepted by its destination in the primary namespace, and completed in the backlog"),
        (
            "dead-lettered",
            "moved to the dead letters of the backlog queue, with the reason, because it can never arrive as it is",
        ),
        ("left", "not forwarded in that delivery; it is redelivered when its lock expires"),
        ("unaccounted", "counted by a task or a job that was lost before its rows were on record"),
    )
    return tag(
        "footer",
        tag("h2", "Words"),
        tag("dl", *(together(tag("dt", word), tag("dd", meaning)) for word, meaning in words)),
        tag("p", f"Made {utc_time(made_at)} from the ledger {report.ledger}. Times are UTC."),
    )
