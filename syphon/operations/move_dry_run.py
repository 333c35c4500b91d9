"""The dry run of a move: what it would move, how long that takes and what it costs. It peeks, and sends nothing."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from syphon.backlog import stamps_of
from syphon.cost import PricingTier, drain_cost, load_prices
from syphon.model import ExitCode, MessageTooLarge, html_line, html_table, plural, volume
from syphon.servicebus import MessageState, connected, peek
from syphon.worker import MoveOptions

from .drain_dry_run import CostForecast, accepted_by
from .move_run import PlannedMove


@dataclass(frozen=True, slots=True)
class MoveForecast:
    """What a move would do, and its exit code."""

    exit_code: ExitCode
    source: str
    target: str
    messages: int
    """Messages that would be moved."""
    stay: dict[str, int]
    """Messages that would stay although they match, by the reason."""
    others: int
    """Messages that do not match."""
    scheduled: int
    """Matching messages that no receiver gets before their time: they stay."""
    bytes: int
    oldest: datetime | None
    seconds: float
    per_second: float
    assumed: str
    """What the time is based on."""
    operations: int
    cost: CostForecast

    def as_json(self) -> dict[str, Any]:
        """The forecast in its documented form for programs (docs/move.md)."""
        oldest = None if self.oldest is None else self.oldest.isoformat(timespec="seconds")
        return asdict(self) | {"exit_code": int(self.exit_code), "oldest": oldest}

    def _repr_html_(self) -> str:
        rows = [("would be moved", self.messages), *self.stay.items(), ("do not match", self.others)]
        return "".join(
            (
                html_line(f"Dry run: nothing was moved from {self.source} to {self.target}.", strong=True),
                html_line(f"{plural(self.messages, 'message')}, {volume(self.bytes)}"),
                html_table(("messages", "number"), [*rows, ("scheduled", self.scheduled)]),
            )
        )


def move_forecast(planned: PlannedMove, options: MoveOptions) -> MoveForecast:
    """What a move would do: it peeks at every message of the source."""
    pair, entity = planned.queue
    route, now = replace(planned.plan, new_ids=False).route(), time.time_ns() // 1_000_000
    messages = others = scheduled = size = 0
    first: int | None = None
    stay: dict[str, int] = {}
    with connected(pair.secondary, entity) as connection:
        for message in peek(connection, entity):
            enqueued_at = stamps_of(message.payload).enqueued_at
            matches = options.messages.matches(planned.plan.target, enqueued_at, message.payload)
            if message.state is MessageState.SCHEDULED:
                scheduled += matches
                continue
            if not matches:
                others += 1
                continue
            made = route.preview(message.payload, now)
            if isinstance(made, str) or made.size > planned.largest:
                why = made.partition(":")[0] if isinstance(made, str) else MessageTooLarge.__name__
                stay[why] = stay.get(why, 0) + 1
                continue
            messages, size = messages + 1, size + made.size
            first = enqueued_at if first is None else min(first, enqueued_at)
    count = messages if options.limit is None else min(messages, options.limit)
    per_second, assumed = accepted_by(pair, size / max(1, messages))
    if options.rate is not None and options.rate < per_second:
        per_second, assumed = options.rate, "set by --rate"
    prices = load_prices()
    charge = drain_cost(count, prices, PricingTier.STANDARD)
    no_match = options.messages.is_specific and others and not messages
    source, target = options.ends
    return MoveForecast(
        exit_code=ExitCode.LEFT if stay or scheduled or no_match or count < messages else ExitCode.OK,
        source=str(source),
        target=str(target),
        messages=count,
        stay=stay,
        others=others,
        scheduled=scheduled,
        bytes=size,
        oldest=datetime.fromtimestamp(first / 1000, UTC) if first else None,
        seconds=round(count / per_second, 1),
        per_second=round(per_second, 1),
        assumed=assumed,
        operations=charge.operations,
        cost=CostForecast(charge.least, charge.most, prices.currency, prices.as_of),
    )
