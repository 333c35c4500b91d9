"""Somebody who hears and changes all that a slot and the driver say learns no secret, and forges nothing (D7)."""

from __future__ import annotations

import itertools
import select
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from syphon import bounded_connections
from syphon.control.control_server import ControlServer
from syphon.control.protocol import ControlAddress, HandOver, Purpose, SlotReport, fits, is_made_with, signature
from syphon.control.reporter import DriverUnreachable, HttpControlClient, Reporter
from tests.support.waiting import eventually

Change = Callable[[bytes], bytes]


def as_it_is(content: bytes) -> bytes:
    return content


class Listener:
    """Stands between a slot and the driver: keeps what it hears, and may change answers."""

    def __init__(self, driver: ControlAddress) -> None:
        self.driver = driver
        self.reports: list[bytes] = []
        self.orders: list[bytes] = []
        self.change: Change = as_it_is

    def ask(self, request: bytes) -> bytes:
        """Sends bytes to the driver as they are, and returns its answer."""
        with socket.create_connection((self.driver.host, self.driver.port), 30) as line:
            line.sendall(request)
            return message_from(line)

    def serve(self, line: socket.socket) -> None:
        while request := message_from(line):
            self.reports.append(request)
            self.orders.append(self.ask(request))
            line.sendall(self.change(self.orders[-1]))


def message_from(line: socket.socket) -> bytes:
    """One HTTP message with its body."""
    stream = line.makefile("rb")
    head = b""
    while (text := stream.readline()) not in (b"\r\n", b""):
        head += text
    length = next((int(text.split(b":")[1]) for text in head.splitlines() if text.lower().startswith(b"content-l")), 0)
    return head + b"\r\n" + stream.read(length) if head else b""


@contextmanager
def between(driver: ControlAddress) -> Iterator[tuple[Listener, ControlAddress]]:
    """A listener, and the address at which slots take it for the driver."""
    listener = Listener(driver)

    class Line(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            listener.serve(self.request)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Line) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield listener, driver._replace(port=server.server_address[1])
        server.shutdown()


@pytest.fixture
def driver() -> Iterator[ControlServer]:
    with ControlServer() as server:
        server.open_job("j", (HandOver(queue="q"),))
        yield server


def reporter(address: ControlAddress) -> Reporter:
    report = SlotReport(pair="contoso", job="j", slot=0, attempt=0, started_at=0)
    return Reporter(HttpControlClient(address), lambda: report, lambda: None)


def test_the_secret_is_never_sent(driver: ControlServer) -> None:  # T4
    with between(driver.address) as (listener, address):
        slot = reporter(address)
        slot.start()
        slot.end()
        assert slot.order.queues == (HandOver(queue="q"),), "both are heard through the listener"
        assert len(listener.reports) >= 2
        for heard in (*listener.reports, *listener.orders):
            assert driver.address.secret.encode() not in heard


def test_a_report_that_is_sent_again_changes_nothing(driver: ControlServer) -> None:  # T4
    with between(driver.address) as (listener, address):
        slot = reporter(address)
        slot.start()
        slot.end()
        before = driver.live_reports()
        for request in listener.reports:
            assert b" 409 " in listener.ask(request).splitlines()[0]
        assert driver.live_reports() == before


def test_a_report_that_is_changed_is_refused(driver: ControlServer) -> None:  # T4
    with between(driver.address) as (listener, address):
        slot = reporter(address)
        slot.start()
        slot.end()
        forged = listener.reports[0].replace(b'"attempt":0', b'"attempt":7')
        assert forged != listener.reports[0]
        assert b" 401 " in listener.ask(forged).splitlines()[0]
        assert [found.attempt for found in driver.live_reports()] == [0]


@pytest.mark.parametrize(
    "change",
    [
        lambda answer: answer.replace(b'"stop":false', b'"stop":true '),
        lambda answer: b"\r\n".join(part for part in answer.split(b"\r\n") if not part.startswith(b"X-Syphon")),
    ],
)
def test_an_order_that_is_changed_is_not_obeyed(driver: ControlServer, change: Change) -> None:  # T4
    with between(driver.address) as (listener, address):
        listener.change = change
        with pytest.raises(DriverUnreachable, match="not signed by the driver"):
            reporter(address).start()


def test_an_order_that_answered_another_report_is_not_obeyed(driver: ControlServer) -> None:  # T4
    with between(driver.address) as (listener, address):
        first = reporter(address)
        first.start()
        first.end()
        listener.change = lambda _: listener.orders[0]
        report = SlotReport(pair="contoso", job="j", slot=1, attempt=0, started_at=0)
        with pytest.raises(DriverUnreachable, match="not signed by the driver"):
            Reporter(HttpControlClient(address), lambda: report, lambda: None).start()


def test_a_stranger_is_refused_before_the_message_is_read(driver: ControlServer) -> None:  # T4
    with socket.create_connection((driver.address.host, driver.address.port), 30) as line:
        line.sendall(b"POST /report HTTP/1.1\r\nHost: x\r\nContent-Length: 16000000\r\n\r\n")
        assert b" 401 " in line.makefile("rb").readline()


def test_strangers_cannot_keep_connections_and_slots_get_through(
    driver: ControlServer, monkeypatch: pytest.MonkeyPatch
) -> None:  # T4
    for timer in ("CONNECTION_LIFE", "REQUEST_WITHIN"):
        monkeypatch.setattr(bounded_connections, timer, 3600.0)  # no connection ends for another reason
    working = HttpControlClient(driver.address)
    numbers = itertools.count(1)

    def posts(client: HttpControlClient) -> bool:
        report = SlotReport(pair="contoso", job="j", slot=0, attempt=0, started_at=0, number=next(numbers))
        return client.post(report).queues == (HandOver(queue="q"),)

    assert posts(working)
    with ExitStack() as stack:
        stack.callback(working.close)
        silent = []
        for number in range(300):
            silent.append(stack.enter_context(socket.create_connection((driver.address.host, driver.address.port), 30)))
            if number % 25 == 0:
                assert posts(working), "the connection of a slot stays"
                newcomer = HttpControlClient(driver.address)
                stack.callback(newcomer.close)
                assert posts(newcomer)

        def ended() -> int:
            return len(select.select(silent, [], [], 0)[0])

        assert eventually(lambda: ended() >= 300 - bounded_connections.MOST_OF_A_PEER)


def test_a_stranger_who_says_nothing_or_has_no_secret_is_cut_off(
    driver: ControlServer, monkeypatch: pytest.MonkeyPatch
) -> None:  # T4
    monkeypatch.setattr(bounded_connections, "REQUEST_WITHIN", 0.3)
    monkeypatch.setattr(bounded_connections, "CONNECTION_LIFE", 0.6)
    for text in (b"", b"POST /rep", b"POST /report HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"):
        with (
            socket.create_connection((driver.address.host, driver.address.port), 30) as line,
            suppress(ConnectionError),
        ):
            line.sendall(text)
            heard = b""
            while part := line.recv(65536):  # ends when the server hangs up, or fails after 30 s
                heard += part
            assert b" 200 " not in heard
            assert b"aiohttp" not in heard


def test_a_signature_belongs_to_one_secret_one_purpose_one_content_and_one_question() -> None:  # T4
    signed = signature("secret", Purpose.ORDER, b"content", answers="question")
    assert is_made_with("secret", Purpose.ORDER, signed, answers="question")
    assert fits(signed, b"content")
    assert not fits(signed, b"another")
    assert not is_made_with("another", Purpose.ORDER, signed, answers="question")
    assert not is_made_with("secret", Purpose.REPORT, signed, answers="question")
    assert not is_made_with("secret", Purpose.ORDER, signed, answers="another")
    assert not is_made_with("secret", Purpose.ORDER, "", answers="question")
