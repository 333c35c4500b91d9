"""How many messages there may be: the namespace's own counts, asked once. Hints, never a proof (D4)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from syphon.backlog import SelectedQueue, by_pair, secondary_administration
from syphon.model import SyphonError

log = logging.getLogger(__name__)

Hints = dict[tuple[str, str], int]


def counts_of(assignments: Sequence[SelectedQueue]) -> Hints:
    """Active messages by pair and queue, as far as they are told: it takes the Manage claim, and a drain needs none."""
    counts: Hints = {}
    for pair, queues in by_pair(assignments):
        try:
            administration = secondary_administration(pair)
            try:
                for _, queue in queues:
                    count = administration.active_messages(queue)
                    if count is not None:
                        counts[pair.name, queue] = count
            finally:
                administration.close()
        except SyphonError as error:
            log.info("%s: no counts, and so no ETA: %s", pair.name, error)
    return counts
