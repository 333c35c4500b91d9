"""Pause and resume, as an operator asks for them: what is meant, among what there is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from syphon.backlog import queue_names
from syphon.config import PairSettings
from syphon.model import EntityPath
from syphon.worker import Pause, Pauses

Name = Annotated[str, Field(min_length=1, max_length=260, pattern=r"^[^\x00-\x1f\x7f]+$")]


class UnknownThing(Exception):
    """There is no such pair or queue."""


class PauseRequest(BaseModel):
    """What is to be paused or resumed. Nothing said is everything."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pair: Name | None = None
    queue: Name | None = None
    """Its name, or its index."""
    destination: Name | None = None


class Paused(BaseModel):
    """The answer: all that is paused now."""

    paused: list[Pause]


class Pausing:
    """What operators want, put into what the worker asks."""

    def __init__(self, pairs: Sequence[PairSettings], pauses: Pauses) -> None:
        self._queues = {pair.name: queue_names(pair) for pair in pairs}
        self._pauses = pauses

    def pause(self, asked: PauseRequest) -> Paused:
        self._pauses.add(self._meant(asked))
        return Paused(paused=self._pauses.all())

    def resume(self, asked: PauseRequest) -> Paused:
        """A pair goes on with all its queues and destinations: that is what its operator wants to see."""
        meant = set(self._meant(asked))
        whole = {pause.pair for pause in meant if pause == Pause(pair=pause.pair)}
        self._pauses.end(meant | {pause for pause in self._pauses.all() if pause.pair in whole})
        return Paused(paused=self._pauses.all())

    def _meant(self, asked: PauseRequest) -> list[Pause]:
        if asked.pair is not None and asked.pair not in self._queues:
            raise UnknownThing(f"There is no pair {asked.pair}; there are: {', '.join(self._queues)}.")
        pairs = [asked.pair] if asked.pair is not None else list(self._queues)
        meant = []
        if asked.queue is not None:
            meant += [Pause(pair=pair, queue=queue) for pair in pairs for queue in self._named(pair, asked.queue)]
            if not meant:
                known = ", ".join(queue for pair in pairs for queue in self._queues[pair])
                raise UnknownThing(f"There is no backlog queue {asked.queue}; there are: {known}.")
        if asked.destination is not None:
            meant += [Pause(pair=pair, destination=EntityPath.of(asked.destination).key) for pair in pairs]
        return meant or [Pause(pair=pair) for pair in pairs]

    def _named(self, pair: str, name: str) -> Iterator[str]:
        for queue in self._queues[pair]:
            if name in (queue, queue.rpartition("/")[2]):
                yield queue
