"""Keys, tokens, and what a link is refused for."""

from __future__ import annotations

import base64

from syphon.amqp import Map, Symbol
from syphon.amqp.frames import Attach, Source
from syphon.amqp.frames import Target as LinkTarget
from tests.conformance.comparison import Comparison
from tests.conformance.target import Entities, Target
from tests.conformance.wire import attach_receiver, condition_of


async def test_links_to_what_does_not_exist(target: Target, entities: Entities, behaviour: Comparison) -> None:
    missing = entities.name("missing")
    async with target.primary.raw() as client:
        behaviour.same("a receiver", await condition_of(attach_receiver(client, Source(missing))), "amqp:not-found")
        behaviour.same("a sender", await condition_of(client.attach_sender(missing)), "amqp:not-found")


async def test_a_topic_is_not_received_from(target: Target, entities: Entities, behaviour: Comparison) -> None:
    target.need("topics")
    topic = entities.topic()
    entities.subscription(topic)
    async with target.primary.raw() as client:
        behaviour.same("a receiver", await condition_of(attach_receiver(client, Source(topic))), "amqp:not-allowed")


async def test_a_filter_that_does_not_apply_is_not_echoed(
    target: Target, entities: Entities, behaviour: Comparison
) -> None:
    queue = entities.queue()
    selector = Map(((Symbol("apache.org:selector-filter:string"), "colour = 'red'"),))
    async with target.primary.raw() as client:
        source = Source(queue, filter=selector)
        client.post(Attach("r", 0, True, 0, 1, source=source, target=LinkTarget("raw")))
        found = (await client.next(Attach))[0].source
    assert isinstance(found, Source)
    behaviour.same("filter of the answer", found.filter, None)


async def test_a_wrong_key(target: Target, behaviour: Comparison) -> None:
    wrong = base64.b64encode(b"wrong" * 6).decode()
    try:
        async with target.primary.raw(wrong):
            outcome = "signed in"
    except AssertionError:
        outcome = "refused by SASL"
    behaviour.same("SASL PLAIN", outcome, "refused by SASL")


async def test_the_namespaces_are_two(target: Target, entities: Entities, behaviour: Comparison) -> None:
    queue = entities.queue()
    async with target.secondary.raw() as client:
        behaviour.same("the other one", await condition_of(attach_receiver(client, Source(queue))), "amqp:not-found")
    behaviour.same("tiers", target.secondary.tier, target.primary.tier)


async def test_a_throttled_namespace_says_so(target: Target, entities: Entities, behaviour: Comparison) -> None:
    from syphon.emulator.broker.faults import Action, Fault, Operation
    from tests.conformance.wire import PAYLOAD, outcome_of

    emulator = target.need_controls()
    queue = entities.queue()
    busy = Fault(Action.ERROR, Operation.SEND, queue, times=1, condition="com.microsoft:server-busy")
    emulator.call(lambda: emulator["contoso"].namespace.faults.add(busy))
    async with target.primary.raw() as client:
        sender = await client.attach_sender(queue)
        behaviour.same("outcome", outcome_of(await client.send(sender, PAYLOAD)), "com.microsoft:server-busy")
