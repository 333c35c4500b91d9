"""${env:NAME}, ${file:PATH} and ${credential:NAME}: their values, and the problems with bad ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field

from syphon.yaml_settings import Document, Settings, SettingsError, parse, resolve, validate


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
