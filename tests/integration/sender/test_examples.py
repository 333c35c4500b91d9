"""The examples: an application for azure-servicebus survives an outage when only its constructor changes."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from syphon.emulator import BackgroundEmulator, EmulatorSettings, NamespaceSettings, Outage, QueueDescription
from tests.support.waiting import eventually

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_the_two_applications_differ_in_their_constructor_alone() -> None:
    plain, paired = (main_of(EXAMPLES / name) for name in ("orders.py", "orders_paired.py"))
    assert plain == paired


def main_of(path: Path) -> str:
    functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    (main,) = (node for node in functions if node.name == "main")
    return ast.dump(main)


@pytest.fixture
def emulator() -> Iterator[BackgroundEmulator]:
    settings = EmulatorSettings(namespaces=[NamespaceSettings(name="contoso"), NamespaceSettings(name="contoso-dr")])
    with BackgroundEmulator(settings) as emulator:
        emulator.call(lambda: emulator["contoso"].namespace.create_queue(QueueDescription("orders")))
        yield emulator


def test_the_paired_one_sends_all_its_orders_through_an_outage(emulator: BackgroundEmulator) -> None:
    count = 200  # ten seconds, in which the primary goes and comes back
    strings = {
        "PRIMARY": emulator["contoso"].connection_string,
        "SECONDARY": emulator["contoso-dr"].connection_string,
    }
    command = [sys.executable, str(EXAMPLES / "orders_paired.py"), str(count)]
    environment = {**os.environ, **strings, "PYTHONPATH": str(EXAMPLES.parent)}
    home, away = emulator["contoso"].namespace, emulator["contoso-dr"].namespace

    def at_home() -> set[str]:
        return emulator.call(lambda: {str(m.message_id) for m in home.message_queue("orders").peek(0, 1000)})

    def in_backlog() -> set[str]:
        lines = [away.message_queue(queue.name) for queue in away.queues()]
        return emulator.call(lambda: {str(m.message_id) for line in lines for m in line.peek(0, 1000)})

    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            eventually(at_home)
            emulator.call(lambda: home.faults.begin_outage(Outage.REFUSE))
            eventually(in_backlog)
            emulator.call(home.faults.end_outage)
            before = len(at_home())
            eventually(lambda: len(at_home()) > before)
            out, _ = process.communicate(timeout=60)
        finally:
            if process.poll() is None:
                process.kill()
    assert process.returncode == 0, out
    assert at_home() | in_backlog() == {f"order-{number}" for number in range(count)}
    assert "'orders' failed over" in out
    assert "'orders' is back" in out
