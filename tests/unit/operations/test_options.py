"""Settings and options of the functions: what the commands take as text, and the values of Python beside it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml

import syphon
from syphon.config import Config, settings_of
from syphon.model import InvalidOption, InvalidSettings, SyphonError
from syphon.option_declarations import read_duration, read_moment, read_names, read_rate

KEY = "c2VjcmV0LWtleS10aGF0LW11c3Qtbm90LWJlLXNlZW4="
SETTINGS: dict[str, Any] = {
    "pairs": [
        {
            "name": "contoso",
            "primary": {"namespace": "contoso.servicebus.windows.net", "credential": "default"},
            "secondary": {
                "connection_string": "Endpoint=sb://contoso-dr.servicebus.windows.net/;"
                f"SharedAccessKeyName=owner;SharedAccessKey={KEY}"
            },
        }
    ],
    "pipeline": {"ledger": "./somewhere"},
}


def test_settings_are_a_file_its_content_or_settings_that_were_read(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(SETTINGS))
    read = settings_of(file)
    assert read == settings_of(str(file)) == settings_of(SETTINGS)
    assert settings_of(read) is read
    assert read.pipeline.ledger == "./somewhere"


def test_references_in_values_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHERE", "./elsewhere")
    assert settings_of(SETTINGS | {"pipeline": {"ledger": "${env:WHERE}"}}).pipeline.ledger == "./elsewhere"


def test_wrong_settings_are_one_error_with_every_problem_and_no_secret() -> None:
    wrong = SETTINGS | {"pipeline": {"lease": "soon", "colour": "red", "ledger": f"SharedAccessKey={KEY}"}}
    with pytest.raises(InvalidSettings) as caught:
        settings_of(wrong)
    said = str(caught.value)
    assert "pipeline.lease" in said
    assert "pipeline.colour" in said
    assert isinstance(caught.value, SyphonError)
    assert KEY not in said + repr(caught.value)


def test_settings_show_no_secret() -> None:
    config: Config = settings_of(SETTINGS)
    assert KEY not in repr(config) + str(config)


def test_a_moment_is_a_text_a_datetime_or_so_long_ago() -> None:
    assert read_moment("2026-11-16T08:00") == datetime(2026, 11, 16, 8, tzinfo=UTC)
    assert read_moment(datetime(2026, 11, 16, 8)) == datetime(2026, 11, 16, 8, tzinfo=UTC)
    east = timezone(timedelta(hours=2))
    assert read_moment(datetime(2026, 11, 16, 8, tzinfo=east)) == datetime(2026, 11, 16, 6, tzinfo=UTC)
    assert read_moment("2026-11-16", ends_a_period=True) == datetime(2026, 11, 17, tzinfo=UTC)
    for ago in ("2h", timedelta(hours=2)):
        assert abs(datetime.now(UTC) - timedelta(hours=2) - read_moment(ago)) < timedelta(minutes=5)
    with pytest.raises(InvalidOption, match=r"'soon' is not a time: use 2026-11-16T14:30"):
        read_moment("soon")


def test_a_duration_is_a_text_seconds_or_a_timedelta() -> None:
    assert read_duration("5m") == read_duration(300) == read_duration(timedelta(minutes=5)) == 300.0
    with pytest.raises(InvalidOption, match="'long' is not a duration: use 30s, 5m or 1h30m"):
        read_duration("long")


def test_a_rate_is_a_number_or_a_text() -> None:
    assert read_rate("500/s") == read_rate(500) == 500.0
    for wrong in ("fast", 0, -1, "500/m"):
        with pytest.raises(InvalidOption, match="is not a rate: use 500 or 500/s"):
            read_rate(wrong)


def test_one_name_is_not_a_list_of_letters() -> None:
    assert read_names("orders") == ("orders",)
    assert read_names(["a", "b"]) == ("a", "b")
    assert read_names(0) == ("0",)  # the index of a queue


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"before": "2026-01-01", "after": "2026-01-02"}, "is not later than --after"),
        ({"limit": 0}, "limit: 0 is too small"),
        ({"ttl": "forever"}, "use restore or remaining"),
        ({"give_up": "full"}, "give_up: 'full' is unknown: use missing, disabled, or missing,disabled"),
        ({"pairs": "fabrikam"}, "The settings have no pair 'fabrikam'"),
        ({"queues": 99}, "No backlog queue matches '99'"),
    ],
)
def test_an_option_that_makes_no_sense_is_an_error_before_anything_is_asked(options: dict[str, Any], said: str) -> None:
    with pytest.raises(SyphonError, match=said):
        syphon.drain(SETTINGS, **options)
