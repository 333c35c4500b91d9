"""Settings files as plain data, and the references in them: ${env:NAME}, ${file:PATH} and ${credential:NAME}."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from syphon.yaml_settings import Document, Settings, SettingsError, parse, read, resolve, validate
from syphon.yaml_settings.reader import without_comments


class Item(Settings):
    name: Annotated[str, Field(max_length=12)] = "x"
    floor: Annotated[int, Field(le=9)] = 0
    tags: list[str] = Field(default_factory=list)


def resolved(text: str, folder: Path = Path("."), **environ: str) -> Document:
    document = parse(text, "shop.yaml")
    resolve(document, folder, environ)
    return document


def data(text: str, folder: Path = Path("."), **environ: str) -> Any:
    document = resolved(text, folder, **environ)
    assert document.problems == []
    return document.data


def told(document: Document) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        validate(document, Item)
    return [str(problem) for problem in caught.value.problems]


def test_a_variable_stands_for_its_value_anywhere_in_a_value() -> None:
    text = "name: ${env:A}\ntags: ['x-${env:A}-${env:B}', plain, 5]\nfloor: 3"
    assert data(text, A="one", B="two") == {"name": "one", "tags": ["x-one-two", "plain", 5], "floor": 3}


def test_a_file_stands_for_its_text_less_one_line_break(tmp_path: Path) -> None:
    for name, content in {"a": "key\n", "b": "key\r\n", "c": "key\n\n", "d": "key", "e": "\ufeffkey"}.items():
        (tmp_path / name).write_bytes(content.encode())
    text = "tags: ['${file:a}', '${file:b}', '${file:c}', '${file:d}', '${file:e}']"
    assert data(text, tmp_path) == {"tags": ["key", "key", "key\n", "key", "key"]}


def test_a_files_place_is_relative_to_the_folder_or_absolute(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "key").write_text("found")
    assert data("name: ${file:deep/key}", tmp_path) == {"name": "found"}
    assert data(f"name: ${{file:{tmp_path}/deep/key}}") == {"name": "found"}


def test_a_credential_is_a_file_that_systemd_has_handed_to_the_unit(tmp_path: Path) -> None:
    (tmp_path / "secrets_key").write_text("found\n")
    assert data("name: ${credential:secrets_key}", CREDENTIALS_DIRECTORY=str(tmp_path)) == {"name": "found"}


def test_a_credential_outside_of_a_unit_is_a_problem_with_a_remedy() -> None:
    assert told(resolved("name: ${credential:secrets_key}")) == [
        "shop.yaml:1: name names the credential secrets_key, but systemd passes none; "
        "start it as a unit with LoadCredential=, or use ${file:PATH}"
    ]


def test_a_reference_in_the_value_of_a_reference_is_not_replaced() -> None:
    assert data("name: ${env:A}", A="${env:B}") == {"name": "${env:B}"}


def test_two_dollars_are_one() -> None:
    found = data("tags: ['$${env:A}', '$$', '$x', '$$${env:A}']", A="v")
    assert found == {"tags": ["${env:A}", "$$", "$x", "$${env:A}"]}


def test_values_from_outside_are_validated_like_others() -> None:
    assert validate(resolved("floor: ${env:FLOOR}", FLOOR="7"), Item).floor == 7


def test_a_problem_shows_the_reference_and_not_its_value() -> None:
    assert told(resolved("floor: ${env:FLOOR}\nname: a${env:NAME}", FLOOR="hunter2", NAME="hunter2-hunter2")) == [
        'shop.yaml:1: floor = "${env:FLOOR}" is not a whole number; write digits only',
        'shop.yaml:2: name = "a${env:NAME}" is too long; write 12 characters at most',
    ]


def test_a_variable_that_is_not_set_is_the_only_problem_of_its_value() -> None:
    assert told(resolved("name: x\nfloor: ${env:FLOOR}\ntags: [a, '${env:A}${env:B}']")) == [
        "shop.yaml:2: floor names the environment variable FLOOR, which is not set; set it",
        "shop.yaml:3: tags[1] names the environment variable A, which is not set; set it",
        "shop.yaml:3: tags[1] names the environment variable B, which is not set; set it",
    ]


def test_a_file_that_cannot_be_read_is_a_problem_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\xfa")
    (tmp_path / "large").write_bytes(b"x" * (1 << 20) + b"x")
    text = 'tags:\n- ${file:missing}\n- ${file:.}\n- ${file:binary}\n- ${file:large}\n- "${file:a\\0b}"'
    lines = told(resolved(text, tmp_path))
    assert [line.partition(" names the file ")[0] for line in lines] == [
        f"shop.yaml:{place + 2}: tags[{place}]" for place in range(5)
    ]
    whys = ("does not exist", "cannot be read (Is a directory)", "not text in UTF-8", "too large", "cannot be read")
    for line, why in zip(lines, whys, strict=True):
        assert why in line


@pytest.mark.parametrize("value", ["${}", "${env:}", "${file:}", "${env:A", "${ENV:A}", "${vault:A}", "a ${ b"])
def test_a_reference_of_an_unknown_form_is_a_problem(value: str) -> None:
    (line,) = told(resolved(f"name: '{value}'", A="x"))
    assert line == (
        "shop.yaml:1: name has a reference of an unknown form; "
        "write ${env:NAME}, ${file:PATH} or ${credential:NAME}, or $${ for a plain ${"
    )


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
        validate(parse(text, "shop.yaml"), Settings)


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
        validate(parse(text, "shop.yaml"), Settings)


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
        validate(parse(text, "shop.yaml"), Settings)


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


json_values: st.SearchStrategy[Any] = st.recursive(
    st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(codec="utf-8"), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_json_is_read_as_json(value: Any) -> None:
    assert parse(without_comments(json.dumps(value, indent="\t")), "x").data == value
