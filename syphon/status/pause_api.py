"""Pause and resume over HTTP: turns an operator's request into pauses that the worker reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from syphon.backlog import queue_names
from syphon.config import PairSettings
from syphon.model import EntityPath
from syphon.worker import Pause, Pauses

Name = Annotated[str, Field(min_length=1, max_length=260, pattern=r"^[^\x00-\x1f\x7f]+$")]


class UnknownTarget(Exception):
    """A request names a pair or a queue that does not exist."""


class PauseRequest(BaseModel):
    """Names what to pause or resume. An empty request means everything."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pair: Name | None = None
    queue: Name | None = None
    """The name of the backlog queue, or its index."""
    destination: Name | None = None


class PauseAnswer(BaseModel):
    """The answer to a request: everything that is paused now."""

    paused: list[Pause]


class PauseApi:
    """Carries out the requests of operators on the pauses that the worker reads."""

    def __init__(self, pairs: Sequence[PairSettings], pauses: Pauses) -> None:
        self._queues = {pair.name: queue_names(pair) for pair in pairs}
        self._pauses = pauses

    def pause(self, request: PauseRequest) -> PauseAnswer:
        self._pauses.add(self._targets(request))
        return PauseAnswer(paused=self._pauses.all())

    def resume(self, request: PauseRequest) -> PauseAnswer:
        """Ends pauses. A resumed pair goes on with all its queues and destinations, as its operator expects."""
        targets = set(self._targets(request))
        whole = {pause.pair for pause in targets if pause == Pause(pair=pause.pair)}
        self._pauses.end(targets | {pause for pause in self._pauses.all() if pause.pair in whole})
        return PauseAnswer(paused=self._pauses.all())

    def _targets(self, request: PauseRequest) -> list[Pause]:
        if request.pair is not None and request.pair not in self._queues:
            raise UnknownTarget(f"There is no pair {request.pair}; there are: {', '.join(self._queues)}.")
        pairs = [request.pair] if request.pair is not None else list(self._queues)
        targets = []
        if request.queue is not None:
            targets += [
                Pause(pair=pair, queue=queue) for pair in pairs for queue in self._queues_named(pair, request.queue)
            ]
            if not targets:
                known = ", ".join(queue for pair in pairs for queue in self._queues[pair])
                raise UnknownTarget(f"There is no backlog queue {request.queue}; there are: {known}.")
        if request.destination is not None:
            targets += [Pause(pair=pair, destination=EntityPath.of(request.destination).key) for pair in pairs]
        return targets or [Pause(pair=pair) for pair in pairs]

    def _queues_named(self, pair: str, name: str) -> Iterator[str]:
        for queue in self._queues[pair]:
            if name in (queue, queue.rpartition("/")[2]):
                yield queue
