"""How long a dry run says that a drain would take: by the primary's tier, the share of it, and the operator's rate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

import syphon
from syphon.emulator.broker import Tier
from tests.integration.operations.conftest import Bench, aliased, running

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.timeout(300)]
COUNT, SIZE = 40, 20_000


@pytest.fixture(params=[Tier.STANDARD])
def backlog(request: pytest.FixtureRequest) -> Any:
    with running(tier=request.param) as bench:
        bench.queue("orders")
        bench.put(*(aliased("x" * SIZE, "orders", f"m{number}") for number in range(COUNT)))
        yield bench


def settings(bench: Bench, folder: Path, *, policy: str = "owner", **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(bench.config(folder).read_text())
    (pair,) = found["pairs"]
    pair["primary"]["connection_string"] = pair["primary"]["connection_string"].replace(
        "SharedAccessKeyName=owner", f"SharedAccessKeyName={policy}"
    )
    pair.update(more)
    return found


def test_a_standard_namespace_is_expected_to_accept_a_share_of_its_credits(
    backlog: Bench, tmp_path: Path, spark: SparkSession
) -> None:  # X2
    foreseen = syphon.dry_run(settings(backlog, tmp_path), spark)
    assert (foreseen.messages, foreseen.per_second, foreseen.seconds) == (COUNT, 800, round(COUNT / 800, 1))
    (assumed,) = foreseen.assumed
    assert "contoso: 800 messages per second" in assumed
    assert "was read from the namespace" in assumed
    foreseen = syphon.dry_run(settings(backlog, tmp_path, rate_share=0.5), spark)
    assert foreseen.per_second == pytest.approx(500)


def test_the_operators_rate_counts_if_it_is_lower(backlog: Bench, tmp_path: Path, spark: SparkSession) -> None:  # X2
    config = settings(backlog, tmp_path)
    foreseen = syphon.dry_run(config, spark, rate="20/s")
    assert (foreseen.per_second, foreseen.seconds) == (20, COUNT / 20)
    assert foreseen.assumed == ("contoso: 20 messages per second, set by --rate",)
    assert syphon.dry_run(config, spark, rate="2000/s").per_second == 800


def test_a_tier_that_cannot_be_read_is_assumed_to_be_standard(
    backlog: Bench, tmp_path: Path, spark: SparkSession
) -> None:  # X2, X7
    foreseen = syphon.dry_run(settings(backlog, tmp_path, policy="worker"), spark)
    assert foreseen.per_second == 800
    assert "an assumption: reading it needs Manage" in foreseen.assumed[0]


@pytest.mark.parametrize("backlog", [Tier.PREMIUM], indirect=True)
def test_a_premium_namespace_is_counted_in_bytes(backlog: Bench, tmp_path: Path, spark: SparkSession) -> None:  # X2
    foreseen = syphon.dry_run(settings(backlog, tmp_path), spark)
    per_message = foreseen.bytes / foreseen.messages
    assert foreseen.per_second == pytest.approx(0.8 * 4_000_000 / per_message, rel=0.1)  # `seconds` is rounded
    assert "1 messaging unit" in foreseen.assumed[0]


def test_without_messages_nothing_is_assumed(backlog: Bench, tmp_path: Path, spark: SparkSession) -> None:  # X2
    backlog.take("contoso/x-servicebus-transfer/0", COUNT, "contoso-dr")
    foreseen = syphon.dry_run(settings(backlog, tmp_path), spark)
    assert (foreseen.messages, foreseen.seconds, foreseen.assumed) == (0, 0, ())
