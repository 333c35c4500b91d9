"""The private names that we use of the SDK: a mismatch is an error that names it."""

from __future__ import annotations

import ast
import gc
import re
import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.exceptions import (
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
)
from pydantic import SecretStr

from syphon.config import SideSettings as Settings
from syphon.emulator import BackgroundEmulator, EmulatorSettings, NamespaceSettings, Outage, QueueDescription
from syphon.emulator.broker.access import Grant
from syphon.emulator.broker.refusals import Unauthorized
from syphon.model.errors import DestinationMissing, DestinationUnreachable, NamespaceGone, NotAuthorized
from syphon.servicebus import (
    condition_of,
    sdk_private_names,
    sdk_sockets,
)
from syphon.servicebus import (
    sdk_sockets as opening_limits,
)
from syphon.servicebus.connection import Connection
from syphon.servicebus.factory import client_of
from tests.support.amqp_peer import sas

STRING = "Endpoint=sb://contoso.servicebus.windows.net;SharedAccessKeyName=n;SharedAccessKey=a-key;"


def test_the_installed_sdk_has_all_private_names_in_use() -> None:
    sdk_private_names.check_contract()


@pytest.mark.parametrize("version", ["7.14.2", "7.16.0", "8.0.0"])
def test_another_version_of_the_sdk_is_refused_by_name(version: str) -> None:
    with pytest.raises(sdk_private_names.SdkMismatch, match=rf"version is {version}.*azure-servicebus==7\.15"):
        sdk_private_names.check_contract(version)


@pytest.mark.parametrize(
    ("place", "name"), [(place, name) for place, names in sdk_private_names.CONTRACT.items() for name in names]
)
def test_a_private_name_that_has_gone_is_named(monkeypatch: pytest.MonkeyPatch, place: str, name: str) -> None:
    module, _, owner = place.partition(":")
    others = {other: None for other in sdk_private_names.CONTRACT[place] if other != name}
    monkeypatch.setattr(f"{module}.{owner}", type(owner, (), others))
    with pytest.raises(sdk_private_names.SdkMismatch) as broken:
        sdk_private_names.check_contract()
    assert str(broken.value).startswith(f"azure-servicebus does not fit: {place}.{name} does not exist. Install ")


def test_instance_attributes_are_checked_as_well() -> None:
    class Before:
        def __init__(self) -> None:
            self._handler = None

    class After:
        def __init__(self) -> None:
            self._connection = None

    assert sdk_private_names._has(Before, "_handler")
    assert not sdk_private_names._has(After, "_handler")


def test_every_private_name_that_is_used_is_in_the_contract() -> None:
    """Our own private names begin with `self.`; all others with an underscore are the SDK's."""
    used: dict[str, str] = {}
    for folder in ("servicebus", "backlog", "transfer", "sender"):
        for file in (Path(sdk_private_names.__file__).parents[1] / folder).glob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Attribute) and ast.unparse(node.value) not in ("self", "cls", "super()"):
                    used[node.attr] = file.name
                elif isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr":
                    used[ast.unparse(node.args[1]).strip("'")] = file.name
    private = {name: file for name, file in used.items() if re.fullmatch("_[a-z]\\w*", name)}
    known = {name for names in sdk_private_names.CONTRACT.values() for name in names}
    assert private.keys() - known - NAMED_TUPLES == set()
    places = {file for name, file in private.items() if name not in NAMED_TUPLES}
    assert places <= {"sdk_sockets.py", "sdk_clients.py", "connection.py"}, "one place knows the SDK's private side"
    assert {name for name in known if name.startswith("_")} <= private.keys(), "no name is checked that is not used"


NAMED_TUPLES = {"_replace", "_asdict", "_fields"}


def test_a_module_that_has_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sdk_private_names.CONTRACT, "azure.servicebus._no_such_module:Thing", ("x",))
    with pytest.raises(sdk_private_names.SdkMismatch, match="_no_such_module:Thing does not exist"):
        sdk_private_names.check_contract()


@pytest.mark.parametrize("text", ["Name or service not known", "nodename nor servname provided, or not known"])
def test_a_name_that_does_not_exist_is_a_namespace_that_does_not_exist(text: str) -> None:  # C3
    found = sdk_sockets.explain(ServiceBusConnectionError(message=f"[Errno -2] {text}"), "contoso.example", "orders")
    assert isinstance(found, NamespaceGone)
    assert "contoso.example" in str(found)


@pytest.mark.parametrize("text", ["[Errno -3] Temporary failure in name resolution", "[Errno 111] Connection refused"])
def test_an_unavailable_name_service_or_a_closed_port_is_an_outage(text: str) -> None:  # C3
    found = sdk_sockets.explain(ServiceBusConnectionError(message=text), "contoso.example", "orders")
    assert isinstance(found, DestinationUnreachable)
    assert str(found).endswith(f": {text.partition('] ')[2]}")
    assert "Errno" not in str(found)


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), NamespaceGone),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), DestinationUnreachable),
    ],
)
def test_the_text_of_the_resolver_comes_through_the_sdk(  # C3
    monkeypatch: pytest.MonkeyPatch, failure: OSError, kind: type[Exception]
) -> None:
    def resolve(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(socket, "getaddrinfo", resolve)  # the only service outside this machine that a test replaces
    with ServiceBusClient.from_connection_string(STRING, retry_total=0) as client, pytest.raises(kind, match="contoso"):
        Connection(client, "orders", timeout=5)


def test_only_the_first_line_of_an_sdk_error_is_reported() -> None:  # the others contain the request
    error = ServiceBusConnectionError(message="It broke.\nAuthorization: a-key")
    found = sdk_sockets.explain(error, "contoso.example", "orders")
    assert "It broke." in str(found)
    assert "a-key" not in str(found)


def test_a_client_is_not_even_made_with_another_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk_private_names, "SUPPORTED", "7.99.")
    with pytest.raises(sdk_private_names.SdkMismatch, match=r"7\.99\.\* is needed"):
        client_of(Settings(connection_string=SecretStr(STRING)))


def test_a_refused_token_is_not_an_outage() -> None:  # C3
    class Refused(Exception):
        status_code = 401

    for error in (Refused("CBS Token authentication failed."), ServiceBusAuthorizationError(message="no")):
        assert isinstance(sdk_sockets.explain(error, "contoso.example", "orders"), NotAuthorized)


def test_a_connection_that_breaks_while_it_is_opened_leaves_no_socket_behind() -> None:
    with BackgroundEmulator(EmulatorSettings(namespaces=[NamespaceSettings(name="contoso")])) as emulator:
        namespace = emulator["contoso"].namespace

        def cut_off(token: str, address: str) -> Grant:
            namespace.faults.begin_outage(Outage.DROP)
            raise Unauthorized("the peer has gone already")

        namespace.access.token = cut_off  # type: ignore[method-assign]  # the last step but one
        gc.collect()  # objects of earlier tests must not count
        with pytest.raises(DestinationUnreachable):
            Connection(ServiceBusClient.from_connection_string(emulator["contoso"].connection_string), "orders")
        with warnings.catch_warnings(record=True) as complaints:
            warnings.simplefilter("always")
            gc.collect()
    assert [str(complaint.message) for complaint in complaints] == []


@pytest.fixture
def silent() -> Iterator[str]:
    """A port that accepts connections and never sends a byte, like a load balancer whose service is down."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_peer_that_accepts_the_connection_and_is_silent_is_an_outage(silent: str) -> None:  # C3
    string = f"Endpoint=sb://{silent};SharedAccessKeyName=n;SharedAccessKey=a-key;UseDevelopmentEmulator=true"
    client = ServiceBusClient.from_connection_string(string, retry_total=0)
    with client, pytest.raises(DestinationUnreachable, match=r"no answer within 0\.2 s"):
        Connection(client, "orders", timeout=0.2)


def test_the_handshake_has_a_limit_of_its_own(silent: str) -> None:  # D16
    """The whole opening may take longer: an identity service may need half a minute."""
    string = f"Endpoint=sb://{silent};SharedAccessKeyName=n;SharedAccessKey=a-key;UseDevelopmentEmulator=true"
    plain = ServiceBusClient.from_connection_string(string, retry_total=0)
    tls = ServiceBusClient.from_connection_string(
        STRING, retry_total=0, custom_endpoint_address=f"sb://{silent}", transport_type=TransportType.Amqp
    )
    for client in (plain, tls):
        with client, pytest.raises(DestinationUnreachable, match=r"no answer within 0\.3 s"):
            Connection(client, "orders", timeout=600, handshake_within=0.3)


def test_what_comes_after_the_handshake_may_take_longer() -> None:
    with BackgroundEmulator(EmulatorSettings(namespaces=[NamespaceSettings(name="contoso")])) as emulator:
        access = emulator["contoso"].namespace.access
        check = access.token

        def check_slowly(token: str, address: str) -> Grant:
            threading.Event().wait(1.0)  # much longer than the limit of the handshake
            return check(token, address)

        access.token = check_slowly  # type: ignore[method-assign]
        with ServiceBusClient.from_connection_string(emulator["contoso"].connection_string) as client:
            emulator.call(lambda: emulator["contoso"].namespace.create_queue(QueueDescription("orders")))
            Connection(client, "orders", handshake_within=0.3).close()


def test_a_connection_for_an_entity_that_does_not_exist_serves_the_others() -> None:  # F3
    """The service refuses the token with 404, and the SDK calls that a failed authentication."""
    with BackgroundEmulator(EmulatorSettings(namespaces=[NamespaceSettings(name="contoso")])) as emulator:
        string = emulator["contoso"].connection_string
        with ServiceBusClient.from_connection_string(string, retry_total=0) as client:
            Connection(client, "orders").close()
            with pytest.raises(ServiceBusAuthenticationError) as refused:
                client.get_queue_sender("orders").send_messages(ServiceBusMessage("x"))
            assert condition_of(refused.value) == "amqp:not-found"


def test_a_connection_with_a_token_for_an_entity_that_does_not_exist_says_so() -> None:  # F3
    with BackgroundEmulator(EmulatorSettings(namespaces=[NamespaceSettings(name="contoso")])) as emulator:
        port = emulator["contoso"].amqp_port
        token = sas(f"sb://127.0.0.1:{port}/orders")
        string = f"Endpoint=sb://127.0.0.1:{port};SharedAccessSignature={token};UseDevelopmentEmulator=true"
        with (
            ServiceBusClient.from_connection_string(string, retry_total=0) as client,
            pytest.raises(DestinationMissing, match="'orders': no queue or topic of that name"),
        ):
            Connection(client, "orders")


@pytest.mark.timeout(20)
def test_a_silent_peer_is_an_outage_even_if_its_name_took_too_long_to_find(  # C3
    silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timeout ends before there is a socket to shut down; the next attempt must find it."""
    cut = threading.Event()
    find = socket.getaddrinfo

    class Watchdog(opening_limits.Watchdog):
        def __init__(self, timeout: float, cut_off: Callable[[], None], *handshake: Any) -> None:
            def cut_off_and_count() -> None:
                try:
                    cut_off()
                finally:
                    cut.set()

            super().__init__(timeout, cut_off_and_count, *handshake)

    def find_late(*arguments: Any, **options: Any) -> Any:
        cut.wait()
        return find(*arguments, **options)

    monkeypatch.setattr(sdk_sockets, "Watchdog", Watchdog)
    monkeypatch.setattr(socket, "getaddrinfo", find_late)
    string = f"Endpoint=sb://{silent};SharedAccessKeyName=n;SharedAccessKey=a-key;UseDevelopmentEmulator=true"
    client = ServiceBusClient.from_connection_string(string, retry_total=0)
    with client, pytest.raises(DestinationUnreachable, match=r"no answer within 0\.2 s"):
        Connection(client, "orders", timeout=0.2)


@pytest.mark.parametrize("first", ["watchdog", "handshake"])
def test_a_peer_that_is_silent_in_the_middle_of_tls_is_an_outage(  # C3
    silent: str, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are two limits of the same length; the result is the same with each."""
    if first == "handshake":
        monkeypatch.setattr(opening_limits.Watchdog, "run", lambda watchdog: None)  # noqa: ARG005
    client = ServiceBusClient.from_connection_string(
        STRING, retry_total=0, custom_endpoint_address=f"sb://{silent}", transport_type=TransportType.Amqp
    )
    with client, pytest.raises(DestinationUnreachable, match=r"no answer within 0\.2 s"):
        Connection(client, "orders", timeout=0.2)


def test_a_certificate_is_still_verified(tmp_path: Path) -> None:
    settings = EmulatorSettings(namespaces=[NamespaceSettings(name="contoso")], tls=True, state=tmp_path)
    with BackgroundEmulator(settings) as emulator:
        port = emulator["contoso"].amqp_port
        string = emulator["contoso"].connection_string.replace("UseDevelopmentEmulator=true;", "")

        def connect(ca_file: str | None) -> None:
            client = ServiceBusClient.from_connection_string(
                string.replace(f"127.0.0.1:{port}", "localhost"),
                retry_total=0,
                connection_verify=ca_file,
                custom_endpoint_address=f"sb://localhost:{port}",
                transport_type=TransportType.Amqp,
            )
            with client:
                Connection(client, "").close()

        connect(str(tmp_path / "tls" / "ca.pem"))
        with pytest.raises(DestinationUnreachable, match="certificate verify failed"):
            connect(None)
