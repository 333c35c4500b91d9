"""Kubernetes' own schemas of the parts of a pod, for the chart's schema: a misspelt field of an affinity is refused by
helm, and not only by the cluster.

They come from `kubernetes-validate`, which .ci/tools installs. In its strict schemas every object is closed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from tests.support.tools import ROOT, tool

VERSION = "v1.31.0"
CORE = "io.k8s.api.core.v1."
NETWORKING = "io.k8s.api.networking.v1."
USED = (
    *(
        CORE + kind
        for kind in (
            "Affinity",
            "Container",
            "EnvFromSource",
            "EnvVarSource",
            "PodSecurityContext",
            "ResourceRequirements",
            "SecurityContext",
            "Toleration",
            "TopologySpreadConstraint",
            "Volume",
            "VolumeMount",
        )
    ),
    NETWORKING + "NetworkPolicyEgressRule",
    NETWORKING + "NetworkPolicyPeer",
)
"""What values.schema.json refers to."""


def kubernetes_definitions() -> dict[str, Any]:
    """The used definitions, and those that they refer to, without descriptions."""
    everything = _everything()
    found: dict[str, Any] = {}
    open_names = list(USED)
    while open_names:
        name = open_names.pop()
        if name not in found:
            found[name] = _plain(everything[name])
            open_names += _references(found[name])
    return dict(sorted(found.items()))


@cache
def _everything() -> dict[str, Any]:
    tool("kubernetes-validate")
    places = f"venv/lib/python*/site-packages/kubernetes_validate/kubernetes-json-schema/{VERSION}-local-strict"
    files = sorted((ROOT / ".tools").glob(f"{places}/_definitions.json"))
    definitions: dict[str, Any] = json.loads(files[0].read_text())["$defs"]
    return definitions


def _plain(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    words = {key for key in ("description", "format") if isinstance(schema.get(key), str)}
    plain = {
        key: value.replace("#/$defs/", "#/definitions/") if key == "$ref" and isinstance(value, str) else _plain(value)
        for key, value in schema.items()
        if key not in words and not key.startswith("x-kubernetes")
    }
    if "object" in plain.get("type", ()):
        plain.setdefault("additionalProperties", False)  # managed fields are open, and only Kubernetes writes them
    return plain


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for item in schema:
            yield from _references(item)
    elif isinstance(schema, dict):
        if isinstance(reference := schema.get("$ref"), str):
            yield reference.rpartition("/")[2]
        for value in schema.values():
            yield from _references(value)
