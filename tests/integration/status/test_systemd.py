"""Notifications for systemd. These tests are its socket."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from syphon.status.systemd import Notifier


@pytest.fixture(params=["a path", "an abstract name"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    name = str(tmp_path / "notify") if request.param == "a path" else f"@syphon-{uuid.uuid4().hex}"
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as listening:
        listening.bind("\0" + name[1:] if name.startswith("@") else name)
        listening.setblocking(False)
        yield listening, name


def heard(listening: socket.socket) -> list[str]:
    """All notifications since the last call."""
    words: list[str] = []
    try:
        while True:
            words += listening.recv(4096).decode().split("\n")
    except BlockingIOError:
        return words


def test_it_is_ready_at_the_first_turn_and_notifies_the_watchdog_twice_as_often_as_required(
    manager: tuple[socket.socket, str],
) -> None:
    listening, name = manager
    now = 100.0
    notifier = Notifier({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "60000000"}, lambda: now)
    notifier.loop_turned(True, "idle")
    assert heard(listening) == ["READY=1", "WATCHDOG=1", "STATUS=idle"]
    now += 29
    notifier.loop_turned(True, "idle")
    assert heard(listening) == []
    now += 1
    notifier.loop_turned(True, "busy,\nvery")
    assert heard(listening) == ["WATCHDOG=1", "STATUS=busy, very"]
    notifier.stopping()
    assert heard(listening)[0] == "STOPPING=1"


def test_the_watchdog_is_not_notified_while_something_hangs(manager: tuple[socket.socket, str]) -> None:
    listening, name = manager
    now = 100.0
    notifier = Notifier({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "2000000"}, lambda: now)
    for is_well in (True, False, False, True):
        notifier.loop_turned(is_well, "")
        fed = [word for word in heard(listening) if word == "WATCHDOG=1"]
        assert bool(fed) is is_well
        now += 10


@pytest.mark.parametrize(
    "environ", [{}, {"WATCHDOG_PID": str(os.getpid() + 1), "WATCHDOG_USEC": "1000"}, {"WATCHDOG_USEC": "soon"}]
)
def test_a_watchdog_that_is_absent_or_of_another_process_is_not_notified(
    manager: tuple[socket.socket, str], environ: dict[str, str]
) -> None:
    listening, name = manager
    Notifier({"NOTIFY_SOCKET": name, **environ}).loop_turned(True, "")
    assert heard(listening) == ["READY=1"]


@pytest.mark.parametrize("name", ["", "/nowhere/at/all", "relative"])
def test_without_a_service_manager_notifications_do_nothing(name: str) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": name})
    notifier.loop_turned(True, "idle")
    notifier.stopping()
