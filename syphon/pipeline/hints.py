"""How many messages there may be: the namespace's own counts, asked once. Hints, never a proof (D4)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ..backlog.preflight import secondary_administration
from ..config import PairSettings
from ..errors import SyphonError

log = logging.getLogger(__name__)


def counts_of(backlogs: Sequence[tuple[PairSettings, Sequence[str]]]) -> dict[tuple[str, str], int]:
    """Active messages by pair and queue, as far as they are told: it takes the Manage claim, and a drain needs none."""
    counts: dict[tuple[str, str], int] = {}
    for pair, queues in backlogs:
        try:
            administration = secondary_administration(pair)
            try:
                for queue in queues:
                    count = administration.active_messages(queue)
                    if count is not None:
                        counts[pair.name, queue] = count
            finally:
                administration.close()
        except SyphonError as error:
            log.info("%s: no counts, and so no ETA: %s", pair.name, error)
    return counts
