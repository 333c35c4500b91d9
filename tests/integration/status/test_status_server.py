"""The status server over real sockets: what it answers, and which requests it refuses."""

from __future__ import annotations

import base64
import json
import logging
import re
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from syphon import bounded_connections
from syphon.status.snapshot import WorkerStatus
from syphon.status.status_server import PortTaken
from syphon.time_budget import STARTS_WITHIN
from syphon.worker.pauses import Pause
from tests.support.status_server import Served, answer_of, rest_of, served
from tests.support.waiting import eventually

TOKEN = "a-token-of-the-operator"
HIDDEN = ("/", "/status", "/metrics")


@pytest.fixture(scope="module")
def local() -> Iterator[Served]:
    """A server that listens on this machine only, without a token."""
    with served() as running:
        yield running


@pytest.fixture(scope="module")
def protected() -> Iterator[Served]:
    """A server that other machines can reach, with a token."""
    with served("0.0.0.0:0", TOKEN) as running:
        yield running


@pytest.fixture(autouse=True)
def resumed(local: Served, protected: Served) -> Iterator[None]:
    yield
    for each in (local, protected):
        each.pauses.end(each.pauses.all())


# --- answers ---------------------------------------------------------------------------------------------------------


def test_status_keeps_its_contract_and_names_every_pair_before_there_is_a_worker(local: Served) -> None:
    answer = local.ask("/status")
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    found = WorkerStatus.model_validate_json(answer.body)
    assert found.state == "starting"
    assert [pair.name for pair in found.pairs] == ["contoso", "fabrikam"]
    assert len(found.pairs[0].queues) == 10


def test_while_it_starts_health_is_green_and_readiness_says_that_it_starts(local: Served) -> None:
    health, ready = local.ask("/healthz"), local.ask("/readyz")
    assert (health.status, health.body) == (200, "ok\n")
    assert (ready.status, ready.body) == (503, "starting: the worker is not up yet\n")


def test_health_reports_a_start_that_hangs(local: Served) -> None:
    began = local.observer._now()
    local.observer._now = lambda: began + STARTS_WITHIN + 1
    health = local.ask("/healthz")
    assert (health.status, health.body.partition(" after")[0]) == (503, "starting: the worker is not up")


def test_metrics_are_prometheus_text(local: Served) -> None:
    answer = local.ask("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'syphon_side_connected{pair="contoso",side="primary"} 0.0' in answer.body


def test_the_page_stands_alone_and_may_run_nothing_but_its_own_script(local: Served) -> None:
    answer = local.ask("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert all(re.fullmatch(r"'sha256-[A-Za-z0-9+/=]{44}'", policy[kind]) for kind in ("script-src", "style-src"))
    assert (policy["connect-src"], policy["frame-ancestors"], policy["form-action"]) == ("'self'", "'none'", "'none'")
    addresses = re.findall(r"https?://[^\s\"']+", answer.body)
    assert addresses == ["http://www.w3.org/2000/svg"]  # the name of a namespace, not a place
    assert not re.search(r"\b(src|href|url\()\s*=?", answer.body)


def test_the_page_writes_data_as_text_and_never_as_markup(local: Served) -> None:
    page = local.ask("/").body
    assert "textContent" in page
    for dangerous in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert dangerous not in page


def test_a_browser_must_not_store_an_answer_or_show_it_in_a_frame(local: Served) -> None:
    for path in ("/", "/status", "/metrics", "/healthz", "/nowhere"):
        headers = local.ask(path).headers
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["connection"] == "close"
        assert "access-control-allow-origin" not in headers


# --- pause and resume ------------------------------------------------------------------------------------------------


def test_everything_a_pair_a_queue_or_a_destination_is_paused(local: Served) -> None:
    def after(path: str, **names: str) -> list[dict[str, str]]:
        answer = local.ask(path, "POST", json.dumps(names), X_Syphon="test")
        assert answer.status == 200, answer.body
        return [{k: v for k, v in each.items() if v} for each in json.loads(answer.body)["paused"]]

    queue = "contoso/x-servicebus-transfer/3"
    assert after("/pause", pair="contoso", queue="3") == [{"pair": "contoso", "queue": queue}]
    assert after("/resume", queue=queue) == []
    assert after("/pause", pair="fabrikam", destination="/Billing/x") == [
        {"pair": "fabrikam", "destination": "billing/x"}
    ]
    assert len(after("/pause")) == 3
    assert after("/resume", pair="fabrikam") == [{"pair": "contoso"}]  # with its destination
    assert after("/resume") == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ('{"pair": "unknown"}', 404),
        ('{"pair": "contoso", "queue": "99"}', 404),
        ("{", 400),
        ('{"all": true}', 400),
        ('{"pair": 5}', 400),
        ('{"destination": ""}', 400),
        (json.dumps({"destination": "a\nb"}), 400),
        (json.dumps({"destination": "x" * 261}), 400),
        (json.dumps({"destination": "x" * 5000}), 413),
    ],
)
def test_an_invalid_request_is_refused_and_pauses_nothing(local: Served, body: str, status: int) -> None:
    assert local.ask("/pause", "POST", body, X_Syphon="test").status == status
    assert local.pauses.all() == []


def test_a_pause_is_in_the_file_before_the_answer_comes(tmp_path: Path) -> None:
    with served(state=tmp_path / "state.json") as running:
        running.ask("/pause", "POST", '{"pair": "contoso"}', X_Syphon="test")
        assert json.loads((tmp_path / "state.json").read_text()) == {"paused": [{"pair": "contoso"}]}


# --- access ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", HIDDEN)
def test_where_other_machines_reach_it_everything_but_health_needs_the_token(
    protected: Served, path: str
) -> None:  # T12
    refused = protected.ask(path)
    assert (refused.status, refused.headers["www-authenticate"]) == (401, 'Basic realm="syphon", charset="UTF-8"')
    assert "syphon_" not in refused.body
    for said in ("Bearer wrong", f"Bearer {TOKEN}x", "Bearer ", f"Digest {TOKEN}", "Basic !", TOKEN):
        assert protected.ask(path, Authorization=said).status == 401
    basic = base64.b64encode(f"anyone:{TOKEN}".encode()).decode()
    for said in (f"Bearer {TOKEN}", f"bearer {TOKEN}", f"Basic {basic}"):
        assert protected.ask(path, Authorization=said).status == 200


def test_health_needs_no_token(protected: Served) -> None:
    assert [protected.ask(path).status for path in ("/healthz", "/readyz")] == [200, 503]  # without a worker, too


def test_where_other_machines_reach_it_and_no_token_is_set_only_health_answers(local: Served) -> None:
    with served("0.0.0.0:0") as running:
        for path in HIDDEN:
            answer = running.ask(path)
            assert answer.status == 403
            assert "Set status.token" in answer.body
        assert running.ask("/pause", "POST", "{}", X_Syphon="test").status == 403
        assert running.ask("/healthz").status == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "", "10.0.0.1"])
def test_a_foreign_host_name_that_resolves_to_this_server_is_refused(local: Served, host: str) -> None:
    for path in HIDDEN:
        assert local.ask(path, host=host or " ").status == 403
    assert local.ask("/pause", "POST", "{}", host=host or " ", X_Syphon="test").status == 403
    assert local.pauses.all() == []


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:8080", "LOCALHOST"])
def test_names_of_this_machine_are_accepted(local: Served, host: str) -> None:
    assert local.ask("/status", host=host).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},  # what a form or a simple fetch of another site can send
        {"Origin": "https://evil.example", "X_Syphon": "test"},
        {"Origin": "null", "X_Syphon": "test"},
        {"Origin": "http://127.0.0.1:1", "X_Syphon": "test"},
        {"Content_Type": "text/plain"},
    ],
)
def test_a_page_of_another_site_changes_nothing(
    local: Served, protected: Served, headers: dict[str, str]
) -> None:  # T12
    for each in (local, protected):
        # a browser adds the token by itself once its user has entered it
        answer = each.ask("/pause", "POST", '{"pair": "contoso"}', Authorization=f"Bearer {TOKEN}", **headers)
        assert answer.status == 403
        assert each.pauses.all() == []


def test_a_change_from_its_own_page_is_accepted(local: Served) -> None:
    answer = local.ask("/pause", "POST", '{"pair": "contoso"}', Origin=f"http://127.0.0.1:{local.port}", X_Syphon="p")
    assert answer.status == 200
    assert local.pauses.all() == [Pause(pair="contoso")]


# --- malformed requests ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/status"), ("PUT", "/pause"), ("DELETE", "/"), ("OPTIONS", "/pause"), ("TRACE", "/"), ("GET", "/pause")],
)
def test_a_wrong_method_is_refused(local: Served, method: str, path: str) -> None:
    answer = local.ask(path, method, X_Syphon="test")
    assert answer.status == 405
    assert answer.headers["allow"]


@pytest.mark.parametrize(
    "path",
    [
        "/../status",
        "/%2e%2e/etc/passwd",
        "//status",
        "/status/",
        "/status%00",
        "/page.html",
        "/%2fstatus",
        "/STATUS",
        "/healthz/../status",
        "/..;/metrics",
        "http://evil.example/status/x",
    ],
)
def test_tricks_with_paths_reach_nothing(local: Served, path: str) -> None:
    assert local.ask(path).status in (400, 404)


@pytest.mark.parametrize("path", ["/healthz/../status", "/healthz%2f..%2fstatus", "//healthz", "/healthz;/status"])
def test_a_path_that_begins_like_health_opens_nothing(protected: Served, path: str) -> None:
    assert protected.ask(path).status in (400, 401, 404)


@pytest.mark.parametrize(
    "text",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /status HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
        b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"POST /pause HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Syphon: t\r\nContent-Length: nan\r\n\r\n",
        b"POST /pause HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Syphon: t\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    ],
)
def test_malformed_bytes_are_refused_and_the_next_request_is_answered(
    local: Served, text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        assert answer_of(local.say(text)).status == 400
    assert caplog.text == ""  # a client cannot fill the log
    assert local.ask("/status").status == 200


def test_two_hundred_large_headers_do_no_harm(local: Served) -> None:
    headers = "".join(f"X-{number}: {'y' * 3000}\r\n" for number in range(200))
    heard = local.say(f"GET /status HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n".encode())
    assert not heard or answer_of(heard).status in (200, 400)
    assert local.ask("/status").status == 200


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"GET /status HTT",
        b"GET /status HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ",
        b"POST /pause HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Syphon: t\r\nContent-Length: 10\r\n\r\n{",
    ],
)
def test_the_server_closes_the_connection_of_a_slow_client(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_connections, "CONNECTION_LIFE", 0.3)
    with served() as running, running.connect() as connection:
        connection.sendall(text)
        heard = rest_of(connection)  # ends when the server hangs up, or fails after 30 s
        assert b"200 OK" not in heard


def test_a_connection_without_a_request_ends_sooner_than_one_with(monkeypatch: pytest.MonkeyPatch) -> None:  # T5
    monkeypatch.setattr(bounded_connections, "REQUEST_WITHIN", 0.3)
    monkeypatch.setattr(bounded_connections, "CONNECTION_LIFE", 3600.0)
    head = b"POST /pause HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Syphon: t\r\nContent-Length: 2\r\n\r\n"
    with served() as running:

        def is_served() -> bool:
            with running.connect() as slow, running.connect() as silent:
                slow.sendall(head)
                silent.sendall(b"GET /healthz HTT")
                assert rest_of(silent) == b""
                with suppress(ConnectionError):  # on a busy machine the head itself may come too late
                    slow.sendall(b"{}")
                return b" 200 OK" in rest_of(slow)

        eventually(is_served, what="a body may come later than the head must")


def test_the_oldest_connection_makes_room_and_a_probe_is_always_answered(  # T5
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for timer in ("CONNECTION_LIFE", "REQUEST_WITHIN"):
        monkeypatch.setattr(bounded_connections, timer, 3600.0)  # no connection ends for another reason
    with served() as running, ExitStack() as stack:
        silent = []
        for number in range(300):
            silent.append(stack.enter_context(running.connect()))
            if number % 12 == 0:
                assert running.ask("/healthz").status == 200

        def ended() -> list[socket.socket]:  # without a request, only its end makes a connection readable
            return select.select(silent, [], [], 0)[0]

        assert eventually(lambda: len(ended()) >= 300 - bounded_connections.MOST_OF_A_PEER)
        assert ended() == silent[: len(ended())], "the oldest ones"


def test_probes_are_answered_while_others_open_connections_as_fast_as_they_can() -> None:  # T5
    over = threading.Event()
    opened: list[socket.socket] = []
    with served() as running, ExitStack() as stack:

        def flood() -> None:
            while not over.is_set():
                opened.append(stack.enter_context(running.connect()))
                if len(opened) > 300:
                    opened[-300].close()

        floods = [threading.Thread(target=flood) for _ in range(3)]
        for thread in floods:
            thread.start()
        eventually(lambda: len(opened) > 200)
        answers = [running.ask("/healthz").status for _ in range(25)]
        over.set()
        for thread in floods:
            thread.join()
    assert answers == [200] * 25


def test_one_address_leaves_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:  # T5
    monkeypatch.setattr(bounded_connections, "REQUEST_WITHIN", 3600.0)
    with served("0.0.0.0:0", TOKEN) as running, ExitStack() as stack:
        other = stack.enter_context(
            socket.create_connection(("127.0.0.1", running.port), timeout=30, source_address=("127.0.0.9", 0))
        )
        for _ in range(200):
            stack.enter_context(running.connect())
        assert running.ask("/healthz").status == 200
        other.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"ok" in rest_of(other), "the oldest of all, but the only one of its address"


def test_no_answer_names_software_or_versions(local: Served) -> None:
    answers = [
        local.say(text) for text in (b"GET /healthz HTTP/1.1\r\n\r\n", b"nonsense\r\n\r\n", b"GET /x HTTP/1.1\r\n\r\n")
    ]
    assert all(b"\r\nServer: syphon\r\n" in answer for answer in answers)
    assert not [answer for answer in answers if re.search(rb"aiohttp|python", answer, re.IGNORECASE)]


def test_a_port_that_is_taken_is_a_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(PortTaken, match=rf"cannot listen on 127\.0\.0\.1:{port}: .*Set status\.listen"),
            served(f"127.0.0.1:{port}"),
        ):
            pass


def test_the_token_is_in_no_text_that_the_server_gives(protected: Served) -> None:
    seen = [protected.ask(path, Authorization=f"Bearer {TOKEN}") for path in (*HIDDEN, "/healthz", "/readyz", "/no")]
    assert not [answer for answer in seen if TOKEN in answer.body or TOKEN in str(answer.headers)]
