"""Commands behind a firewall that opens nothing but an HTTP proxy: every connection goes through it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from syphon.emulator import BackgroundEmulator, EmulatorSettings, NamespaceSettings, QueueDescription
from tests.support.cli_process import run_syphon
from tests.support.connect_proxy import ConnectProxy, proxy_to

USERNAME, PASSWORD = "alice", "s3cret:p@ss"
NAMES = ("contoso", "contoso-dr")


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundEmulator]:
    namespaces = [NamespaceSettings(name=name) for name in NAMES]
    settings = EmulatorSettings(namespaces=namespaces, state=tmp_path_factory.mktemp("state"), tls=True)
    with BackgroundEmulator(settings) as emulator:
        emulator.call(lambda: emulator["contoso"].namespace.create_queue(QueueDescription("orders")))
        yield emulator


@pytest.fixture
def proxy(emulator: BackgroundEmulator) -> Iterator[ConnectProxy]:
    with proxy_to({name: emulator[name].amqp_port for name in NAMES}, (USERNAME, PASSWORD)) as proxy:
        yield proxy


def write(folder: Path, emulator: BackgroundEmulator, proxy: ConnectProxy, password: str = PASSWORD) -> str:
    """JSON, which is YAML too. Hosts are Azure's: nothing but the proxy can find the emulator."""
    way = {
        "transport": "websockets",
        "proxy": {"url": proxy.url, "username": USERNAME, "password": password},
        "ca_file": str(emulator.ca_file),
    }
    sides = {}
    for side, name in zip(("primary", "secondary"), NAMES, strict=True):
        running = emulator[name]
        string = running.connection_string.replace("UseDevelopmentEmulator=true;", "")
        host = f"127.0.0.1:{running.amqp_port}"
        sides[side] = {"connection_string": string.replace(host, f"{name}.servicebus.windows.net"), **way}
    pair = {"name": "contoso", **sides, "backlog_queue_count": 1, "destinations": {"allow": ["orders"]}}
    file = folder / "config.yaml"
    file.write_text(json.dumps({"pairs": [pair]}))
    return str(file)


def test_check_and_provision_use_the_proxy(tmp_path: Path, emulator: BackgroundEmulator, proxy: ConnectProxy) -> None:
    config = write(tmp_path, emulator, proxy)
    provisioned = run_syphon("provision", "--config", config)
    assert provisioned.returncode == 0, provisioned.stdout + provisioned.stderr
    checked = run_syphon("check", "--config", config)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "can be received from" in checked.stdout
    assert "can be sent to" in checked.stdout
    assert set(proxy.requests) == {f"{name}.servicebus.windows.net:443" for name in NAMES}
    assert proxy.refusals == []


def test_a_proxy_that_refuses_us_is_named_without_the_secret(
    tmp_path: Path, emulator: BackgroundEmulator, proxy: ConnectProxy
) -> None:
    config = write(tmp_path, emulator, proxy, "wr0ng")
    checked = run_syphon("check", "--config", config)
    said = checked.stdout + checked.stderr
    assert checked.returncode == 77, said
    assert "refused our credentials" in said
    assert "wr0ng" not in said
    provisioned = run_syphon("provision", "--config", config)
    said = provisioned.stdout + provisioned.stderr
    assert provisioned.returncode == 77, said
    assert "next try" not in said, "there is nothing to wait for"
    assert "the proxy refused our credentials (407)" in said
    assert "wr0ng" not in said
