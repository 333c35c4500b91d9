"""The code of docs/spark.md and of the README about these functions, as printed there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import syphon
from tests.support.processes import EmulatedPair, aliased, emulated_pair
from tests.support.tools import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.timeout(600)]


def blocks(file: str, heading: str) -> list[str]:
    """The Python code in a section of a document."""
    section = re.split(r"^## ", (ROOT / file).read_text().partition(f"## {heading}\n")[2], flags=re.MULTILINE)[0]
    return re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedPair]:
    with emulated_pair(tmp_path) as pair:
        pair.config("config.yaml")
        monkeypatch.chdir(tmp_path)
        yield pair


def fill(pair: EmulatedPair) -> None:
    pair.put([aliased(number, "orders" if number < 30 else "billing/invoices") for number in range(42)])


def test_drain_and_inspect_from_python(
    pair: EmulatedPair, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = blocks("docs/spark.md", "Drain and inspect from Python")
    fill(pair)
    names = {"spark": spark}
    exec(first, names)
    shown = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"42 messages, [\d.]+ KB, for 2 destinations\.", shown[0])
    assert shown[1] == "All 42 messages arrived. Every delivery is accounted for."
    assert names["summary"].verdict == "The backlog is empty: 42 forwarded."  # type: ignore[attr-defined]

    fill(pair)
    exec(second, names)
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("12 messages moved · "), "how many match is not known before they are received"
    assert " · 42 received = 12 forwarded + 0 dead-lettered + 30 left in the backlog + 0 unaccounted" in shown[0]
    assert shown[1:] == ["billing/invoices 12"]


def test_the_lines_of_the_readme(pair: EmulatedPair, spark: SparkSession) -> None:
    (block,) = (found for found in blocks("README.md", "What to type") if "syphon.drain" in found)
    assert len([line for line in block.splitlines() if line.strip()]) == 3
    fill(pair)
    exec(block, {"spark": spark})
    assert not pair.in_backlog(0)
    assert sum(pair.arrived("orders", "billing/invoices").values()) == 42


def test_the_data_source_of_the_readme(
    pair: EmulatedPair, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyspark.sql.datasource", reason="Spark 3.5 has no data sources in Python")
    (block,) = (found for found in blocks("README.md", "What to type") if "register_source" in found)
    fill(pair)
    syphon.drain("config.yaml", spark)
    exec(block, {"spark": spark})
    assert "only showing top 20 rows" in capsys.readouterr().out
