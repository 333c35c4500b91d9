"""Where messages go whose destination is renamed (`destinations.rename`), as `inspect` and a dry run show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from syphon.model import printable

from .output import say

if TYPE_CHECKING:
    from syphon.backlog import SelectedQueue


def with_renames(records: Sequence[Mapping[str, Any]], chosen: Sequence[SelectedQueue]) -> list[dict[str, Any]]:
    """Records with `pair` and `destination`, each with `renamed_to`: the entity that its messages go to, or null."""
    from syphon.model import EntityPath

    pairs = {selected.pair.name: selected.pair.destinations.renames for selected in chosen}
    found = []
    for record in records:
        path = EntityPath.of(record["destination"] or "")
        actual = pairs[record["pair"]].actual(path)
        found.append({**record, "renamed_to": None if actual is path else actual.name})
    return found


def say_renames(records: Sequence[Mapping[str, Any]]) -> None:
    """Prints a line for each destination that is renamed."""
    for record in records:
        if record["renamed_to"] is not None:
            say(printable(f"Messages for {record['destination']} go to {record['renamed_to']}: it is renamed."), "  ")
