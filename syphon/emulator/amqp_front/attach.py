"""Attaching: turns the address that a client names into a link, or into a refusal."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, TypeGuard
from urllib.parse import urlsplit

from syphon.amqp import Described, Long, Map, Symbol, UInt, Value
from syphon.amqp.frames import Attach, Composite, Coordinator, Detach, Error, Source, Target

from ..broker import (
    Action,
    BadArgument,
    Claim,
    Fault,
    MessageSession,
    NotAllowed,
    Operation,
    QueueDescription,
    QuotaExceeded,
    Refusal,
    SessionQueue,
    Tier,
)
from ..clock import Millis
from .coordinator import CoordinatorLink
from .entity_links import IncomingEntityLink, OutgoingEntityLink
from .links import AmqpLink, IncomingLink
from .management import ManagementNode
from .nodes import CbsNode, IncomingRequestLink, OutgoingReplyLink, RequestNode

if TYPE_CHECKING:
    from .session import AmqpSession

SESSION_FILTER = "com.microsoft:session-filter"
LOCKED_UNTIL = "com.microsoft:locked-until-utc"
BATCH_SIZE = "com.microsoft:max-message-batch-size"
DESTINATION = "com.microsoft:transfer-destination-address"
"""Older clients name the entity to send through in the target, and the destination in this property."""
OPERATION_TIMEOUT = "com.microsoft:timeout"
LINKS_MAX = 5000
"""The most links of one connection. Each costs memory, and a client that needs more can open another connection."""
SETTLED, RECEIVER_SETTLES_SECOND = 1, 1
TICKS_AT_1970 = 621_355_968_000_000_000
TEMPORARY_IDLE: Millis = 300_000
SESSION_WAIT = 60_000
"""Milliseconds that a client waits for the next free session, unless it names another time."""


def open_link(session: AmqpSession, attach: Attach) -> None:
    """Answers an attach with a link or with a refusal. A receiver that waits for a free session is answered later."""
    try:
        path = _path_of(attach)
        fault: Fault | None = None
        if path != "$cbs":
            faults = session.connection.namespace.faults
            faults.charge(0)  # a link costs no credits, but a busy namespace refuses it
            fault = faults.strike(Operation.ATTACH, path)
        if fault is not None:
            if fault.action is Action.DROP:
                session.connection.abort()
                return
            if fault.action is Action.HANG:
                session.ignore(attach.handle)
                return
            if fault.action is not Action.DELAY:
                raise fault.refusal()
            clock = session.connection.namespace.clock
            session.delay(attach)
            clock.call_at(clock.now() + round(fault.seconds * 1000), lambda: _open_later(session, attach, path))
            return
    except Refusal as refusal:
        refuse(session, attach, refusal)
    else:
        _open(session, attach, path)


def _open_later(session: AmqpSession, attach: Attach, path: str) -> None:
    if session.resume(attach):
        _open(session, attach, path)


def _open(session: AmqpSession, attach: Attach, path: str) -> None:
    try:
        if session.connection.link_count >= LINKS_MAX:
            raise QuotaExceeded(f"This connection has {LINKS_MAX} links, and cannot have more.")
        if isinstance(attach.target, Coordinator) and not attach.role:
            _attach_coordinator(session, attach)
            return
        if _is_dynamic(terminus := _terminus(attach)):
            _create_temporary_queue(session, path)
            terminus.address = path
        node = _node(session, path)
        if node is not None:
            _attach_node(session, attach, path, node)
        elif attach.role:
            _attach_receiver(session, attach, path)
        else:
            _attach_sender(session, attach, path)
    except Refusal as refusal:
        refuse(session, attach, refusal)


def refuse(session: AmqpSession, attach: Attach, refusal: Refusal) -> None:
    """Refuses a link as AMQP does: attaches it without a terminus and detaches it at once."""
    session.send(Attach(attach.name, attach.handle, not attach.role, initial_delivery_count=0 if attach.role else None))
    session.send(Detach(attach.handle, True, Error(refusal.condition, refusal.description)))
    session.ignore(attach.handle)


def _terminus(attach: Attach) -> Composite | None:
    """The end of the link that is here."""
    return attach.source if attach.role else attach.target


def _is_dynamic(terminus: Composite | None) -> TypeGuard[Source | Target]:
    return isinstance(terminus, Source | Target) and bool(terminus.dynamic)


def _path_of(attach: Attach) -> str:
    terminus = _terminus(attach)
    if isinstance(terminus, Coordinator):
        return "$coordinator"
    if _is_dynamic(terminus):
        return f"temporary-{uuid.uuid4().hex}"
    if not isinstance(terminus, Source | Target) or not isinstance(terminus.address, str) or not terminus.address:
        raise BadArgument("The link names no address.", "amqp:invalid-field")
    address = terminus.address
    try:
        path = (urlsplit(address).path if "://" in address else address).strip("/")
    except ValueError:  # for example half an IPv6 address
        raise BadArgument(f"'{address:.300}' is no address.", "amqp:invalid-field") from None
    return "$cbs" if path.startswith("$cbs/") else path  # the retired .NET client adds an id to its reply link


def _node(session: AmqpSession, path: str) -> RequestNode | None:
    connection = session.connection
    if path == "$cbs":
        return CbsNode(connection)
    entity, found, rest = path.lower().rpartition("/$management")
    if found and not rest:
        namespace = connection.namespace
        grants = list(connection.grants.values())
        try:
            namespace.authorize(grants, path, Claim.LISTEN)  # the whole path: some tokens are for the node only
        except Refusal:
            namespace.authorize(grants, path, Claim.SEND)
        namespace.create_on_demand(path)
        return ManagementNode(connection, path[: len(entity)])
    return None


def _create_temporary_queue(session: AmqpSession, name: str) -> None:
    """Creates the queue of a dynamic source or target. It is deleted with its link, or later if that is lost."""
    namespace = session.connection.namespace
    namespace.authorize(list(session.connection.grants.values()), name, Claim.MANAGE)
    namespace.create_queue(QueueDescription(name, auto_delete_on_idle=TEMPORARY_IDLE))


def _attach_coordinator(session: AmqpSession, attach: Attach) -> None:
    if session.connection.namespace.tier is Tier.BASIC:
        raise NotAllowed("Transactions need the tier Standard or Premium.")
    _attach(session, attach, CoordinatorLink(session, attach))


def _attach_node(session: AmqpSession, attach: Attach, path: str, node: RequestNode) -> None:
    via = ""
    if isinstance(node, ManagementNode):
        via = session.via.enter(session.connection.namespace.top_level(node.path), receives=True)
    _drop_filters(attach)
    if attach.role:
        _attach(session, attach, OutgoingReplyLink(session, attach, path))
    else:
        _attach(session, attach, IncomingRequestLink(session, attach, path, node, via))


def _attach_sender(session: AmqpSession, attach: Attach, path: str) -> None:
    namespace = session.connection.namespace
    destination = attach.properties.get(DESTINATION) if attach.properties is not None else None
    destination = destination.strip("/") if isinstance(destination, str) else path
    for each in {path, destination}:
        namespace.authorize(list(session.connection.grants.values()), each, Claim.SEND)
        namespace.create_on_demand(each)
    entity = namespace.target(destination)
    entity.check_sends()
    via = session.via.enter(namespace.top_level(path), receives=False)
    link = IncomingEntityLink(session, attach, entity, via)
    batch = namespace.max_batch_size(entity)
    _attach(session, attach, link, Map.symbols({BATCH_SIZE: UInt(batch)}))


def _attach_receiver(session: AmqpSession, attach: Attach, path: str) -> None:
    namespace = session.connection.namespace
    namespace.authorize(list(session.connection.grants.values()), path, Claim.LISTEN)
    namespace.create_on_demand(path)
    entity, queue = namespace.source(path)
    entity.check_receives()
    wants_session, session_id, descriptor = _session_filter(attach)
    _drop_filters(attach)
    if not isinstance(queue, SessionQueue) and wants_session:
        raise NotAllowed(f"'{path}' does not require sessions: a session receiver cannot be created on it.")
    if isinstance(queue, SessionQueue) and not wants_session:
        raise NotAllowed(
            f"It is not possible for an entity that requires sessions to create a non-sessionful receiver: '{path}'."
        )
    via = session.via.enter(namespace.top_level(path), receives=True)
    link = OutgoingEntityLink(session, attach, path, entity, queue, via, attach.snd_settle_mode == SETTLED)
    if not isinstance(queue, SessionQueue):
        _attach(session, attach, link)
        return

    def grant(granted: MessageSession) -> None:
        source = attach.source
        assert isinstance(source, Source)  # _path_of has checked it
        # Described if the client described it: the Go client reads nothing else.
        id = granted.id if descriptor is None else Described(descriptor, granted.id)
        source.filter = Map(((Symbol(SESSION_FILTER), id),))
        ticks = granted.locked_until * 10_000 + TICKS_AT_1970
        _attach(session, attach, link, Map(((Symbol(LOCKED_UNTIL), Long(ticks)),)))

    if session_id is not None:
        try:
            grant(queue.accept(session_id, link))
        except Refusal:
            link.closed()
            raise
    else:
        wait = attach.properties.get(OPERATION_TIMEOUT) if attach.properties is not None else None
        link.wait_for_session(queue, int(wait) if isinstance(wait, int) else SESSION_WAIT, grant, attach)


def _session_filter(attach: Attach) -> tuple[bool, str | None, Value]:
    """Whether the receiver asks for a session, its id (None is the next free session), and the filter's descriptor."""
    source = attach.source
    if not isinstance(source, Source) or source.filter is None or SESSION_FILTER not in source.filter:
        return False, None, None
    wanted = source.filter.get(SESSION_FILTER)
    descriptor = None
    if isinstance(wanted, Described):
        descriptor, wanted = wanted.descriptor, wanted.value
    if wanted is not None and not isinstance(wanted, str):
        raise BadArgument(f"A session id is a string, not {wanted!r:.200}.")
    return True, wanted, descriptor


def _drop_filters(attach: Attach) -> None:
    """Removes the filters from the source of the answer: it names those that apply, and none do but a session's."""
    if isinstance(attach.source, Source):
        attach.source.filter = None


def _attach(session: AmqpSession, attach: Attach, link: AmqpLink, properties: Map | None = None) -> None:
    """Attaches the link and tells the peer."""
    session.add(link)
    link.is_temporary = _is_dynamic(_terminus(attach))
    session.send(
        Attach(
            attach.name,
            attach.handle,
            not attach.role,
            attach.snd_settle_mode,
            attach.rcv_settle_mode,
            attach.source,
            attach.target,
            None,
            None,
            0 if attach.role else None,
            link.max_size if isinstance(link, IncomingLink) else None,
            None,
            None,
            properties,
        )
    )
    if isinstance(link, IncomingLink):
        link.give_credit()
    if link.path != "$cbs":
        link.active()  # it may have waited longer than a link may be idle
        link.watch_idleness()
    session.apply_early_flow(link)
