"""`syphon check` and `syphon provision` as an operator meets them: real files, real namespaces, exit codes (P, D12)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pydantic import SecretStr

from syphon.backlog.provisioning import provision
from syphon.bus import opening
from syphon.cli import main
from syphon.emulator import (
    Action,
    BackgroundEmulator,
    Claim,
    EmulatorSettings,
    Fault,
    NamespaceSettings,
    Operation,
    PolicySettings,
    QueueDescription,
)
from tests.bus.ways_in import SUBSCRIPTION, Token
from tests.cli.processes import run_syphon

KEY = "a-key-that-must-not-be-seen"
ZERO, ONE = (f"contoso/x-servicebus-transfer/{index}" for index in (0, 1))


@pytest.fixture
def emulator() -> Iterator[BackgroundEmulator]:
    policies = [
        PolicySettings(name="owner", key=SecretStr(KEY)),
        PolicySettings(name="listener", key=SecretStr(KEY), claims=frozenset({Claim.LISTEN})),
        PolicySettings(name="sender", key=SecretStr(KEY), claims=frozenset({Claim.SEND})),
    ]
    namespaces = [
        NamespaceSettings(name=name, policies=policies, accept_any_jwt=True) for name in ("contoso", "contoso-dr")
    ]
    with BackgroundEmulator(EmulatorSettings(namespaces=namespaces)) as running:
        running.call(lambda: running["contoso"].namespace.create_queue(QueueDescription("orders")))
        yield running


def write(folder: Path, primary: str, secondary: str, more: str = "", beside: str = "") -> Path:
    file = folder / "config.yaml"
    file.write_text(
        f"pairs:\n  - name: contoso\n    primary: {{connection_string: '{primary}'}}\n"
        f"    secondary: {{connection_string: '{secondary}'{beside}}}\n    backlog_queue_count: 2\n"
        f"    destinations: {{allow: [orders, missing, 'billing/*']}}\n{more}"
    )
    return file


def strings(emulator: BackgroundEmulator, policy: str = "owner") -> tuple[str, str]:
    primary, secondary = emulator["contoso"], emulator["contoso-dr"]
    return primary.connection_string_for(policy), secondary.connection_string_for(policy)


def make(emulator: BackgroundEmulator, *queues: QueueDescription) -> None:
    """In the secondary."""
    for queue in queues:
        emulator.call(lambda queue=queue: emulator["contoso-dr"].namespace.create_queue(queue))  # type: ignore[misc]


def arm(emulator: BackgroundEmulator, *faults: Fault) -> None:
    for fault in faults:
        emulator.call(lambda fault=fault: emulator["contoso-dr"].namespace.faults.add(fault))  # type: ignore[misc]


def queues(emulator: BackgroundEmulator) -> list[str]:
    found = emulator.call(lambda: emulator["contoso-dr"].namespace.queues())
    return sorted(queue.name for queue in found)


def syphon(*arguments: object) -> Result:
    done = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert KEY not in done.output
    assert isinstance(done.exception, SystemExit | None), done.exc_info
    return done


def told(*arguments: object) -> tuple[int, dict[str, list[str]]]:
    """The exit code of a check, and its findings by their level."""
    done = syphon("check", *arguments, "--json")
    by_level: dict[str, list[str]] = {}
    for finding in json.loads(done.stdout)["findings"]:
        by_level.setdefault(finding["level"], []).append(f"{finding['about']}: {finding['text']}")
    return done.exit_code, by_level


def test_check_names_everything_that_would_fail_at_once(  # P3, P4, S4
    emulator: BackgroundEmulator, tmp_path: Path
) -> None:
    make(emulator, QueueDescription(ZERO, max_delivery_count=3), QueueDescription("contoso/x-servicebus-transfer/7"))
    code, findings = told("-c", write(tmp_path, *strings(emulator)))
    odd_one, extra_one = findings["warning"]
    assert ZERO in odd_one
    assert "max_delivery_count" in odd_one
    assert "contoso/x-servicebus-transfer/7" in extra_one
    assert any(ONE in text and "provision" in text for text in findings["problem"])
    assert any("'missing'" in text and "not-found" in text for text in findings["problem"])
    assert any("'orders' can be sent to" in text for text in findings["ok"])
    assert any(f"'{ZERO}' can be received from" in text for text in findings["ok"])
    assert code == 1


def test_check_is_content_with_a_pair_that_was_provisioned(emulator: BackgroundEmulator, tmp_path: Path) -> None:
    """As processes of their own: an operator has no others."""
    emulator.call(lambda: emulator["contoso"].namespace.create_queue(QueueDescription("missing")))
    file = str(write(tmp_path, *strings(emulator)))
    made = run_syphon("provision", "-c", file, timeout=100)
    assert made.returncode == 0
    assert f"queue {ONE} was made" in made.stdout
    done = run_syphon("check", "-c", file, timeout=100)
    assert done.returncode == 0
    assert "No problems" in done.stdout
    assert KEY not in made.stdout + made.stderr + done.stdout + done.stderr


def test_a_dry_run_makes_nothing_and_names_what_is_beyond_the_count(  # P4
    emulator: BackgroundEmulator, tmp_path: Path
) -> None:
    extra = "contoso/x-servicebus-transfer/7"
    make(emulator, QueueDescription(extra))
    file = write(tmp_path, *strings(emulator))
    (pair,) = json.loads(syphon("provision", "-c", file, "--dry-run", "--json").stdout)["pairs"]
    assert [queue["name"] for queue in pair["queues"]] == [ZERO, ONE]
    assert pair["extra"] == [extra]
    shown = syphon("provision", "-c", file, "--dry-run")
    assert shown.exit_code == 0
    assert f"beyond the count, left as they are: {extra}" in shown.stdout
    assert queues(emulator) == [extra]


@pytest.mark.parametrize("said", ["--via", "settings"])
def test_queues_are_made_through_resource_manager_with_a_key_that_may_only_listen(  # P6
    emulator: BackgroundEmulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setattr(opening, "credential_of", lambda kind: Token())  # noqa: ARG005  an identity is not to be had here
    endpoint = f"http://127.0.0.1:{emulator['contoso-dr'].amqp_port}"
    known = f", name: contoso-dr, arm: {{subscription_id: {SUBSCRIPTION}, resource_group: rg, endpoint: '{endpoint}'}}"
    more = "    provision: {via: arm}\n" if said == "settings" else ""
    file = write(tmp_path, *strings(emulator, "listener"), more, beside=known)
    done = syphon("provision", "-c", file, *(["--via", "arm"] if said == "--via" else []))
    assert done.exit_code == 0, done.output
    assert queues(emulator) == [ZERO, ONE]


def test_a_queue_that_cannot_be_made_is_told_and_how_many_there_are_without_it(  # P5
    emulator: BackgroundEmulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provision, "__kwdefaults__", {**(provision.__kwdefaults__ or {}), "pause": 0.0})
    arm(emulator, Fault(Action.REFUSE, Operation.MANAGE, entity=ONE, description="Not this one."))
    done = syphon("provision", "-c", write(tmp_path, *strings(emulator)), "--json")
    (pair,) = json.loads(done.stdout)["pairs"]
    assert (done.exit_code, pair["count"]) == (1, 1)
    assert any(ONE in queue["text"] and "Not this one" in queue["text"] for queue in pair["queues"])


def test_each_pair_is_provisioned_and_the_worst_of_them_is_the_exit_code(  # P5
    emulator: BackgroundEmulator, tmp_path: Path
) -> None:
    primary, secondary = strings(emulator)
    other = (
        f"  - name: second\n    primary: {{connection_string: '{primary}'}}\n"
        f"    secondary: {{connection_string: '{secondary}'}}\n    backlog_queue_count: 1\n"
    )
    done = syphon("provision", "-c", write(tmp_path, primary, secondary.replace(KEY, "wrong"), other))
    assert done.exit_code == 77
    assert queues(emulator) == ["second/x-servicebus-transfer/0"]


def test_what_cannot_be_looked_at_now_is_told_as_out_of_reach(emulator: BackgroundEmulator, tmp_path: Path) -> None:
    make(emulator, QueueDescription(ZERO))
    arm(
        emulator,
        Fault(Action.ERROR, Operation.MANAGE, entity=ONE),
        Fault(Action.DROP, Operation.MANAGE, entity="$*"),  # the list of queues
    )
    code, findings = told("-c", write(tmp_path, *strings(emulator)))
    one, listed = findings["unreachable"]
    assert f"queue {ONE} could not be looked for" in one
    assert "list its queues" in listed
    assert code == 69


def test_a_missing_claim_is_told_by_name_with_its_own_exit_code(  # P5
    emulator: BackgroundEmulator, tmp_path: Path
) -> None:
    make(emulator, QueueDescription(ZERO))
    file = write(tmp_path, *strings(emulator, "listener"))
    provisioned = syphon("provision", "-c", file)
    assert provisioned.exit_code == 77
    assert "Manage" in provisioned.stdout
    code, findings = told("-c", file)
    assert any("'orders'" in text and "Send" in text for text in findings["denied"])
    assert any(f"'{ZERO}' can be received from" in text for text in findings["ok"])
    assert code == 77


def test_who_may_not_listen_is_told_so(emulator: BackgroundEmulator, tmp_path: Path) -> None:  # P5
    make(emulator, QueueDescription(ZERO))
    code, findings = told("-c", write(tmp_path, *strings(emulator, "sender")))
    assert any(ZERO in text and "Listen" in text for text in findings["denied"])
    assert any("'orders' can be sent to" in text for text in findings["ok"])
    assert code == 77


def test_a_wrong_key_is_told_of_both_sides_with_its_own_exit_code(emulator: BackgroundEmulator, tmp_path: Path) -> None:
    primary, secondary = strings(emulator)
    code, findings = told("-c", write(tmp_path, primary.replace(KEY, "wrong"), secondary.replace(KEY, "wrong")))
    assert code == 77
    assert {text.partition(" ")[0] for text in findings["denied"]} == {"primary", "secondary"}


CLOSED = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=owner;SharedAccessKey=x;UseDevelopmentEmulator=true"


def test_a_namespace_out_of_reach_is_told_with_its_own_exit_code(tmp_path: Path) -> None:
    file = write(tmp_path, CLOSED, CLOSED.replace("127.0.0.1:1", "127.0.0.1:2"))
    code, findings = told("-c", file)
    assert code == 69
    assert syphon("provision", "--dry-run", "-c", file).exit_code == 69
    assert any("127.0.0.1:1" in text for text in findings["unreachable"])
    assert any("127.0.0.1:2" in text for text in findings["unreachable"])
    assert "problem" not in findings


def test_refused_credentials_weigh_more_than_a_namespace_out_of_reach(  # D12
    emulator: BackgroundEmulator, tmp_path: Path
) -> None:
    _, secondary = strings(emulator)
    code, findings = told("-c", write(tmp_path, CLOSED, secondary.replace(KEY, "wrong")))
    assert {"denied", "unreachable"} <= set(findings)
    assert code == 77


def test_wrong_settings_are_all_told_before_anything_is_tried(tmp_path: Path) -> None:
    same = f"Endpoint=sb://contoso.servicebus.windows.net;SharedAccessKeyName=owner;SharedAccessKey={KEY}"
    done = syphon("check", "-c", write(tmp_path, same, same, "    colour: red\nstatus: {listen: nowhere}\n"))
    assert done.exit_code == 78
    assert "colour" in done.stderr
    assert "status.listen" in done.stderr
    assert "same namespace as primary" in done.stderr


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    done = syphon("check", "-c", tmp_path / "none.yaml")
    assert done.exit_code == 78
    assert "none.yaml" in done.stderr
