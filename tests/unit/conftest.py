"""Tests of pure modules: they use no socket and start no process, so that they can run between two edits."""

from __future__ import annotations

import socket
import subprocess

import pytest


@pytest.fixture(autouse=True)
def no_sockets_and_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("a unit test uses no socket and starts no process: move it to tests/integration")

    for name in ("bind", "connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(subprocess, "Popen", refuse)
