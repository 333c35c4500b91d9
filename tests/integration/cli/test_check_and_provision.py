"""`syphon check` and `syphon provision` as an operator runs them: real files, real namespaces, exit codes (P, D12)."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner
from pydantic import SecretStr

from syphon.backlog.provisioning import provision
from syphon.cli import main
from syphon.cli.tables import shortened
from syphon.emulator import (
    Action,
    BackgroundEmulator,
    Claim,
    EmulatorSettings,
    Fault,
    NamespaceSettings,
    Operation,
    Outage,
    PolicySettings,
    QueueDescription,
)
from syphon.servicebus import factory, management_http
from tests.support.administrations import SUBSCRIPTION, Token
from tests.support.cli_process import run_syphon

KEY = "a-key-that-must-not-be-seen"
ZERO, ONE = (f"contoso/x-servicebus-transfer/{index}" for index in (0, 1))
CLOSED = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=owner;SharedAccessKey=x;UseDevelopmentEmulator=true"


@pytest.fixture
def emulator() -> Iterator[BackgroundEmulator]:
    policies = [
        PolicySettings(name="owner", key=SecretStr(KEY)),
        PolicySettings(name="worker", key=SecretStr(KEY), claims=frozenset({Claim.LISTEN, Claim.SEND})),
        PolicySettings(name="sender", key=SecretStr(KEY), claims=frozenset({Claim.SEND})),
        PolicySettings(name="listener", key=SecretStr(KEY), claims=frozenset({Claim.LISTEN})),
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


class Done(NamedTuple):
    """A command that has ended."""

    returncode: int
    stdout: str
    stderr: str


def syphon(*arguments: object) -> Done:
    """Runs a command in this process: to start another takes longer than most of these commands."""
    done = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert KEY not in done.output
    assert isinstance(done.exception, SystemExit | None), done.exc_info
    return Done(done.exit_code, done.stdout, done.stderr)


def syphon_alone(*arguments: object) -> Done:
    """Runs a command in a process of its own, as an operator does."""
    done = run_syphon(*map(str, arguments), timeout=100)
    assert KEY not in done.stdout + done.stderr
    return Done(done.returncode, done.stdout, done.stderr)


def test_every_command_that_reads_the_backlog_ends_alike_without_the_right_and_names_the_cause_once(
    emulator: BackgroundEmulator, tmp_path: Path
) -> None:  # X7
    primary, _ = strings(emulator)
    secondary = emulator["contoso-dr"].connection_string_for("sender")
    file = write(tmp_path, primary, secondary)
    assert syphon("provision", "-c", write(tmp_path, *strings(emulator))).returncode == 0
    write(tmp_path, primary, secondary)
    for words in (("inspect",), ("dead-letters", "list"), ("drain", "--dry-run"), ("drain", "--yes")):
        done = syphon(*words, "-c", file)
        assert (words, done.returncode) == (words, 77)
        assert "Spark" not in done.stderr
        assert (done.stderr + done.stdout).count("'Listen' claim(s) are required") == 1


def test_check_says_whether_an_outage_fits_into_the_backlog(emulator: BackgroundEmulator, tmp_path: Path) -> None:
    file = write(tmp_path, *strings(emulator))

    def found(*options: str) -> list[tuple[str, str]]:
        findings = json.loads(syphon("check", "-c", file, "--json", *options).stdout)["findings"]
        return [(each["level"], each["text"]) for each in findings if "an outage of" in each["text"]]

    ((level, text),) = found("--outage", "1h", "--rate", "100/s", "--size", "700")
    assert (level, text.startswith("an outage of 1 h at 100 messages per second of 700 B fits: 343.3 MB")) == (
        "ok",
        True,
    )
    ((level, text),) = found("--outage", "8h", "--rate", "2000/s")
    assert level == "warning"
    assert "the backlog is full, and senders fail; raise backlog_queue_count" in text
    assert syphon("check", "-c", file, "--outage", "8h").returncode == 2


def test_check_warns_of_a_clock_that_is_wrong(
    emulator: BackgroundEmulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path, *strings(emulator))
    assert "this machine's clock" not in syphon("check", "-c", file).stdout
    monkeypatch.setattr(management_http, "wall", lambda: time.time() + 300)
    said = syphon("check", "-c", file).stdout
    assert re.search("warning +this machine's clock is (4|5) min.* ahead of the namespace's", said), said


def test_check_warns_of_a_key_in_a_file_that_everybody_can_read(
    emulator: BackgroundEmulator, tmp_path: Path
) -> None:  # T7
    file = write(tmp_path, *strings(emulator), more="status: {token: a-token-of-the-operator}\n")
    file.chmod(0o644)
    warning = f"warning: {file} contains a key and is readable by every user"
    told = syphon("check", "-c", file, "--json")
    assert told.stderr.startswith(warning)
    assert "a-token-of" not in told.stderr + told.stdout
    json.loads(told.stdout)
    file.chmod(0o640)
    assert warning not in syphon("check", "-c", file, "--json").stderr


def test_check_names_everything_that_would_fail_at_once(emulator: BackgroundEmulator, tmp_path: Path) -> None:
    odd = QueueDescription("contoso/x-servicebus-transfer/0", max_delivery_count=3)
    extra = QueueDescription("contoso/x-servicebus-transfer/7")
    for queue in (odd, extra):
        emulator.call(lambda queue=queue: emulator["contoso-dr"].namespace.create_queue(queue))  # type: ignore[misc]
    file = write(tmp_path, *strings(emulator))
    done = syphon("check", "-c", file, "--json")
    result = json.loads(done.stdout)
    secondary = f"127.0.0.1:{emulator['contoso-dr'].amqp_port}"
    assert {(f["entity"], f["level"]) for f in result["findings"]} == {
        (None, "ok"),
        ("contoso/x-servicebus-transfer/0", "warning"),
        ("contoso/x-servicebus-transfer/0", "ok"),
        ("contoso/x-servicebus-transfer/1", "problem"),
        ("contoso/x-servicebus-transfer/7", "warning"),
        ("orders", "ok"),
        ("missing", "problem"),
        ("billing/*", "warning"),
    }
    assert result["findings"][0] | {"text": ""} == {
        "pair": "contoso",
        "side": "secondary",
        "namespace": secondary,
        "entity": "contoso/x-servicebus-transfer/0",
        "level": "warning",
        "text": "",
    }
    assert (done.returncode, result["exit_code"], result["settings"]) == (1, 1, [])
    shown = syphon("check", "-c", file)
    assert shown.returncode == 1
    assert shown.stdout.startswith(f"contoso: secondary {secondary}\n  warning      contoso/x-servicebus-transfer/0: ")
    assert shown.stdout.endswith("2 problems, 3 warnings.\n")


def test_settings_can_be_checked_without_a_network(tmp_path: Path) -> None:
    file = write(tmp_path, CLOSED, CLOSED.replace(":1;", ":2;"))
    done = CliRunner().invoke(main, ["check", "-c", str(file), "--offline"])
    assert (done.exit_code, done.stdout) == (0, f"{file} is valid: 1 pair.\n")
    file.write_text(file.read_text().replace("backlog_queue_count", "backlog_queues"))
    done = CliRunner().invoke(main, ["check", "-c", str(file), "--offline", "--json"])
    assert (done.exit_code, json.loads(done.stdout)["settings"][0]["line"]) == (78, 5)


def test_check_finds_no_problem_in_a_pair_that_was_provisioned(emulator: BackgroundEmulator, tmp_path: Path) -> None:
    emulator.call(lambda: emulator["contoso"].namespace.create_queue(QueueDescription("missing")))
    file = write(tmp_path, *strings(emulator))
    made = syphon_alone("provision", "-c", file)
    assert (made.returncode, made.stderr) == (0, "")
    assert "  created      contoso/x-servicebus-transfer/0 to 1: " in made.stdout
    done = syphon_alone("check", "-c", file)
    assert done.returncode == 0
    assert "contoso/x-servicebus-transfer/0 to 1: exists, as documented" in done.stdout
    assert "No problems" in done.stdout
    modest = syphon("check", "--no-provision", "-c", write(tmp_path, *strings(emulator, "worker")))
    assert (modest.returncode, modest.stderr) == (0, "")


def on_a_terminal(columns: int, *arguments: object) -> str:
    """The output on a terminal."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "syphon", *map(str, arguments)]
    environ = os.environ | {"COLUMNS": str(columns), "TERM": "xterm"}
    with subprocess.Popen(command, stdout=follower, stderr=follower, stdin=follower, env=environ):
        os.close(follower)
        seen = b""
        try:
            while chunk := os.read(leader, 65536):
                seen += chunk
        except OSError:  # so Linux says that the other end is closed
            pass
    os.close(leader)
    return seen.decode()


def test_on_a_terminal_there_are_colours_and_nothing_is_wider(emulator: BackgroundEmulator, tmp_path: Path) -> None:
    seen = on_a_terminal(80, "check", "-c", write(tmp_path, *strings(emulator)))
    assert "\x1b[31mproblem" in seen
    lines = re.sub(r"\x1b\[[0-9;]*m", "", seen).splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("               ") for line in lines), "a long text goes on below itself"


def test_a_dry_run_creates_nothing(emulator: BackgroundEmulator, tmp_path: Path) -> None:
    file = write(tmp_path, *strings(emulator))
    done = syphon("provision", "-c", file, "--dry-run", "--json")
    result = json.loads(done.stdout)
    (pair,) = result.pop("pairs")
    assert result == {"exit_code": 0, "dry_run": True}
    assert pair == {
        "pair": "contoso",
        "namespace": f"127.0.0.1:{emulator['contoso-dr'].amqp_port}",
        "error": None,
        "queues": [
            {"name": f"contoso/x-servicebus-transfer/{i}", "state": "missing", "differences": [], "error": None}
            for i in (0, 1)
        ],
        "extra": [],
        "count": 0,
    }
    assert emulator.call(lambda: emulator["contoso-dr"].namespace.queues()) == []
    shown = syphon("provision", "-c", file, "--dry-run")
    assert "  missing      contoso/x-servicebus-transfer/0 to 1: would be created\n" in shown.stdout


def test_provision_reports_once_which_queues_stay_as_they_are(
    emulator: BackgroundEmulator, tmp_path: Path
) -> None:  # P3, P4
    odd = QueueDescription("contoso/x-servicebus-transfer/0", max_delivery_count=3)
    extra = QueueDescription("contoso/x-servicebus-transfer/7")
    for queue in (odd, extra):
        emulator.call(lambda queue=queue: emulator["contoso-dr"].namespace.create_queue(queue))  # type: ignore[misc]
    done = syphon("provision", "-c", write(tmp_path, *strings(emulator)))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("max_delivery_count is 3, not 2147483647") == 1
    assert "  created      contoso/x-servicebus-transfer/1: " in done.stdout
    assert "  extra        contoso/x-servicebus-transfer/7: " in done.stdout


def test_check_and_provision_tell_what_follows_from_a_backlog_queue_that_detects_duplicates(
    emulator: BackgroundEmulator, tmp_path: Path
) -> None:  # P3
    merging = QueueDescription("contoso/x-servicebus-transfer/0", requires_duplicate_detection=True)
    emulator.call(lambda: emulator["contoso-dr"].namespace.create_queue(merging))
    file = write(tmp_path, *strings(emulator))
    consequence = "different messages with the same message id become one"
    (finding,) = (
        f for f in json.loads(syphon("check", "-c", file, "--json").stdout)["findings"] if consequence in f["text"]
    )
    assert (finding["entity"], finding["level"]) == (merging.name, "warning")
    done = syphon("provision", "-c", file)
    assert (done.returncode, consequence in " ".join(done.stdout.split())) == (0, True)
    (pair,) = json.loads(syphon("provision", "-c", file, "--json").stdout)["pairs"]
    assert consequence in pair["queues"][0]["differences"][-1]["consequence"]


def test_resource_manager_is_not_replaced_by_another_way_in(emulator: BackgroundEmulator, tmp_path: Path) -> None:  # P6
    done = syphon("provision", "--via", "arm", "-c", write(tmp_path, *strings(emulator)))
    assert done.returncode == 78
    assert "pairs[0].secondary.arm" in done.stderr
    assert emulator.call(lambda: emulator["contoso-dr"].namespace.queues()) == []


def test_ctrl_c_prints_the_consequence_and_has_its_own_exit_code(emulator: BackgroundEmulator, tmp_path: Path) -> None:
    emulator.call(lambda: emulator["contoso-dr"].namespace.faults.begin_outage(Outage.BUSY))
    command = [sys.executable, "-m", "syphon", "provision", "-c", str(write(tmp_path, *strings(emulator)))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "retrying in 30 s" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Queues created so far are kept" in rest
    assert "Traceback" not in rest


def test_a_missing_claim_is_named_and_has_its_own_exit_code(emulator: BackgroundEmulator, tmp_path: Path) -> None:
    file = write(tmp_path, *strings(emulator, "listener"))
    checked, provisioned = syphon("check", "-c", file), syphon("provision", "-c", file)
    assert (checked.returncode, provisioned.returncode) == (77, 77)
    assert "Manage" in provisioned.stdout
    assert "Send" in checked.stdout


def test_a_wrong_key_is_reported_for_both_sides_and_has_its_own_exit_code(
    emulator: BackgroundEmulator, tmp_path: Path
) -> None:
    primary, secondary = strings(emulator)
    file = write(tmp_path, primary.replace(KEY, "wrong"), secondary.replace(KEY, "wrong"))
    done = syphon("check", "-c", file, "--json")
    assert done.returncode == 77
    result = {(finding["side"], finding["level"]) for finding in json.loads(done.stdout)["findings"]}
    assert result == {("secondary", "denied"), ("primary", "denied")}


def test_a_missing_token_is_reported_in_our_own_words(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "pairs:\n  - name: contoso\n    primary: {namespace: a.servicebus.invalid}\n"
        "    secondary: {namespace: b.servicebus.invalid, credential: environment}\n"
    )
    done = syphon("provision", "--dry-run", "-c", file)
    assert done.returncode == 77
    assert "there is no token" in done.stdout
    assert done.stderr == ""


def test_an_unreachable_namespace_is_reported_and_has_its_own_exit_code(tmp_path: Path) -> None:
    other = CLOSED.replace("127.0.0.1:1", "127.0.0.1:2")
    done = syphon("check", "-c", write(tmp_path, CLOSED, other))
    assert done.returncode == 69
    assert "127.0.0.1:1" in done.stdout
    assert done.stdout.count("127.0.0.1:2 is unreachable") == 1, "once, and not for every queue"
    named = re.findall(r"allows (AMQP|HTTPS) \(port (\d+)\)", done.stdout)
    assert set(named) == {("HTTPS", "2"), ("AMQP", "2"), ("AMQP", "1")}, "the ports that were tried"
    assert syphon("provision", "--dry-run", "-c", tmp_path / "config.yaml").returncode == 69


def test_refused_credentials_weigh_more_than_an_unreachable_namespace(  # D12
    emulator: BackgroundEmulator, tmp_path: Path
) -> None:
    _, secondary = strings(emulator)
    done = syphon("check", "-c", write(tmp_path, CLOSED, secondary.replace(KEY, "wrong")), "--json")
    assert {"denied", "unreachable"} <= {finding["level"] for finding in json.loads(done.stdout)["findings"]}
    assert done.returncode == 77


def test_an_entity_that_cannot_be_checked_is_reported_as_unreachable(
    emulator: BackgroundEmulator, tmp_path: Path
) -> None:
    emulator.call(lambda: emulator["contoso-dr"].namespace.create_queue(QueueDescription(ZERO)))
    arm(emulator, Fault(Action.ERROR, Operation.MANAGE, entity=ONE))
    arm(emulator, Fault(Action.ERROR, Operation.MANAGE, entity="$*"))  # the list of queues
    done = syphon("check", "-c", write(tmp_path, *strings(emulator)), "--json")
    unseen = [f for f in json.loads(done.stdout)["findings"] if f["level"] == "unreachable"]
    assert [finding["entity"] for finding in unseen] == [ONE, None]
    assert "list its queues" in unseen[1]["text"]
    assert done.returncode == 69


def arm(emulator: BackgroundEmulator, fault: Fault) -> None:
    """In the secondary."""
    emulator.call(lambda: emulator["contoso-dr"].namespace.faults.add(fault))


def queues(emulator: BackgroundEmulator) -> list[str]:
    return sorted(queue.name for queue in emulator.call(lambda: emulator["contoso-dr"].namespace.queues()))


@pytest.mark.parametrize("said", ["--via", "settings"])
def test_queues_are_made_through_resource_manager_with_a_key_that_may_only_listen(  # P6
    emulator: BackgroundEmulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setattr(factory, "credential_of", lambda kind: Token())  # noqa: ARG005  an identity is not to be had here
    endpoint = f"http://127.0.0.1:{emulator['contoso-dr'].amqp_port}"
    known = f", name: contoso-dr, arm: {{subscription_id: {SUBSCRIPTION}, resource_group: rg, endpoint: '{endpoint}'}}"
    more = "    provision: {via: arm}\n" if said == "settings" else ""
    file = write(tmp_path, *strings(emulator, "listener"), more, beside=known)
    done = syphon("provision", "-c", file, *(["--via", "arm"] if said == "--via" else []))
    assert done.returncode == 0, done
    assert queues(emulator) == [ZERO, ONE]


def test_a_queue_that_cannot_be_created_is_reported_with_the_number_of_the_others(  # P5
    emulator: BackgroundEmulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provision, "__kwdefaults__", {**(provision.__kwdefaults__ or {}), "pause": 0.0})
    arm(emulator, Fault(Action.REFUSE, Operation.MANAGE, entity=ONE, description="Not this one."))
    done = syphon("provision", "-c", write(tmp_path, *strings(emulator)), "--json")
    (pair,) = json.loads(done.stdout)["pairs"]
    assert (done.returncode, pair["count"]) == (1, 1)
    assert [(queue["name"], queue["state"]) for queue in pair["queues"]] == [(ZERO, "created"), (ONE, "failed")]
    assert "Not this one" in pair["queues"][1]["error"]


def test_each_pair_is_provisioned_and_the_worst_of_them_is_the_exit_code(  # P5
    emulator: BackgroundEmulator, tmp_path: Path
) -> None:
    primary, secondary = strings(emulator)
    other = (
        f"  - name: second\n    primary: {{connection_string: '{primary}'}}\n"
        f"    secondary: {{connection_string: '{secondary}'}}\n    backlog_queue_count: 1\n"
    )
    done = syphon("provision", "-c", write(tmp_path, primary, secondary.replace(KEY, "wrong"), other))
    assert done.returncode == 77
    assert queues(emulator) == ["second/x-servicebus-transfer/0"]


def test_all_wrong_settings_are_reported_before_anything_else_is_checked(tmp_path: Path) -> None:
    same = f"Endpoint=sb://contoso.servicebus.windows.net;SharedAccessKeyName=owner;SharedAccessKey={KEY}"
    file = write(tmp_path, same, same, "    colour: red\nstatus: {listen: nowhere}\n")
    done = syphon("check", "-c", file, "--json")
    result = json.loads(done.stdout)
    assert (done.returncode, result["exit_code"]) == (78, 78)
    settings = result["settings"]
    assert [problem["path"] for problem in settings] == ["pairs[0].secondary", "pairs[0].colour", "status.listen"]
    assert settings[2] == {
        "file": str(file),
        "line": 8,
        "path": "status.listen",
        "value": '"nowhere"',
        "text": "is not an address to listen on",
        "remedy": "write HOST:PORT, as in 127.0.0.1:8080; 0 is any free port",
    }
    assert "pairs[0].secondary is the same namespace as primary" in done.stderr


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    done = syphon("check", "-c", tmp_path / "none.yaml")
    assert done.returncode == 78
    assert "none.yaml" in done.stderr


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([], ""),
        (["orders"], "orders"),
        (["a/0", "a/1", "a/2"], "a/0 to 2"),
        (["a/0", "a/2", "a/3", "b/4", "orders", "a/9"], "a/0, 2 to 3, b/4, orders, a/9"),
    ],
)
def test_many_names_are_shortened(names: list[str], said: str) -> None:
    assert shortened(names) == said
