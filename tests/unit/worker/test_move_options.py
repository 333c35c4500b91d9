"""The options of a move (X12)."""

from __future__ import annotations

import pytest

from syphon.model import EntityPath, InvalidOption
from syphon.worker import MoveEnd, MoveOptions


@pytest.mark.parametrize(
    ("text", "namespace", "entity"),
    [
        ("contoso:orders", "contoso", "orders"),
        ("contoso.primary:news/subscriptions/audit", "contoso.primary", "news/subscriptions/audit"),
        ("env:OLD:/orders/$deadletterqueue", "env:OLD", "orders/$deadletterqueue"),
        ("file:/run/secrets/old:orders", "file:/run/secrets/old", "orders"),
    ],
)
def test_an_end_names_a_namespace_and_an_entity(text: str, namespace: str, entity: str) -> None:
    assert MoveOptions(source=text).source == MoveEnd(namespace, EntityPath.of(entity))


def test_a_dead_letter_queue_that_the_shell_has_taken_out_is_not_its_queue() -> None:
    with pytest.raises(InvalidOption, match="quote it: the shell has replaced it"):
        MoveOptions(source="contoso:orders/")  # was $deadletterqueue, unquoted


@pytest.mark.parametrize("text", ["orders", ":orders", "contoso:", "contoso:/"])
def test_an_end_without_one_of_them_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match=r"source: '.*' is not NAMESPACE:ENTITY"):
        MoveOptions(source=text)


def test_options_that_contradict_each_other_or_cannot_be_carried_out_are_refused() -> None:
    for options, text in (
        ({"new_ids": True, "keep_ids": True}, "exclude each other"),
        ({"edits": "x:colour=red"}, "'colour' is not a type"),
        ({"before": "2026-01-01", "after": "2026-01-02"}, "is not later than"),
        ({"where": "n >"}, "at character 4"),
    ):
        with pytest.raises(InvalidOption, match=text):
            MoveOptions(source="a:b", target="c:d", **options)
    with pytest.raises(InvalidOption, match="--to is missing"):
        _ = MoveOptions(source="a:b").ends
