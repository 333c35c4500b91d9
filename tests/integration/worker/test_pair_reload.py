"""A pair of a running worker gets new settings: what its listener has seen before counts again. Without Spark."""

from __future__ import annotations

import threading
from typing import Any, cast

from syphon.config import Config, PairSettings
from syphon.transfer import DestinationBackoff
from syphon.worker.pair_worker import PairWorker
from syphon.worker.pauses import Pauses
from tests.integration.transfer.conftest import BACKLOG, TwoNamespaces, aliased, emulator_with_backlog
from tests.support.stub_spark import spark_that_runs


def settings(namespaces: TwoNamespaces, **renames: str) -> Config:
    def side(name: str) -> dict[str, str]:
        return {"connection_string": namespaces.emulator[name].connection_string}

    pair = {
        "name": "contoso",
        "primary": side("contoso"),
        "secondary": side("contoso-dr"),
        "destinations": {"rename": renames},
    }
    return Config.model_validate({"pairs": [pair]})


def pair_of(config: Config) -> PairSettings:
    (pair,) = config.pairs
    return pair


def test_a_rename_reaches_messages_that_the_listener_has_already_scanned() -> None:  # S3, D16
    """They waited for a destination that backs off. By the new settings they go to another one, which does not."""
    with emulator_with_backlog() as emulator:
        namespaces = TwoNamespaces(emulator)
        before = settings(namespaces)
        no_spark = cast(Any, None)  # the dispatcher is not turned, so no job begins
        worker = PairWorker(
            pair_of(before),
            before.pipeline,
            spark_that_runs(),
            no_spark,
            stopping=threading.Event(),
            makes_queues=False,
            pauses=Pauses(),
        )
        try:
            namespaces.put(aliased("x", "orders"))
            worker.backoffs.record([DestinationBackoff("orders", 600.0, "full", 1)])
            worker._listen_to([BACKLOG])
            listener = worker.listener
            assert listener is not None
            namespaces.wait(lambda: list(listener.waiting(BACKLOG)) == ["orders"])
            worker.reload(pair_of(before))
            assert not listener._to_rescan, "nothing was renamed"
            worker.reload(pair_of(settings(namespaces, orders="orders-v2")))
            namespaces.wait(lambda: worker.queues[BACKLOG].ring is not None)
        finally:
            worker.stop()
            namespaces.close()
