"""What `inspect` finds in the backlog: per destination, or as the answer to a query."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from syphon.backlog import expiry_warning
from syphon.model import ExitCode, html_line, html_table, plural, volume
from syphon.spark import DeadLetterPreview, DestinationSummary


@dataclass(frozen=True, slots=True)
class UnseenQueue:
    """A backlog queue that could not be looked into, and why."""

    queue: str
    error: str


@dataclass(frozen=True, slots=True)
class BacklogOverview:
    """What is in the backlog now."""

    destinations: tuple[DestinationSummary, ...] = ()
    """The messages that wait for each destination, the most first."""
    dead_letters: tuple[DeadLetterPreview, ...] = ()
    """The messages that a drain would dead-letter, by reason, the most first."""
    unseen: tuple[UnseenQueue, ...] = ()
    exit_code: ExitCode = ExitCode.OK

    @property
    def messages(self) -> int:
        return sum(found.messages for found in self.destinations)

    @property
    def bytes(self) -> int:
        return sum(found.bytes for found in self.destinations)

    @property
    def expiry_warning(self) -> str:
        """A warning about messages that expire in the backlog (M9); empty if there are none."""
        messages = sum(found.expiring_in_backlog for found in self.destinations)
        moments = (found.first_backlog_expiry for found in self.destinations)
        first = min((moment for moment in moments if moment), default=None)
        return expiry_warning(messages, f"{first:%Y-%m-%d %H:%M} UTC") if first is not None else ""

    def as_json(self, limit: int | None = None) -> dict[str, Any]:
        """The overview in its documented form for programs (docs/commands.md)."""
        return {
            "destinations": [_plain(asdict(found)) for found in self.destinations[:limit]],
            "dead_letters": [_plain(asdict(found)) for found in self.dead_letters[:limit]],
            "unseen": [asdict(found) for found in self.unseen],
        }

    def __str__(self) -> str:
        unseen = f"; {plural(len(self.unseen), 'queue')} could not be looked into" if self.unseen else ""
        if not self.destinations:
            return f"No message was seen{unseen}." if unseen else "The backlog is empty."
        destinations = plural(len(self.destinations), "destination")
        return f"{plural(self.messages, 'message')}, {volume(self.bytes)}, for {destinations}{unseen}."

    def _repr_html_(self) -> str:
        parts = [html_line(str(self), strong=True)]
        if self.destinations:
            titles = ("pair", "destination", "messages", "size", "oldest (UTC)", "scheduled", "expired")
            rows = [
                (
                    found.pair,
                    found.destination or "(none)",
                    found.messages,
                    volume(found.bytes),
                    found.oldest and f"{found.oldest:%Y-%m-%d %H:%M:%S}",
                    found.scheduled,
                    found.expired,
                    found.dead_letters,
                )
                for found in self.destinations
            ]
            parts.append(html_table((*titles, "would be dead-lettered"), rows))
        if self.expiry_warning:
            parts.append(html_line(self.expiry_warning))
        if self.dead_letters:
            refused = [
                (found.pair, found.destination or "(none)", found.reason, found.messages, found.example)
                for found in self.dead_letters
            ]
            parts.append(html_table(("pair", "destination", "reason", "messages", "for example"), refused))
        if self.unseen:
            parts.append(html_table(("unseen queue", "error"), [(each.queue, each.error) for each in self.unseen]))
        return "".join(parts)


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.isoformat(timespec="milliseconds") if isinstance(value, datetime) else value
        for name, value in record.items()
    }


@dataclass(frozen=True, slots=True)
class BacklogAnswer:
    """The answer to a query on the backlog. Values are those of JSON: times are texts in UTC."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    is_complete: bool = True
    """Whether these are all rows, and not only the first ones."""
    unseen: tuple[UnseenQueue, ...] = ()
    exit_code: ExitCode = ExitCode.OK

    def as_json(self) -> list[dict[str, Any]]:
        """The rows as `syphon inspect --sql --json` prints them: an object for each."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def _repr_html_(self) -> str:
        more = "" if self.is_complete else html_line(f"There are more than {len(self.rows):,} rows.")
        return html_table(self.columns, self.rows) + more
