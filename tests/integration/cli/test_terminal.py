"""Commands on a real terminal of 80 × 24 and of 200 × 50: what an operator sees over SSH."""

from __future__ import annotations

import socket
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from syphon.ledger.ledger import Ledger
from syphon.model.exit_codes import ExitCode
from syphon.status.snapshot import BacklogQueueState, DestinationState
from tests.integration.status.test_diagnosis import destination, pair, queue
from tests.integration.status.test_page import status
from tests.support import ledger_incident
from tests.support.cli_process import run_syphon
from tests.support.status_server import served
from tests.support.terminal import terminal
from tests.support.tools import ROOT
from tests.support.waiting import eventually

SYPHON = (sys.executable, "-m", "syphon")
WITHIN = 120.0


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (200, 50)])
def test_a_report_breaks_no_word(tmp_path: Path, columns: int, lines: int) -> None:
    ledger_incident.put_on_record(Ledger(None, f"file:{tmp_path}/ledger"))
    with terminal([*SYPHON, "report", "--ledger", f"{tmp_path}/ledger"], columns, lines, tmp_path) as shown:
        assert shown.wait(WITHIN) == ExitCode.LEFT, shown.text
        words = shown.text.split()
        assert any(line.split()[:2] == ["orders", "55"] for line in shown.text.splitlines()), "one line a destination"
    for word in ("dead-lettered", "forwarded", "amqp:resource-limit-exceeded", "NoDestination", "accounted"):
        assert word in words, shown.text


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (200, 50)])
def test_a_status_that_is_watched_keeps_its_headline(columns: int, lines: int) -> None:
    with (
        served() as here,
        terminal([*SYPHON, "status", "--url", f"http://127.0.0.1:{here.port}", "--watch"], columns, lines) as shown,
    ):
        eventually(lambda: shown.lines[0].startswith("syphon "), lambda: shown.text, WITHIN)
        eventually(lambda: any("queue" in line for line in shown.lines), lambda: shown.text, WITHIN)
        assert shown.lines[0].startswith("syphon ")
        assert shown.history[: lines + 1] == shown.lines, "something has scrolled away"
        name = "…/9" if columns == 80 else "contoso/x-servicebus-transfer/9"
        assert columns == 80 or any(line.split()[:1] == [name] for line in shown.lines), shown.text
        shown.press(b"\x03")
        assert shown.wait(WITHIN) == 0


def test_a_status_that_is_watched_has_room_for_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    problems = [
        destination(f"d{number}", DestinationState.BACKING_OFF, left=9, error="DestinationFull") for number in range(4)
    ]
    queues = [
        queue(0, left=7_942, state=BacklogQueueState.WORKING),
        *(queue(number, left=0) for number in range(1, 10)),
    ]
    found = status(pair(per_second=6.0, queues=queues, destinations=problems))
    with served() as here:
        monkeypatch.setattr(here.observer, "current", lambda: found)
        with terminal([*SYPHON, "status", "--url", f"http://127.0.0.1:{here.port}", "--watch"], 80, 24) as shown:
            eventually(lambda: shown.lines[0].startswith("syphon "), lambda: shown.text, WITHIN)
            eventually(lambda: any(line.split()[:1] == ["…/0"] for line in shown.lines), lambda: shown.text, WITHIN)
            assert shown.lines[1].startswith("Forwarding 6/s, but some messages cannot move: at least 36 are stuck.")
            assert any(line.split()[:3] == ["d3", "backing", "off"] for line in shown.lines), shown.text
            assert "  1 more problem; what to do: syphon status without --watch" in shown.lines
            shown.press(b"\x03")
            assert shown.wait(WITHIN) == 0


def test_a_status_that_is_watched_outlives_a_restart_of_the_worker() -> None:
    with ExitStack() as stack:
        with served() as here:
            address = f"127.0.0.1:{here.port}"
            command = [*SYPHON, "status", "--url", f"http://{address}", "--watch", "--every", "0.5"]
            shown = stack.enter_context(terminal(command))
            eventually(lambda: shown.lines[0].startswith("syphon "), lambda: shown.text, WITHIN)
        eventually(lambda: shown.lines[0].startswith("The worker has not answered"), lambda: shown.text, WITHIN)
        with served(listen=address):
            eventually(lambda: shown.lines[0].startswith("syphon "), lambda: shown.text, WITHIN)
            shown.press(b"\x03")
            assert shown.wait(WITHIN) == 0


def test_ctrl_c_in_the_start_of_a_command_ends_it_as_a_shell_expects(tmp_path: Path) -> None:
    """The secondary accepts the connection and says nothing: the command is still looking."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        string = "Endpoint=sb://127.0.0.1:{};SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true".format
        (tmp_path / "config.yaml").write_text(
            f"pairs:\n- name: contoso\n  primary: {{connection_string: '{string(1)}'}}\n"
            f"  secondary: {{connection_string: '{string(port)}'}}\n"
        )
        with terminal([*SYPHON, "drain", "-c", "config.yaml", "--yes"], folder=tmp_path) as shown:
            silent.settimeout(WITHIN)
            connection, _ = silent.accept()
            shown.press(b"\x03")
            assert shown.wait(WITHIN) == 130, shown.text
            connection.close()
        assert "Stopped. No message was forwarded." in shown.text
        assert "Aborted" not in shown.text


@pytest.mark.parametrize(
    ("key", "code", "said"),
    [
        (b"\x03", 130, "Stopped. No message was forwarded."),
        (b"\x04", 130, "Stopped. No message was forwarded."),
        (b"n\n", ExitCode.LEFT, "No message was forwarded."),
    ],
    ids=["Ctrl-C", "Ctrl-D", "no"],
)
def test_a_drain_that_is_not_confirmed_says_that_it_moved_nothing(
    tmp_path: Path, key: bytes, code: int, said: str
) -> None:
    string = "Endpoint=sb://127.0.0.1:{};SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true".format
    (tmp_path / "config.yaml").write_text(
        f"pairs:\n- name: contoso\n  primary: {{connection_string: '{string(1)}'}}\n"
        f"  secondary: {{connection_string: '{string(2)}'}}\n"
    )
    with terminal([*SYPHON, "drain", "-c", "config.yaml"], folder=tmp_path) as shown:
        eventually(lambda: "to their destinations?" in shown.text, lambda: shown.text, WITHIN)
        shown.press(key)
        assert shown.wait(WITHIN) == code, shown.text
    assert said in shown.text
    assert "Aborted" not in shown.text


def test_a_destination_that_the_worker_has_never_seen_is_paused_with_a_warning() -> None:
    with served() as here:
        url = f"http://127.0.0.1:{here.port}"
        done = run_syphon("pause", "--url", url, "--destination", "ordres")
    assert done.returncode == 0
    assert "Warning: this worker has seen no message for ordres. It has seen: none." in done.stderr
    assert "`syphon resume --destination ordres`" in done.stderr
    assert "paused: destination ordres of contoso" in done.stdout


LOGGED = """
import logging
from syphon.config import LogLevel
from syphon.status import set_up_logging
from syphon.status.drain_display import drain_progress
from tests.unit.status.test_drain_display import many_queues

set_up_logging(LogLevel.WARNING)
with drain_progress() as show:
    for number in range(5):
        show(many_queues())
        logging.getLogger("syphon").warning("destination %d is unavailable: %s", number, "it is full. " * 9)
    show(many_queues())
    input()
"""


def test_a_log_line_stands_above_the_table_and_spoils_nothing() -> None:
    with terminal([sys.executable, "-c", LOGGED], 80, 24, ROOT) as shown:
        eventually(lambda: "destination 4" in shown.text, lambda: shown.text, WITHIN)
        eventually(lambda: any(line.startswith("all ") for line in shown.lines), lambda: shown.text, WITHIN)
        assert [line.split()[0] for line in shown.lines if line.startswith(("queue ", "all "))] == ["queue", "all"]
        assert [f"destination {number} is unavailable" in shown.text for number in range(5)] == [True] * 5
        shown.press(b"\n")
        assert shown.wait(WITHIN) == 0
