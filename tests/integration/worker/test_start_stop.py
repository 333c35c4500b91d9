"""The engine: which sessions it starts on, and how long its ledger may take at the end. Without Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from syphon.config import PipelineSettings
from syphon.control import FAULTED, STOPPED, Shares
from syphon.ledger import LedgerWriter
from syphon.spark.session import SparkUnusable
from syphon.worker.start_stop import running_engine

Say = Callable[[str], None]


def session(**settings: str) -> Any:
    """A session that another program has started, as far as the engine uses it."""
    context = SimpleNamespace(getConf=lambda: settings, master="local[2]", _gateway=None)
    return SimpleNamespace(sparkContext=context)


@pytest.fixture
def finished(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float | None, Say | None]]:
    """With what the ledger writer was told to finish."""
    calls: list[tuple[float | None, Say | None]] = []
    finish = LedgerWriter.finish

    def noted(writer: LedgerWriter, within: float | None = None, say: Say | None = None) -> bool:
        calls.append((within, say))
        return finish(writer, within, say)

    monkeypatch.setattr(LedgerWriter, "finish", noted)
    return calls


@pytest.fixture
def pipeline(tmp_path: Path) -> PipelineSettings:
    return PipelineSettings(ledger=str(tmp_path / "ledger"))


def test_a_command_that_is_done_waits_for_its_ledger_as_long_as_it_takes(
    pipeline: PipelineSettings, finished: list[tuple[float | None, Say | None]]
) -> None:  # D17
    said: list[str] = []
    with running_engine(pipeline, say=said.append, spark=session(), ends_process=False):
        pass
    assert finished == [(None, said.append)]


@pytest.mark.parametrize("shares", [STOPPED, FAULTED])
def test_a_command_that_must_end_gives_its_ledger_the_time_that_is_left(
    pipeline: PipelineSettings, finished: list[tuple[float | None, Say | None]], shares: Shares
) -> None:  # X9
    with running_engine(pipeline, spark=session(), ends_process=False) as engine:
        engine.ending.begin(shares)
    ((within, _),) = finished
    assert within is not None
    assert shares.slots + shares.sides < within <= shares.slots + shares.sides + shares.ledger


def test_the_ledger_is_finished_also_after_an_error(
    pipeline: PipelineSettings, finished: list[tuple[float | None, Say | None]]
) -> None:  # D17
    with (
        pytest.raises(KeyboardInterrupt),
        running_engine(pipeline, spark=session(), ends_process=False),
    ):
        raise KeyboardInterrupt
    assert len(finished) == 1


def test_a_given_session_with_speculation_is_refused_before_anything_starts(
    pipeline: PipelineSettings, finished: list[tuple[float | None, Say | None]]
) -> None:  # X1
    speculating = session(**{"spark.speculation": "true"})
    with (
        pytest.raises(SparkUnusable, match=r"Set spark\.speculation to false"),
        running_engine(pipeline, spark=speculating, ends_process=False),
    ):
        pytest.fail("a slot could run twice at once")
    assert finished == []
