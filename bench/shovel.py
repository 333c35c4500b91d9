"""The loop in Erlang: RabbitMQ's shovel from Debian, from one AMQP 1.0 address to another, with SASL PLAIN.

It moves bodies to one destination and restores no message: version 3.10 drops message ids and application properties.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

from azure.servicebus import parse_connection_string

from bench.task import Task
from bench.watch import Watch

BROKER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""Debian's binary. The script on the PATH needs its own system user."""
POLL_INTERVAL = 0.05
"""Seconds between two checks of its progress."""
STANDSTILL = 120.0
"""Seconds without progress after which the run fails."""


def missing() -> str:
    """Why it cannot run here; empty if it can."""
    return "" if BROKER.exists() and shutil.which("epmd") else "Debian's rabbitmq-server is not installed"


def shovel(task: Task, watch: Watch) -> None:
    """The shovel starts with its broker, so measuring begins with the first message that it receives."""
    with _broker(task) as process:
        _more_than(0, task, "receive")
        watch.begin(process)
        while watch.moved < task.count:
            watch.add(_more_than(watch.moved, task, "settle") - watch.moved)
        watch.end()


def _more_than(count: int, task: Task, operation: str) -> int:
    deadline = time.monotonic() + STANDSTILL
    while (now := task.counter(operation)) <= count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the shovel makes no progress: {count} of {task.count} messages, operation {operation}")
        time.sleep(POLL_INTERVAL)
    return now


@contextmanager
def _broker(task: Task) -> Iterator[int]:
    """A broker with the shovel only, with its own folder and ports; yields its process id."""
    names, distribution = _free_port(), _free_port()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        (place / "advanced.config").write_text(_settings(task))
        (place / "enabled_plugins").write_text("[rabbitmq_shovel].\n")
        environment = {
            **os.environ,
            "HOME": folder,
            "ERL_EPMD_PORT": str(names),
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(place / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(place / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(place / "data"),
            "RABBITMQ_LOG_BASE": str(place / "log"),
            # With this the start script becomes the broker instead of supervising it, so that its process can be ended.
            "RABBITMQ_ALLOW_INPUT": "1",
        }
        with (
            _running(["epmd", "-port", str(names), "-address", "127.0.0.1"], environment),
            _running([str(BROKER), "-noinput"], environment) as broker,
        ):
            yield broker


@contextmanager
def _running(command: list[str], environment: dict[str, str]) -> Iterator[int]:
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, env=environment, stdin=quiet, stdout=quiet, stderr=quiet) as process:  # noqa: S603
        try:
            yield process.pid
        finally:
            process.kill()


def _settings(task: Task) -> str:
    return f"""[
  {{rabbit, [{{tcp_listeners, []}}]}},
  {{rabbitmq_shovel, [{{shovels, [{{home, [
    {{source, [{{protocol, amqp10}}, {{uris, ["{_uri(task.secondary)}"]}},
              {{source_address, <<"{task.queue}">>}}, {{prefetch_count, 1000}}]}},
    {{destination, [{{protocol, amqp10}}, {{uris, ["{_uri(task.primary)}"]}}, {{target_address, <<"d0">>}}]}},
    {{ack_mode, on_confirm}}
  ]}}]}}]}}
].
"""


def _uri(connection_string: str) -> str:
    parts = parse_connection_string(connection_string)
    assert parts.shared_access_key_name is not None
    assert parts.shared_access_key is not None
    user, key = quote(parts.shared_access_key_name, safe=""), quote(parts.shared_access_key, safe="")
    return f"amqp://{user}:{key}@{urlsplit(parts.endpoint).netloc}?sasl=plain"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
