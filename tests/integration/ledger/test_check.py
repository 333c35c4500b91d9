"""`syphon check` checks the ledger: whether it can be written, and how much space is free."""

from __future__ import annotations

from pathlib import Path

import pytest

from syphon.ledger import ledger as preflight
from syphon.ledger.ledger import LedgerLevel, check_ledger


def test_a_ledger_that_does_not_exist_yet_is_tried_without_creating_it(tmp_path: Path) -> None:
    found = check_ledger(f"{tmp_path}/a/ledger")
    assert found.level is LedgerLevel.FINE
    assert found.text.startswith(f"does not exist yet, and can be created in {tmp_path}; ")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_in_a_ledger_that_exists(tmp_path: Path) -> None:
    assert check_ledger(f"file:{tmp_path}").text.startswith("can be written; ")
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_cannot_be_written_is_a_problem_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = check_ledger(f"{tmp_path}/file/ledger")
    assert found.level is LedgerLevel.PROBLEM
    assert "Not a directory" in found.text
    assert "pipeline.ledger" in found.text
    assert check_ledger("/proc/none/ledger").level is LedgerLevel.PROBLEM


def test_a_full_disk_is_a_problem_with_its_reason(tmp_path: Path) -> None:
    """/dev/full is a file; the error that its writer gets is that of a full disk."""
    with Path("/dev/full").open("wb", buffering=0) as full, pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.TemporaryFile", lambda **_: full)
        found = check_ledger(str(tmp_path))
    assert found.level is LedgerLevel.PROBLEM
    assert "No space left on device" in found.text


def test_little_space_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "LITTLE", 1 << 62)
    found = check_ledger(str(tmp_path))
    assert found.level is LedgerLevel.WARNING
    assert "are free" in found.text


def test_a_path_that_only_spark_knows_is_not_called_good() -> None:
    assert check_ledger("abfss://ledger@storage/path").level is LedgerLevel.WARNING
