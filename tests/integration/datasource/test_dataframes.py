"""The backlog and the ledger as DataFrames."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from syphon.config import load_config
from syphon.datasource import backlog, ledger
from syphon.datasource.dataframes import BACKLOG_SCHEMA
from syphon.ledger.rows import ATTEMPTS, TRANSFERS
from syphon.model import SyphonError
from tests.integration.operations.conftest import FIRST, SECOND, aliased, running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def names(schema: str) -> list[str]:
    return [part.split()[0] for part in schema.split(", ")]


def test_the_backlog_of_a_settings_file_is_a_frame(spark: SparkSession, tmp_path: Path) -> None:
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


def test_the_ledger_has_both_its_tables(spark: SparkSession, tmp_path: Path) -> None:
    empty = ledger(spark, tmp_path / "ledger")
    assert empty.columns == [*names(TRANSFERS), "date"]
    assert empty.count() == 0
    assert ledger(spark, str(tmp_path / "ledger"), "attempts").columns == [*names(ATTEMPTS), "date"]
