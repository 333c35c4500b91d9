"""The JSON schema of the settings file, for editors. It is made from the settings themselves."""

from __future__ import annotations

from typing import Any

from .load import Config

REFERENCE = {"type": "string", "pattern": r"\$\{(env|file|credential):[^}]+\}"}
"""Text with a reference, which may stand for any value."""


def config_schema() -> dict[str, Any]:
    """The schema, as it applies to the file before its references are resolved.

    It knows keys, types and limits. Values that must fit together are only checked by `syphon check`.
    """
    found = _with_references(Config.model_json_schema())
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of a syphon worker",
        **{key: value for key, value in found.items() if key != "title"},
    }


def _with_references(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_with_references(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if _is_plain_value(schema):
        words = {key: value for key, value in schema.items() if key in ("title", "default", "description")}
        return words | {"anyOf": [{key: value for key, value in schema.items() if key not in words}, REFERENCE]}
    # A default is shown as Python has it, and that is not always how a person writes it.
    is_odd = schema.get("type") == "string" and not isinstance(schema.get("default"), str)
    return {key: _with_references(value) for key, value in schema.items() if not (key == "default" and is_odd)}


def _is_plain_value(schema: dict[str, Any]) -> bool:
    """Whether it is the schema of a non-string value, which a `${…}` reference does not match."""
    return schema.get("type") in ("integer", "number", "boolean") or "enum" in schema
