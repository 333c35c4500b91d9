"""`syphon canary` without a worker: what it says when a probe does not arrive. One that does: test_running_worker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from pydantic import SecretStr

from syphon.cli import main
from syphon.emulator import (
    BackgroundEmulator,
    Claim,
    EmulatorSettings,
    NamespaceSettings,
    PolicySettings,
    QueueDescription,
)
from syphon.model import ExitCode
from syphon.servicebus.data_plane_administration import DataPlaneAdministration

KEY = "a-key-that-must-not-be-seen"
QUEUE = "contoso/x-servicebus-transfer/0"


@pytest.fixture(scope="module")
def emulator() -> Iterator[BackgroundEmulator]:
    policies = [
        PolicySettings(name="owner", key=SecretStr(KEY)),
        PolicySettings(name="sender", key=SecretStr(KEY), claims=frozenset({Claim.SEND})),
    ]
    namespaces = [NamespaceSettings(name=name, policies=policies) for name in ("contoso", "contoso-dr")]
    with BackgroundEmulator(EmulatorSettings(namespaces=namespaces)) as running:
        running.call(lambda: running["contoso"].namespace.create_queue(QueueDescription("syphon-canary")))
        running.call(lambda: running["contoso-dr"].namespace.create_queue(QueueDescription(QUEUE)))
        yield running


def canary(emulator: BackgroundEmulator, folder: Path, *options: str, policy: str = "owner") -> tuple[int, str]:
    primary, secondary = (emulator[name].connection_string_for(policy) for name in ("contoso", "contoso-dr"))
    (folder / "config.yaml").write_text(
        f"pairs:\n- name: contoso\n  backlog_queue_count: 1\n  primary: {{connection_string: '{primary}'}}\n"
        f"  secondary: {{connection_string: '{secondary}'}}\n"
    )
    done = CliRunner().invoke(main, ["canary", "-c", str(folder / "config.yaml"), *options])
    assert KEY not in done.output
    return done.exit_code, done.output


def waiting(emulator: BackgroundEmulator) -> int:
    """How many messages the backlog queue holds."""
    string = emulator["contoso-dr"].connection_string_for("owner")
    with DataPlaneAdministration.from_connection_string(string) as administration:
        counts = administration.queue_counts(QUEUE)
    assert counts is not None
    return counts.active


def test_a_probe_that_nobody_forwards_is_lost(emulator: BackgroundEmulator, tmp_path: Path) -> None:
    code, said = canary(emulator, tmp_path, "--within", "500ms", "--json")
    (probe,) = json.loads(said)["probes"]
    assert (code, probe["seconds"], probe["error"]) == (ExitCode.LEFT, None, None)
    assert waiting(emulator) == 1  # it waits like any message


@pytest.mark.parametrize(
    ("options", "policy", "code", "words"),
    [
        (("--to", "nowhere"), "owner", ExitCode.LEFT, "'nowhere' does not exist on the primary: create this queue"),
        ((), "sender", ExitCode.NOT_AUTHORIZED, "grant Listen on 'syphon-canary'"),
        (("--pair", "other"), "owner", ExitCode.USAGE, "There is no pair other; there are: contoso."),
        (("--queue", "7"), "owner", ExitCode.USAGE, "contoso has no backlog queue 7: it has 1."),
    ],
    ids=["missing", "denied", "pair", "queue"],
)
def test_a_probe_is_not_sent_if_nobody_could_see_it_arrive(
    emulator: BackgroundEmulator, tmp_path: Path, options: tuple[str, ...], policy: str, code: int, words: str
) -> None:
    before = waiting(emulator)
    ended, said = canary(emulator, tmp_path, *options, policy=policy)
    assert (ended, words in " ".join(said.split())) == (code, True), said
    assert waiting(emulator) == before
