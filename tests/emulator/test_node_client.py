"""The emulator with a second official client: @azure/service-bus in node, against the real process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.support.cli_process import syphon

HERE = Path(__file__).parent / "node"
QUEUES = {
    "messages": ("plain", "batch", "abandon", "dead", "defer", "peek", "schedule", "locks", "delete", "stream"),
    "sessions": ("by-id", "next", "wait", "state", "settle"),
    "topics": (),
    "connection": ("one", "two", "three", "four", "idle"),
    "administration": (),
}
TOPICS = {
    "copies": ("first", "second"),
    "ruled": ("some",),
    "acting": ("some",),
    "scheduled": ("all",),
    "sessions": ("each",),
}


def missing(what: str) -> None:
    """Skips on a laptop and fails on a build server, where a skip is not noticed."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


@pytest.fixture(scope="session")
def packages(node: str) -> None:
    """The packages of package-lock.json in node_modules, installed once for as long as the lock stays the same."""
    lock = (HERE / "package-lock.json").read_bytes()
    stamp = HERE / "node_modules" / ".syphon-lock.json"
    if stamp.exists() and stamp.read_bytes() == lock:
        return
    npm = shutil.which("npm")
    if npm is None:
        missing("npm is missing: install it beside node to run the JavaScript suite")
        return
    # Beside its place, and moved there when it is whole: other test processes may be at it too.
    with tempfile.TemporaryDirectory(dir=HERE, prefix="node_modules-") as building:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, building)
        command = [npm, "ci", "--prefer-offline", "--no-audit", "--no-fund", "--ignore-scripts"]
        try:
            done = subprocess.run(command, cwd=building, capture_output=True, text=True, timeout=200, check=False)
        except subprocess.TimeoutExpired:
            missing("npm ci did not get the packages in time: is its registry within reach?")
            return
        if done.returncode != 0:
            missing(f"npm ci could not get the packages:\n{done.stderr}")
            return
        built = Path(building) / "node_modules"
        (built / stamp.name).write_bytes(lock)
        shutil.rmtree(HERE / "node_modules", ignore_errors=True)
        try:
            built.rename(HERE / "node_modules")
        except OSError:
            assert stamp.read_bytes() == lock, "another process installed something else"


def config(suite: str) -> dict[str, object]:
    """Our YAML, of which JSON is a part."""
    queues = [{"name": name, "requires_session": suite == "sessions"} for name in QUEUES[suite]]
    topics = [
        {
            "name": topic,
            "subscriptions": [{"name": name, "requires_session": topic == "sessions"} for name in names],
        }
        for topic, names in TOPICS.items()
    ]
    namespace = {"name": "a", "amqp_port": 0, "http_port": 0, "queues": queues, "topics": topics}
    return {"namespaces": [namespace], "tls": suite == "administration"}


@pytest.mark.timeout(400)  # packages may have to be fetched first
@pytest.mark.parametrize("suite", list(QUEUES))
def test_the_javascript_client_gets_along(suite: str, node: str, packages: None, tmp_path: Path) -> None:
    file = tmp_path / "emulator.yaml"
    file.write_text(json.dumps(config(suite)))
    with syphon("emulator", "--json", "--config", str(file)) as emulator:
        ready = json.loads(emulator.stdout_until("\n", within=100))
        (namespace,) = ready["namespaces"]
        done = subprocess.run(
            [node, "--test", "--test-reporter", "spec", f"{suite}.test.js"],
            cwd=HERE,
            env={
                **os.environ,
                "SERVICE_BUS_CONNECTION_STRING": namespace["connection_string"],
                "NODE_EXTRA_CA_CERTS": ready.get("ca_file", ""),
            },
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    # A file without tests would be a success as well.
    assert "\nℹ pass 0\n" not in done.stdout
