"""Routes: what is sent for a message, and where it may go."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from syphon.amqp import Map, Section, data_section, section_bytes
from syphon.backlog import LetterEdit, Restored, Unrestorable, UnrestorableReason
from syphon.config import DestinationSettings, PairSettings, SideSettings
from syphon.model import PathPatterns, Renames, TimeToLive
from syphon.transfer.route import Route, from_backlog, route_to_backlog, route_to_destination

NOW = 1_700_000_000_000
QUEUE = "contoso/x-servicebus-transfer/0"
NO_MESSAGE = b"\x00\x53\x74\xff\xff"


def pair(*allow: str) -> PairSettings:
    settings = [
        SideSettings(connection_string=SecretStr(f"Endpoint=sb://{name}/;SharedAccessKeyName=a;SharedAccessKey=b"))
        for name in ("contoso.example", "contoso-dr.example")
    ]
    return PairSettings(
        name="contoso",
        primary=settings[0],
        secondary=settings[1],
        destinations=DestinationSettings(allow=list(allow)),
    )


def message(path: str) -> bytes:
    return section_bytes(Section.APPLICATION_PROPERTIES, Map.of({"x-ms-path": path})) + data_section(b"x")


def dead_letter(path: str) -> bytes:
    properties = {"x-ms-path": path, "DeadLetterReason": "r", "DeadLetterErrorDescription": "d"}
    return section_bytes(Section.APPLICATION_PROPERTIES, Map.of(properties)) + data_section(b"x")


def sent(route: Route, payload: bytes) -> Restored:
    restored = route.restore(payload, enqueued_at=None, now=NOW, ttl=route.ttl)
    assert isinstance(restored, Restored)
    return restored


def test_a_backlog_message_goes_to_its_destination_without_its_aliases() -> None:  # M2
    restored = sent(from_backlog(TimeToLive.RESTORE, PathPatterns(), Renames()), message("orders"))
    assert (restored.payload, restored.destination.name) == (data_section(b"x"), "orders")


def test_a_dead_letter_goes_back_into_its_queue_with_its_aliases() -> None:  # X4
    restored = sent(route_to_backlog(QUEUE), dead_letter("orders"))
    assert (restored.payload, restored.destination.name) == (message("orders"), QUEUE)
    # no other route may end in a backlog queue
    assert isinstance(route_to_backlog(QUEUE).preview(dead_letter("orders"), NOW), Restored)


def test_a_dead_letter_goes_to_its_destination_or_to_another_one() -> None:  # X4
    restored = sent(route_to_destination(pair("*"), TimeToLive.RESTORE), dead_letter("orders"))
    assert (restored.payload, restored.destination.name) == (data_section(b"x"), "orders")
    restored = sent(
        route_to_destination(pair("*"), TimeToLive.RESTORE, LetterEdit.of(path="billing")), dead_letter("orders")
    )
    assert restored.destination.name == "billing"


@pytest.mark.parametrize("path", ["secret", QUEUE, "orders/$deadletterqueue", "events/subscriptions/all"])
def test_no_route_leads_where_nothing_may_go(path: str) -> None:  # D13
    routes = (
        from_backlog(TimeToLive.RESTORE, PathPatterns.of(["orders*"]), Renames()),
        route_to_destination(pair("orders*"), TimeToLive.RESTORE),
    )
    for route in routes:
        why_not = route.preview(dead_letter(path), NOW)
        assert isinstance(why_not, str)
        assert why_not.startswith(f"DestinationNotAllowed: x-ms-path names '{path}' as the destination: ")
        assert isinstance(route.preview(dead_letter("orders"), NOW), Restored)


@pytest.mark.parametrize(
    "route",
    [
        from_backlog(TimeToLive.RESTORE, PathPatterns(), Renames()),
        route_to_backlog(QUEUE),
        route_to_destination(pair("*"), TimeToLive.RESTORE),
    ],
)
def test_bytes_that_are_no_message_take_no_route(route: Route) -> None:  # M4
    restored = route.restore(NO_MESSAGE, enqueued_at=None, now=NOW, ttl=route.ttl)
    assert isinstance(restored, Unrestorable)
    assert restored.reason is UnrestorableReason.MALFORMED
    why_not = route.preview(NO_MESSAGE, NOW)
    assert isinstance(why_not, str)
    assert "not well-formed" in why_not
