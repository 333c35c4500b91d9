"""Carries a message from any queue to any entity (X12): as it is, without what its queue has written into it."""

from __future__ import annotations

from syphon.amqp import Malformed, OutOfOrder, Section, in_order
from syphon.amqp.section_edit import with_pairs
from syphon.model import EntityPath

from .backlog_message import BrokerStamps, deliveries
from .dead_letter_edit import NO_EDIT, LetterEdit
from .dead_letters import NotPutBack, fresh_header, put_back
from .layout_cache import identity, layout_of
from .restoration import Restored, Unrestorable, UnrestorableReason


def carried_over(
    payload: bytes, target: EntityPath, edit: LetterEdit = NO_EDIT, *, are_dead_letters: bool = False
) -> Restored | Unrestorable:
    """The message for its target, or why it cannot be read. Never raises.

    The time to live starts again. Of dead letters the reason that their owner has written stays behind.
    """
    try:
        try:
            return _carried(payload, target, edit, are_dead_letters)
        except OutOfOrder:
            return _carried(in_order(payload), target, edit, are_dead_letters)  # M8
    except NotPutBack as error:
        return Unrestorable(UnrestorableReason.MALFORMED, str(error))
    except Malformed as error:
        return Unrestorable(UnrestorableReason.MALFORMED, f"The message is not well-formed AMQP 1.0: {error}.")


def _carried(data: bytes, target: EntityPath, edit: LetterEdit, are_dead_letters: bool) -> Restored:
    layout = layout_of(data)
    message_id, session_id, partition_key, stamps = identity(data, layout)
    header, annotations, properties, application, body = layout.outline
    if are_dead_letters or edit != NO_EDIT:
        carried = put_back(data, edit, keeps_reason=not are_dead_letters)
    else:
        own, following = layout.annotations, properties or application
        carried = b"".join(
            (
                fresh_header(data, header),
                with_pairs(data, annotations, Section.MESSAGE_ANNOTATIONS, own.pairs, own.remaining(data)),
                memoryview(data)[following.start if following is not None else body :],
            )
        )
    found = BrokerStamps(*stamps, deliveries(data, header))
    return Restored(carried, target, message_id, session_id, partition_key, len(carried), found)
