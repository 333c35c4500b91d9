"""What a drain says of an empty backlog: no more than it has seen (S11)."""

from __future__ import annotations

import pytest

from syphon.cli.drain import how_empty

LATE = "Service Bus can show a message up to 15 minutes late; --settle 15m waits for those."


@pytest.mark.parametrize(
    ("settled_for", "said"),
    [
        (0.0, f"The queues are empty right now. {LATE}"),
        (30.0, f"Every queue stayed empty for 30 s. {LATE}"),
        (900.0, "Every queue stayed empty for 15 min."),
        (3600.0, "Every queue stayed empty for 1 h."),
    ],
)
def test_an_empty_backlog_is_as_empty_as_it_was_seen_to_be(settled_for: float, said: str) -> None:  # S11
    assert how_empty(settled_for) == said
