"""`syphon canary` without a worker: what it says when a probe does not arrive. One that does: test_running_worker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from click.testing import CliRunner
from pydantic import SecretStr

from syphon.cli import main
from syphon.config import load_config
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
from syphon.transfer import send_probe
from tests.support.waiting import eventually

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


def config_of(emulator: BackgroundEmulator, folder: Path, policy: str = "owner") -> Path:
    primary, secondary = (emulator[name].connection_string_for(policy) for name in ("contoso", "contoso-dr"))
    file = folder / "config.yaml"
    file.write_text(
        f"pairs:\n- name: contoso\n  backlog_queue_count: 1\n  primary: {{connection_string: '{primary}'}}\n"
        f"  secondary: {{connection_string: '{secondary}'}}\n"
    )
    return file


def canary(emulator: BackgroundEmulator, folder: Path, *options: str, policy: str = "owner") -> tuple[int, str]:
    config = config_of(emulator, folder, policy)
    done = CliRunner().invoke(main, ["canary", "-c", str(config), *options])
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


def test_probes_share_a_queue_and_take_no_message_out_of_it(emulator: BackgroundEmulator, tmp_path: Path) -> None:
    primary, secondary = (emulator[name].connection_string_for("owner") for name in ("contoso", "contoso-dr"))
    (pair,) = load_config(config_of(emulator, tmp_path)).pairs
    with (
        ServiceBusClient.from_connection_string(primary) as there,
        there.get_queue_sender("syphon-canary") as forwarding,
        there.get_queue_receiver("syphon-canary") as canaries,
        ServiceBusClient.from_connection_string(secondary) as here,
        here.get_queue_receiver(QUEUE) as backlog,
        ThreadPoolExecutor() as threads,
    ):

        def ids() -> list[str]:
            return [str(message.message_id) for message in backlog.peek_messages(100, sequence_number=1)]

        forwarding.send_messages([ServiceBusMessage(b"", message_id=f"earlier-{number}") for number in range(300)])
        before = len(ids())
        lost = threads.submit(send_probe, pair, QUEUE, "syphon-canary", 3.0)
        eventually(lambda: len(ids()) == before + 1)
        forwarding.send_messages(ServiceBusMessage(f"where is {ids()[-1]}?".encode(), message_id="order-17"))
        assert (lost.result().seconds, lost.result().failure) == (None, None)  # its id in a body is no arrival

        both = [threads.submit(send_probe, pair, QUEUE, "syphon-canary", 60.0) for _ in range(2)]
        eventually(lambda: len(ids()) == before + 3)
        first, second = ids()[-2:]
        forwarding.send_messages([ServiceBusMessage(b"", message_id=each) for each in (second, first)])
        assert all(probe.result().has_arrived for probe in both)

        last = canaries.peek_messages(10, sequence_number=301)
        assert [message.message_id for message in last] == ["order-17", second, first]
        assert not any(message.delivery_count for message in last)
