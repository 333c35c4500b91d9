"""Tests of pure modules: they use no socket and start no process, so that they can run between two edits."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def no_sockets_and_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse both to the test and to the threads that it starts; a thread of another test may still be ending."""
    threads_of_others = set(threading.enumerate()) - {threading.current_thread()}

    def refused(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if threading.current_thread() in threads_of_others:
                return original(*arguments, **options)
            raise RuntimeError("a unit test uses no socket and starts no process: move it to tests/integration")

        return call

    for name in ("bind", "connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refused(getattr(socket.socket, name)))
    monkeypatch.setattr(subprocess, "Popen", refused(subprocess.Popen))
