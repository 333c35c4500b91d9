"""`syphon dead-letters show`: shows one dead letter, and its body only on request."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syphon.model import ExitCode, printable

from ..backlog_queues import exit_code_for_queues, queue_options, report_unreachable
from ..shared_options import config_option, load_settings
from ..tables import time_iso
from .options import chosen_queues, entity_option

if TYPE_CHECKING:
    from syphon.amqp import Header, Map, Message, Properties, Value
    from syphon.backlog import DeadLetter
    from syphon.worker import MoveEnd

SECTIONS = ("header", "annotations", "properties", "application_properties")


@click.command(short_help="Show one dead letter with all its properties.")
@config_option
@queue_options
@entity_option
@click.option(
    "--sequence-number",
    required=True,
    type=click.IntRange(min=1),
    metavar="N",
    help="Sequence number of the dead letter (see `list`).",
)
@click.option("--body", is_flag=True, help="Also print the body. It may be confidential.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def show(
    config_file: Path,
    pairs: tuple[str, ...],
    queues: tuple[str, ...],
    entities: tuple[MoveEnd, ...],
    sequence_number: int,
    body: bool,
    as_json: bool,
) -> None:
    """Show why a message was dead-lettered, with its properties and annotations and their exact AMQP types.

    \b
      syphon dead-letters show -c config.yaml --queue 0 --sequence-number 17
      syphon dead-letters show --queue 0 --sequence-number 17 --body --json
    """
    from syphon.backlog import DeadLetterFilter, DeadLetterSearch

    chosen = chosen_queues(load_settings(config_file), pairs, queues, entities)
    searches = [DeadLetterSearch([selected], DeadLetterFilter(), 1, sequence_number) for selected in chosen]
    found = [letter for search in searches for _, letter in search if letter.sequence_number == sequence_number]
    unreachable = [one for search in searches for one in search.unreachable]
    report_unreachable(unreachable)
    if len(found) > 1:
        raise click.UsageError(f"{', '.join(letter.queue for letter in found)} each have one: choose with --queue.")
    if not found:
        click.echo(f"There is no dead letter with sequence number {sequence_number}.", err=True)
        raise SystemExit(max(exit_code_for_queues(unreachable), ExitCode.LEFT))
    record = _record(found[0], body)
    if as_json:
        click.echo(json.dumps(record, indent=2))
    else:
        _print(record)
    raise SystemExit(exit_code_for_queues(unreachable))


def _record(letter: DeadLetter, with_body: bool) -> dict[str, Any]:
    """The whole message; of the body only its kind and size, unless `with_body` is set."""
    record: dict[str, Any] = {
        "queue": letter.queue,
        "sequence_number": letter.sequence_number,
        "reason": letter.reason,
        "description": letter.description,
        "destination": letter.destination,
        "message_id": letter.message_id,
        "enqueued_at": time_iso(letter.enqueued_at),
        "bytes": letter.size,
    }
    return record | sections(letter.payload, with_body)


def sections(payload: bytes, with_body: bool) -> dict[str, Any]:
    """The sections of a message; of the body only its kind and size, unless `with_body` is set."""
    from syphon.amqp import Malformed, Message

    try:
        message = Message(payload)
        return {
            "header": _fields(message.header()),
            "annotations": _pairs(message.annotations()),
            "properties": _fields(message.properties()),
            "application_properties": _pairs(message.application_properties()),
            "body": _body(message, with_body),
        }
    except Malformed as error:
        return {"malformed": str(error)}


def _fields(section: Header | Properties) -> list[dict[str, Any]]:
    named = ((field.name, getattr(section, field.name)) for field in fields(section))
    return [_entry(name.replace("_", "-"), value) for name, value in named if value is not None]


def _pairs(section: Map) -> list[dict[str, Any]]:
    return [_entry(key, value) for key, value in section]


def _entry(name: Value, value: Value) -> dict[str, Any]:
    from ..amqp_text import plain, type_of

    return {"name": plain(name), "type": type_of(value), "value": plain(value)}


def _body(message: Message, with_body: bool) -> dict[str, Any]:
    from syphon.amqp import Section, decode

    from ..amqp_text import plain

    spans = [span for span in message.spans if Section.DATA <= span.section <= Section.VALUE]
    kind = Section(spans[0].section).name.lower() if spans else "none"
    body: dict[str, Any] = {"kind": kind, "bytes": sum(span.end - span.start for span in spans)}
    if with_body:
        parts = [decode(message.data, span.value, span.end)[0] for span in spans]
        body["content"] = [_text(part) if isinstance(part, bytes) else plain(part) for part in parts]
    return body


def _text(data: bytes) -> dict[str, str]:
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def body_lines(part: Any) -> Iterator[str]:
    """A part of the body for people: text as it is, bytes as hexadecimal numbers with the characters beside them."""
    text = part.get("text") if isinstance(part, dict) else part
    if isinstance(text, str):
        yield from map(printable, text.splitlines())
    elif isinstance(part, dict) and part.keys() == {"base64"}:
        data = base64.b64decode(part["base64"])
        for start in range(0, len(data), 16):
            row = data[start : start + 16]
            characters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
            yield f"{start:08x}  {row.hex(' '):<47}  {characters}"
    else:
        yield from map(printable, json.dumps(part, indent=2, ensure_ascii=False).splitlines())


def _print(record: dict[str, Any]) -> None:
    for name, value in record.items():
        if name in SECTIONS:
            click.echo(f"{name.replace('_', ' ')}:")
            for entry in value:
                click.echo(f"  {printable(str(entry['name']))} = {printable(str(entry['value']))}  ({entry['type']})")
        elif name == "body":
            click.echo(f"body: {value['kind']}, {value['bytes']:,} bytes")
            for part in value.get("content", ()):
                for line in body_lines(part):
                    click.echo(f"  {line}")
        elif value is not None:
            click.echo(f"{name.replace('_', ' ')}: {printable(str(value))}")
