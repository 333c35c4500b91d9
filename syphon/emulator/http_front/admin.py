"""The administration API of a namespace, for `ServiceBusAdministrationClient`."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence
from dataclasses import replace

from aiohttp import web

from ..broker import (
    KNOW_MORE,
    AuthorizationRule,
    BadArgument,
    BrokerNamespace,
    Claim,
    EntityDescription,
    EntityExists,
    EntityNotFound,
    NotImplementedHere,
    QueueDescription,
    Refusal,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
)
from ..clock import SystemClock
from . import atom
from .requests import AdministrationPath, page_of, with_local_targets
from .xml_elements import Element, serialize

_clock = SystemClock()
"""The clock for the date of a feed: the server's time, like the Date header. Entities have their own dates."""


class AdministrationApi:
    """Answers requests about the entities of one namespace."""

    def __init__(self, namespace: BrokerNamespace) -> None:
        self._broker = namespace

    async def answer(self, request: web.Request) -> web.Response:
        address = AdministrationPath.of(request.path)
        try:
            return await self._answer(request, address)
        except (EntityExists, EntityNotFound) as refusal:
            raise self._in_words_of_a_topic(refusal, address) from None

    async def _answer(self, request: web.Request, address: AdministrationPath) -> web.Response:
        if not address.path and request.method == "GET":
            # No token is needed: people use this to test whether they can reach a namespace.
            return _empty_feed()
        self._broker.authorize_http(request.headers.get("Authorization"), address.path, Claim.MANAGE)
        match request.method:
            case "GET":
                return self._get(request, address)
            case "PUT":
                return self._put(request, address, await request.read())
            case "DELETE":
                return self._delete(address)
            case method:
                raise NotImplementedHere(
                    f"{method} {request.path}: over HTTP this emulator manages entities, with GET, PUT and DELETE. "
                    "Send and receive messages over AMQP."
                )

    # --- reading ---------------------------------------------------------------------------------------------------

    def _get(self, request: web.Request, address: AdministrationPath) -> web.Response:
        if address.path.startswith("$"):
            return self._get_special(request, address)
        try:
            entity = self._broker.describe(address.topic or address.path)
        except EntityNotFound:
            # The service answers like this, where one expects a 404. Below an existing topic it does answer 404.
            return _empty_feed()
        if address.topic is None:
            return self._entity(request, entity)
        if address.subscription is None:
            return self._list(request, "Subscriptions", self._broker.subscriptions(address.topic))
        if not address.rules:
            return self._entity(request, self._broker.describe(address.subscription_path))
        rules = self._broker.rules(address.topic, address.subscription)
        if address.rule is None:
            return self._list_rules(request, address, rules)
        return self._rule(request, address, _named(address, rules))

    def _get_special(self, request: web.Request, address: AdministrationPath) -> web.Response:
        match address.path.lower():
            case "$namespaceinfo":
                return _entry(atom.namespace_entry(self._broker.created_at, self._place(request)))
            case "$resources/queues":
                return self._list(request, "Queues", self._broker.queues())
            case "$resources/topics":
                return self._list(request, "Topics", self._broker.topics())
        raise EntityNotFound(f"There is nothing at '{address.path}': this emulator lists queues and topics.")

    def _list(self, request: web.Request, title: str, entities: Sequence[EntityDescription]) -> web.Response:
        place = self._place(request)
        page = page_of(request, entities)
        entries = [
            atom.entity_entry(entity, self._broker.runtime(entity.path), place, base=place.url) for entity in page.items
        ]
        return _feed(atom.feed(title, entries, _clock.now(), place, page.following, page.top))

    def _list_rules(
        self, request: web.Request, address: AdministrationPath, rules: Sequence[RuleDescription]
    ) -> web.Response:
        place = self._place(request)
        path = address.subscription_path
        created_at = self._broker.runtime(path).created_at
        page = page_of(request, rules)
        entries = [atom.rule_entry(rule, path, created_at, place, base=place.url) for rule in page.items]
        return _feed(atom.feed("Rules", entries, _clock.now(), place, page.following, page.top))

    # --- changing --------------------------------------------------------------------------------------------------

    def _put(self, request: web.Request, address: AdministrationPath, body: bytes) -> web.Response:
        given = atom.read_entry(body)
        update = "If-Match" in request.headers
        put = atom.PutDescription(given, update=update)
        if address.topic is None:
            return self._put_entity(request, atom.read_entity(address.path, given), put)
        if address.subscription is None or (address.rules and address.rule is None):
            raise BadArgument(f"'{address.path}' is a list: name what is to be created or updated in it.")
        if address.rule is None:
            subscription, first_rule = atom.read_subscription(address.topic, address.subscription, given)
            return self._put_subscription(request, subscription, first_rule, put)
        rule = atom.read_rule_entry(address.rule, given)
        keep = self._broker.update_rule if update else self._broker.create_rule
        kept = keep(address.topic, address.subscription, rule)
        return self._rule(request, address, kept, given=given, created=not update)

    def _put_entity(
        self, request: web.Request, entity: QueueDescription | TopicDescription, put: atom.PutDescription
    ) -> web.Response:
        entity = replace(entity, authorization_rules=tuple(map(_with_keys, entity.authorization_rules)))
        kept: EntityDescription
        if isinstance(entity, TopicDescription):
            kept = (self._broker.update_topic if put.update else self._broker.create_topic)(entity)
        else:
            queue = with_local_targets(entity, request, self._broker)
            kept = (self._broker.update_queue if put.update else self._broker.create_queue)(queue)
        return self._entity(request, kept, put)

    def _put_subscription(
        self,
        request: web.Request,
        subscription: SubscriptionDescription,
        first_rule: RuleDescription,
        put: atom.PutDescription,
    ) -> web.Response:
        subscription = with_local_targets(subscription, request, self._broker)
        if put.update:
            kept = self._broker.update_subscription(subscription)
        else:
            kept = self._broker.create_subscription(subscription, first_rule)
        return self._entity(request, kept, put)

    def _delete(self, address: AdministrationPath) -> web.Response:
        if address.topic is None:
            self._broker.delete(address.path)
        elif address.subscription is None or (address.rules and address.rule is None):
            raise EntityNotFound(f"'{address.path}' is a list, and cannot be deleted.")
        elif address.rule is None:
            self._broker.delete(address.subscription_path)
        else:
            self._broker.delete_rule(address.topic, address.subscription, address.rule)
        return web.Response()

    # --- answers ---------------------------------------------------------------------------------------------------

    def _place(self, request: web.Request) -> atom.DocumentContext:
        return atom.DocumentContext(
            namespace=self._broker.name,
            tier=self._broker.tier,
            host=request.host,
            url=f"https://{request.host}{request.raw_path}",
            api_version=request.query.get("api-version", "2021-05"),
        )

    def _entity(
        self, request: web.Request, entity: EntityDescription, put: atom.PutDescription | None = None
    ) -> web.Response:
        entry = atom.entity_entry(entity, self._broker.runtime(entity.path), self._place(request), put=put)
        return _entry(entry, created=put is not None and not put.update)

    def _rule(
        self,
        request: web.Request,
        address: AdministrationPath,
        rule: RuleDescription,
        *,
        given: Element | None = None,
        created: bool = False,
    ) -> web.Response:
        path = address.subscription_path
        # Rules have no date of their own, and no client has needed one.
        created_at = self._broker.runtime(path).created_at
        return _entry(atom.rule_entry(rule, path, created_at, self._place(request), given=given), created=created)

    def _in_words_of_a_topic(self, refusal: Refusal, address: AdministrationPath) -> Refusal:
        """Subscriptions and rules have another text than queues and topics."""
        if address.subscription is None:
            return refusal
        names = filter(None, (address.topic, address.subscription, address.rule))
        entity = f"'{self._broker.name}:Topic:{'|'.join(names)}'"
        if isinstance(refusal, EntityExists):
            return EntityExists(f"The messaging entity {entity} already exists. {KNOW_MORE}")
        return EntityNotFound(f"Entity {entity} was not found. {KNOW_MORE}")


def _named(address: AdministrationPath, rules: Sequence[RuleDescription]) -> RuleDescription:
    for rule in rules:
        if rule.name.lower() == str(address.rule).lower():
            return rule
    raise EntityNotFound(f"The rule '{address.rule}' was not found.")


def _with_keys(rule: AuthorizationRule) -> AuthorizationRule:
    """Adds the keys that the client left out, as the service does."""
    return replace(rule, primary_key=rule.primary_key or _new_key(), secondary_key=rule.secondary_key or _new_key())


def _new_key() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


def _entry(entry: Element, *, created: bool = False) -> web.Response:
    return _response(entry, "entry", 201 if created else 200)


def _feed(feed: Element) -> web.Response:
    return _response(feed, "feed", 200)


def _empty_feed() -> web.Response:
    return _feed(atom.empty_feed(_clock.now()))


def _response(root: Element, kind: str, status: int) -> web.Response:
    headers = {"Content-Type": f"application/atom+xml;type={kind};charset=utf-8"}
    return web.Response(body=serialize(root), status=status, headers=headers)
