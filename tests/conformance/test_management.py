"""The administration API: documents, texts and refusals."""

from __future__ import annotations

import re

import pytest

from syphon.emulator.http_front.atom import read_entry
from tests.conformance.comparison import Comparison
from tests.conformance.target import Entities, Namespace, Target

TIMES = {"CreatedAt", "UpdatedAt", "AccessedAt"}
FOREVER = "P10675199DT2H48M5.4775807S"
QUEUE = {
    "LockDuration": "PT1M",
    "MaxSizeInMegabytes": "1024",
    "RequiresDuplicateDetection": "false",
    "RequiresSession": "false",
    "DefaultMessageTimeToLive": FOREVER,
    "DeadLetteringOnMessageExpiration": "false",
    "DuplicateDetectionHistoryTimeWindow": "PT10M",
    "MaxDeliveryCount": "10",
    "EnableBatchedOperations": "true",
    "SizeInBytes": "0",
    "MessageCount": "0",
    "IsAnonymousAccessible": "false",
    "AuthorizationRules": "",
    "Status": "Active",
    "CreatedAt": "",
    "UpdatedAt": "",
    "AccessedAt": "",
    "SupportOrdering": "true",
    "CountDetails": "",
    "AutoDeleteOnIdle": FOREVER,
    "EnablePartitioning": "false",
    "EntityAvailabilityStatus": "Available",
    "EnableExpress": "false",
    "MaxMessageSizeInKilobytes": "256",
}
TOPIC = {
    "DefaultMessageTimeToLive": FOREVER,
    "MaxSizeInMegabytes": "1024",
    "RequiresDuplicateDetection": "false",
    "DuplicateDetectionHistoryTimeWindow": "PT10M",
    "EnableBatchedOperations": "true",
    "SizeInBytes": "0",
    "FilteringMessagesBeforePublishing": "false",
    "IsAnonymousAccessible": "false",
    "AuthorizationRules": "",
    "Status": "Active",
    "CreatedAt": "",
    "UpdatedAt": "",
    "AccessedAt": "",
    "SupportOrdering": "true",
    "CountDetails": "",
    "SubscriptionCount": "0",
    "AutoDeleteOnIdle": FOREVER,
    "EnablePartitioning": "false",
    "EntityAvailabilityStatus": "Available",
    "EnableSubscriptionPartitioning": "false",
    "EnableExpress": "false",
    "MaxMessageSizeInKilobytes": "256",
}
SUBSCRIPTION = {
    "LockDuration": "PT1M",
    "RequiresSession": "false",
    "DefaultMessageTimeToLive": FOREVER,
    "DeadLetteringOnMessageExpiration": "false",
    "DeadLetteringOnFilterEvaluationExceptions": "true",
    "MessageCount": "0",
    "MaxDeliveryCount": "10",
    "EnableBatchedOperations": "true",
    "Status": "Active",
    "CreatedAt": "",
    "UpdatedAt": "",
    "AccessedAt": "",
    "CountDetails": "",
    "AutoDeleteOnIdle": FOREVER,
    "EntityAvailabilityStatus": "Available",
    "IsClientAffine": "false",
}


def properties(document: str) -> dict[str, str]:
    """The properties of an entity in their order, without its times."""
    found = {child.tag.partition("}")[2]: child.text or "" for child in read_entry(document.encode())}
    return found | dict.fromkeys(TIMES & found.keys(), "")


def refusal(namespace: Namespace, prefix: str, answer: tuple[int, str]) -> tuple[int, str]:
    """Status and text of a refusal, with placeholders for the names of the namespace and of the run."""
    status, body = answer
    detail = body.partition("<Detail>")[2].partition("</Detail>")[0]
    text = re.split(r"\.? *TrackingId:", detail)[0]
    for name, instead in ((prefix, ""), (namespace.host, "HOST"), (namespace.name, "NAMESPACE")):
        text = text.replace(name, instead)
    return status, re.sub(r"HOST:\d+", "HOST", text).strip()


def beginning(found: tuple[int, str], start: str) -> tuple[int, str]:
    """The text is cut to a beginning that it has."""
    return found[0], start if found[1].startswith(start) else found[1]


def same_document(behaviour: Comparison, what: str, found: dict[str, str], emulator: dict[str, str]) -> None:
    behaviour.same(f"{what}: properties in order", list(found), list(emulator))
    for name in found.keys() & emulator.keys():
        behaviour.same(f"{what}: {name}", found[name], emulator[name])


def without(description: dict[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in description.items() if name not in names}


async def test_a_queue(target: Target, entities: Entities, behaviour: Comparison) -> None:
    here, name = target.primary, entities.name()
    large = {"MaxMessageSizeInKilobytes": "1024" if here.tier == "Premium" else "256"}
    status, made = await here.http("PUT", name, "<QueueDescription/>")
    behaviour.same("status", status, 201)
    same_document(behaviour, "created", properties(made), without(QUEUE, "AccessedAt", "CountDetails") | large)
    _, read = await here.http("GET", name)
    same_document(behaviour, "read", properties(read), QUEUE | large)
    given = "<QueueDescription><LockDuration>PT120S</LockDuration><UserMetadata>m</UserMetadata></QueueDescription>"
    status, updated = await here.http("PUT", name, given, update=True)
    behaviour.same("status of an update", status, 200)
    same_document(behaviour, "updated", properties(updated), {"LockDuration": "PT120S", "UserMetadata": "m"})
    _, read = await here.http("GET", name)
    behaviour.same("lock after the update", properties(read)["LockDuration"], "PT2M")
    behaviour.same("the metadata follow", "</AccessedAt><UserMetadata>" in read, True)
    status, _ = await here.http("DELETE", name)
    behaviour.same("status of a deletion", status, 200)


async def test_a_topic_and_its_subscription(target: Target, entities: Entities, behaviour: Comparison) -> None:
    target.need("topics")
    here, name = target.primary, entities.name()
    large = {"MaxMessageSizeInKilobytes": "1024" if here.tier == "Premium" else "256"}
    later = ("AccessedAt", "CountDetails", "SubscriptionCount")
    _, made = await here.http("PUT", name, "<TopicDescription/>")
    same_document(behaviour, "topic created", properties(made), without(TOPIC, *later) | large)
    _, read = await here.http("GET", name)
    same_document(behaviour, "topic read", properties(read), TOPIC | large)
    path = f"{name}/subscriptions/audit"
    _, made = await here.http("PUT", path, "<SubscriptionDescription/>")
    same_document(behaviour, "subscription created", properties(made), without(SUBSCRIPTION, "CountDetails"))
    _, read = await here.http("GET", path)
    same_document(behaviour, "subscription read", properties(read), SUBSCRIPTION)
    given = "<SubscriptionDescription><LockDuration>PT120S</LockDuration></SubscriptionDescription>"
    _, updated = await here.http("PUT", path, given, update=True)
    expected = without(SUBSCRIPTION, "CountDetails") | {"LockDuration": "PT120S"}
    same_document(behaviour, "subscription updated", properties(updated), expected)


@pytest.mark.parametrize(
    ("given", "answered", "read"),
    [
        ("", "", "<Parameters/>"),
        (
            "<RequiresPreprocessing>true</RequiresPreprocessing>",
            "<RequiresPreprocessing>true</RequiresPreprocessing>",
            "<RequiresPreprocessing>true</RequiresPreprocessing><Parameters/>",
        ),
    ],
)
async def test_a_rule(
    target: Target, entities: Entities, behaviour: Comparison, given: str, answered: str, read: str
) -> None:
    target.need("topics")
    path = f"{entities.subscription(entities.topic())}/rules/mine"
    sql = f'<Filter i:type="SqlFilter"><SqlExpression>a = 1</SqlExpression>{given}</Filter>'
    _, made = await target.primary.http("PUT", path, f"<RuleDescription>{sql}</RuleDescription>")
    _, kept = await target.primary.http("GET", path)
    for what, document, expected in (("answered", made, answered), ("read", kept, read)):
        inside = document.partition("</SqlExpression>")[2].partition("</Filter>")[0].replace(" />", "/>")
        behaviour.same(what, inside, f"<CompatibilityLevel>20</CompatibilityLevel>{expected}")


MORE = "To know more visit https://aka.ms/sbResourceMgrExceptions"


async def test_refusals_about_queues(target: Target, entities: Entities, behaviour: Comparison) -> None:
    here, queue = target.primary, entities.queue()
    missing = entities.name("missing")
    bad = "<QueueDescription><MaxDeliveryCount>0</MaxDeliveryCount></QueueDescription>"
    sessions = "<QueueDescription><RequiresSession>true</RequiresSession></QueueDescription>"
    short, other = (name.removeprefix(entities.prefix) for name in (queue, missing))
    for what, request, status, start in (
        (
            "taken",
            ("PUT", queue, "<QueueDescription/>"),
            409,
            f"SubCode=40900. The messaging entity 'sb://HOST/{short}' already exists. {MORE}",
        ),
        (
            "missing",
            ("DELETE", missing),
            404,
            f"SubCode=40400. The messaging entity 'sb://HOST/{other}' could not be found. {MORE}",
        ),
        ("bad", ("PUT", missing, bad), 400, "SubCode=40000. "),
    ):
        found = refusal(here, entities.prefix, await here.http(*request))
        behaviour.same(what, beginning(found, start), (status, start))
    fixed = "SubCode=40000. The value for the RequiresSession property of an existing Queue cannot be changed."
    found = refusal(here, entities.prefix, await here.http("PUT", queue, sessions, update=True))
    behaviour.same("fixed", beginning(found, fixed), (400, fixed))


async def test_refusals_about_subscriptions_and_rules(
    target: Target, entities: Entities, behaviour: Comparison
) -> None:
    target.need("topics")
    here, topic = target.primary, entities.topic()
    path, short = entities.subscription(topic), topic.removeprefix(entities.prefix)
    for what, request, status, text in (
        (
            "taken",
            ("PUT", path, "<SubscriptionDescription/>"),
            409,
            f"The messaging entity '{short}|audit' already exists.",
        ),
        ("missing", ("GET", f"{topic}/subscriptions/other"), 404, f"Entity '{short}|other' was not found."),
        ("missing rule", ("DELETE", f"{path}/rules/mine"), 404, f"Entity '{short}|audit|mine' was not found."),
    ):
        expected = text.replace(f"'{short}", f"'NAMESPACE:Topic:{short}")
        found = refusal(here, entities.prefix, await here.http(*request))
        behaviour.same(what, found, (status, f"{expected} {MORE}"))


async def test_a_get_where_nothing_is(target: Target, entities: Entities, behaviour: Comparison) -> None:
    status, document = await target.primary.http("GET", entities.name("missing"))
    behaviour.same("status", status, 200)
    behaviour.same("an empty feed", '<title type="text">Publicly Listed Services</title>' in document, True)


async def test_the_largest_page(target: Target, entities: Entities, behaviour: Comparison) -> None:
    queue = entities.queue()
    status, document = await target.primary.http("GET", "$Resources/queues?$skip=0&$top=2147483647")
    behaviour.same("status", (status, queue in document), (200, True))


async def test_partitions(target: Target, entities: Entities, behaviour: Comparison) -> None:
    target.need("partitions", "sessions")
    queue = entities.queue(enable_partitioning=True, requires_session=True)
    found = properties((await target.primary.http("GET", queue))[1])
    behaviour.same("size and order", (found["MaxSizeInMegabytes"], found["SupportOrdering"]), ("16384", "false"))


async def test_forwarding(target: Target, entities: Entities, behaviour: Comparison) -> None:
    target.need("forwarding")
    here, end = target.primary, entities.queue("end")
    name = entities.name("start")
    given = f"<QueueDescription><ForwardTo>{end}</ForwardTo></QueueDescription>"
    _, made = await here.http("PUT", name, given)
    address = re.sub(r"sb://[^/]+/", "sb://HOST/", properties(made).get("ForwardTo", ""))
    behaviour.same("the address", address, f"sb://HOST/{end}")
    elsewhere = f"sb://{target.secondary.host}/{end}" if target.secondary.host != here.host else "sb://elsewhere/x"
    status, _ = await here.http("PUT", entities.name(), given.replace(end, elsewhere))
    behaviour.same("to another namespace", status // 100, 4)
