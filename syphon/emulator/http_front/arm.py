"""Azure Resource Manager, as far as `azure-mgmt-servicebus` needs it for the queues and topics of a namespace."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from ..broker import (
    BadArgument,
    BrokerNamespace,
    EntityNotFound,
    NotImplementedHere,
    QueueDescription,
    TopicDescription,
    default_message_size,
)
from .entity_properties import (
    COUNTS,
    LARGE_MESSAGES,
    QUEUE,
    TOPIC,
    NestedProperty,
    RuntimeProperty,
    SettingProperty,
    properties_of,
    read_settings,
    settings_of,
)
from .iso_times import write_instant
from .requests import ResourcePath, page_of

Json = dict[str, Any]
ArmEntity = QueueDescription | TopicDescription

_LOCATION = "emulator"
_DATA_PLANE_ONLY = frozenset(
    {
        "IsAnonymousAccessible",
        "EntityAvailabilityStatus",
        "FilteringMessagesBeforePublishing",
        "EnableSubscriptionPartitioning",
    }
)


class ResourceManagerApi:
    """Answers requests for the queues and topics of one namespace. The path must name that namespace."""

    def __init__(self, namespace: BrokerNamespace) -> None:
        self._broker = namespace

    async def answer(self, request: web.Request) -> web.Response:
        self._broker.authorize_arm(request.headers.get("Authorization"))
        if "api-version" not in request.query:
            raise BadArgument("The api-version query parameter (?api-version=) is required for all requests.")
        resource = self._resource(request.path)
        match request.method, resource:
            case "GET", ResourcePath(kind=""):
                return web.json_response(self._namespace(request, resource))
            case "GET", ResourcePath(name=""):
                return self._list(request, resource)
            case "GET", ResourcePath():
                return web.json_response(self._entity(resource, self._find(resource)))
            case "PUT", ResourcePath(name=name) if name:
                return self._put(resource, await request.read())
            case "DELETE", ResourcePath(name=name) if name:
                return self._delete(resource)
        raise NotImplementedHere(
            f"{request.method} {request.path}: this emulator creates, reads, lists and deletes queues and topics."
        )

    def _resource(self, path: str) -> ResourcePath:
        resource = ResourcePath.of(path)
        if resource is None:
            raise NotImplementedHere(f"'{path}': this emulator manages the queues and topics of a namespace.")
        if resource.namespace.lower() != self._broker.name.lower():
            raise EntityNotFound(
                f"The Resource 'Microsoft.ServiceBus/namespaces/{resource.namespace}' under resource group "
                f"'{resource.group}' was not found: this port belongs to the namespace '{self._broker.name}'."
            )
        return resource

    def _find(self, resource: ResourcePath) -> ArmEntity:
        found = self._broker.describe(resource.entity)
        # A topic is not found as a queue, although queues and topics share their names.
        if isinstance(found, QueueDescription if resource.kind == "queues" else TopicDescription):
            return found
        raise EntityNotFound(f"The requested resource {resource.name} does not exist among the {resource.kind}.")

    def _list(self, request: web.Request, resource: ResourcePath) -> web.Response:
        entities: list[ArmEntity] = []
        entities += self._broker.queues() if resource.kind == "queues" else self._broker.topics()
        page = page_of(request, entities)
        answer: Json = {"value": [self._entity(resource, entity) for entity in page.items]}
        if page.following is not None:
            # Behind a proxy with TLS the next link must be https: otherwise the client does not send its token.
            scheme = request.headers.get("X-Forwarded-Proto", request.scheme)
            query = {"api-version": request.query["api-version"], "$skip": page.following, "$top": page.top}
            answer["nextLink"] = f"{scheme}://{request.host}{request.rel_url.raw_path}?{urlencode(query)}"
        return web.json_response(answer)

    def _put(self, resource: ResourcePath, body: bytes) -> web.Response:
        given = _read_properties(body)
        try:
            self._find(resource)
            update = True
        except EntityNotFound:
            update = False
        kept: ArmEntity
        if resource.kind == "queues":
            queue = QueueDescription(resource.entity, **read_settings(QUEUE, given))
            kept = (self._broker.update_queue if update else self._broker.create_queue)(queue)
        else:
            topic = TopicDescription(resource.entity, **read_settings(TOPIC, given))
            kept = (self._broker.update_topic if update else self._broker.create_topic)(topic)
        return web.json_response(self._entity(resource, kept))

    def _delete(self, resource: ResourcePath) -> web.Response:
        try:
            self._broker.delete(self._find(resource).path)
        except EntityNotFound:
            return web.Response(status=204)
        return web.Response()

    # --- answers ---------------------------------------------------------------------------------------------------

    def _namespace(self, request: web.Request, resource: ResourcePath) -> Json:
        created_at = write_instant(self._broker.created_at)
        return {
            "id": resource.namespace_id,
            "name": self._broker.name,
            "type": "Microsoft.ServiceBus/namespaces",
            "location": _LOCATION,
            "sku": {"name": self._broker.tier, "tier": self._broker.tier},
            "properties": {
                "provisioningState": "Succeeded",
                "status": "Active",
                "createdAt": created_at,
                "updatedAt": created_at,
                "serviceBusEndpoint": f"https://{request.host}/",
            },
        }

    def _entity(self, resource: ResourcePath, entity: ArmEntity) -> Json:
        name = entity.name.replace("/", "~")
        return {
            "id": f"{resource.namespace_id}/{resource.kind}/{name}",
            "name": name,
            "type": f"Microsoft.ServiceBus/namespaces/{resource.kind}",
            "location": _LOCATION,
            "properties": self._properties(entity),
        }

    def _properties(self, entity: ArmEntity) -> Json:
        runtime = self._broker.runtime(entity.path)
        answer: Json = {"maxMessageSizeInKilobytes": default_message_size(self._broker.tier)}
        for item in properties_of(entity, LARGE_MESSAGES):
            match item:
                case SettingProperty(name):
                    value = item.plain(entity)
                    if value is not None:
                        answer[_camel(name)] = value
                case RuntimeProperty(name, fact) if name not in _DATA_PLANE_ONLY:
                    answer[_camel(name)] = fact(runtime)
                case NestedProperty.COUNT_DETAILS:
                    answer["countDetails"] = {_camel(name): count(runtime) for name, count in COUNTS.items()}
        return answer


def _camel(name: str) -> str:
    return name[0].lower() + name[1:]


_NAMES = {_camel(setting.name): setting.name for setting in settings_of(QUEUE + TOPIC)}


def _read_properties(body: bytes) -> dict[str, str]:
    """The settings in the body as text, by the names of the tables. Other properties are ignored: clients write back
    what they have read."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        raise BadArgument("The body is not JSON.") from None
    properties = given.get("properties", {}) if isinstance(given, dict) else None
    if not isinstance(properties, dict):
        raise BadArgument("The body is not a JSON object with an object of properties.")
    return {
        _NAMES[name]: _plain(name, value) for name, value in properties.items() if name in _NAMES and value is not None
    }


def _plain(name: str, value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() | str():
            return str(value)
    raise BadArgument(f"SubCode=40000. {name} was given as {json.dumps(value)[:100]}, which is not a plain value.")
