"""The JSON schema of the settings file: editors complete and check config.yaml with it."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from syphon.cli import main
from syphon.config import config_schema
from tests.support.tools import ROOT

EXAMPLE = ROOT / "config.example.yaml"
PAIR = {"name": "a", "primary": {"namespace": "a.example"}, "secondary": {"namespace": "b.example"}}


def problems(settings: Any) -> list[str]:
    validator = jsonschema.Draft202012Validator(config_schema())
    return [error.json_path for error in validator.iter_errors(settings)]


def test_the_example_matches_it_and_names_it_for_editors() -> None:
    assert problems(yaml.safe_load(EXAMPLE.read_text())) == []
    first = EXAMPLE.read_text().splitlines()[0]
    assert first == "# yaml-language-server: $schema=docs/config.schema.json"


def test_the_file_in_the_documents_is_what_the_command_prints() -> None:
    printed = CliRunner().invoke(main, ["config-schema"]).stdout
    assert (ROOT / "docs" / "config.schema.json").read_text() == printed
    jsonschema.Draft202012Validator.check_schema(json.loads(printed))


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"pair": []}, "$"),
        ({"pairs": []}, "$.pairs"),
        ({"pairs": [{**PAIR, "backlog_queue_count": 0}]}, "$.pairs[0].backlog_queue_count"),
        ({"pairs": [PAIR], "log": {"level": "loud"}}, "$.log.level"),
        ({"pairs": [PAIR], "pipeline": {"lease": 60}}, "$.pipeline.lease"),
    ],
)
def test_a_mistake_is_found(wrong: Any, place: str) -> None:
    assert place in problems(wrong)


def test_a_reference_may_stand_for_any_value() -> None:
    assert (
        problems({"pairs": [{**PAIR, "backlog_queue_count": "${env:COUNT}"}], "log": {"level": "${env:LEVEL}"}}) == []
    )
