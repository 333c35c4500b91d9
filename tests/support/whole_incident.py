"""Every command, once, as real processes in terminals, over a backlog with hostile content.

What they print, log, leave in files and show of themselves to other users of the machine is collected, for tests to
look for what must not be in it: keys, bodies, and texts that do something where they are shown.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.support.commands_in_turn import parts
from tests.support.processes import Running

KEY, WRONG, TOKEN = "b2ZmaWNpYWxseS1zZWNyZXQ=", "d3JvbmctYnV0LXNlY3JldA==", "token-of-the-status-page"
STORAGE = "c3RvcmFnZS1hY2NvdW50LXNlY3JldA"
"""The key of the storage account in which a ledger may be."""
BODY = "what-the-customer-wrote"
HOSTILE = (
    "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>javascript:alert(3)"
    "\x1b[2J\x1b]0;owned\x07\r\nFAKE all is well\x9b31m\u202e[/red]"
)
"""Hostile texts for browsers, terminals, logs, and rich."""
BACKLOG = "contoso/x-servicebus-transfer/0"
QUEUES = [{"name": BACKLOG, "max_delivery_count": 2147483647, "max_size_in_megabytes": 5120, "lock_duration": "10s"}]


@dataclass
class Seen:
    """Everything that the commands printed, by its place."""

    texts: dict[str, str] = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)
    report: str = ""

    def having(self, words: str) -> list[str]:
        """The places of these words, with the text around them."""
        return [
            f"{where}: {text[max(0, text.find(words) - 150) :][:300]!r}"
            for where, text in self.texts.items()
            if words in text
        ]


@dataclass
class Site:
    """An emulator with keys of its own, settings files, and the commands."""

    folder: Path
    connection_strings: tuple[str, str]
    seen: Seen = field(default_factory=Seen)

    @property
    def temporary(self) -> Path:
        return self.folder / "tmp"

    def config(self, name: str, sides: Sequence[str], status: str = "127.0.0.1:0", **more: Any) -> Path:
        """Settings that take their secrets from files, as an operator should."""
        pair: dict[str, Any] = {"name": "contoso", "backlog_queue_count": 1, **more}
        for side, text in zip(("primary", "secondary"), sides, strict=True):
            secret = self.folder / f"{name}-{side}.secret"
            secret.write_text(text)
            pair[side] = {"connection_string": f"${{file:{secret}}}"}
        token = self.folder / "token.secret"
        token.write_text(TOKEN)
        storage = self.folder / "storage.secret"
        storage.write_text(STORAGE)
        spark = {
            "spark.local.dir": str(self.temporary),
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": f"file://{self.temporary}",
            "spark.eventLog.compress": "false",
            "spark.hadoop.fs.azure.account.key.contoso.dfs.core.windows.net": f"${{file:{storage}}}",
        }
        settings = {
            "pairs": [pair],
            "pipeline": {"master": "local[1]", "ledger": str(self.folder / "ledger"), "spark": spark},
            "status": {"listen": status, "token": f"${{file:{token}}}"},
            "log": {"level": "debug"},
        }
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(settings))
        return file

    def put(self, *messages: ServiceBusMessage) -> None:
        with (
            ServiceBusClient.from_connection_string(self.connection_strings[1]) as client,
            client.get_queue_sender(BACKLOG) as sender,
        ):
            sender.send_messages(list(messages))

    def run(self, label: str, *arguments: str) -> None:
        """A command in a terminal, to its end."""
        self.seen.texts[label], self.seen.codes[label] = self._in_terminal("syphon", *arguments)

    def run_in_turn(self, config: str, **commands: Sequence[str]) -> None:
        """Commands that need Spark."""
        said, _ = self._in_terminal("tests.support.commands_in_turn", config, json.dumps(commands))
        for label, (text, code) in parts(said).items():
            self.seen.texts[label], self.seen.codes[label] = text, code
        self.seen.texts["spark"] = said

    def _in_terminal(self, module: str, *arguments: str) -> tuple[str, int]:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))  # as over SSH
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(self.temporary)}
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=self.folder,
            env=environment,
            stdin=slave,
            stdout=slave,
            stderr=slave,
        )
        os.close(slave)
        said = b""
        with suppress(OSError):  # that is how a terminal ends
            while piece := os.read(master, 65536):
                said += piece
        os.close(master)
        return said.decode(errors="replace"), process.wait(60)

    def look_at_processes(self, running: Running) -> None:
        """What any user of the machine, or this one, can see of a worker and all that it has started."""
        processes = [running.process.pid, *(pid for pid, _ in running.descendants())]
        assert len(processes) > 2, "the worker, a JVM, a Python worker"
        for pid in processes:
            for what in ("cmdline", "environ"):
                with suppress(OSError):
                    self.seen.texts[f"/proc/{pid}/{what}"] = Path(f"/proc/{pid}/{what}").read_text(errors="replace")

    def look_at_files(self, when: str) -> None:
        """Spark's own files, event logs, temporary files, the ledger."""
        for place in (self.temporary, self.folder / "ledger"):
            for file in place.rglob("*"):
                with suppress(OSError):  # it may be gone by now
                    if file.is_file():
                        self.seen.texts[f"{when}: {file.name}"] = file.read_bytes().decode(errors="replace")


def messages() -> list[ServiceBusMessage]:
    """Two messages that arrive, one of them elsewhere, and one for each place where hostile text can enter."""

    def message(path: str, **properties: Any) -> ServiceBusMessage:
        identity = properties.pop("message_id", HOSTILE[:128])
        own: dict[Any, Any] = {"x-ms-path": path, HOSTILE: HOSTILE, **properties}
        return ServiceBusMessage(
            BODY, message_id=identity, subject=HOSTILE, correlation_id=HOSTILE[:128], application_properties=own
        )

    return [
        message("orders", message_id="m1"),
        message("returns", message_id="m2"),
        message("orders", **{"x-ms-sessionid": HOSTILE}),
        message(HOSTILE),
        message("[/red]missing"),
        message("orders", **{"x-ms-timetolive": HOSTILE}),
        message("orders", **{"x-ms-scheduledenqueuetimeutc": HOSTILE}),
        message("billing/../orders"),
    ]


@contextmanager
def incident(folder: Path) -> Iterator[Seen]:
    """Runs the whole incident, and returns everything that was printed."""
    (folder / "tmp").mkdir(parents=True)
    policies = [{"name": "owner", "key": KEY}]
    ports: dict[str, Any] = {"amqp_port": 0, "http_port": 0, "policies": policies}
    settings = {
        "namespaces": [
            {"name": "contoso", **ports, "queues": [{"name": "orders"}]},
            {"name": "contoso-dr", **ports, "queues": QUEUES},
        ]
    }
    (folder / "emulator.yaml").write_text(yaml.safe_dump(settings))
    emulator = Running(["emulator", "--json", "--config", "emulator.yaml"], folder)
    try:
        assert emulator.process.stdout is not None
        sides = json.loads(emulator.process.stdout.readline())["namespaces"]
        primary, secondary = (side["connection_string"] for side in sides)
        assert KEY in primary
        site = Site(folder, (primary, secondary))
        _play(site)
        site.seen.texts["emulator"] = emulator.said
        yield site.seen
    finally:
        emulator.close()


def _play(site: Site) -> None:
    key = f"SharedAccessKeyName=owner;SharedAccessKey={KEY}"
    files = {
        "right": site.config("right", site.connection_strings, destinations={"rename": {"returns": "orders"}}),
        "wrong": site.config("wrong", [side.replace(KEY, WRONG) for side in site.connection_strings]),
        "unknown": site.config("unknown", [f"Endpoint=sb://{name}.invalid;{key}" for name in ("a", "b")]),
        "refused": site.config(
            "refused", [f"Endpoint=sb://127.0.0.1:{port};{key};UseDevelopmentEmulator=true" for port in (8, 9)]
        ),
    }
    right, wrong = str(files["right"]), str(files["wrong"])
    site.put(*messages())
    with ThreadPoolExecutor(3) as side_by_side:
        working = side_by_side.submit(_work, site, right)
        for name in ("wrong", "unknown", "refused"):
            for command in (["check"], ["provision", "--dry-run"], ["dead-letters", "list"]):
                side_by_side.submit(site.run, f"{command[0]}, {name}", *command, "-c", str(files[name]))
        side_by_side.submit(site.run, "check", "check", "-c", right)
        side_by_side.submit(site.run, "provision", "provision", "-c", right)
        side_by_side.submit(site.run, "cost", "cost")
        working.result()
    site.put(*messages())
    site.run("dead-letters list", "dead-letters", "list", "-c", right)
    site.run("dead-letters show", "dead-letters", "show", "--queue", "0", "--sequence-number", "3", "-c", right)
    site.run_in_turn(
        right,
        inspect=["inspect", "-v", "-c", right],
        dry_run=["drain", "--dry-run", "-c", right],
        drain=["drain", "-v", "--yes", "--patience", "5s", "-c", right],
        denied=["drain", "-v", "--yes", "-c", wrong],
        report=["report", "-c", right, "--html", "report.html"],
    )
    site.seen.report = (site.folder / "report.html").read_text()
    site.look_at_files("afterwards")


def _work(site: Site, config: str) -> None:
    """A worker forwards what it can, and answers requests."""
    worker = Running(["run", "-v", "-c", config], site.folder, {"TMPDIR": str(site.temporary)})
    try:
        url = worker.until("status on http").rpartition(" ")[2]
        worker.until("3 forwarded")
        for command in ("status", "pause", "resume"):
            site.run(command, command, "-c", config, "--url", url)
        site.run("status, no token", "status", "--url", url)
        request = urllib.request.Request(f"{url}/status", headers={"Authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            site.seen.texts["/status"] = answer.read().decode()
        site.look_at_processes(worker)
        site.look_at_files("while it works")
        site.seen.codes["run"], _ = worker.stop(signal.SIGTERM)
        site.seen.texts["run"] = worker.said
    finally:
        worker.close()
