"""The compose file, as far as it can be checked without Docker: its schema, its files, and how they fit together."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
import yaml

from syphon.cli import main
from syphon.config import Config, load_config
from syphon.emulator import BackgroundEmulator, load_settings
from tests.integration.status.test_commands import understood
from tests.support.tools import ROOT, run, said

FOLDER = ROOT / "examples" / "compose"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def mounts(service: str) -> dict[str, Path]:
    """The files that a container sees, by their paths in it."""
    found = (text.split(":") for text in SERVICES[service]["volumes"] if text.startswith("."))
    return {inside: (FOLDER / here).resolve() for here, inside, _ in found}


def settings(tmp_path: Path) -> Config:
    """The worker's settings, with the secret where it is here."""
    token = tmp_path / "status-token"
    token.write_text("a-token\n")
    text = mounts("worker")["/etc/syphon/config.yaml"].read_text()
    file = tmp_path / "config.yaml"
    file.write_text(text.replace("/run/secrets/status-token", str(token)))
    return load_config(file, {})


def test_it_is_a_compose_file() -> None:
    checked = run("check-jsonschema", "--builtin-schema", "vendor.compose-spec", FOLDER / "compose.yaml")
    assert checked.returncode == 0, said(checked)


def test_a_key_that_compose_does_not_know_is_found(tmp_path: Path) -> None:
    broken = {**COMPOSE, "services": {**SERVICES, "worker": {**SERVICES["worker"], "comand": []}}}
    (tmp_path / "compose.yaml").write_text(yaml.safe_dump(broken))
    checked = run("check-jsonschema", "--builtin-schema", "vendor.compose-spec", tmp_path / "compose.yaml")
    assert checked.returncode != 0


def test_every_file_that_is_mounted_exists() -> None:
    assert [path for service in SERVICES for path in mounts(service).values() if not path.is_file()] == []
    assert {name for service in SERVICES.values() for name in service.get("secrets", [])} == set(COMPOSE["secrets"])


def test_only_this_machine_reaches_it() -> None:
    ports = [port for service in SERVICES.values() for port in service["ports"]]
    assert len(ports) == 5
    assert all(port.startswith("127.0.0.1:") for port in ports)


@pytest.mark.parametrize("service", ["emulator", "worker"])
def test_containers_start_commands_that_exist(service: str) -> None:
    command = [str(mounts(service).get(word, word)) for word in SERVICES[service]["command"]]
    if service == "emulator":
        assert SERVICES[service]["environment"]["CONFIG_PATH"] in mounts(service)
        command = ["emulator", *command]  # the entrypoint of its image says the command
    assert understood(command), command
    assert [word for word in command if word.startswith("/etc")] == [], "a file that is not mounted"


def test_the_worker_asks_where_the_emulator_listens(tmp_path: Path) -> None:
    (pair,) = settings(tmp_path).pairs
    file = mounts("emulator")["/etc/syphon/namespaces.yaml"]
    spaces = {space.name: space for space in load_settings(file).namespaces}
    assert (pair.primary.host, pair.secondary.host) == (
        f"contoso:{spaces['contoso'].amqp_port}",
        f"contoso-dr:{spaces['contoso-dr'].amqp_port}",
    )
    assert SERVICES["emulator"]["networks"]["default"]["aliases"] == list(spaces)
    published = [port.rpartition(":")[2] for port in SERVICES["emulator"]["ports"]]
    assert published == [str(space.amqp_port) for space in spaces.values()]


def test_the_emulator_takes_the_workers_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With these files, on free ports: names of containers are addresses of this machine."""
    resolve = socket.getaddrinfo

    def resolved(host: Any, *more: Any, **options: Any) -> Any:
        return resolve("127.0.0.1" if host in ("contoso", "contoso-dr") else host, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    spaces = load_settings(mounts("emulator")["/etc/syphon/namespaces.yaml"])
    free = [
        space.model_copy(update={"host": "0.0.0.0", "amqp_port": 0, "http_port": 0})  # the host of its image
        for space in spaces.namespaces
    ]
    settings(tmp_path)
    file = tmp_path / "config.yaml"
    with BackgroundEmulator(spaces.model_copy(update={"namespaces": free})) as emulator:
        text = file.read_text().replace("/var/lib/syphon/ledger", str(tmp_path / "ledger"))
        for space in spaces.namespaces:
            text = text.replace(f"{space.name}:{space.amqp_port}", f"{space.name}:{emulator[space.name].amqp_port}")
        file.write_text(text)
        for command in ("provision", "check"):
            with pytest.raises(SystemExit) as end:
                main([command, "-c", str(file)], prog_name="syphon")
            assert not end.value.code, command


def test_prometheus_takes_its_settings_and_asks_the_worker(tmp_path: Path) -> None:
    files = mounts("prometheus")
    for inside, path in files.items():
        text = path.read_text().replace("/run/secrets/status-token", str(tmp_path / "token"))
        (tmp_path / Path(inside).name).write_text(text)
    (tmp_path / "token").write_text("a-token")
    checked = run("promtool", "check", "config", tmp_path / "prometheus.yaml")
    assert checked.returncode == 0, said(checked)
    (job,) = yaml.safe_load((tmp_path / "prometheus.yaml").read_text())["scrape_configs"]
    assert job["job_name"] == "syphon", "the name that alerts and dashboard expect"
    (target,) = job["static_configs"][0]["targets"]
    assert target == f"worker:{settings(tmp_path).status.listen.port}"
    assert "worker" in SERVICES


def test_grafana_finds_prometheus_and_the_dashboard() -> None:
    files = mounts("grafana")
    (source,) = yaml.safe_load(files["/etc/grafana/provisioning/datasources/syphon.yaml"].read_text())["datasources"]
    assert (source["type"], source["url"], source["isDefault"]) == ("prometheus", "http://prometheus:9090", True)
    (provider,) = yaml.safe_load(files["/etc/grafana/provisioning/dashboards/syphon.yaml"].read_text())["providers"]
    assert f"{provider['options']['path']}/syphon.json" in files


def test_a_worker_gets_the_time_that_it_needs_to_stop() -> None:
    assert int(SERVICES["worker"]["stop_grace_period"].removesuffix("s")) > 25
