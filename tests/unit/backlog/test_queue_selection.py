"""Selecting the backlog queues that a command works on."""

from __future__ import annotations

import pytest

from syphon.backlog.queues import NoQueueSelected, by_pair, select_queues
from syphon.config import PairSettings, SideSettings


def pair(name: str, count: int = 12) -> PairSettings:
    primary, secondary = (SideSettings(namespace=f"{name}{end}.servicebus.windows.net") for end in ("", "-dr"))
    return PairSettings(name=name, primary=primary, secondary=secondary, backlog_queue_count=count)


PAIRS = [pair("contoso"), pair("fabrikam", 2)]


def chosen(*queues: str, names: tuple[str, ...] = ()) -> list[str]:
    return [selected.queue for selected in select_queues(PAIRS, names, queues)]


def test_nothing_named_is_everything_meant() -> None:
    assert len(chosen()) == 14


def test_a_pair_is_named_whatever_its_capitals() -> None:
    assert chosen(names=("Fabrikam",)) == [f"fabrikam/x-servicebus-transfer/{index}" for index in range(2)]


def test_a_queue_is_named_by_index_name_or_pattern() -> None:
    assert chosen("1") == ["contoso/x-servicebus-transfer/1", "fabrikam/x-servicebus-transfer/1"]
    assert chosen("contoso/x-servicebus-transfer/11") == ["contoso/x-servicebus-transfer/11"]
    assert chosen("CONTOSO/*/1?", "0", names=("contoso",)) == [
        f"contoso/x-servicebus-transfer/{index}" for index in (0, 10, 11)
    ]


@pytest.mark.parametrize(
    ("queues", "names", "words"), [(("12",), (), "'12'"), (("x*",), (), "'x*'"), ((), ("x",), "contoso, fabrikam")]
)
def test_a_name_that_means_nothing_is_reported(queues: tuple[str, ...], names: tuple[str, ...], words: str) -> None:
    with pytest.raises(NoQueueSelected) as caught:
        select_queues(PAIRS, names, queues)
    assert words in str(caught.value)


def test_the_queues_of_a_pair_come_together() -> None:
    assert [(found.name, len(ours)) for found, ours in by_pair(select_queues(PAIRS))] == [
        ("contoso", 12),
        ("fabrikam", 2),
    ]


def test_a_primary_that_is_given_a_name_has_it_in_its_queues() -> None:  # P1
    named = SideSettings(namespace="10.0.0.1.example", name="shop")
    other = pair("contoso", 1).model_copy(update={"primary": named})
    assert [selected.queue for selected in select_queues([other])] == ["shop/x-servicebus-transfer/0"]
