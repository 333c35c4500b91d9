"""The backlog and the ledger as DataFrames."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from syphon.backlog.queues import QueueName, SelectedQueue, select_queues
from syphon.config import load_config
from syphon.datasource import backlog, ledger
from syphon.datasource.backlog_frames import BACKLOG_SCHEMA, TASKS_PER_SLOT, backlog_frame, shared_out
from syphon.ledger.rows import ATTEMPTS, TRANSFERS
from syphon.model import SyphonError
from tests.integration.operations.conftest import FIRST, SECOND, aliased, running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def names(schema: str) -> list[str]:
    return [part.split()[0] for part in schema.split(", ")]


def test_the_backlog_of_a_settings_file_is_a_frame(spark: SparkSession, tmp_path: Path) -> None:  # X6
    with running() as bench:
        bench.put(aliased("one", "orders", "m1"), aliased("two", None, "m2"), queue=FIRST)
        bench.put(aliased("three", "billing", "m3"), queue=SECOND)
        config = bench.config(tmp_path)
        frame = backlog(spark, str(config))
        assert frame.columns == names(BACKLOG_SCHEMA)
        rows = sorted((row.queue, row.message_id, row.destination, row.dead_letter_reason) for row in frame.collect())
        assert rows == [
            (FIRST, "m1", "orders", None),
            (FIRST, "m2", None, "NoDestination"),
            (SECOND, "m3", "billing", None),
        ]
        assert [row.message_id for row in backlog(spark, load_config(config), queues=["1"]).collect()] == ["m3"]
        content = yaml.safe_load(config.read_text())
        assert [row.message_id for row in backlog(spark, content, queues=["1"]).collect()] == ["m3"]
        with pytest.raises(SyphonError, match="no pair 'other'"):
            backlog(spark, config, pairs=["other"])


def test_many_queues_share_a_few_tasks_and_connections(spark: SparkSession) -> None:
    with running() as bench:
        names = [f"contoso/x-servicebus-transfer/{number}" for number in range(30)]
        for number, name in enumerate(names):
            if name not in (FIRST, SECOND):
                bench.queue(name, "contoso-dr")
            bench.put(*(aliased("x", "orders", f"{number} {each}") for each in range(number % 3)), queue=name)
        pair = bench.pair().model_copy(update={"backlog_queue_count": len(names)})
        frame = backlog_frame(spark, select_queues([pair]))
        assert frame.rdd.getNumPartitions() == TASKS_PER_SLOT * 2, "of local[2]"
        assert sorted((row.queue, row.message_id) for row in frame.collect()) == sorted(
            (name, f"{number} {each}") for number, name in enumerate(names) for each in range(number % 3)
        )


@pytest.mark.parametrize(("queues", "most"), [(0, 4), (1, 4), (4, 4), (5, 4), (100, 4), (3, 0)])
def test_every_queue_is_in_one_share(queues: int, most: int) -> None:
    with running() as bench:
        selected = [SelectedQueue(bench.pair(), QueueName(str(number))) for number in range(queues)]
    shares = shared_out(selected, most)
    assert [each.queue for share in shares for each in share] == [each.queue for each in selected]
    assert len(shares) == min(queues, max(1, most))
    assert max((len(share) for share in shares), default=0) - min((len(share) for share in shares), default=0) <= 1


def test_the_ledger_has_both_its_tables(spark: SparkSession, tmp_path: Path) -> None:
    empty = ledger(spark, tmp_path / "ledger")
    assert empty.columns == [*names(TRANSFERS), "date"]
    assert empty.count() == 0
    assert ledger(spark, str(tmp_path / "ledger"), "attempts").columns == [*names(ATTEMPTS), "date"]
