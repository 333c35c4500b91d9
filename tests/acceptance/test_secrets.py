"""The key appears nowhere: not in what is printed, logged (at every level), raised, recorded or represented."""

from __future__ import annotations

import io
import logging
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from click.testing import CliRunner
from pydantic import SecretStr

from syphon.cli.root import main
from syphon.config import SideSettings, load_config
from syphon.emulator import BackgroundEmulator, Claim, EmulatorSettings, Outage, PolicySettings, QueueDescription
from syphon.emulator import NamespaceSettings as LocalNamespace
from syphon.model.errors import SyphonError
from syphon.servicebus.factory import namespace_of
from syphon.servicebus.namespace import Namespace
from syphon.servicebus.pair import Pair
from syphon.transfer.pump import Pump, PumpOptions

KEY, WRONG, READER = "the-key-of-the-owner", "a-key-that-is-wrong", "the-key-of-a-reader"
BACKLOG = "contoso/x-servicebus-transfer/0"
BODY = "what the customer wrote"


@pytest.fixture
def emulator() -> Iterator[BackgroundEmulator]:
    policies = [
        PolicySettings(name="owner", key=SecretStr(KEY)),
        PolicySettings(name="reader", key=SecretStr(READER), claims=frozenset({Claim.LISTEN})),
    ]
    namespaces = [LocalNamespace(name=name, policies=policies) for name in ("contoso", "contoso-dr")]
    with BackgroundEmulator(EmulatorSettings(namespaces=namespaces)) as running:
        running.call(lambda: running["contoso"].namespace.create_queue(QueueDescription("orders")))
        yield running


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """All that anybody logs, the SDK included, down to debug."""
    text = io.StringIO()
    handler, root = logging.StreamHandler(text), logging.getLogger()
    handler.setFormatter(logging.Formatter("%(name)s %(message)s"))
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield text
    root.removeHandler(handler)
    root.setLevel(level)


def test_no_key_and_no_body_is_ever_seen(emulator: BackgroundEmulator, log: io.StringIO, tmp_path: Path) -> None:  # T11
    seen: list[str] = []
    primary, secondary = (emulator[name].connection_string_for("owner") for name in ("contoso", "contoso-dr"))
    sides = {
        "right": (primary, secondary),
        "wrong": (primary.replace(KEY, WRONG), secondary.replace(KEY, WRONG)),
        "reader": tuple(emulator[name].connection_string_for("reader") for name in ("contoso", "contoso-dr")),
    }
    for name, (first, second) in sides.items():
        file = tmp_path / f"{name}.yaml"
        file.write_text(
            f"pairs:\n  - name: contoso\n    primary: {{connection_string: '{first}'}}\n"
            f"    secondary: {{connection_string: '{second}'}}\n    backlog_queue_count: 1\n"
            "    destinations: {allow: [orders, no]}\n"
        )
        seen.append(repr(load_config(file)))
        for command in (["check"], ["check", "--json"], ["provision", "--dry-run"], ["provision"]):
            done = CliRunner().invoke(main, [*command, "-c", str(file)])
            seen += [done.output, "".join(traceback.format_exception(done.exception)) if done.exception else ""]
    logging.getLogger("azure").setLevel(logging.NOTSET)  # which those commands keep quiet
    with ServiceBusClient.from_connection_string(secondary) as client, client.get_queue_sender(BACKLOG) as sender:
        sender.send_messages(
            [ServiceBusMessage(BODY, application_properties={"x-ms-path": path}) for path in ("orders", "no", "")]
        )
    for first, second in sides.values():
        seen += carried(first, second)
    emulator.call(lambda: emulator["contoso"].namespace.faults.begin_outage(Outage.REFUSE))
    seen += carried(primary, secondary)
    seen.append(log.getvalue())
    assert "credentials were refused" in "".join(seen)
    assert "azure.servicebus" in log.getvalue()
    for secret in (KEY, WRONG, READER, BODY):
        assert not [text[max(0, text.find(secret) - 200) :][:400] for text in seen if secret in text]


def carried(primary: str, secondary: str) -> list[str]:
    """A pump from start to end, and all that can be seen of it."""
    outcomes: list[Any] = []
    home, away = reach(primary, ""), reach(secondary, BACKLOG)
    pump = Pump(away, home, outcomes.append, PumpOptions(quiet=0.5, lease=3.0))
    pump.serve(BACKLOG)
    seen: list[str] = []
    try:
        pump.run()
    except SyphonError as error:
        seen.append("".join(traceback.format_exception(error)))
    seen += [repr(thing) for thing in (home, away, pump, pump.counters, outcomes, pump.backing_off(), Pair(home, away))]
    seen += [repr(vars(namespace)) for namespace in (home, away)]
    for namespace in (home, away):
        connection = vars(namespace)["_connection"]
        if connection is not None:
            seen += [repr(connection), repr(vars(connection)), repr(vars(connection.tokens))]
        namespace.close()
    return seen


def reach(connection_string: str, entity: str) -> Namespace:
    return namespace_of(SideSettings(connection_string=SecretStr(connection_string)), entity, time.monotonic)
