"""A namespace: opened in the background, opened again when it breaks, faulted only when it cannot be used any more."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from itertools import pairwise

import pytest
from azure.servicebus import ServiceBusClient
from pydantic import SecretStr

from syphon.config import Credential
from syphon.config import SideSettings as Settings
from syphon.emulator import Action, BackgroundEmulator, EmulatorSettings, Fault, NamespaceSettings, Operation, Outage
from syphon.model.errors import DestinationBusy, DestinationUnreachable, Interrupted, NotAuthorized, SyphonError
from syphon.servicebus.connection import Connection
from syphon.servicebus.factory import namespace_of
from syphon.servicebus.namespace import Namespace, NamespaceClosed, NamespaceStatus
from syphon.time_budget import GIVE_UP_OPENING_AFTER, REACHED_ELSEWHERE_FOR
from tests.support.waiting import eventually


@pytest.fixture
def emulator() -> Iterator[BackgroundEmulator]:
    with BackgroundEmulator(EmulatorSettings(namespaces=[NamespaceSettings(name="contoso")])) as emulator:
        yield emulator


def reached(emulator: BackgroundEmulator, connection_string: str | None = None) -> Namespace:
    string = connection_string or emulator["contoso"].connection_string
    return namespace_of(Settings(connection_string=SecretStr(string)), "")


def test_it_is_opened_in_the_background_without_waiting(emulator: BackgroundEmulator) -> None:
    namespace = reached(emulator)
    assert namespace.connection() is None
    eventually(lambda: namespace.connection() is not None)
    was = namespace.status
    namespace.close()
    assert (was, namespace.status) == (NamespaceStatus.OPENED, NamespaceStatus.CLOSED)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system has no such limit")
def test_bytes_not_acknowledged_within_half_a_minute_break_the_connection(  # WIRE: half-open
    emulator: BackgroundEmulator,
) -> None:
    namespace = reached(emulator)
    eventually(lambda: namespace.connection() is not None)
    connection = namespace.connection()
    assert connection is not None
    with socket.socket(fileno=os.dup(connection.wire.fileno())) as same:
        assert same.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
    namespace.close()


def test_a_broken_connection_is_opened_again(emulator: BackgroundEmulator) -> None:  # C3
    namespace = reached(emulator)
    eventually(lambda: namespace.connection() is not None)
    first = namespace.connection()
    assert first is not None
    emulator.call(lambda: emulator["contoso"].namespace.faults.begin_outage(Outage.REFUSE))

    def broken() -> bool:
        first.read()
        return first.wire.failure is not None

    eventually(broken)
    eventually(lambda: namespace.connection() is None and namespace.error is not None)
    assert isinstance(namespace.error, DestinationUnreachable)
    assert namespace.status is NamespaceStatus.OPENED
    emulator.call(emulator["contoso"].namespace.faults.end_outage)
    eventually(lambda: namespace.connection() is not None)
    assert namespace.error is None
    namespace.close()


def test_an_unreachable_namespace_is_retried_after_pauses_that_double_up_to_two_minutes() -> None:  # C3, S9
    tried: list[float] = []
    clock = 1000.0

    def connect() -> Connection:
        tried.append(clock)
        raise DestinationUnreachable("contoso: connection refused")

    namespace = Namespace("contoso", connect, lambda: clock)
    for pause in (1, 2, 4, 8, 16, 32, 64, 120, 120):
        tries = len(tried) + 1
        eventually(lambda tries=tries: namespace.connection() is None and len(tried) == tries and told(namespace))  # type: ignore[misc]
        eventually(lambda: opening() == 0)  # a thread lives on for a moment after it has stored its result
        clock += pause - 0.001
        assert namespace.connection() is None
        assert (opening(), len(tried)) == (0, tries), f"{pause} s are not over"
        clock += 0.001
    assert namespace.status is NamespaceStatus.OPENED
    namespace.close()


def test_where_the_return_must_be_noticed_the_pauses_stay_short() -> None:  # D16
    tried: list[float] = []
    clock = 1000.0

    def connect() -> Connection:
        tried.append(clock)
        raise DestinationUnreachable("contoso: connection refused")

    namespace = Namespace("contoso", connect, lambda: clock, longest_delay=3.0)
    for pause in (1, 2, 3, 3, 3):
        try_once(namespace, tried)
        clock += pause
    assert [later - earlier for earlier, later in pairwise(tried)] == [1, 2, 3, 3]
    namespace.close()


def test_a_try_that_took_long_has_waited_already() -> None:  # D16
    tried: list[float] = []
    clock = 1000.0

    def connect() -> Connection:
        nonlocal clock
        tried.append(clock)
        clock += 2.5
        raise DestinationUnreachable("contoso: no answer within 2.5 s")

    namespace = Namespace("contoso", connect, lambda: clock, longest_delay=3.0)

    def has_tried(times: int) -> bool:
        return namespace.connection() is None and len(tried) == times and opening() == 0

    eventually(lambda: has_tried(3))
    assert has_tried(3)
    clock += 0.5
    eventually(lambda: has_tried(4))
    assert [later - earlier for earlier, later in pairwise(tried)] == [2.5, 2.5, 3]
    namespace.close()


def test_a_pause_that_the_service_demands_is_kept_even_if_pauses_are_short() -> None:  # S5
    tried: list[float] = []
    clock = 1000.0

    def connect() -> Connection:
        tried.append(clock)
        raise DestinationBusy

    namespace = Namespace("contoso", connect, lambda: clock, longest_delay=3.0)
    try_once(namespace, tried)
    clock += 9.9
    assert namespace.connection() is None
    assert (opening(), len(tried)) == (0, 1)
    clock += 0.1
    try_once(namespace, tried)
    namespace.close()


def test_one_that_was_reached_elsewhere_counts_as_reachable_and_is_tried_at_once() -> None:  # D16
    tried: list[float] = []
    clock = 1000.0

    def connect() -> Connection:
        tried.append(clock)
        raise DestinationUnreachable("contoso: connection refused")

    namespace = Namespace("contoso", connect, lambda: clock)
    for _ in range(5):
        try_once(namespace, tried)
        clock += 120
    try_once(namespace, tried)
    assert not namespace.is_reachable
    namespace.reached_elsewhere()
    assert (namespace.is_reachable, namespace.is_connected, namespace.error) == (True, False, None)
    tries = len(tried) + 1
    eventually(lambda: namespace.connection() is None and len(tried) == tries and opening() == 0)
    namespace.connection()
    assert namespace.error is None  # its own try has failed, and the other connection is newer than the failure
    clock += REACHED_ELSEWHERE_FOR
    assert not namespace.is_reachable
    try_once(namespace, tried)  # the pauses have begun from the shortest again
    assert namespace.error is None  # told by `try_once`
    namespace.reached_elsewhere()
    namespace.fault(NotAuthorized("the key was rotated"))
    assert not namespace.is_reachable
    namespace.close()


def test_one_that_was_missed_elsewhere_is_reopened(emulator: BackgroundEmulator) -> None:
    namespace = reached(emulator)
    eventually(lambda: namespace.connection() is not None)
    first = namespace.connection()
    namespace.missed_elsewhere()
    assert namespace.connection() is None
    eventually(lambda: namespace.connection() is not None)
    assert namespace.connection() is not first
    namespace.close()


def try_once(namespace: Namespace, tried: list[float]) -> None:
    """Lets a try that is due come to its end."""
    tries = len(tried) + 1
    eventually(lambda: namespace.connection() is None and len(tried) == tries and told(namespace))
    eventually(lambda: opening() == 0)


def told(namespace: Namespace) -> bool:
    """Whether it has handled the result of its last try."""
    error, namespace.error = namespace.error, None
    return error is not None


def opening() -> int:
    return sum(thread.name.startswith("open contoso") for thread in threading.enumerate())


def test_an_opening_that_fails_is_not_repeated_by_the_sdk(emulator: BackgroundEmulator) -> None:  # P5, S9
    refused = Fault(Action.ERROR, Operation.CONNECT)
    emulator.call(lambda: emulator["contoso"].namespace.faults.add(refused))
    namespace = reached(emulator)
    eventually(lambda: namespace.connection() is None and namespace.error is not None)
    assert refused.struck == 1
    namespace.close()


@pytest.mark.parametrize(("failure", "pauses"), [(Interrupted(), [0, 1, 2, 4]), (DestinationBusy(), [10, 10, 10, 10])])
def test_one_that_breaks_as_soon_as_it_is_open_is_reopened_after_a_pause(  # S5, S9
    emulator: BackgroundEmulator, failure: SyphonError, pauses: list[float]
) -> None:
    opened: list[float] = []
    now = [1000.0]

    def connect() -> Connection:
        opened.append(now[0])
        connection = Connection(client, "")
        connection.wire.fail(failure)
        return connection

    with ServiceBusClient.from_connection_string(emulator["contoso"].connection_string) as client:
        namespace = Namespace("contoso", connect, lambda: now[0])
        eventually(lambda: namespace.connection() is not None)
        for pause in pauses:
            assert namespace.connection() is None
            now[0] += pause
            eventually(lambda: namespace.connection() is not None)
        namespace.close()
    assert [later - earlier for earlier, later in pairwise(opened)] == pauses


def test_refused_credentials_are_a_fault_and_stay_one(emulator: BackgroundEmulator) -> None:  # C3
    good = emulator["contoso"].connection_string
    namespace = reached(emulator, good.replace("SAS_KEY_VALUE", "another-key"))
    with pytest.raises(NotAuthorized, match="credentials were refused") as refused:
        eventually(lambda: namespace.connection() is not None)
    assert (namespace.status, namespace.reason) == (NamespaceStatus.FAULTED, refused.value)
    with pytest.raises(NotAuthorized):
        namespace.connection()
    namespace.close()
    assert namespace.status is NamespaceStatus.FAULTED


def test_a_closed_one_raises_when_it_is_used(emulator: BackgroundEmulator) -> None:  # C3
    namespace = reached(emulator)
    eventually(lambda: namespace.connection() is not None)
    connection = namespace.connection()
    namespace.close()
    assert connection is not None
    assert connection.wire.failure is not None
    with pytest.raises(NamespaceClosed, match=namespace.name):
        namespace.connection()


def test_closing_does_not_wait_for_an_opening_and_leaves_nothing_open(emulator: BackgroundEmulator) -> None:
    reachable = reached(emulator)
    go_on, closed = threading.Event(), threading.Event()
    opened: list[Connection] = []

    def connect() -> Connection:
        go_on.wait(20)
        eventually(lambda: reachable.connection() is not None)
        connection = reachable.connection()
        assert connection is not None
        opened.append(connection)
        return connection

    namespace = Namespace("contoso", connect, close_client=closed.set)
    assert namespace.connection() is None
    namespace.close()
    assert not closed.is_set()
    go_on.set()
    assert closed.wait(20)
    assert opened[0].wire.failure is not None
    reachable.close()


def test_an_opening_without_end_is_given_up_and_closed_if_it_succeeds_late(emulator: BackgroundEmulator) -> None:  # C3
    go_on = threading.Event()
    opened: list[Connection] = []
    clock = 1000.0

    def connect() -> Connection:
        is_first = not tried
        tried.append(clock)
        if is_first:
            go_on.wait(60)
        opened.append(Connection(client, ""))
        return opened[-1]

    tried: list[float] = []
    with ServiceBusClient.from_connection_string(emulator["contoso"].connection_string) as client:
        namespace = Namespace("contoso", connect, lambda: clock)
        assert namespace.connection() is None
        eventually(lambda: len(tried) == 1)
        clock += GIVE_UP_OPENING_AFTER - 0.001
        assert namespace.connection() is None
        assert namespace.error is None
        clock += 0.001
        assert namespace.connection() is None
        assert str(namespace.error) == "contoso: not opened within 60 s."
        eventually(lambda: namespace.connection() is not None)
        second = namespace.connection()
        go_on.set()
        eventually(lambda: len(opened) == 2 and opened[1].wire.failure is not None)
        assert (namespace.connection(), namespace.error) == (second, None)
        assert second is opened[0]
        assert second.wire.failure is None
        namespace.close()


def test_a_credential_that_cannot_be_made_is_a_fault_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:  # C3
    for name in ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_FEDERATED_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    settings = Settings(namespace="contoso.servicebus.windows.net", credential=Credential.WORKLOAD_IDENTITY)
    namespace = namespace_of(settings, "orders")
    with pytest.raises(NotAuthorized, match="workload"):
        eventually(lambda: namespace.connection() is not None)
    assert namespace.status is NamespaceStatus.FAULTED
    namespace.close()


def test_an_unexpected_error_is_raised_where_the_connection_is_requested() -> None:
    def connect() -> Connection:
        raise ZeroDivisionError

    namespace = Namespace("contoso", connect)
    with pytest.raises(ZeroDivisionError):
        eventually(lambda: namespace.connection() is not None)
