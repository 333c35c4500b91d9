"""The systemd units, checked by systemd-analyze: valid, restricted, and with everything that a JVM needs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from syphon.model.exit_codes import ExitCode
from tests.support.tools import ROOT, run, said, tool

WORKER = ROOT / "systemd" / "syphon@.service"
DRAIN = ROOT / "systemd" / "syphon-drain@.service"
UNITS = [WORKER, DRAIN]
SYSTEM_UNITS = Path("/usr/lib/systemd/system")


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a machine with systemd's own units, and with syphon where its README puts it."""
    tool("systemd-analyze")
    root = tmp_path_factory.mktemp("machine")
    shutil.copytree(SYSTEM_UNITS, root / SYSTEM_UNITS.relative_to("/"), symlinks=True)
    for program in ("opt/syphon/bin/syphon", "bin/kill"):
        (root / program).parent.mkdir(parents=True, exist_ok=True)
        (root / program).touch(mode=0o755)
    (root / "etc/systemd/system").mkdir(parents=True)
    return root


def verified(machine: Path, unit: Path, text: str | None = None) -> tuple[int, str]:
    """The output of systemd for an instance of a unit, or of a changed copy of it."""
    (machine / "etc/systemd/system" / unit.name).write_text(text or unit.read_text())
    instance = unit.name.replace("@", "@contoso")
    result = run("systemd-analyze", "verify", "--man=no", f"--root={machine}", instance)
    return result.returncode, said(result)


def exposed(unit: Path) -> tuple[int, str]:
    """Whether systemd finds a unit more exposed than 1.5 of 10."""
    result = run("systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=15", unit)
    return result.returncode, said(result)


def settings(unit: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", unit.read_text(), re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: str(unit.name))
def test_systemd_has_no_objection_to_a_unit(unit: Path, machine: Path) -> None:
    assert verified(machine, unit) == (0, "")


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("/opt/syphon/bin/syphon run", "/opt/syphon/bin/siphon run"),
        ("KillMode=mixed", "KillModus=mixed"),
        ("Type=notify", "Type=notfy"),
        ("SystemCallFilter=@system-service", "SystemCallFilter=@no-such-group"),
    ],
)
def test_systemd_objects_to_a_broken_unit(right: str, wrong: str, machine: Path) -> None:
    text = WORKER.read_text()
    assert right in text
    assert verified(machine, WORKER, text.replace(right, wrong)) != (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: str(unit.name))
def test_a_unit_is_exposed_no_more_than_one_and_a_half_of_ten(unit: Path) -> None:
    code, text = exposed(unit)
    assert code == 0, text


def test_a_unit_with_two_restrictions_less_is_found(tmp_path: Path) -> None:
    opened = tmp_path / WORKER.name
    opened.write_text(re.sub(r"(?m)^(SystemCallFilter|CapabilityBoundingSet)=.*\n", "", WORKER.read_text()))
    code, text = exposed(opened)
    assert code != 0, text


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: str(unit.name))
def test_restrictions_that_stop_a_jvm_are_left_out_and_the_unit_says_why(unit: Path) -> None:
    assert not {"MemoryDenyWriteExecute", "ProcSubset"} & set(settings(unit))
    comments = " ".join(re.findall(r"(?m)^# (.*)$", unit.read_text()))
    assert "MemoryDenyWriteExecute=yes forbids its compiler" in comments
    assert "ProcSubset=pid hides" in comments


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: str(unit.name))
def test_no_core_with_keys_and_messages_is_written(unit: Path) -> None:
    assert settings(unit)["LimitCORE"] == ["0"]


def test_the_drain_has_the_restrictions_of_the_worker_and_shares_its_folder() -> None:
    """The units differ only in how they start and end."""
    own = {"Description", "ExecStart", "Type", "TimeoutStartSec"}
    only_worker = {
        "StartLimitIntervalSec",
        "StartLimitBurst",
        "ExecReload",
        "NotifyAccess",
        "WatchdogSec",
        "Restart",
        "RestartSec",
        "RestartPreventExitStatus",
        "WantedBy",
    }
    worker, drain = settings(WORKER), settings(DRAIN)
    assert set(worker) - set(drain) == only_worker
    assert {key: value for key, value in worker.items() if key not in own | only_worker} == {
        key: value for key, value in drain.items() if key not in own
    }


def test_wrong_settings_are_not_retried_and_everything_else_is() -> None:
    worker = settings(WORKER)
    assert worker["RestartPreventExitStatus"] == [str(int(ExitCode.CONFIG))]
    assert worker["Restart"] == ["on-failure"]


def test_no_secret_can_stand_in_a_unit_or_its_environment() -> None:
    example = (ROOT / "systemd" / "syphon.env.example").read_text()
    assert all(line.startswith("#") or not line for line in example.splitlines())
    assert settings(WORKER)["LoadCredential"] == ["secrets:/etc/syphon/%i/secrets"]
    readme = (ROOT / "systemd" / "README.md").read_text()
    assert "${credential:secrets_contoso-dr}" in readme
