"""Both administrations read queues and topics, and make queues, with the same results (P6)."""

from __future__ import annotations

import http.server
import logging
import select
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError

from syphon.backlog.queues import DOCUMENTED
from syphon.emulator.broker.descriptions import (
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from syphon.emulator.broker.faults import Action, Fault, Operation, Outage
from syphon.model.errors import NamespaceGone, NotAuthorized, SyphonError
from syphon.servicebus import arm_administration, data_plane_administration
from syphon.servicebus.administration import (
    Administration,
    AdministrationRefused,
    AdministrationUnavailable,
    AdministrationUnreachable,
    EntityConflict,
    QueueInfo,
)
from syphon.servicebus.arm_administration import ArmAdministration
from syphon.servicebus.data_plane_administration import DataPlaneAdministration
from syphon.servicebus.management_http import FOREVER, FOREVER_TEXT, ManagementTransport, cause_of
from tests.support.administrations import (
    BOTH,
    KEY,
    SENDERS_KEY,
    SUBSCRIPTION,
    TOKEN,
    MakeAdministration,
    Site,
    Token,
    entered,
    site,
    with_connection_string,
)

BACKLOG = "contoso/x-servicebus-transfer/0"
INFO = QueueInfo(
    max_size_in_megabytes=5120,
    max_delivery_count=2_147_483_647,
    default_message_time_to_live=FOREVER,
    auto_delete_on_idle=FOREVER,
    lock_duration=60_000,
    dead_lettering_on_message_expiration=True,
    enable_batched_operations=True,
    requires_session=False,
    requires_duplicate_detection=False,
    enable_partitioning=False,
    enable_express=False,
    forward_to=None,
    forward_dead_lettered_messages_to=None,
    status="Active",
)
"""A backlog queue that was made as documented (P2), as it is found."""


@pytest.fixture
def here() -> Iterator[Site]:
    with site() as it:
        yield it


@pytest.fixture(params=BOTH)
def administration(request: pytest.FixtureRequest, here: Site) -> Iterator[Administration]:
    make: MakeAdministration = request.param
    with entered(make, here) as it:
        yield it


# Looking and making ---------------------------------------------------------------------------------------------------


def test_a_queue_is_made_as_described(here: Site, administration: Administration) -> None:  # P2, P6
    administration.create_queue(BACKLOG, DOCUMENTED)
    assert here.namespace.queues() == [
        QueueDescription(
            BACKLOG,
            max_size_in_megabytes=5120,
            max_delivery_count=2_147_483_647,
            dead_lettering_on_message_expiration=True,
        )
    ]
    assert administration.get_queue(BACKLOG) == INFO


def test_no_setting_is_left_to_a_default_that_happens_to_fit(here: Site, administration: Administration) -> None:  # P2
    other = replace(
        DOCUMENTED,
        max_size_in_megabytes=2048,
        max_delivery_count=7,
        default_message_time_to_live=1_209_600_500,
        auto_delete_on_idle=3_600_000,
        lock_duration=30_000,
        dead_lettering_on_message_expiration=False,
        enable_batched_operations=False,
    )
    administration.create_queue("orders", other)
    assert here.namespace.queues() == [
        QueueDescription(
            "orders",
            max_size_in_megabytes=2048,
            max_delivery_count=7,
            default_message_time_to_live=1_209_600_500,
            auto_delete_on_idle=3_600_000,
            lock_duration=30_000,
            enable_batched_operations=False,
        )
    ]


def test_settings_that_we_do_not_set_are_returned_too(here: Site, administration: Administration) -> None:  # P3
    strange = QueueDescription(
        "strange",
        requires_session=True,
        requires_duplicate_detection=True,
        enable_partitioning=True,
        forward_dead_lettered_messages_to="other",
        status=EntityStatus.SEND_DISABLED,
    )
    here.do(
        lambda namespace: namespace.create_queue(QueueDescription("other")),
        lambda namespace: namespace.create_queue(strange),
        lambda namespace: namespace.create_queue(QueueDescription("onward", forward_to="other")),
    )
    facts, onward = administration.get_queue("strange"), administration.get_queue("onward")
    assert facts is not None
    assert onward is not None
    assert (facts.requires_session, facts.requires_duplicate_detection, facts.enable_partitioning) == (True, True, True)
    assert (facts.status, facts.forward_to) == ("SendDisabled", None)
    # The namespace writes an address, Resource Manager a name.
    assert str(facts.forward_dead_lettered_messages_to).endswith("other")
    assert str(onward.forward_to).endswith("other")


def test_the_window_of_duplicate_detection_is_that_of_an_entity_and_of_what_it_forwards_to(
    here: Site, administration: Administration
) -> None:
    detects: dict[str, Any] = {"requires_duplicate_detection": True}
    here.do(
        lambda space: space.create_queue(QueueDescription("plain")),
        lambda space: space.create_queue(QueueDescription("once", **detects)),
        lambda space: space.create_queue(
            QueueDescription("a/hour", **detects, duplicate_detection_history_time_window=3_600_000)
        ),
        lambda space: space.create_queue(QueueDescription("onward", forward_to="a/hour")),
        lambda space: space.create_topic(TopicDescription("news", **detects)),
        lambda space: space.create_topic(TopicDescription("fan")),
        lambda space: space.create_subscription(SubscriptionDescription("fan", "quiet")),
        lambda space: space.create_subscription(SubscriptionDescription("fan", "loud", forward_to="onward")),
    )
    windows = {name: administration.duplicate_window(name) for name in ("plain", "once", "a/hour", "onward", "news")}
    assert windows == {"plain": 0, "once": 600_000, "a/hour": 3_600_000, "onward": 3_600_000, "news": 600_000}
    if isinstance(administration, DataPlaneAdministration):  # over Resource Manager only backlog queues are read
        assert administration.duplicate_window("fan") == 3_600_000
    assert administration.duplicate_window("missing") == 0


def test_a_queue_that_is_not_there_is_none(here: Site, administration: Administration) -> None:  # P3
    here.do(lambda namespace: namespace.create_topic(TopicDescription("news")))
    assert administration.get_queue(BACKLOG) is None
    assert administration.get_queue("news") is None, "a topic is no queue"


def test_destinations_are_queues_and_topics(here: Site, administration: Administration) -> None:
    here.do(
        lambda namespace: namespace.create_queue(QueueDescription("billing/eu")),
        lambda namespace: namespace.create_topic(TopicDescription("a/news")),
    )
    assert administration.exists("billing/eu")
    assert administration.exists("a/news")
    assert administration.exists("A/News")
    assert not administration.exists("billing")
    assert sorted(administration.entity_names()) == ["a/news", "billing/eu"]


def test_queues_are_listed_by_how_they_begin_to_the_last_page(here: Site, administration: Administration) -> None:  # P4
    def fill(namespace: object) -> None:
        for index in range(105):
            here.namespace.create_queue(QueueDescription(f"contoso/x-servicebus-transfer/{index}"))
        here.namespace.create_queue(QueueDescription("contoso"))
        here.namespace.create_queue(QueueDescription("zebra/x-servicebus-transfer/0"))

    here.do(fill)
    names = administration.queue_names("Contoso/X-ServiceBus-Transfer/")
    assert sorted(names) == sorted(f"contoso/x-servicebus-transfer/{index}" for index in range(105))
    assert administration.queue_names("nothing/") == []


def test_a_name_that_is_taken_is_a_conflict(here: Site, administration: Administration) -> None:
    here.do(lambda namespace: namespace.create_topic(TopicDescription(BACKLOG)))
    with pytest.raises(EntityConflict, match=f"make the queue '{BACKLOG}': 409"):
        administration.create_queue(BACKLOG, DOCUMENTED)


# The wire -------------------------------------------------------------------------------------------------------------


@contextmanager
def tap(upstream: int) -> Iterator[tuple[int, list[bytes]]]:
    """A port in front of another, with a record of what clients sent."""
    heard: list[bytes] = []

    class Copy(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            client: socket.socket = self.request
            with socket.create_connection(("127.0.0.1", upstream)) as server:
                while True:
                    for ready in select.select([client, server], [], [])[0]:
                        data = ready.recv(65_536)
                        if not data:
                            return
                        if ready is client:
                            heard.append(data)
                        (server if ready is client else client).sendall(data)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Copy) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_address[1], heard
        finally:
            server.shutdown()
            thread.join()


def test_forever_is_sent_to_the_last_digit(here: Site) -> None:  # P2
    with tap(here.port) as (port, heard):
        data_plane = DataPlaneAdministration.from_connection_string(here.connection_string(port=port))
        arm = ArmAdministration(SUBSCRIPTION, "rg", "contoso-dr", Token(), base_url=f"http://127.0.0.1:{port}")
        for administration, wrapped in ((data_plane, f">{FOREVER_TEXT}<"), (arm, f'"{FOREVER_TEXT}"')):
            heard.clear()
            with closing(administration):
                administration.create_queue(BACKLOG, DOCUMENTED)
            said = b"".join(heard).decode()
            assert said.count(wrapped) == 2
            assert said.count("P10675199D") == 2
            here.do(lambda namespace: namespace.delete(BACKLOG))


def test_tls_is_used_unless_a_local_emulator_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with site(tls=True) as here:
        host = f"127.0.0.1:{here.port}"
        string = here.connection_string().replace("UseDevelopmentEmulator=true;", "")
        makers: list[Callable[[str | None], Administration]] = [
            lambda ca: DataPlaneAdministration.from_connection_string(string, ca_file=ca),
            lambda ca: DataPlaneAdministration.from_credential(host, Token(), ca_file=ca),
            lambda ca: ArmAdministration(
                SUBSCRIPTION, "rg", "contoso-dr", Token(), base_url=f"https://{host}", ca_file=ca
            ),
        ]
        for number, make in enumerate(makers):
            with closing(make(here.ca_file)) as trusting:
                trusting.create_queue(f"made/{number}", DOCUMENTED)
                assert trusting.queue_names("made/") == [f"made/{made}" for made in range(number + 1)]
            with closing(make(None)) as wary, pytest.raises(AdministrationUnavailable, match="certificate"):
                wary.get_queue(BACKLOG)


def test_an_emulator_without_a_port_is_where_the_sdk_looks_for_it() -> None:
    string = "Endpoint=sb://localhost;SharedAccessKeyName=Root;SharedAccessKey=a2V5;UseDevelopmentEmulator=true"
    with DataPlaneAdministration.from_connection_string(string) as administration:
        assert administration.namespace == "localhost:5672"


def test_a_token_is_not_sent_unencrypted_to_another_machine() -> None:
    with pytest.raises(ValueError, match="write https"):
        ArmAdministration(SUBSCRIPTION, "rg", "contoso-dr", Token(), base_url="http://management.example.com")


@pytest.mark.parametrize("malformed", ["", "Endpoint", "SharedAccessKeyName=a;SharedAccessKey=b3BlbiBzZXNhbWU="])
def test_a_malformed_connection_string_is_not_quoted(malformed: str) -> None:
    with pytest.raises(ValueError, match=r"onnection (s|S)tring") as refused:
        DataPlaneAdministration.from_connection_string(malformed)
    assert "b3BlbiBzZXNhbWU=" not in str(refused.value)


# What goes wrong ------------------------------------------------------------------------------------------------------


def every_operation(administration: Administration) -> list[tuple[str, Callable[[], object]]]:
    """Each operation, and the words of its task in errors."""
    return [
        (f"the queue '{BACKLOG}'", lambda: administration.get_queue(BACKLOG)),
        (f"make the queue '{BACKLOG}'", lambda: administration.create_queue(BACKLOG, DOCUMENTED)),
        ("list its queues", lambda: administration.queue_names("contoso/")),
        ("list its queues and topics", administration.entity_names),
        ("look for 'orders'", lambda: administration.exists("orders")),
    ]


def told(error: SyphonError) -> str:
    """Everything that an error could reveal: its texts, and all objects that it refers to."""
    assert error.__cause__ is None
    assert error.__context__ is None, "the SDK's error would keep the request, and the request the token"
    return f"{error} {error!r} {vars(error)}"


def failures(administration: Administration, kind: type[SyphonError], named: str) -> list[str]:
    """The error texts of every operation that fails in this way."""
    texts = []
    for task, operation in every_operation(administration):
        with pytest.raises(SyphonError) as failed:
            operation()
        text = told(failed.value)
        assert type(failed.value) is kind, text
        assert named in text
        assert task in text or kind is AdministrationUnreachable
        texts.append(text)
    return texts


@pytest.fixture
def name(administration: Administration) -> str:
    """The name of the namespace in errors."""
    return administration.namespace


@pytest.mark.parametrize(
    ("condition", "kind", "status"),
    [
        ("amqp:internal-error", AdministrationUnavailable, "500"),
        ("com.microsoft:server-busy", AdministrationUnavailable, "503"),
        ("com.microsoft:timeout", AdministrationUnavailable, "408"),
        ("com.microsoft:argument-error", AdministrationRefused, "400"),
        ("com.microsoft:entity-already-exists", EntityConflict, "409"),
        ("amqp:unauthorized-access", NotAuthorized, "401"),
    ],
)
def test_errors_name_the_service_the_task_and_the_reason(
    here: Site, administration: Administration, name: str, condition: str, kind: type[SyphonError], status: str
) -> None:  # P5
    here.arm(Fault(Action.ERROR, Operation.MANAGE, condition=condition, description="The cat is on the keyboard."))
    for text in failures(administration, kind, name):
        assert status in text
        assert "The cat is on the keyboard" in text


@contextmanager
def always(status: int) -> Iterator[int]:
    """A port that gives this answer to every request."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_PUT = answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            """Logs nothing on stderr."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def test_too_many_requests_is_an_answer_for_now(here: Site) -> None:  # P5: Resource Manager answers so when it is busy
    with always(429) as port:
        for administration in (
            DataPlaneAdministration.from_connection_string(here.connection_string(port=port)),
            ArmAdministration(SUBSCRIPTION, "rg", "contoso-dr", Token(), base_url=f"http://127.0.0.1:{port}"),
        ):
            with closing(administration):
                failures(administration, AdministrationUnavailable, administration.namespace)


@pytest.mark.parametrize(
    "text",
    [
        "Endpoint=sb://contoso;SharedAccessKeyName=Root;SharedAccessKey=c2VjcmV0;EntityPath=x",
        "Authorization: Bearer c2VjcmV0",
        "SharedAccessSignature sr=sb%3a%2f%2fcontoso&sig=c2VjcmV0&se=1&skn=Root",
        "https://contoso/?api-version=1&SIG=c2VjcmV0",
    ],
)
def test_a_secret_in_the_text_of_an_sdk_error_is_not_repeated(text: str) -> None:
    told_of = cause_of(HttpResponseError(f"It did not work: {text}."))
    assert told_of.startswith("It did not work: ")
    assert "c2VjcmV0" not in told_of
    assert "***" in told_of


def test_an_answer_may_take_a_minute(here: Site, monkeypatch: pytest.MonkeyPatch) -> None:  # S8
    timeouts: list[float] = []

    class Timed(ManagementTransport):
        def __init__(self, *, timeout: float, **more: Any) -> None:
            timeouts.append(timeout)
            super().__init__(timeout=timeout, **more)

    for module in (data_plane_administration, arm_administration):
        monkeypatch.setattr(module, "ManagementTransport", Timed)
    DataPlaneAdministration.from_connection_string(here.connection_string()).close()
    DataPlaneAdministration.from_credential("contoso.servicebus.windows.net", Token()).close()
    ArmAdministration(SUBSCRIPTION, "rg", "contoso-dr", Token()).close()
    assert timeouts == [60, 60, 60]


@pytest.mark.parametrize(
    ("outage", "kind"),
    [
        (Outage.REFUSE, AdministrationUnreachable),
        (Outage.DROP, AdministrationUnreachable),
        (Outage.BUSY, AdministrationUnavailable),
    ],
)
def test_an_outage_is_no_answer(
    here: Site, administration: Administration, name: str, outage: Outage, kind: type[SyphonError]
) -> None:  # P5
    here.go_out(outage)
    for text in failures(administration, kind, name):
        assert "Connection(" not in text
        assert "TrackingId" not in text


def test_a_silent_service_is_unreachable(here: Site) -> None:  # P5
    here.go_out(Outage.HANG)
    base_url = f"http://127.0.0.1:{here.port}"
    for administration in (
        DataPlaneAdministration.from_connection_string(here.connection_string(), timeout=0.2),
        ArmAdministration(SUBSCRIPTION, "rg", "contoso-dr", Token(), base_url=base_url, timeout=0.2),
    ):
        with closing(administration), pytest.raises(AdministrationUnreachable, match=r"(?i)timed out"):
            administration.get_queue(BACKLOG)


def test_a_missing_claim_is_named(here: Site) -> None:  # P5
    string = here.connection_string("Sender", SENDERS_KEY)
    with DataPlaneAdministration.from_connection_string(string) as administration:
        for text in failures(administration, NotAuthorized, f"127.0.0.1:{here.port}"):
            assert "The Manage claim is missing: the policy 'Sender' does not have it" in text
            assert SENDERS_KEY not in text


def test_a_wrong_key_is_not_reported_as_a_missing_claim(here: Site) -> None:  # P5
    string = here.connection_string("Root", "d3Jvbmcga2V5")
    with DataPlaneAdministration.from_connection_string(string) as administration:
        for text in failures(administration, NotAuthorized, f"127.0.0.1:{here.port}"):
            assert "credentials are refused, or lack the Manage claim: we used the policy 'Root'" in text
            assert "d3Jvbmcga2V5" not in text


def test_a_token_that_is_not_accepted_is_refused() -> None:  # P5
    with site(accept_any_jwt=False) as here:
        base_url = f"http://127.0.0.1:{here.port}"
        with ArmAdministration(SUBSCRIPTION, "rg", "contoso-dr", Token(), base_url=base_url) as administration:
            texts = failures(administration, NotAuthorized, "contoso-dr (resource group rg)")
    assert ["queues/write" in text for text in texts] == [False, True, False, False, False]
    assert all("Manage" in text and TOKEN not in text for text in texts)


def test_a_missing_role_is_named(here: Site) -> None:  # P5
    # Resource Manager answers 403 if a role is missing.
    here.arm(Fault(Action.ERROR, Operation.MANAGE, condition="com.microsoft:entity-disabled"))
    base_url = f"http://127.0.0.1:{here.port}"
    with ArmAdministration(SUBSCRIPTION, "rg", "contoso-dr", Token(), base_url=base_url) as administration:
        texts = failures(administration, NotAuthorized, "contoso-dr (resource group rg)")
    assert all("AuthorizationFailed" in text and "Microsoft.ServiceBus/namespaces/queues/" in text for text in texts)


def test_too_many_queues_is_not_a_question_of_rights(here: Site) -> None:  # P5
    # The namespace itself answers 403 when it has its maximum number of entities.
    here.arm(Fault(Action.ERROR, Operation.MANAGE, condition="amqp:resource-limit-exceeded"))
    with closing(with_connection_string(here)) as administration:
        failures(administration, AdministrationRefused, administration.namespace)


def test_a_missing_namespace_is_not_reported_as_an_empty_one(here: Site) -> None:  # P6
    base_url = f"http://127.0.0.1:{here.port}"
    with ArmAdministration(SUBSCRIPTION, "rg", "fabrikam", Token(), base_url=base_url) as administration:
        for operation in (
            lambda: administration.get_queue(BACKLOG),
            lambda: administration.queue_names("contoso/"),
            lambda: administration.exists("orders"),
        ):
            with pytest.raises(NamespaceGone, match=rf"fabrikam \(resource group rg\).*{SUBSCRIPTION}") as gone:
                operation()
            told(gone.value)


def test_an_identity_that_may_see_only_queues_can_look_for_them(here: Site) -> None:  # P6
    # Only the namespace itself has an empty path, so this fault applies to it alone.
    here.arm(Fault(Action.ERROR, Operation.MANAGE, entity="", condition="amqp:unauthorized-access"))
    base_url = f"http://127.0.0.1:{here.port}"
    with ArmAdministration(SUBSCRIPTION, "rg", "contoso-dr", Token(), base_url=base_url) as administration:
        assert administration.get_queue(BACKLOG) is None


@pytest.mark.parametrize("token", [f"{TOKEN}\n{TOKEN}", f"{TOKEN} €"], ids=["line break", "euro sign"])
def test_a_token_that_cannot_be_sent_is_not_shown(here: Site, token: str) -> None:
    base_url = f"http://127.0.0.1:{here.port}"
    with ArmAdministration(SUBSCRIPTION, "rg", "contoso-dr", Token(token), base_url=base_url) as administration:
        for text in failures(administration, NotAuthorized, "contoso-dr (resource group rg)"):
            assert "cannot be sent" in text
            assert TOKEN not in text


@pytest.mark.parametrize("fault", [Action.ERROR, Action.DROP, Action.REFUSE])
def test_no_secret_is_in_a_log_or_a_repr(
    here: Site, administration: Administration, caplog: pytest.LogCaptureFixture, fault: Action
) -> None:
    caplog.set_level(logging.DEBUG)
    administration.get_queue(BACKLOG)
    here.arm(Fault(fault, Operation.MANAGE))
    shown = [repr(administration)]
    for _, operation in every_operation(administration):
        with pytest.raises(SyphonError) as failed:
            operation()
        shown.append(told(failed.value))
    shown.append(caplog.text)
    assert "api-version" in caplog.text, "the SDK did log its requests"
    for text in shown:
        assert not any(secret in text for secret in (KEY, TOKEN, "sig=", "Bearer ey"))
