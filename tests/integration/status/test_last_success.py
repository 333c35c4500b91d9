"""When a message was last forwarded, over a restart."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from syphon.config import Config
from syphon.status import serving_status
from syphon.status.history import LastSuccess
from syphon.time_budget import LAST_SUCCESS_EVERY
from tests.support.status_server import PAIRS


def test_a_restart_does_not_forget_the_last_success(tmp_path: Path) -> None:
    state = tmp_path / "syphon-state.json"
    before = LastSuccess(state)
    assert before.of("contoso") is None
    before.succeeded("contoso", 1_700_000_000.5)
    before.write()
    after = LastSuccess(state)
    assert (after.of("contoso"), after.of("fabrikam")) == (1_700_000_000.5, None)


def test_a_worker_that_starts_again_shows_the_success_of_the_one_before(tmp_path: Path) -> None:
    status = {"listen": "127.0.0.1:0", "state": str(tmp_path / "state.json")}
    config = Config.model_validate({"pairs": PAIRS, "status": status})
    with serving_status(config) as first:
        first.observer.last_success.succeeded("contoso", 1_700_000_000.0)
    with serving_status(config) as second:
        metrics = second.telemetry.prometheus().decode()
        assert 'syphon_last_success_timestamp_seconds{pair="contoso"} 1.7e+09' in metrics
        (shown, other) = second.observer.current().pairs
        assert (shown.last_success, other.last_success) == (datetime.fromtimestamp(1_700_000_000, UTC), None)


def test_it_is_written_now_and_then_so_that_a_kill_forgets_little(tmp_path: Path) -> None:
    clock, state = [0.0], tmp_path / "syphon-state.json"
    kept = LastSuccess(state, now=lambda: clock[0])
    kept.succeeded("contoso", 1.0)
    assert LastSuccess(state).of("contoso") is None
    clock[0] = LAST_SUCCESS_EVERY
    kept.succeeded("contoso", 2.0)
    assert LastSuccess(state).of("contoso") == 2.0


@pytest.mark.parametrize("content", ["", "[]", '{"contoso": "soon"}'])
def test_a_file_that_is_not_valid_is_reported_and_does_not_stop_the_worker(
    tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "state-last-success.json").write_text(content)
    kept = LastSuccess(tmp_path / "state.json")
    assert kept.of("contoso") is None
    assert "the time of the last success is unknown" in caplog.text
    kept.succeeded("contoso", 3.0)
    kept.write()
    assert LastSuccess(tmp_path / "state.json").of("contoso") == 3.0


def test_a_place_that_cannot_be_written_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    kept = LastSuccess(tmp_path / "file" / "state.json")
    for wall in (1.0, 2.0):
        kept.succeeded("contoso", wall)
        kept.write()
    assert caplog.text.count("will not survive a restart") == 1
    assert kept.of("contoso") == 2.0


def test_without_a_state_file_nothing_is_written() -> None:
    kept = LastSuccess()
    kept.succeeded("contoso", 1.0)
    kept.write()
    assert kept.of("contoso") == 1.0
