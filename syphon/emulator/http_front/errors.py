"""Refusals as the two HTTP APIs word them: Service Bus in XML, Azure Resource Manager in JSON."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from http import HTTPStatus

from aiohttp import web

from ..broker.refusals import Refusal
from .markup import element, serialize, text
from .paths import is_control, is_resource_manager

_CODES = {401: "AuthenticationFailed", 403: "AuthorizationFailed", 404: "ResourceNotFound"}
"""What Resource Manager calls an error, where it does not go by the name of its status."""


def refused(path: str, refusal: Refusal) -> web.Response:
    """The answer to a request that was refused."""
    if is_resource_manager(path) or is_control(path):
        code = _CODES.get(refusal.status) or HTTPStatus(refusal.status).phrase.title().replace(" ", "")
        return web.json_response({"error": {"code": code, "message": refusal.description}}, status=refusal.status)
    # The service leaves this trail for its support. Ours says, to whoever finds it in a log, who wrote it.
    trail = (
        f"TrackingId:{uuid.uuid4()}_emulator, SystemTracker:{path.lstrip('/')}, "
        f"Timestamp:{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}"
    )
    body = element("Error", text("Code", str(refusal.status)), text("Detail", f"{refusal.description} {trail}"))
    return web.Response(body=serialize(body), status=refusal.status, content_type="application/xml", charset="utf-8")
