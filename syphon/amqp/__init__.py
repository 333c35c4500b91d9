"""AMQP 1.0 as bytes: values with their exact types, a message's sections, frames. No I/O, no Azure."""

from .codec import Malformed, decode, encode
from .sections import (
    Header,
    Message,
    Properties,
    Section,
    Span,
    batch_parts,
    data_head,
    data_section,
    header_bytes,
    properties_bytes,
    section_bytes,
    split,
)
from .values import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Long,
    Map,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Value,
)

__all__ = [
    "Array", "Byte", "Char", "Decimal32", "Decimal64", "Decimal128", "Described", "Float", "Header", "Int", "Long",
    "Malformed", "Map", "Message", "Properties", "Section", "Short", "Span", "Symbol", "Timestamp", "UByte", "UInt",
    "ULong", "UShort", "Value", "batch_parts", "data_head", "data_section", "decode", "encode", "header_bytes",
    "properties_bytes", "section_bytes", "split",
]  # fmt: skip
