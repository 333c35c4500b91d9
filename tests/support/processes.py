"""Runs an emulator with a primary and a secondary, workers and drains, each in a process of its own."""

from __future__ import annotations

import fcntl
import io
import json
import os
import re
import signal
import subprocess
import sys
import termios
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.support.waiting import eventually

HAS_RECEIVED = re.compile(r'"received": ?[1-9]')
"""What the record of an open job in the ledger has when it has counted messages."""
WITHIN = 180.0
"""Seconds that a step may take on a busy machine."""
STOPPED_WITHIN = 40.0
"""Seconds from a signal to the end of a command: 25 are promised (X9), the others are for a busy machine."""
FAULTED_WITHIN = 25.0
"""Seconds from a fault, or from the end of Spark's JVM, to the end of a command. Promised are 8 after a fault, and that
the end of the JVM is noticed within 5 (X9)."""


def hear_signals() -> None:
    """Makes SIGINT and SIGHUP heard again, also by the children of this process.

    Whoever started it may ignore them (`nohup make test &`), and a child inherits that. Tests send these signals.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)


class Running:
    """A running syphon command, or another module. It keeps the lines that the process writes to stderr."""

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        environment: dict[str, str] | None = None,
        module: str = "syphon",
        terminal: int | None = None,
        executable: str | Path = sys.executable,
    ) -> None:
        """With a `terminal`, the process owns it, and writes stderr to it: then no lines are kept."""
        self.process = subprocess.Popen(
            [executable, "-m", module, *arguments],
            cwd=folder,
            text=True,
            stdin=subprocess.DEVNULL if terminal is None else terminal,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if terminal is None else terminal,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **(environment or {})},
            start_new_session=terminal is not None,
            preexec_fn=None if terminal is None else own_terminal,
        )
        self.lines: list[str] = []
        self._end_began: float | None = None
        self._ended: float | None = None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stderr or ():
            self.lines.append(line.rstrip("\n"))

    @property
    def said(self) -> str:
        return "\n".join(self.lines)

    def until(self, words: str, within: float = WITHIN) -> str:
        """Waits for the first line on stderr with these words, and returns it."""

        def found() -> str | None:
            return next((line for line in self.lines if words in line), None)

        line = eventually(lambda: found() or self.process.poll() is not None, what=lambda: self.said, within=within)
        assert isinstance(line, str), f"ended with {self.process.poll()}: {self.said}"
        return line

    def progress(self) -> dict[str, Any]:
        """The last line of progress, as a dictionary."""
        lines = [line for line in self.lines if line.startswith('{"progress"')]
        return json.loads(lines[-1])["progress"] if lines else {}

    def end(self, within: float = WITHIN) -> tuple[int, str]:
        """Waits for the end of the process. Returns its exit code and stdout."""
        try:
            self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running: {self.said}") from None
        self._ended = time.monotonic()
        self._reader.join(10)
        assert self.process.stdout is not None
        return self.process.returncode, self.process.stdout.read()

    def stop(self, number: int = signal.SIGTERM, within: float = WITHIN) -> tuple[int, str]:
        self.end_begins()
        self.process.send_signal(number)
        return self.end(within)

    def end_begins(self) -> None:
        """Notes the time. The caller now does what must end the process."""
        self._end_began = time.monotonic()

    def check_end_took(self, at_most: float) -> None:
        """Checks the seconds from `end_begins` or `stop` to the end of the process."""
        assert self._end_began is not None, "its end was not timed"
        assert self._ended is not None, "it has not ended"
        took = self._ended - self._end_began
        assert took < at_most, f"its end took {took:.0f} s: {self.said}"

    def descendants(self) -> list[tuple[int, str]]:
        """Process ids and command lines of all processes that it has started."""
        return [(pid, command_line(pid)) for pid in descendants_of(self.process.pid)]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                self._reader.join(10)
                pipe.close()


def descendants_of(pid: int) -> list[int]:
    """All processes that a process has started, and those that these have started."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            parents.setdefault(parent_of(int(entry.name)), []).append(int(entry.name))
    found, frontier = [], [pid]
    while frontier:
        children = parents.get(frontier.pop(), [])
        frontier += children
        found += children
    return found


def own_terminal() -> None:
    """Makes stdin the terminal that a new session owns: its processes get SIGHUP when it is closed."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def parent_of(pid: int) -> int:
    """The parent of a process, or 0 if the process does not exist."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def python_workers(running: Running | None = None) -> list[int]:
    """Spark's Python workers, of a command or of this process: children of the daemon they are forked from."""
    started = descendants_of(os.getpid() if running is None else running.process.pid)
    found = [pid for pid in started if "syphon.spark.daemon" in command_line(pid)]
    return [pid for pid in found if parent_of(pid) in found]


def aliased(number: int, path: str, body: bytes | None = None, **options: Any) -> ServiceBusMessage:
    """A message as it is in the backlog, with its aliases."""
    properties: dict[str | bytes, Any] = {"x-ms-path": path, "number": number}
    return ServiceBusMessage(
        f"body of {number}" if body is None else body,
        message_id=f"m{number}",
        application_properties=properties,
        **options,
    )


@dataclass
class EmulatedPair:
    """A primary and a secondary namespace in an emulator process, and what tests do with them."""

    folder: Path
    primary: str
    secondary: str
    controls: dict[str, str]
    queues: int = 2
    running: list[Running] = field(default_factory=list)

    # --- messages ------------------------------------------------------------------------------------------------

    def backlog(self, index: int = 0) -> str:
        return f"contoso/x-servicebus-transfer/{index}"

    def put(self, messages: Sequence[ServiceBusMessage], index: int = 0, batch: int = 100) -> None:
        """Puts messages into a backlog queue, as a sender does during an outage of the primary."""
        with (
            ServiceBusClient.from_connection_string(self.secondary) as client,
            client.get_queue_sender(self.backlog(index)) as sender,
        ):
            for start in range(0, len(messages), batch):
                sender.send_messages(list(messages[start : start + batch]))

    def defer(self, messages: Sequence[ServiceBusMessage], index: int = 0) -> None:
        """Puts messages into a backlog queue that has none, and defers them, as somebody's tool does."""
        self.put(messages, index)
        with (
            ServiceBusClient.from_connection_string(self.secondary) as client,
            client.get_queue_receiver(self.backlog(index)) as receiver,
        ):
            left = len(messages)
            while left:
                found = receiver.receive_messages(100, max_wait_time=20)
                for message in found:
                    receiver.defer_message(message)
                left -= len(found)

    def arrived(self, *paths: str) -> Counter[str]:
        """The ids of all messages at destinations, by peek."""
        found: Counter[str] = Counter()
        with ServiceBusClient.from_connection_string(self.primary) as client:
            for path in paths:
                found.update(_peeked(client, path))
        return found

    def in_backlog(self, index: int = 0, dead: bool = False) -> Counter[str]:
        with ServiceBusClient.from_connection_string(self.secondary) as client:
            return _peeked(client, self.backlog(index), dead)

    # --- the emulator --------------------------------------------------------------------------------------------

    def control(self, name: str, method: str, what: str, body: Any = None) -> Any:
        """Sends a request to the control interface of the emulator: outages, faults, counters."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.controls[name]}/$emulator/{what}", data, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
            return json.loads(text) if text else None

    # --- syphon --------------------------------------------------------------------------------------------------

    def config(self, name: str = "config.yaml", **more: Any) -> Path:
        """Writes the settings of a worker on this pair; `more` replaces some of them."""
        pair = {
            "name": "contoso",
            "primary": {"connection_string": self.primary},
            "secondary": {"connection_string": self.secondary},
            "backlog_queue_count": self.queues,
            **more.pop("pair", {}),
        }
        settings = {
            "pairs": [pair],
            "pipeline": {"ledger": str(self.folder / "ledger"), **more.pop("pipeline", {})},
            "status": {"listen": "127.0.0.1:0"},  # any port: workers of other tests run beside this one
        }
        path = self.folder / name
        path.write_text(yaml.safe_dump({**settings, **more}))
        return path

    def start(self, *arguments: str, environment: dict[str, str] | None = None, terminal: int | None = None) -> Running:
        running = Running(arguments, self.folder, environment, terminal=terminal)
        self.running.append(running)
        return running

    def drain(self, *arguments: str, config: Path | None = None, terminal: int | None = None) -> Running:
        return self.start("drain", "-c", str(config or self.config()), "--yes", *arguments, terminal=terminal)

    def drained(self, *arguments: str, config: Path | None = None) -> tuple[int, dict[str, Any]]:
        """Runs a drain to its end. Returns its exit code and its result."""
        drain = self.drain("--json", *arguments, config=config)
        code, out = drain.end()
        assert out, f"exit code {code}: {drain.said}"
        return code, json.loads(out)

    def drained_here(self, *arguments: str, config: Path | None = None) -> tuple[int, dict[str, Any]]:
        """The same in this process, on the Spark session of the tests (the fixture `spark`).

        For tests that are not about the process: to start Spark takes ten seconds of CPU.
        """
        code, out = command_here("drain", "-c", str(config or self.config()), "--yes", "--json", *arguments)
        return code, json.loads(out)

    def worker(self, *arguments: str, config: Path | None = None) -> Running:
        """Starts a worker, and waits until it listens."""
        worker = self.start("run", "-c", str(config or self.config()), *arguments)
        worker.until("listening on")
        return worker

    def close(self) -> None:
        for running in self.running:
            running.close()


def command_here(*arguments: str) -> tuple[int, str]:
    """Runs a command in this process, and puts back what a process would take to its end. Returns its exit code and
    stdout."""
    from syphon.cli import main

    handlers = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    printed, code = io.StringIO(), 0
    try:
        with redirect_stdout(printed):
            main(list(arguments), prog_name="syphon")
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        for number, handler in handlers:
            signal.signal(number, handler)
    return code, printed.getvalue()


def _peeked(client: ServiceBusClient, path: str, dead: bool = False) -> Counter[str]:
    from azure.servicebus import ServiceBusSubQueue

    found: Counter[str] = Counter()
    queue = ServiceBusSubQueue.DEAD_LETTER if dead else None
    with client.get_queue_receiver(path, sub_queue=queue) as receiver:
        start = 1
        while page := receiver.peek_messages(250, sequence_number=start):
            found.update(str(message.message_id) for message in page)
            start = max(message.sequence_number or 0 for message in page) + 1
    return found


DESTINATIONS = ("orders", "billing/invoices", "news")


@contextmanager
def emulated_pair(
    folder: Path,
    queues: int = 2,
    lock: str = "10s",
    destinations: Sequence[str] = DESTINATIONS,
    away_tier: str = "Standard",
    is_partitioned: bool = False,
) -> Iterator[EmulatedPair]:
    """Runs a pair. Its locks are short, so that the messages of a killed task return before the end of the test."""
    folder.mkdir(parents=True, exist_ok=True)
    backlog = [
        {
            "name": f"contoso/x-servicebus-transfer/{index}",
            "max_delivery_count": 2147483647,
            "max_size_in_megabytes": 5120,
            "lock_duration": lock,
            "enable_partitioning": is_partitioned,
        }
        for index in range(queues)
    ]
    entities = [{"name": name, "max_size_in_megabytes": 5120} for name in destinations]
    settings = {
        "namespaces": [
            {"name": "contoso", "amqp_port": 0, "http_port": 0, "queues": entities},
            {"name": "contoso-dr", "amqp_port": 0, "http_port": 0, "tier": away_tier, "queues": backlog},
        ]
    }
    config = folder / "emulator.yaml"
    config.write_text(yaml.safe_dump(settings))
    emulator = Running(["emulator", "--json", "--config", str(config)], folder)
    assert emulator.process.stdout is not None
    pair: EmulatedPair | None = None
    try:
        home, away = json.loads(emulator.process.stdout.readline())["namespaces"]
        controls = {side["name"]: f"http://127.0.0.1:{side['http_port']}" for side in (home, away)}
        pair = EmulatedPair(folder, home["connection_string"], away["connection_string"], controls, queues)
        yield pair
    finally:
        if pair is not None:
            pair.close()
        emulator.close()
