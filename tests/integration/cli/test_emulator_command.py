"""`syphon emulator`, as a real process."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from syphon.model import ExitCode
from tests.support.cli_process import run_syphon, syphon


def connects(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=20).close()
    except OSError:
        return False
    return True


def ready(line: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(line)
    return found


def test_with_json_it_prints_exactly_one_line_and_can_be_used_at_once() -> None:
    with syphon("emulator", "--json", "--namespace", "a:0:0", "--namespace", "b:0:0") as emulator:
        line = emulator.stdout_until("\n")
        found = ready(line)
        assert set(found) == {"namespaces"}
        assert [namespace["name"] for namespace in found["namespaces"]] == ["a", "b"]
        for namespace in found["namespaces"]:
            assert set(namespace) == {"name", "connection_string", "amqp_port", "http_port"}
            assert f"Endpoint=sb://127.0.0.1:{namespace['amqp_port']}" in namespace["connection_string"]
            assert "UseDevelopmentEmulator=true" in namespace["connection_string"]
            assert connects(namespace["amqp_port"])
            assert connects(namespace["http_port"])
        code, out, err = emulator.stop(signal.SIGTERM)
    assert (code, out, err) == (0, line, "")


def test_for_people_it_prints_what_they_need() -> None:
    with syphon("emulator", "--namespace", "shop:0:0") as emulator:
        emulator.stdout_until("HTTP ")
        code, out, _ = emulator.stop(signal.SIGINT)
    assert code == ExitCode.OK
    assert "for development and tests only" in out
    assert "Endpoint=sb://127.0.0.1:" in out
    assert "http://127.0.0.1:" in out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_although_clients_are_connected(number: int) -> None:
    with syphon("emulator", "--json", "--namespace", "a:0:0") as emulator:
        (namespace,) = ready(emulator.stdout_until("\n"))["namespaces"]
        with (
            socket.create_connection(("127.0.0.1", namespace["amqp_port"])) as idle,
            socket.create_connection(("127.0.0.1", namespace["http_port"])),
        ):
            idle.sendall(b"AMQP\x03\x01\x00\x00")
            assert idle.recv(8)
            code, _, _ = emulator.stop(number)  # which waits for so long and no longer
    assert code == ExitCode.OK


def test_a_port_that_is_taken_is_named_with_its_namespace() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for option in (f"shop:{port}:0", f"shop:0:{port}"):
            result = run_syphon("emulator", "--json", "--namespace", option)
            assert result.returncode == ExitCode.UNAVAILABLE
            assert result.stdout == ""
            assert "Traceback" not in result.stderr
            assert "shop" in result.stderr
            assert str(port) in result.stderr


def test_a_bad_file_is_reported_line_by_line(tmp_path: Path) -> None:
    file = tmp_path / "emulator.yaml"
    file.write_text("namespaces:\n  - name: a\n    queus: []\n    queues:\n      - {name: q, lock_duration: 1h}\n")
    result = run_syphon("emulator", "--config", str(file))
    assert result.returncode == ExitCode.CONFIG
    assert result.stderr.splitlines() == [
        f"{file}:3: namespaces[0].queus is not a known key; did you mean queues?",
        f'{file}:5: namespaces[0].queues[0].lock_duration = "1h" is longer than 5m; write 5s to 5m',
    ]


def test_a_missing_file_is_a_matter_of_configuration() -> None:
    result = run_syphon("emulator", "--config", "no-such-file.yaml")
    assert (result.returncode, result.stdout) == (ExitCode.CONFIG, "")
    assert "no-such-file.yaml" in result.stderr


def test_a_state_directory_that_cannot_be_used_is_reported_plainly(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    result = run_syphon("emulator", "--namespace", "a:0:0", "--state", str(tmp_path / "file" / "state"))
    assert result.returncode == ExitCode.CONFIG
    assert "Traceback" not in result.stderr
    assert str(tmp_path / "file") in result.stderr


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["a:x"], "'x' in 'a:x' is not a port"),
        (["a:1:2:3"], "more than two ports"),
        (["a b"], "not a name for a namespace"),
        (["a:0:0", "A:0:0"], "is the name of another namespace"),
        (["a:7001:0", "b:0:7001"], "is the port of a"),
    ],
)
def test_a_namespace_option_that_makes_no_sense_is_a_matter_of_usage(options: list[str], text: str) -> None:
    arguments = [part for option in options for part in ("--namespace", option)]
    result = run_syphon("emulator", *arguments)
    assert result.returncode == ExitCode.USAGE
    assert text in result.stderr


def test_with_a_file_an_option_sets_ports_or_adds_a_namespace(tmp_path: Path) -> None:
    file = tmp_path / "Config.json"
    file.write_text('{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [{"Name": "q"}]}]}}')
    arguments = ("--config", str(file), "--namespace", "more:0:0", "--namespace", "sbemulatorns:0:0")
    with syphon("emulator", "--json", *arguments) as emulator:
        found = ready(emulator.stdout_until("\n"))["namespaces"]
    assert [namespace["name"] for namespace in found] == ["sbemulatorns", "more"]


def test_with_tls_it_says_where_the_authority_is(tmp_path: Path) -> None:
    arguments = ("--tls", "--state", str(tmp_path), "--namespace", "a:0:0")
    with syphon("emulator", "--json", *arguments) as emulator:
        found = ready(emulator.stdout_until("\n"))
        assert Path(found["ca_file"]).read_text().startswith("-----BEGIN CERTIFICATE-----")
