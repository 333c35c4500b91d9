"""What a pair can be told (F1)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from syphon.sender import BadOptions, PairOptions


def test_the_defaults_are_those_of_the_paired_namespaces_of_old() -> None:  # F1
    options = PairOptions()
    assert options.backlog_queue_count == 10
    assert options.failover_interval == timedelta(minutes=1)
    assert options.ping_primary_interval == timedelta(minutes=1)
    assert options.enable_syphon is False


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("backlog_queue_count", [1, 500], [0, -1]),
        ("failover_interval", [timedelta(0), timedelta(minutes=60)], [timedelta(-1), timedelta(minutes=61)]),
        (
            "ping_primary_interval",
            [timedelta(seconds=1), timedelta(minutes=30)],
            [timedelta(0), timedelta(minutes=31)],
        ),
        ("operation_timeout", [timedelta(seconds=1), timedelta(minutes=60)], [timedelta(0), timedelta(hours=2)]),
        ("primary_name", ["contoso"], ["", " ", "a/b"]),
    ],
)
def test_each_option_has_its_range(name: str, good: list[object], bad: list[object]) -> None:  # F1
    for value in good:
        assert getattr(PairOptions(**{name: value}), name) == value  # type: ignore[arg-type]
    for value in bad:
        with pytest.raises(BadOptions, match=name):
            PairOptions(**{name: value})  # type: ignore[arg-type]


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(BadOptions, match=r"backlog_queue_count.*ping_primary_interval"):
        PairOptions(backlog_queue_count=0, ping_primary_interval=timedelta(0))
