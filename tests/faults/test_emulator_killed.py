"""`syphon emulator --state` is killed as a real process: acknowledged messages are there after its restart."""

from __future__ import annotations

import gc
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusSender,
)
from azure.servicebus.exceptions import ServiceBusError

from syphon.model import ExitCode
from tests.support.cli_process import Syphon, run_syphon, syphon
from tests.support.waiting import eventually

# The client does not close its sockets when the peer has gone.
pytestmark = pytest.mark.filterwarnings("ignore:.*<socket.socket:pytest.PytestUnraisableExceptionWarning")

ACKNOWLEDGED = 10_000
CONFIG = """
namespaces:
  - name: a
    amqp_port: 0
    http_port: 0
    queues:
      - {name: q, lock_duration: 5s}
"""


@dataclass
class Killable:
    """An emulator with its state in a directory, which can be started several times."""

    directory: Path
    config: Path

    @contextmanager
    def running(self) -> Iterator[tuple[Syphon, str]]:
        """The process, and its connection string."""
        arguments = ("--json", "--config", str(self.config), "--state", str(self.directory))
        with syphon("emulator", *arguments) as process:
            yield process, self.connection_string(process)

    @staticmethod
    def connection_string(process: Syphon) -> str:
        found: str = json.loads(process.stdout_until("\n"))["namespaces"][0]["connection_string"]
        return found


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[Killable]:
    config = tmp_path / "emulator.yaml"
    config.write_text(CONFIG)
    yield Killable(tmp_path / "state", config)
    gc.collect()  # so that warnings about open sockets come here, and not in the next test


def client_of(connection_string: str) -> ServiceBusClient:
    # Without retries: so a message that exists twice was doubled by the emulator.
    return ServiceBusClient.from_connection_string(connection_string, retry_total=0)


def kill(process: Syphon) -> None:
    process.process.send_signal(signal.SIGKILL)
    process.process.wait()


def made(message_id: str) -> ServiceBusMessage:
    """A message whose every part follows from its id."""
    properties: dict[str | bytes, Any] = {"id": message_id, "length": len(message_id)}
    return ServiceBusMessage(
        f"body of {message_id}" * 5, message_id=message_id, subject=message_id[::-1], application_properties=properties
    )


def is_as_made(message: ServiceBusReceivedMessage) -> bool:
    wanted = made(message.message_id or "")
    properties = {key.decode(): value for key, value in (message.application_properties or {}).items()}  # type: ignore[union-attr]
    found = {name: value.decode() if isinstance(value, bytes) else value for name, value in properties.items()}
    return (str(message), message.subject, found) == (str(wanted), wanted.subject, wanted.application_properties)


@dataclass
class Senders:
    """Threads that send until the peer has ended, and record the acknowledged messages."""

    connection_string: str
    acknowledged: list[str] = field(default_factory=list)
    attempted: list[str] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)

    def start(self, name: str, batch: int) -> None:
        thread = threading.Thread(target=self._run, args=(name, batch), name=name)
        self.threads.append(thread)
        thread.start()

    def _run(self, name: str, batch: int) -> None:
        with client_of(self.connection_string) as client, client.get_queue_sender("q") as sender:
            for number in range(1_000_000):
                ids = [f"{name}-{number}-{place}" for place in range(batch)]
                self.attempted.extend(ids)
                try:
                    self._send(sender, ids)
                except ServiceBusError:
                    return
                self.acknowledged.extend(ids)

    @staticmethod
    def _send(sender: ServiceBusSender, ids: list[str]) -> None:
        sender.send_messages(made(ids[0]) if len(ids) == 1 else [made(message_id) for message_id in ids], timeout=30)


def drained(connection_string: str) -> list[ServiceBusReceivedMessage]:
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    found: list[ServiceBusReceivedMessage] = []
    with client_of(connection_string) as client, client.get_queue_receiver("q", receive_mode=mode) as receiver:
        while True:
            is_empty = not receiver.peek_messages(sequence_number=1)
            received = receiver.receive_messages(1000, max_wait_time=2)
            found += received
            # An empty receive alone may mean a slow machine. After an empty peek the client may still hold messages
            # that arrived too late for the last receive.
            if is_empty and not received:
                break
    return found


def test_every_acknowledged_send_is_there_after_kill_9(emulator: Killable) -> None:
    with emulator.running() as (process, connection_string):
        senders = Senders(connection_string)
        for name, batch in (("a", 100), ("b", 50), ("c", 7), ("d", 1)):
            senders.start(name, batch)
        eventually(lambda: len(senders.acknowledged) >= ACKNOWLEDGED)
        kill(process)
        for thread in senders.threads:
            thread.join()
    with emulator.running() as (_, connection_string):
        found = drained(connection_string)
    counts = Counter(message.message_id for message in found)
    assert len(senders.acknowledged) >= ACKNOWLEDGED
    assert set(senders.acknowledged) - set(counts) == set()
    assert set(counts) - set(senders.attempted) == set()
    assert [message_id for message_id, times in counts.items() if times > 1] == []
    assert [message.message_id for message in found if not is_as_made(message)] == []
    numbers = [message.sequence_number for message in found]
    assert len(set(numbers)) == len(numbers)


def test_what_was_completed_does_not_come_back_and_numbers_go_on(emulator: Killable) -> None:
    completed: list[str] = []
    attempted: list[str] = []

    def complete(connection_string: str) -> None:
        with client_of(connection_string) as client, client.get_queue_receiver("q") as receiver:
            try:
                while messages := receiver.receive_messages(50, max_wait_time=5):
                    for message in messages:
                        attempted.append(message.message_id or "")
                        receiver.complete_message(message)
                        completed.append(message.message_id or "")
                        if len(completed) >= 300:
                            kill(process)  # in this thread: in another one it might come after the last message
            except (ServiceBusError, ValueError):
                return

    ids = [str(number) for number in range(2000)]
    with emulator.running() as (process, connection_string):
        with client_of(connection_string) as client, client.get_queue_sender("q") as sender:
            for start in range(0, 2000, 500):
                sender.send_messages([ServiceBusMessage(b"", message_id=name) for name in ids[start : start + 500]])
        threads = [threading.Thread(target=complete, args=(connection_string,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert 300 <= len(completed) < 2000
    with emulator.running() as (_, connection_string), client_of(connection_string) as client:
        with client.get_queue_sender("q") as sender:
            sender.send_messages(ServiceBusMessage(b"", message_id="new"))
        left: list[ServiceBusReceivedMessage] = []
        with client.get_queue_receiver("q") as receiver:
            # Peeking also returns messages that the dead receivers have locked, and continues where it was.
            while more := receiver.peek_messages(250):
                left += more
    names = [message.message_id or "" for message in left]
    assert set(names) & set(completed) == set()
    assert set(ids) - set(attempted) <= set(names)
    assert sorted(set(names)) == sorted(names)
    assert (names[-1], left[-1].sequence_number) == ("new", 2001)


def test_a_lock_from_before_the_kill_ends_when_it_would_have(emulator: Killable) -> None:
    with emulator.running() as (process, connection_string), client_of(connection_string) as client:
        with client.get_queue_sender("q") as sender:
            sender.send_messages(ServiceBusMessage("held"))
        with client.get_queue_receiver("q") as receiver:
            (held,) = receiver.receive_messages(1, max_wait_time=20)
            kill(process)
    with (
        emulator.running() as (_, connection_string),
        client_of(connection_string) as client,
        client.get_queue_receiver("q") as receiver,
    ):
        (again,) = receiver.receive_messages(1, max_wait_time=60)
        arrived = datetime.now(UTC)
    assert held.locked_until_utc is not None
    assert arrived >= held.locked_until_utc
    assert (str(again), again.delivery_count) == ("held", 1)


def test_a_second_emulator_is_refused_until_the_first_has_ended(emulator: Killable) -> None:
    arguments = ("--json", "--config", str(emulator.config), "--state", str(emulator.directory))
    with emulator.running() as (process, _):
        result = run_syphon("emulator", *arguments)
        assert (result.returncode, result.stdout) == (ExitCode.CONFIG, "")
        assert result.stderr == (
            f"The state in {emulator.directory} is in use by another emulator (process {process.process.pid}). "
            "Stop that one, or name another directory.\n"
        )
        kill(process)
    with emulator.running():
        pass


def test_a_directory_without_rights_is_reported(emulator: Killable) -> None:
    emulator.directory.mkdir(mode=0o500)
    command = [sys.executable, "-m", "syphon", "emulator", "--config", str(emulator.config), "--state"]
    if os.geteuid() == 0:
        # Root has all rights everywhere, unless it drops that capability.
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            pytest.skip("this is root, whom no directory keeps out, and there is no setpriv")
        command = [setpriv, "--bounding-set", "-dac_override,-dac_read_search", *command]
    command.append(str(emulator.directory))
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert (result.returncode, result.stdout) == (ExitCode.CONFIG, "")
    assert result.stderr.startswith(f"Cannot use {emulator.directory}")
    assert "Permission denied" in result.stderr
    assert "Traceback" not in result.stderr


def send_until_refused(connection_string: str) -> tuple[list[str], str]:
    """The acknowledged ids, and the error for the first that was refused."""
    acknowledged: list[str] = []
    with client_of(connection_string) as client, client.get_queue_sender("q") as sender:
        for number in range(1000):
            try:
                sender.send_messages(ServiceBusMessage(b"x" * 100_000, message_id=str(number)), timeout=30)
            except ServiceBusError as error:
                return acknowledged, str(error)
            acknowledged.append(str(number))
    raise AssertionError("the disk was never full")


def names_in(connection_string: str) -> set[str]:
    return {message.message_id or "" for message in drained(connection_string)}


def test_when_files_cannot_grow_nothing_more_is_acknowledged_and_later_it_goes_on(emulator: Killable) -> None:
    with emulator.running() as (process, connection_string):
        limit = (2_000_000, resource.RLIM_INFINITY)
        resource.prlimit(process.process.pid, resource.RLIMIT_FSIZE, limit)
        acknowledged, why = send_until_refused(connection_string)
        assert acknowledged
        assert "cannot write its state" in why
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(process.process.pid, resource.RLIMIT_FSIZE, unlimited)

        def is_well_again() -> bool:
            try:
                with client_of(connection_string) as client, client.get_queue_sender("q") as sender:
                    sender.send_messages(ServiceBusMessage(b"", message_id="later"), timeout=30)
            except ServiceBusError:
                return False
            return True

        eventually(is_well_again)
        kill(process)
        assert process.process.stderr is not None
        assert b"It acknowledges nothing until the write succeeds" in process.process.stderr.read()
    with emulator.running() as (_, connection_string):
        found = names_in(connection_string)
    assert set(acknowledged) | {"later"} <= found


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MB."""
    place = tmp_path / "small"
    place.mkdir()
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        pytest.skip("a small disk needs root, which may mount one")
    mounted = subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"mounting is not permitted here: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_when_the_disk_is_full_what_was_acknowledged_is_safe(emulator: Killable, small_disk: Path) -> None:
    emulator.directory = small_disk / "state"
    with emulator.running() as (process, connection_string):
        acknowledged, why = send_until_refused(connection_string)
        assert acknowledged
        assert "database or disk is full" in why
        kill(process)
    roomy = emulator.config.parent / "roomy"
    shutil.copytree(emulator.directory, roomy)
    emulator.directory = roomy
    with emulator.running() as (_, connection_string):
        found = names_in(connection_string)
    assert set(acknowledged) <= found
