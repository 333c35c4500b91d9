"""Ways to a namespace: AMQP or WebSockets, directly or through an HTTP proxy; and what is said if a way is closed."""

from __future__ import annotations

import gc
import importlib.util
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient as AioClient
from pydantic import SecretStr

from syphon.backlog.queues import DOCUMENTED
from syphon.config import ArmSettings, ProxySettings, SideSettings, Transport, Via
from syphon.emulator import BackgroundEmulator, EmulatorSettings, NamespaceSettings, Outage, QueueDescription
from syphon.emulator.broker.access import Grant
from syphon.emulator.tls import server_tls
from syphon.model.errors import DestinationUnreachable, NamespaceGone, NotAuthorized
from syphon.servicebus import NamespaceStatus, factory
from syphon.servicebus.connection import Connection
from syphon.servicebus.factory import administration_of, client_of, connected, namespace_of
from syphon.servicebus.proxy_settings import HttpProxy
from syphon.servicebus.queue_peek import peek
from syphon.servicebus.sdk_clients import connection_details
from syphon.servicebus.sdk_sockets import WebSocketsNotInstalled
from syphon.yaml_settings import RenewableSecret
from tests.support.administrations import SUBSCRIPTION, Token
from tests.support.connect_proxy import ConnectProxy, proxy_to
from tests.support.waiting import eventually

USERNAME, PASSWORD = "alice", "p@ss:w/rd"
AZURE = "contoso.servicebus.windows.net"


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundEmulator]:
    state = tmp_path_factory.mktemp("state")
    settings = EmulatorSettings(
        namespaces=[NamespaceSettings(name="contoso", accept_any_jwt=True)], state=state, tls=True
    )
    with BackgroundEmulator(settings) as emulator:
        emulator.call(lambda: emulator["contoso"].namespace.create_queue(QueueDescription("orders")))
        string = emulator["contoso"].connection_string
        with ServiceBusClient.from_connection_string(string) as client, client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("x" * 100_000))
        yield emulator


@pytest.fixture
def proxy(emulator: BackgroundEmulator) -> Iterator[ConnectProxy]:
    with proxy_to({"contoso": emulator["contoso"].amqp_port}, (USERNAME, PASSWORD)) as proxy:
        yield proxy


def side(emulator: BackgroundEmulator, *, tls: bool = False, **options: Any) -> SideSettings:
    string = emulator["contoso"].connection_string
    text = string.replace("UseDevelopmentEmulator=true;", "") if tls else string
    return SideSettings(
        connection_string=SecretStr(text), transport=Transport.WEBSOCKETS, ca_file=emulator.ca_file, **options
    )


def as_on_azure(
    emulator: BackgroundEmulator, proxy: ConnectProxy, username: str | None = USERNAME, password: str = PASSWORD
) -> SideSettings:
    """Port 443 of the namespace's host, which only the proxy can find."""
    contoso = emulator["contoso"]
    string = contoso.connection_string.replace("UseDevelopmentEmulator=true;", "")
    return SideSettings(
        connection_string=SecretStr(string.replace(f"127.0.0.1:{contoso.amqp_port}", AZURE)),
        ca_file=emulator.ca_file,
        transport=Transport.WEBSOCKETS,
        proxy=ProxySettings(
            url=SecretStr(proxy.url),
            username=username,
            password=SecretStr(password) if username is not None else None,
        ),
    )


def messages(settings: SideSettings) -> int:
    with connected(settings, "orders") as connection:
        assert connection.wire._websocket is not None
        return len(list(peek(connection, "orders")))


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_namespace_is_reached_by_websockets(emulator: BackgroundEmulator, tls: bool) -> None:
    assert messages(side(emulator, tls=tls)) == 1


def test_a_namespace_is_reached_through_a_proxy(emulator: BackgroundEmulator, proxy: ConnectProxy) -> None:  # X5
    assert messages(as_on_azure(emulator, proxy)) == 1
    assert proxy.requests == [f"{AZURE}:443"]


def test_an_emulator_without_a_port_is_looked_for_at_its_own_port() -> None:
    string = "Endpoint=sb://127.0.0.1;SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true"
    settings = SideSettings(connection_string=SecretStr(string), transport=Transport.WEBSOCKETS)
    with client_of(settings) as client:
        assert connection_details(client).endpoint == "sb://127.0.0.1:5672"


# --- the administration ----------------------------------------------------------------------------------------------


def test_the_administration_goes_through_the_proxy(emulator: BackgroundEmulator, proxy: ConnectProxy) -> None:
    with closing(administration_of(as_on_azure(emulator, proxy), Via.ADMIN, "contoso")) as administration:
        administration.create_queue("made", DOCUMENTED)
        assert administration.get_queue("made") is not None
    assert set(proxy.requests) == {f"{AZURE}:443"}


def test_resource_manager_is_reached_through_the_proxy(emulator: BackgroundEmulator, proxy: ConnectProxy) -> None:
    settings = as_on_azure(emulator, proxy).model_copy(
        update={"arm": ArmSettings(subscription_id=SUBSCRIPTION, resource_group="rg", endpoint=f"https://{AZURE}")}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(factory, "credential_of", lambda _: Token())
        administration = administration_of(settings, Via.ARM, "contoso")
    with closing(administration):
        assert administration.get_queue("orders") is not None
    assert set(proxy.requests) == {f"{AZURE}:443"}


def test_the_administration_says_that_the_proxy_refuses_it_and_keeps_the_secret(
    emulator: BackgroundEmulator, proxy: ConnectProxy
) -> None:
    settings = as_on_azure(emulator, proxy, "alice", "wr0ng:secret")
    with closing(administration_of(settings, Via.ADMIN, "contoso")) as administration:
        with pytest.raises(NotAuthorized, match=r"the proxy refused our credentials \(407\)\. Check the") as refused:
            administration.get_queue("orders")
        for text in (str(refused.value), repr(administration), repr(settings)):
            assert "wr0ng" not in text
    assert proxy.refusals == [f"{AZURE}:443"]


# --- a way that is closed --------------------------------------------------------------------------------------------


@contextmanager
def no_socket_left() -> Iterator[None]:
    gc.collect()  # objects of earlier tests must not count
    yield
    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        gc.collect()
    assert [str(complaint.message) for complaint in complaints] == []


@pytest.mark.parametrize("username", ["alice", None])
def test_a_proxy_that_refuses_our_credentials_is_a_fault_that_keeps_the_secret(
    emulator: BackgroundEmulator, proxy: ConnectProxy, username: str | None
) -> None:
    settings = as_on_azure(emulator, proxy, username, "wr0ng:secret")
    expected = rf"{AZURE}: the proxy 127.0.0.1:{proxy.port} refused our credentials \(407\)\. Check"
    with no_socket_left(), client_of(settings) as client, pytest.raises(NotAuthorized, match=expected) as refused:
        Connection(client, "orders")
    for text in (str(refused.value), repr(refused.value), repr(connection_details(client)), repr(settings)):
        assert "wr0ng" not in text


def test_a_proxy_that_opens_no_tunnel_is_an_outage(emulator: BackgroundEmulator) -> None:  # C3
    with proxy_to({}, (USERNAME, PASSWORD)) as proxy, no_socket_left():
        expected = rf"the proxy 127\.0\.0\.1:{proxy.port} opened no tunnel: .*502"
        with client_of(as_on_azure(emulator, proxy)) as client, pytest.raises(DestinationUnreachable, match=expected):
            Connection(client, "orders")


def test_a_proxy_that_is_down_is_an_outage(emulator: BackgroundEmulator) -> None:  # C3
    with proxy_to({}) as proxy:
        pass
    expected = rf"\(through the proxy 127\.0\.0\.1:{proxy.port}\): .*refused"
    with client_of(as_on_azure(emulator, proxy)) as client, pytest.raises(DestinationUnreachable, match=expected):
        Connection(client, "orders")


def resolver_without(name: str) -> Any:
    find = socket.getaddrinfo

    def look_up(host: Any, *arguments: Any, **options: Any) -> Any:
        if host == name:
            raise socket.gaierror(-2, "Name or service not known")
        return find(host, *arguments, **options)

    return look_up


def test_a_proxy_whose_name_is_not_known_says_nothing_of_the_namespace(
    emulator: BackgroundEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:  # C3
    monkeypatch.setattr(socket, "getaddrinfo", resolver_without("proxy.example"))
    with proxy_to({}) as proxy:
        settings = as_on_azure(emulator, proxy)
        away = settings.model_copy(update={"proxy": ProxySettings(url=SecretStr("http://proxy.example:3128"))})
        expected = r"the host of the proxy proxy\.example:3128 is not known"
        with client_of(away) as client, pytest.raises(DestinationUnreachable, match=expected):
            Connection(client, "orders")


def test_a_host_whose_name_is_not_known_is_a_namespace_that_does_not_exist(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # C3
    monkeypatch.setattr(socket, "getaddrinfo", resolver_without(AZURE))
    string = f"Endpoint=sb://{AZURE};SharedAccessKeyName=n;SharedAccessKey=k"
    settings = SideSettings(connection_string=SecretStr(string), transport=Transport.WEBSOCKETS)
    with client_of(settings) as client, pytest.raises(NamespaceGone, match="no such host"):
        Connection(client, "orders")


@pytest.mark.parametrize("outage", [Outage.DROP, Outage.REFUSE])
def test_an_outage_is_an_outage_and_leaves_no_socket_behind(outage: Outage) -> None:  # C3
    with BackgroundEmulator(EmulatorSettings(namespaces=[NamespaceSettings(name="contoso")])) as emulator:
        emulator.call(lambda: emulator["contoso"].namespace.faults.begin_outage(outage))
        with no_socket_left(), client_of(side(emulator)) as client, pytest.raises(DestinationUnreachable):
            Connection(client, "orders")


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_silent_peer_is_given_up_in_time(tls: bool) -> None:  # C3, D16
    with socket.create_server(("127.0.0.1", 0)) as listener, no_socket_left():
        string = f"Endpoint=sb://127.0.0.1:{listener.getsockname()[1]};SharedAccessKeyName=n;SharedAccessKey=k"
        text = string if tls else f"{string};UseDevelopmentEmulator=true"
        settings = SideSettings(connection_string=SecretStr(text), transport=Transport.WEBSOCKETS)
        with client_of(settings) as client, pytest.raises(DestinationUnreachable, match=r"no answer within 0\.3 s"):
            Connection(client, "orders", timeout=600, handshake_within=0.3)


def test_a_peer_that_is_silent_after_the_upgrade_is_given_up_in_time() -> None:  # C3
    """The namespace hangs in the middle of an opening."""
    with BackgroundEmulator(EmulatorSettings(namespaces=[NamespaceSettings(name="contoso")])) as emulator:
        running = emulator["contoso"]
        hung = threading.Event()

        def hang(token: str, address: str) -> Grant:
            running.namespace.faults.begin_outage(Outage.HANG)
            hung.set()
            raise AssertionError("not reached by the peer")

        running.namespace.access.token = hang  # type: ignore[method-assign]
        with client_of(side(emulator)) as client, pytest.raises(DestinationUnreachable, match="no answer within 2 s"):
            Connection(client, "orders", timeout=2.0)
        assert hung.is_set()


def test_a_peer_that_sends_its_answer_byte_by_byte_is_given_up_in_time(tmp_path: Path) -> None:  # C3
    certificates = server_tls(tmp_path, ["127.0.0.1"])
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener, no_socket_left():

        def answer() -> None:
            with (
                listener.accept()[0] as plain,
                certificates.context.wrap_socket(plain, server_side=True) as one,
                suppress(OSError),
            ):
                one.sendall(b"HTTP/1.1 101 Switching Protocols\r\nX: ")
                while not over.wait(0.05):
                    one.sendall(b"x")

        answering = threading.Thread(target=answer)
        answering.start()
        string = f"Endpoint=sb://127.0.0.1:{listener.getsockname()[1]};SharedAccessKeyName=n;SharedAccessKey=k"
        settings = SideSettings(
            connection_string=SecretStr(string), transport=Transport.WEBSOCKETS, ca_file=certificates.ca_file
        )
        try:
            with client_of(settings) as client, pytest.raises(DestinationUnreachable, match="no answer within 2 s"):
                Connection(client, "orders", timeout=2.0)
        finally:
            over.set()
            answering.join()


def test_a_server_without_websockets_is_named_with_its_status() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, no_socket_left():

        def answer() -> None:
            with listener.accept()[0] as one:
                one.recv(10_000)
                one.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                one.recv(1)

        answering = threading.Thread(target=answer)
        answering.start()
        string = f"Endpoint=sb://127.0.0.1:{listener.getsockname()[1]};SharedAccessKeyName=n;SharedAccessKey=k"
        text = SecretStr(f"{string};UseDevelopmentEmulator=true")
        settings = SideSettings(connection_string=text, transport=Transport.WEBSOCKETS)
        expected = "the WebSocket was refused with HTTP status 404$"
        with client_of(settings) as client, pytest.raises(DestinationUnreachable, match=expected):
            Connection(client, "orders")
        answering.join()


def test_a_certificate_is_verified(emulator: BackgroundEmulator) -> None:
    settings = side(emulator, tls=True).model_copy(update={"ca_file": None})
    with client_of(settings) as client, pytest.raises(DestinationUnreachable, match="certificate verify failed"):
        Connection(client, "orders")


def test_a_cut_tunnel_is_a_lost_connection_and_the_next_one_opens(
    emulator: BackgroundEmulator, proxy: ConnectProxy
) -> None:
    with closing(namespace_of(as_on_azure(emulator, proxy), "orders", notices_return=True)) as namespace:
        first = eventually(namespace.connection, what="a connection")
        proxy.cut()

        def next_one() -> Connection | None:
            first.read()
            second = namespace.connection()
            return second if second is not first else None

        assert eventually(next_one, what="another connection").wire.failure is None
        assert first.wire.failure is not None
        assert namespace.status is NamespaceStatus.OPENED


def test_a_password_of_the_proxy_that_was_rotated_is_read_again(
    emulator: BackgroundEmulator, proxy: ConnectProxy, tmp_path: Path
) -> None:  # T10
    (tmp_path / "password").write_text(PASSWORD)
    settings = as_on_azure(emulator, proxy)
    vars(settings.proxy)["password"] = RenewableSecret(PASSWORD, "${file:password}", tmp_path)
    with closing(namespace_of(settings, "orders", notices_return=True)) as namespace:
        first = eventually(namespace.connection, what="a connection")
        (tmp_path / "password").write_text("an0ther:secret")
        proxy.require(USERNAME, "an0ther:secret")
        try:
            proxy.cut()

            def next_one() -> Connection | None:
                first.read()
                second = namespace.connection()
                return second if second is not first else None

            assert eventually(next_one, what="another connection").wire.failure is None
        finally:
            proxy.require(USERNAME, PASSWORD)
        assert namespace.status is NamespaceStatus.OPENED


# --- packages and details --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("package", ["websocket", "wsproto"])
def test_a_missing_package_is_an_error_that_names_the_extra(
    emulator: BackgroundEmulator, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    settings, details = side(emulator), emulator["contoso"].connection_string
    theirs = ServiceBusClient.from_connection_string(details, transport_type=TransportType.AmqpOverWebsocket)
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else find(name))
    with pytest.raises(WebSocketsNotInstalled, match=r"pip install 'syphon-servicebus\[websockets\]'"):
        client_of(settings)
    with theirs, pytest.raises(WebSocketsNotInstalled, match=r"pip install 'syphon-servicebus\[websockets\]'"):
        Connection(theirs, "orders")


@pytest.mark.parametrize("client_type", [ServiceBusClient, AioClient])
async def test_the_transport_and_proxy_of_a_client_are_kept(client_type: Any) -> None:
    scheme = "http://" if client_type is AioClient else ""
    client = client_type.from_connection_string(
        f"Endpoint=sb://{AZURE};SharedAccessKeyName=n;SharedAccessKey=k",
        transport_type=TransportType.AmqpOverWebsocket,
        http_proxy={"proxy_hostname": f"{scheme}proxy", "proxy_port": 3128, "username": "alice", "password": PASSWORD},
        custom_endpoint_address="sb://front:8443",
        connection_verify="ca.pem",
    )
    details = connection_details(client)
    again = connection_details(
        ServiceBusClient.from_connection_string(details.connection_string() or "", **details.options())
    )
    assert again.options() == {
        "connection_verify": "ca.pem",
        "transport_type": TransportType.AmqpOverWebsocket,
        "http_proxy": {"proxy_hostname": "proxy", "proxy_port": 3128, "username": "alice", "password": PASSWORD},
        "custom_endpoint_address": "sb://front:8443",
    }
    assert PASSWORD not in repr(details)


def test_credentials_of_a_proxy_are_quoted_in_its_address() -> None:
    proxy = HttpProxy("fe80::1", 3128, "a:b@c", "d/e?f")
    assert proxy.for_requests() == {"https": "http://a%3Ab%40c:d%2Fe%3Ff@[fe80::1]:3128"}
    assert str(proxy) == "[fe80::1]:3128"
    assert repr(proxy) == "HttpProxy(host='fe80::1', port=3128)"
