"""The emulator with a second official client: @azure/service-bus in node, against the real process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from syphon.emulator import BackgroundEmulator, EmulatorSettings, NamespaceSettings, QueueDescription
from tests.support.cli_process import syphon
from tests.support.connect_proxy import proxy_to

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
        environment = {
            "SERVICE_BUS_CONNECTION_STRING": namespace["connection_string"],
            "NODE_EXTRA_CA_CERTS": ready.get("ca_file", ""),
        }
        run(node, suite, environment)


def run(node: str, suite: str, environment: dict[str, str]) -> None:
    done = subprocess.run(
        [node, "--test", "--test-reporter", "spec", f"{suite}.test.js"],
        cwd=HERE,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # A file without tests would be a success as well.
    assert "\nℹ pass 0\n" not in done.stdout


@pytest.mark.timeout(400)
def test_the_javascript_client_speaks_websockets_with_and_without_a_proxy(
    node: str, packages: None, tmp_path: Path
) -> None:
    settings = EmulatorSettings(namespaces=[NamespaceSettings(name="contoso")], state=tmp_path, tls=True)
    with BackgroundEmulator(settings) as emulator:
        contoso = emulator["contoso"]
        for name in ("direct", "proxied", "refused"):
            emulator.call(lambda name=name: contoso.namespace.create_queue(QueueDescription(name)))  # type: ignore[misc]
        with proxy_to({"contoso": contoso.amqp_port}, ("alice", "p@ss:word")) as proxy:
            host = f"127.0.0.1:{contoso.amqp_port}"
            environment = {
                "SERVICE_BUS_CONNECTION_STRING": contoso.connection_string,
                "AZURE_LIKE_CONNECTION_STRING": contoso.connection_string.replace(
                    host, "contoso.servicebus.windows.net"
                ).replace("UseDevelopmentEmulator=true;", ""),
                "PROXY": f"http://alice:p%40ss%3Aword@127.0.0.1:{proxy.port}",
                "PROXY_WITHOUT_CREDENTIALS": proxy.url,
                "NODE_EXTRA_CA_CERTS": str(emulator.ca_file),
            }
            run(node, "websockets", environment)
        assert set(proxy.requests) == {"contoso.servicebus.windows.net:443"}
        assert proxy.refusals
