"""Reads XML from untrusted clients, and writes XML as the service does.

Elements are read with their namespaces and written with the prefixes of the service: some clients look for the exact
name `d2p1:ActiveMessageCount`.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn
from xml.etree import ElementTree

from ..broker import BadArgument

ATOM: Final = "http://www.w3.org/2005/Atom"
CONNECT: Final = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
COUNTS: Final = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
INSTANCE: Final = "http://www.w3.org/2001/XMLSchema-instance"
SCHEMA: Final = "http://www.w3.org/2001/XMLSchema"
SERIALIZATION: Final = "http://schemas.microsoft.com/2003/10/Serialization/"

Element = ElementTree.Element

_UNWRITABLE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML does not allow. A description can get them through JSON or AMQP."""


class _NoDoctype(ElementTree.TreeBuilder):
    def doctype(self, name: str, *_: str | None) -> NoReturn:
        # A document type declares XML entities. Without it there is nothing to expand and nothing external to load.
        raise BadArgument(f"The XML has a document type, '{name[:50]}', which the service does not take: leave it out.")


def parse(body: bytes) -> Element:
    """Parses a document and returns its root element, or refuses it."""
    parser = ElementTree.XMLParser(target=_NoDoctype())  # noqa: S314  a document type is refused before it is read
    try:
        parser.feed(body)
        return parser.close()
    except (ElementTree.ParseError, LookupError, ValueError) as problem:
        raise BadArgument(f"The body is not well-formed XML: {problem}.") from None


def serialize(root: Element) -> bytes:
    # Through text: as bytes it would get an XML declaration, which the service does not write.
    return ElementTree.tostring(root, encoding="unicode").encode()


def element(name: str, *children: Element | None, text: str | None = None, **attributes: str) -> Element:
    """Creates an element. Children that are `None` are left out."""
    made = Element(name, attributes)
    made.text = None if text is None else _UNWRITABLE.sub("\ufffd", text)
    made.extend(child for child in children if child is not None)
    return made


def typed(name: str, kind: str, *children: Element | None) -> Element:
    """Creates an element with its subclass as an attribute, as .NET's serializer does."""
    return element(name, *children, **{"i:type": kind})


def text(name: str, value: str) -> Element:
    return element(name, text=value)


def kind_of(given: Element) -> str:
    """The subclass that an element names, without its prefix."""
    return given.get(f"{{{INSTANCE}}}type", "").rpartition(":")[2]


def is_nil(given: Element) -> bool:
    return given.get(f"{{{INSTANCE}}}nil", "false") in {"true", "1"}


def connect(name: str) -> str:
    """The full name of an element of Service Bus."""
    return f"{{{CONNECT}}}{name}"


def texts(parent: Element) -> dict[str, str]:
    """The texts of the child elements of Service Bus, by name. Of two with one name the last counts. Nil elements are
    left out."""
    return {
        child.tag.removeprefix(connect("")): child.text or ""
        for child in parent
        if child.tag.startswith(connect("")) and not is_nil(child)
    }
