"""The emulator's image, as far as it can be checked without an engine: its entrypoint with the packages of its lock."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from packaging.requirements import Requirement

from tests.support.cli_process import Syphon
from tests.support.tools import ROOT

FOLDER = ROOT / "docker" / "emulator"
READY = "Emulator Service is Successfully Up!"
"""The line that Testcontainers' Java module waits for. Those of .NET, Go and Node wait for `/health`."""
CONFIG = {
    "UserConfig": {
        "Namespaces": [{"Name": "sbemulatorns", "Queues": [{"Name": "orders"}], "Topics": []}],
        "Logging": {"Type": "Console"},
    }
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has our package and those of the lock file, and nothing else."""
    target = tmp_path_factory.mktemp("image") / "syphon"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", target], check=True)
    (packages,) = target.glob("lib/python3*/site-packages")
    lines = re.findall(r"(?m)^[a-z].*?(?= \\$)", (FOLDER / "requirements.lock").read_text())
    wanted = [Requirement(line) for line in lines]
    for requirement in wanted:
        if requirement.marker is None or requirement.marker.evaluate():
            files = distribution(requirement.name).files
            assert files is not None
            for file in files:
                if ".." not in file.parts and "__pycache__" not in file.parts:
                    (packages / file).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(str(file.locate()), packages / file)
    shutil.copytree(ROOT / "syphon", packages / "syphon", ignore=shutil.ignore_patterns("__pycache__"))
    program = target / "bin" / "syphon"
    program.write_text(f"#!{target}/bin/python\nfrom syphon.cli import main\nmain()\n")
    program.chmod(0o755)
    return target / "bin"


@contextmanager
def started(programs: Path, folder: Path, *options: str) -> Iterator[Syphon]:
    config = folder / "Config.json"
    config.write_text(json.dumps(CONFIG))
    # As a Testcontainers module sets it. None of the others means anything here.
    theirs = {"ACCEPT_EULA": "Y", "SQL_SERVER": "sql", "MSSQL_SA_PASSWORD": "a password", "SQL_WAIT_INTERVAL": "0"}
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "CONFIG_PATH": str(config),
        "HOME": str(folder),
        **theirs,
    }
    command = ["sh", str(FOLDER / "entrypoint.sh"), "--namespace", "sbemulatorns:0:0", *options]
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            yield Syphon(process)
        finally:
            if process.poll() is None:
                process.kill()


def ports(emulator: Syphon) -> dict[str, Any]:
    (namespace,) = json.loads(emulator.stdout_until(READY).splitlines()[0])["namespaces"]
    assert namespace["name"] == "sbemulatorns"
    found: dict[str, Any] = namespace
    return found


def status(port: int, path: str, **headers: str) -> int:
    try:
        with urllib.request.urlopen(
            urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
        ) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code


def test_a_client_uses_it_by_whatever_name_the_container_has(installed: Path, tmp_path: Path) -> None:
    with started(installed, tmp_path, "--json") as emulator:
        namespace = ports(emulator)
        assert status(namespace["http_port"], "/health") == 200
        # Another address of this machine stands for the name that a container has in its network.
        string = namespace["connection_string"].replace("localhost", "127.0.0.9")
        with ServiceBusClient.from_connection_string(string) as client:
            with client.get_queue_sender("orders") as sender:
                sender.send_messages(ServiceBusMessage("hello"))
            with client.get_queue_receiver("orders") as receiver:
                (message,) = receiver.receive_messages(max_wait_time=20)
                assert str(message) == "hello"
                receiver.complete_message(message)
        code, _, err = emulator.stop(signal.SIGTERM)
    assert (code, err) == (0, "")


def test_it_has_what_tls_and_websockets_need(installed: Path, tmp_path: Path) -> None:
    with started(installed, tmp_path, "--json", "--tls", "--state", str(tmp_path / "state")) as emulator:
        # It is not an upgrade. Without the extra the answer would be 501.
        assert status(ports(emulator)["amqp_port"], "/$servicebus/websocket") == 400
        assert (tmp_path / "state" / "tls" / "ca.pem").exists()


def test_it_holds_nothing_that_it_does_not_need(installed: Path) -> None:
    (packages,) = installed.parent.glob("lib/python3*/site-packages")
    names = {path.name.partition("-")[0] for path in packages.glob("*.dist-info")}
    assert not {name for name in names if name.startswith(("azure", "opentelemetry", "py4j", "pyspark", "rich"))}
    size = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file())
    assert size < 70e6


def test_the_config_of_the_image_is_one(installed: Path, tmp_path: Path) -> None:
    shutil.copy(FOLDER / "Config.json", tmp_path)
    command = [str(installed / "syphon"), "emulator", "--config", "Config.json", "--namespace", "sbemulatorns:0:0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert "sbemulatorns" in Syphon(process).stdout_until("HTTP ")
        process.terminate()


def test_health_says_nothing_to_those_with_a_token_for_a_queue_of_that_name(installed: Path, tmp_path: Path) -> None:
    with started(installed, tmp_path, "--json") as emulator:
        assert status(ports(emulator)["http_port"], "/health", Authorization="SharedAccessSignature sr=nothing") == 401
