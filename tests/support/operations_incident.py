"""The incident of examples/incident.md, played again: its commands, typed one after the other, and what they print.

`python -m tests.support.operations_incident` prints it as the page has it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import yaml
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.support.commands_in_turn import parts
from tests.support.processes import Running
from tests.support.tools import ROOT

QUEUES = 10
PER_QUEUE = {"orders": 30, "billing/invoices": 10, "refunds": 2, "": 1}
"""Messages by destination. `refunds` does not exist, and the last ones name no destination."""
ON_SPARK = ("inspect", "drain")


class Typed(NamedTuple):
    """A command as the page shows it, what it prints, and its exit code."""

    command: str
    said: str
    code: int


def on_the_page() -> list[Typed]:
    text = (ROOT / "examples" / "incident.md").read_text()
    blocks = re.findall(r"```console\n\$ (syphon [^\n]*)\n(.*?)```\nExit code (\d+)\.", text, re.DOTALL)
    return [Typed(command, said, int(code)) for command, said, code in blocks]


def played(folder: Path, commands: list[str]) -> list[Typed]:
    """Sets the backlog up, and runs the commands in a folder with config.yaml in it. Those on Spark share a session."""
    space = {"amqp_port": 0, "http_port": 0}
    entities = [{"name": name} for name in ("orders", "billing/invoices")]
    settings = {"namespaces": [{"name": "contoso", "queues": entities, **space}, {"name": "contoso-dr", **space}]}
    (folder / "emulator.yaml").write_text(yaml.safe_dump(settings))
    emulator = Running(["emulator", "--json", "--config", "emulator.yaml"], folder)
    try:
        assert emulator.process.stdout is not None
        home, away = json.loads(emulator.process.stdout.readline())["namespaces"]
        _prepare(folder, home["connection_string"], away["connection_string"])
        turns = [_arguments(command) for command in commands if shlex.split(command)[1] in ON_SPARK]
        on_spark: list[Typed] = []
        found: list[Typed] = []
        for command in commands:
            if shlex.split(command)[1] not in ON_SPARK:
                found.append(Typed(command, *_run(folder, "syphon", *_arguments(command))))
                continue
            if not on_spark:
                named = json.dumps({str(number): words for number, words in enumerate(turns)})
                said, _ = _run(folder, "tests.support.commands_in_turn", "config.yaml", named)
                on_spark = [Typed("", text, code) for text, code in parts(said).values()]
            found.append(on_spark.pop(0)._replace(command=command))
        return found
    finally:
        emulator.close()


def _prepare(folder: Path, primary: str, secondary: str) -> None:
    pair = {
        "name": "contoso",
        "primary": {"connection_string": primary},
        "secondary": {"connection_string": secondary},
        "backlog_queue_count": QUEUES,
    }
    config = {"pairs": [pair], "pipeline": {"master": "local[2]", "ledger": "./ledger"}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    said, code = _run(folder, "syphon", "provision", "-c", "config.yaml")
    assert code == 0, said
    with ServiceBusClient.from_connection_string(secondary) as client:
        for index in range(QUEUES):
            with client.get_queue_sender(f"contoso/x-servicebus-transfer/{index}") as sender:
                sender.send_messages([_message(path, n) for path, count in PER_QUEUE.items() for n in range(count)])


def _message(path: str, number: int) -> ServiceBusMessage:
    return ServiceBusMessage("x" * 256, message_id=f"{path}-{number}", application_properties={"x-ms-path": path})


def _arguments(command: str) -> list[str]:
    return shlex.split(command)[1:]


def _run(folder: Path, module: str, *arguments: str) -> tuple[str, int]:
    """What a command prints where there is no terminal, without its lines of progress."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=600,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if not line.startswith('{"progress"')]
    return "\n".join(lines) + "\n", done.returncode


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for typed in played(Path(place), [typed.command for typed in on_the_page()]):
            said = re.sub(rf"(?m)^{{.*\n|{re.escape(place)}", "", typed.said)
            print(f"```console\n$ {typed.command}\n{said}```\nExit code {typed.code}.\n")
