"""HTML and SVG out of elements. Text is escaped on its way in, so that no page of ours can forget to."""

from __future__ import annotations

from html import escape

from syphon.model import printable

_VOID = frozenset({"meta"})


class Markup(str):
    """Text that is HTML already. Nothing but `tag` and our own style sheet makes any."""


def tag(name: str, /, *children: str | None, **attributes: str | int | float | None) -> Markup:
    """An element. A name that Python keeps for itself has an underscore at its end, and others are hyphens."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(printable(str(value)))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{together(*children)}</{name}>")


def together(*children: str | None) -> Markup:
    """Elements and text, one after the other."""
    return Markup(
        "".join(
            child if isinstance(child, Markup) else escape(printable(child)) for child in children if child is not None
        )
    )
