"""Settings files: what is read, and how mistakes are reported."""

from __future__ import annotations

import contextlib
from enum import StrEnum
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, SecretStr

from syphon.yaml_settings import Between, Duration, Problem, Settings, SettingsError, parse, unique, validate


class Colour(StrEnum):
    RED = "red"


class Item(Settings):
    name: str
    key: SecretStr | None = None
    wait: Annotated[Duration, Between("1s", "5m")] = 1000


class Shop(Settings):
    items: Annotated[list[Item], unique("name", "item")] = Field(default_factory=list)
    open: bool = True
    floor: Annotated[int, Field(ge=0, le=9)] = 0
    colour: Colour | None = None
    extra: dict[str, str] = Field(default_factory=dict)


def load(text: str) -> Shop:
    return validate(parse(text, "shop.yaml"), Shop)


def problems(text: str) -> list[Problem]:
    with pytest.raises(SettingsError) as caught:
        load(text)
    return caught.value.problems


def lines(text: str) -> list[str]:
    return [str(problem) for problem in problems(text)]


def test_a_good_file_becomes_settings() -> None:
    shop = load("items:\n- {name: a, wait: 1m30s}\nopen: no\n")
    assert (shop.items[0].wait, shop.open) == (90_000, False)


def test_an_empty_file_and_keys_without_a_value_leave_the_defaults() -> None:
    assert load("") == load("# nothing\n") == load("items:\nopen: ~\n") == Shop()


def test_all_problems_are_reported_at_once_each_with_its_line_and_path() -> None:
    found = problems("items:\n  - name: a\n    wait: 10m\n  - wait: soon\nopen: perhaps\nfloor: 12\ncolour: blue\n")
    assert [(problem.line, problem.path, problem.value) for problem in found] == [
        (3, "items[0].wait", '"10m"'),
        (4, "items[1].name", None),
        (4, "items[1].wait", '"soon"'),
        (5, "open", '"perhaps"'),
        (6, "floor", "12"),
        (7, "colour", '"blue"'),
    ]
    assert all(problem.remedy for problem in found)


def test_a_problem_reads_as_a_sentence_with_its_remedy() -> None:
    assert lines("items:\n- {name: a, wait: 10m}") == [
        'shop.yaml:2: items[0].wait = "10m" is longer than 5m; write 1s to 5m'
    ]


def test_an_unknown_key_is_a_mistake_and_the_near_one_is_named() -> None:
    (line,) = lines("items:\n- {name: a, wiat: 1m}")
    assert line == "shop.yaml:2: items[0].wiat is not a known key; did you mean wait?"
    assert "the keys here are items, open, floor, colour, extra" in lines("zzz: 1")[0]


def test_a_repeated_name_is_reported_with_other_mistakes_in_the_same_list() -> None:
    found = problems("items:\n- {name: a}\n- {name: A}\n- {name: b, wait: 1}\n")
    assert [(problem.line, problem.path) for problem in found] == [(3, "items[1].name"), (4, "items[2].wait")]


def test_a_key_that_occurs_twice_is_a_mistake() -> None:
    assert lines("open: true\nfloor: 10\nopen: false\n") == [
        "shop.yaml:2: floor = 10 is too large; write 9 or less",
        "shop.yaml:3: open occurs twice; keep one of them (the other is on line 1)",
    ]


SECRET = "hunter2"


@pytest.mark.parametrize(
    "text",
    [
        f"items: [{{name: a, key: [{SECRET}]}}]",
        f"items: [{{name: a, kye: {SECRET}}}]",
        f"items: [{SECRET}]",
        f"items: {SECRET}",
        f"items: [{{name: a, key: *{SECRET}}}]",
        f"items: [{{name: a, key: !{SECRET} x}}]",
        f"items: [{{name: a, key: x, key: {SECRET}}}]",
    ],
)
def test_a_secret_is_never_shown_however_it_is_misplaced(text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(text)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value.problems)


def test_a_secret_is_not_in_the_repr_of_settings() -> None:
    assert SECRET not in repr(load(f"items: [{{name: a, key: {SECRET}}}]"))


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_with_a_settings_error(text: str) -> None:
    with contextlib.suppress(SettingsError):
        load(text)
