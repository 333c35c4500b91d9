"""Settings files: what is read, and how mistakes are reported."""

from __future__ import annotations

import contextlib
import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, SecretStr

from syphon.yaml_settings import Between, Duration, Problem, Settings, SettingsError, parse, read, unique, validate
from syphon.yaml_settings.reading import without_comments


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


def test_a_key_that_is_there_twice_is_a_mistake() -> None:
    assert lines("open: true\nfloor: 10\nopen: false\n") == [
        "shop.yaml:2: floor = 10 is too large; write 9 or less",
        "shop.yaml:3: open is there twice; keep one of them (the other is on line 1)",
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


@pytest.mark.parametrize("word", ["no", "on", "y", "12:30", "2026-01-01", "1_000", "0x1f", "1e3"])
def test_plain_words_stay_words(word: str) -> None:
    assert parse(f"name: {word}", "x").data == {"name": word}


def test_numbers_true_and_false_are_what_they_look_like() -> None:
    assert parse("[1, -2, 1.5, true, FALSE, ~, '1']", "x").data == [1, -2, 1.5, True, False, None, "1"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: b: c", 1),
        ("a: 1\n  b: 2", 2),
        ("a: [1", 1),
        ("a: 'x", 1),
        ("a: *b", 1),
        ("\tx: 1", 1),
        ("a: 1\n---\nb: 1", 2),
    ],
)
def test_text_that_is_not_yaml_is_reported_with_its_line(text: str, line: int) -> None:
    with pytest.raises(SettingsError, match=rf"shop.yaml:{line}: the file is not YAML"):
        load(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a:\n\t- 1", r":2: .*write spaces instead of tabs"),
        ("a: {b: ${env:NAME}}", r':1: .*put quotes around a reference: "\${env:NAME}"'),
        ("a: [1,\n  2\n", r":3: .*in the value that begins on line 1"),
    ],
)
def test_frequent_mistakes_have_their_own_remedies(text: str, told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        load(text)


def test_aliases_do_not_grow_into_more_than_memory_holds() -> None:
    bomb = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10))
    with pytest.raises(SettingsError, match="more than a million values"):
        parse(bomb, "bomb.yaml")


def test_a_file_that_is_too_large_is_not_read_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "core.yaml"
    file.write_bytes(b"a" * (1 << 20) + b"\xff")
    with pytest.raises(SettingsError, match="larger than 1 MB"):
        read(file)


@pytest.mark.parametrize("text", ["&a [*a]", "&a {b: *a}", "? [a]\n: b", "a: \x00", "[" * 5000])
def test_odd_yaml_is_a_settings_error_too(text: str) -> None:
    with pytest.raises(SettingsError):
        load(text)


def test_the_file_itself_may_be_the_problem(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\xfa")
    for name, text in (("missing.yaml", "does not exist"), ("", "cannot be read"), ("binary.yaml", "UTF-8")):
        with pytest.raises(SettingsError, match=text):
            read(tmp_path / name)


def test_json_may_have_comments_tabs_and_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    text = '{\n\t// one\n\t"a": "http://x/*y*/", /* two\nlines */ "b":1,\n\t"c": "\\"//", "d": "\\ud83d\\ude00"\n}'
    file.write_text(text, encoding="utf-8-sig")
    document = read(file)
    assert document.data == {"a": "http://x/*y*/", "b": 1, "c": '"//', "d": "\U0001f600"}
    assert document.line_of(("b",)) == 4


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_with_a_settings_error(text: str) -> None:
    with contextlib.suppress(SettingsError):
        load(text)


json_values: st.SearchStrategy[Any] = st.recursive(
    st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(codec="utf-8"), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_json_is_read_as_json(value: Any) -> None:
    assert parse(without_comments(json.dumps(value, indent="\t")), "x").data == value
