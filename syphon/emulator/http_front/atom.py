"""Reads and writes entities as Atom entries and feeds, the documents of the administration API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, urlencode

from ..broker import (
    DEFAULT_RULE,
    AuthorizationRule,
    BadArgument,
    Claim,
    EntityDescription,
    EntityRuntime,
    NotImplementedHere,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    Tier,
    TopicDescription,
    default_message_size,
)
from ..clock import Millis
from . import xml_elements
from .entity_properties import (
    ACCESSED,
    COUNTS,
    QUEUE,
    SUBSCRIPTION,
    TOPIC,
    UPDATED,
    NestedProperty,
    Property,
    PropertyType,
    RuntimeProperty,
    SettingProperty,
    properties_of,
    read_settings,
)
from .iso_times import NEVER, NEVER_LOCAL, read_duration, write_instant, write_second
from .rules import read_rule, rule_element
from .xml_elements import Element, connect, element, text

# Reading --------------------------------------------------------------------------------------------------------------


def read_entry(body: bytes) -> Element:
    """Reads the description inside the entry that a client sent."""
    entry = xml_elements.parse(body)
    content = entry.find(f"{{{xml_elements.ATOM}}}content") if entry.tag == f"{{{xml_elements.ATOM}}}entry" else None
    if content is None or len(content) != 1:
        raise BadArgument("The body is not an Atom entry whose content is one description.")
    return content[0]


def read_entity(path: str, given: Element) -> QueueDescription | TopicDescription:
    if given.tag == connect("QueueDescription"):
        return QueueDescription(path, **_settings(QUEUE, given))
    if given.tag == connect("TopicDescription"):
        return TopicDescription(path, **_settings(TOPIC, given))
    raise NotImplementedHere(f"'{_local(given)}' cannot be kept at '{path}': this emulator has queues and topics.")


def read_subscription(topic: str, name: str, given: Element) -> tuple[SubscriptionDescription, RuleDescription]:
    """Reads a subscription and the rule that it starts with."""
    _expect("SubscriptionDescription", given)
    first = given.find(connect("DefaultRuleDescription"))
    if first is None or xml_elements.is_nil(first):
        rule = DEFAULT_RULE
    else:
        rule = read_rule(xml_elements.texts(first).get("Name") or DEFAULT_RULE.name, first)
    return SubscriptionDescription(topic, name, **_settings(SUBSCRIPTION, given)), rule


def read_rule_entry(name: str, given: Element) -> RuleDescription:
    _expect("RuleDescription", given)
    return read_rule(name, given)


def _expect(name: str, given: Element) -> None:
    if given.tag != connect(name):
        raise BadArgument(f"The entry has a '{_local(given)}' where a {name} belongs.")


def _local(given: Element) -> str:
    return given.tag.rpartition("}")[2][:100]


def _settings(properties: tuple[Property, ...], given: Element) -> dict[str, Any]:
    settings = read_settings(properties, xml_elements.texts(given))
    rules = given.find(connect("AuthorizationRules"))
    if rules is not None and NestedProperty.AUTHORIZATION_RULES in properties:
        settings["authorization_rules"] = tuple(map(_read_authorization_rule, rules))
    return settings


def _read_authorization_rule(given: Element) -> AuthorizationRule:
    values = xml_elements.texts(given)
    name = values.get("KeyName", "")
    if not name:
        raise BadArgument("SubCode=40000. An authorization rule has no KeyName: give it one.")
    rights = given.find(connect("Rights"))
    try:
        claims = tuple(Claim((right.text or "").strip()) for right in ([] if rights is None else rights))
    except ValueError:
        raise BadArgument(f"SubCode=40000. The Rights of '{name}' can be Send, Listen and Manage.") from None
    return AuthorizationRule(name, claims, values.get("PrimaryKey", ""), values.get("SecondaryKey", ""))


# Writing --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DocumentContext:
    """What a document repeats of its request: the namespace, the host, the address, the API version."""

    namespace: str
    tier: Tier
    host: str
    url: str
    api_version: str


class PutDescription:
    """The description that a client has put. The answer repeats it: it has durations as the client wrote them.

    The answer to an update of a queue or topic has nothing else: no counts, no dates and no defaults. That of a
    subscription has dates, and none of them is older than the update.
    """

    def __init__(self, given: Element, *, update: bool) -> None:
        self.update = update
        self._texts = xml_elements.texts(given)

    def names(self, name: str) -> bool:
        return name in self._texts

    def duration(self, name: str, kept: Millis) -> str | None:
        """A duration as the client wrote it, if the service has kept it."""
        given = self._texts.get(name)
        return given.strip() if given is not None and read_duration(given) == kept else None


def entity_entry(
    entity: EntityDescription,
    runtime: EntityRuntime,
    place: DocumentContext,
    *,
    put: PutDescription | None = None,
    base: str | None = None,
) -> Element:
    """Writes an entry: as it is kept or, with `put`, as the answer to a PUT. In a feed it names the feed as base."""
    name = type(entity).__name__
    content = element(name, **{"xmlns": xml_elements.CONNECT, "xmlns:i": xml_elements.INSTANCE})
    is_subscription = isinstance(entity, SubscriptionDescription)
    if put is not None and put.update and is_subscription:
        runtime = replace(runtime, created_at=runtime.updated_at)
    for item in properties_of(entity, place.api_version):
        if put is not None and not _is_in_answer(item, put, is_subscription):
            continue
        made = _property(item, entity, runtime, place, put)
        if made is not None:
            content.append(made)
    # Only queues and topics have an author.
    author = None if is_subscription else place.namespace
    published = None if put is not None and put.update and not is_subscription else runtime.created_at
    return _entry(place, entity.path, entity.name, content, (published, runtime.updated_at), author=author, base=base)


def _is_in_answer(item: Property, put: PutDescription, is_subscription: bool) -> bool:
    """Whether the answer to a PUT has a property."""
    if put.update and not is_subscription:
        return put.names(item.value if isinstance(item, NestedProperty) else item.name)
    later = item.later if isinstance(item, RuntimeProperty) else item is NestedProperty.COUNT_DETAILS
    return not later


def rule_entry(
    rule: RuleDescription,
    path: str,
    created_at: Millis,
    place: DocumentContext,
    *,
    given: Element | None = None,
    base: str | None = None,
) -> Element:
    """Writes an entry: what is kept or, with `given`, the answer to a PUT of that description."""
    content = rule_element(rule, created_at, given)
    return _entry(place, f"{path}/rules/{rule.name}", rule.name, content, (created_at, created_at), base=base)


def namespace_entry(created_at: Millis, place: DocumentContext) -> Element:
    when = write_instant(created_at)
    return element(
        "entry",
        text("id", place.url),
        _title(place.namespace),
        text("updated", write_second(created_at)),
        element("author", text("name", place.namespace)),
        _link("self", place.url),
        _content(
            element(
                "NamespaceInfo",
                text("CreatedTime", when),
                text("MessagingSKU", place.tier),
                text("MessagingUnits", "1") if place.tier is Tier.PREMIUM else None,
                text("ModifiedTime", when),
                text("Name", place.namespace),
                text("NamespaceType", "Messaging"),
                **{"xmlns": xml_elements.CONNECT, "xmlns:i": xml_elements.INSTANCE},
            )
        ),
        xmlns=xml_elements.ATOM,
    )


def feed(
    title: str, entries: Sequence[Element], now: Millis, place: DocumentContext, following: int | None, top: int
) -> Element:
    """Writes a page of a list. `following` is the start of the next page, if there is one."""
    next_link = None
    if following is not None:
        query = urlencode({"$skip": following, "$top": top, "api-version": place.api_version})
        # Clients take the second link as the next page, so the last page has only one link.
        next_link = _link("next", f"{place.url.partition('?')[0]}?{query}")
    return element(
        "feed",
        _title(title),
        text("id", place.url),
        text("updated", write_second(now)),
        _link("self", place.url),
        next_link,
        *entries,
        xmlns=xml_elements.ATOM,
    )


def empty_feed(now: Millis) -> Element:
    """The answer of the service to a GET without an entity: an empty list of public services."""
    return element(
        "feed",
        _title("Publicly Listed Services"),
        element("subtitle", text="This is the list of publicly-listed services currently available.", type="text"),
        text("id", "uuid:00000000-0000-0000-0000-000000000000;id=0"),
        text("updated", write_second(now)),
        text("generator", "Service Bus 1.1"),
        xmlns=xml_elements.ATOM,
    )


def _entry(
    place: DocumentContext,
    path: str,
    name: str,
    content: Element,
    times: tuple[Millis | None, Millis],
    *,
    author: str | None = None,
    base: str | None = None,
) -> Element:
    address = place.url
    if base is not None:
        address = f"https://{place.host}/{quote(_capitalized(path), safe='/$~')}?api-version={place.api_version}"
    return element(
        "entry",
        text("id", address),
        _title(name),
        None if times[0] is None else text("published", write_second(times[0])),
        text("updated", write_second(times[1])),
        None if author is None else element("author", text("name", author)),
        _link("self", address),
        _content(content),
        # In a feed the entry inherits the XML namespace, and only there it has a base.
        **({"xmlns": xml_elements.ATOM} if base is None else {"xml:base": base}),
    )


def _capitalized(path: str) -> str:
    """The path as the service writes it in the entries of a feed. The JavaScript client looks for the capitals."""
    topic, below, rest = path.partition("/subscriptions/")
    return f"{topic}/Subscriptions/{rest.replace('/rules/', '/Rules/', 1)}" if below else path


def _title(title: str) -> Element:
    return element("title", text=title, type="text")


def _link(relation: str, address: str) -> Element:
    return element("link", rel=relation, href=address)


def _content(description: Element) -> Element:
    return element("content", description, type="application/xml")


def _property(
    item: Property,
    entity: EntityDescription,
    runtime: EntityRuntime,
    place: DocumentContext,
    put: PutDescription | None,
) -> Element | None:
    match item:
        case SettingProperty(name, kind):
            value = item.plain(entity)
            if put is not None and kind is PropertyType.DURATION:
                value = put.duration(name, getattr(entity, item.field)) or value
            if value is None and name == "MaxMessageSizeInKilobytes":
                value = default_message_size(place.tier)
            if kind is PropertyType.ENTITY and value is not None:
                value = f"sb://{place.host}/{value}"
            return None if value is None else text(name, _spelled(value))
        case RuntimeProperty(name, fact):
            if put is not None and name == ACCESSED and isinstance(entity, SubscriptionDescription):
                return text(name, NEVER_LOCAL)
            if put is not None and name == UPDATED and put.update and not isinstance(entity, SubscriptionDescription):
                return text(name, NEVER)
            return text(name, _spelled(fact(runtime)))
        case NestedProperty.COUNT_DETAILS:
            return _count_details(runtime)
        case NestedProperty.AUTHORIZATION_RULES:
            rules = () if isinstance(entity, SubscriptionDescription) else entity.authorization_rules
            return element(item.value, *map(_authorization_rule, rules))


def _spelled(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _count_details(runtime: EntityRuntime) -> Element:
    counts = (text(f"d2p1:{name}", str(count(runtime))) for name, count in COUNTS.items())
    return element(NestedProperty.COUNT_DETAILS.value, *counts, **{"xmlns:d2p1": xml_elements.COUNTS})


def _authorization_rule(rule: AuthorizationRule) -> Element:
    return xml_elements.typed(
        "AuthorizationRule",
        "SharedAccessAuthorizationRule",
        text("ClaimType", "SharedAccessKey"),
        text("ClaimValue", "None"),
        element("Rights", *(text("AccessRights", right) for right in rule.rights)),
        text("KeyName", rule.key_name),
        text("PrimaryKey", rule.primary_key),
        text("SecondaryKey", rule.secondary_key),
    )
