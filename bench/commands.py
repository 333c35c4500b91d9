"""Runs the commands of syphon, each in its own process, for measurements."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.stage import Place

SYPHON = [sys.executable, "-m", "syphon"]
WITHIN = 120.0
"""Seconds within which a worker must be ready."""
LOG = "worker.log"


def backlog_queues(count: int) -> list[str]:
    return [f"contoso/x-servicebus-transfer/{index}" for index in range(count)]


def settings(
    place: Place,
    folder: Path,
    queues: int,
    rate: float | None = None,
    *,
    beside_a_bad_pair: bool = False,
    pipeline: dict[str, str] | None = None,
) -> Path:
    """Writes a file for `--config`. JSON is valid YAML. The key of a bad pair is wrong."""
    pair = {
        "name": "contoso",
        "backlog_queue_count": queues,
        "rate": rate,
        "primary": {"connection_string": place.primary},
        "secondary": {"connection_string": place.secondary},
    }
    wrong = {"connection_string": place.primary.replace("SharedAccessKey=", "SharedAccessKey=wrong")}
    pairs = [pair, {**pair, "name": "fabrikam", "primary": wrong}] if beside_a_bad_pair else [pair]
    status = {"listen": "127.0.0.1:0"}
    file = folder / "config.yaml"
    whole = {"pairs": pairs, "pipeline": {"ledger": str(folder / "ledger"), **(pipeline or {})}, "status": status}
    file.write_text(json.dumps(whole))
    return file


@contextmanager
def worker(
    place: Place,
    folder: Path,
    queues: int,
    rate: float | None = None,
    *,
    beside_a_bad_pair: bool = False,
    pipeline: dict[str, str] | None = None,
) -> Iterator[int]:
    """A worker that listens; yields its process id."""
    log_file = folder / LOG
    config = settings(place, folder, queues, rate, beside_a_bad_pair=beside_a_bad_pair, pipeline=pipeline)
    command = [*SYPHON, "run", "--config", str(config)]
    with log_file.open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:  # noqa: S603
        try:
            deadline = time.monotonic() + WITHIN
            while "listening on" not in log_file.read_text():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the worker is not ready: {log_file.read_text()}")
                time.sleep(0.1)
            yield process.pid
        finally:
            process.terminate()


def status_port(folder: Path) -> int:
    """The port of the status server of the worker that was started in this folder."""
    return int((folder / LOG).read_text().partition("status on http://127.0.0.1:")[2].split()[0])
