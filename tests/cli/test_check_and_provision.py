"""`syphon check` and `syphon provision` as an operator meets them: a real process, a real file, a real namespace."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from syphon.emulator import (
    BackgroundEmulator,
    Claim,
    EmulatorSettings,
    NamespaceSettings,
    PolicySettings,
    QueueDescription,
)

KEY = "a-key-that-must-not-be-seen"


@pytest.fixture
def emulator() -> Iterator[BackgroundEmulator]:
    policies = [
        PolicySettings(name="owner", key=SecretStr(KEY)),
        PolicySettings(name="listener", key=SecretStr(KEY), claims=frozenset({Claim.LISTEN})),
    ]
    namespaces = [NamespaceSettings(name=name, policies=policies) for name in ("contoso", "contoso-dr")]
    with BackgroundEmulator(EmulatorSettings(namespaces=namespaces)) as running:
        running.call(lambda: running["contoso"].namespace.create_queue(QueueDescription("orders")))
        yield running


def write(folder: Path, primary: str, secondary: str, more: str = "") -> Path:
    file = folder / "config.yaml"
    file.write_text(
        f"pairs:\n  - name: contoso\n    primary: {{connection_string: '{primary}'}}\n"
        f"    secondary: {{connection_string: '{secondary}'}}\n    backlog_queue_count: 2\n"
        f"    destinations: {{allow: [orders, missing, 'billing/*']}}\n{more}"
    )
    return file


def strings(emulator: BackgroundEmulator, policy: str = "owner") -> tuple[str, str]:
    primary, secondary = emulator["contoso"], emulator["contoso-dr"]
    return primary.connection_string_for(policy), secondary.connection_string_for(policy)


def syphon(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "syphon", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert KEY not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_check_names_everything_that_would_fail_at_once(emulator: BackgroundEmulator, tmp_path: Path) -> None:
    odd = QueueDescription("contoso/x-servicebus-transfer/0", max_delivery_count=3)
    extra = QueueDescription("contoso/x-servicebus-transfer/7")
    for queue in (odd, extra):
        emulator.call(lambda queue=queue: emulator["contoso-dr"].namespace.create_queue(queue))  # type: ignore[misc]
    done = syphon("check", "-c", write(tmp_path, *strings(emulator)), "--json")
    findings = json.loads(done.stdout)["findings"]
    by_level = {level: [f["text"] for f in findings if f["level"] == level] for level in ("warning", "problem", "ok")}
    odd_one, extra_one = by_level["warning"]
    assert "contoso/x-servicebus-transfer/0" in odd_one
    assert "max_delivery_count" in odd_one
    assert "contoso/x-servicebus-transfer/7" in extra_one
    assert any("contoso/x-servicebus-transfer/1" in text and "provision" in text for text in by_level["problem"])
    assert any("'missing'" in text and "not-found" in text for text in by_level["problem"])
    assert any("'orders' can be sent to" in text for text in by_level["ok"])
    assert done.returncode == 1


def test_check_is_content_with_a_pair_that_was_provisioned(emulator: BackgroundEmulator, tmp_path: Path) -> None:
    emulator.call(lambda: emulator["contoso"].namespace.create_queue(QueueDescription("missing")))
    file = write(tmp_path, *strings(emulator))
    made = syphon("provision", "-c", file)
    assert made.returncode == 0
    assert "queue contoso/x-servicebus-transfer/1 was made" in made.stdout
    done = syphon("check", "-c", file)
    assert done.returncode == 0
    assert "No problems" in done.stdout


def test_a_dry_run_makes_nothing(emulator: BackgroundEmulator, tmp_path: Path) -> None:
    done = syphon("provision", "-c", write(tmp_path, *strings(emulator)), "--dry-run", "--json")
    pairs = json.loads(done.stdout)["pairs"]
    assert [queue["name"] for queue in pairs[0]["queues"]] == [f"contoso/x-servicebus-transfer/{i}" for i in (0, 1)]
    assert emulator.call(lambda: emulator["contoso-dr"].namespace.queues()) == []


def test_a_missing_claim_is_told_by_name_with_its_own_exit_code(emulator: BackgroundEmulator, tmp_path: Path) -> None:
    file = write(tmp_path, *strings(emulator, "listener"))
    checked, provisioned = syphon("check", "-c", file), syphon("provision", "-c", file)
    assert (checked.returncode, provisioned.returncode) == (77, 77)
    assert "Manage" in provisioned.stdout
    assert "Send" in checked.stdout


def test_a_wrong_key_is_told_with_its_own_exit_code(emulator: BackgroundEmulator, tmp_path: Path) -> None:
    primary, secondary = strings(emulator)
    done = syphon("check", "-c", write(tmp_path, primary.replace(KEY, "wrong"), secondary.replace(KEY, "wrong")))
    assert done.returncode == 77
    assert "denied" in done.stdout


def test_a_namespace_out_of_reach_is_told_with_its_own_exit_code(tmp_path: Path) -> None:
    closed = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=owner;SharedAccessKey=x;UseDevelopmentEmulator=true"
    other = closed.replace("127.0.0.1:1", "127.0.0.1:2")
    done = syphon("check", "-c", write(tmp_path, closed, other))
    assert done.returncode == 69
    assert syphon("provision", "--dry-run", "-c", tmp_path / "config.yaml").returncode == 69
    assert "127.0.0.1:1" in done.stdout
    assert "127.0.0.1:2" in done.stdout


def test_wrong_settings_are_all_told_before_anything_is_tried(tmp_path: Path) -> None:
    same = f"Endpoint=sb://contoso.servicebus.windows.net;SharedAccessKeyName=owner;SharedAccessKey={KEY}"
    done = syphon("check", "-c", write(tmp_path, same, same, "    colour: red\nstatus: {listen: nowhere}\n"))
    assert done.returncode == 78
    assert "colour" in done.stderr
    assert "status.listen" in done.stderr
    assert "same namespace as primary" in done.stderr


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    done = syphon("check", "-c", tmp_path / "none.yaml")
    assert done.returncode == 78
    assert "none.yaml" in done.stderr
