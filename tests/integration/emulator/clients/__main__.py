"""Runs the scenario with several versions of azure-servicebus against one emulator process, and prints a table.

`make clients`. Each version has an environment of its own below .clients, which stays for the next run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

VERSIONS = ("7.0.0", "7.4.0", "7.9.0", "7.10.0", "7.12.3", "7.14.3", "newest")
FLAVOURS = ("sync", "asyncio")
SCENARIO = Path(__file__).with_name("scenario.py")
ENVIRONMENTS = Path(".clients")
LONGEST = 240
"""Seconds that one scenario may take."""


def environment(version: str) -> Path:
    """The Python of an environment with this version, created if it does not exist. The newest is checked each time."""
    place = ENVIRONMENTS / f"python-{version}"
    ready, python = place / ".ready", place / "bin" / "python"
    if not ready.exists():
        venv.create(place, with_pip=True, clear=True)
    if not ready.exists() or version == "newest":
        wanted = "azure-servicebus" if version == "newest" else f"azure-servicebus=={version}"
        # setuptools: some of these versions import pkg_resources.
        install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--upgrade"]
        subprocess.run([*install, wanted, "aiohttp", "setuptools<80"], check=True)
        ready.touch()
    return python


@contextmanager
def emulator() -> Iterator[dict[str, Any]]:
    """A fresh emulator process with the entities of the scenario: what the scenario needs to find it."""
    queues = [{"name": "orders"}, {"name": "chats", "requires_session": True}]
    settings = {"namespaces": [{"name": "contoso", "amqp_port": 0, "http_port": 0, "queues": queues}]}
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "emulator.yaml"
        config.write_text(yaml.safe_dump(settings))
        start = [sys.executable, "-c", "from syphon.cli import main; main()"]
        with subprocess.Popen(
            [*start, "emulator", "--json", "--tls", "--config", str(config)], stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdout is not None
                ready = json.loads(process.stdout.readline())
                (namespace,) = ready["namespaces"]
                yield {
                    "connection_string": namespace["connection_string"],
                    "host": "127.0.0.1",
                    "port": namespace["amqp_port"],
                    "ca_file": ready["ca_file"],
                }
            finally:
                process.terminate()


def run(python: Path, flavour: str) -> dict[str, str | None]:
    """The error of each part, or None. A scenario that ends without a result is one error."""
    with emulator() as place:
        try:
            ended = subprocess.run(
                [str(python), str(SCENARIO), flavour, json.dumps(place)],
                capture_output=True,
                text=True,
                timeout=LONGEST,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"start": f"no result within {LONGEST} s"}
    lines = ended.stdout.strip().splitlines()
    if ended.returncode or not lines:
        return {"start": (ended.stderr.strip().splitlines() or ["no output"])[-1][:300]}
    results: dict[str, str | None] = json.loads(lines[-1])
    return results


def installed(python: Path) -> str:
    ask = "import azure.servicebus; print(azure.servicebus.__version__)"
    return subprocess.run([str(python), "-c", ask], capture_output=True, text=True, check=True).stdout.strip()


def main(versions: list[str]) -> int:
    failed = False
    print(f"{'client':<28}{'version':<10}parts passed")
    for version in versions or VERSIONS:
        python = environment(version)
        for flavour in FLAVOURS:
            results = run(python, flavour)
            errors = {part: error for part, error in results.items() if error is not None}
            failed = failed or bool(errors)
            passed = f"{len(results) - len(errors)} of 8"
            why = "".join(f"  {part}: {error}" for part, error in errors.items())
            print(f"{'azure-servicebus ' + flavour:<28}{installed(python):<10}{passed}{why}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
