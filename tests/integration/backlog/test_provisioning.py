"""Planning and creating backlog queues: the same over the data plane and over Resource Manager (P1 to P6)."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from syphon.backlog.provisioning import (
    NoBacklogQueue,
    Provisioned,
    ProvisionedQueue,
    ProvisionState,
    differences,
    plan,
    provision,
)
from syphon.backlog.queues import DOCUMENTED, Difference, QueueName, backlog_queues
from syphon.emulator.broker.descriptions import EntityStatus, QueueDescription, TopicDescription
from syphon.emulator.broker.faults import Action, Fault, Operation, Outage
from syphon.model.errors import NamespaceGone, NotAuthorized
from syphon.servicebus.administration import (
    Administration,
    AdministrationRefused,
    AdministrationUnavailable,
    AdministrationUnreachable,
    EntityConflict,
    QueueInfo,
)
from syphon.servicebus.arm_administration import ArmAdministration
from syphon.servicebus.data_plane_administration import DataPlaneAdministration
from tests.support.administrations import (
    BOTH,
    KEY,
    SENDERS_KEY,
    SUBSCRIPTION,
    TOKEN,
    MakeAdministration,
    Site,
    Token,
    entered,
    site,
    with_connection_string,
    with_resource_manager,
)


def names(count: int) -> list[QueueName]:
    return [queue.name for queue in backlog_queues("contoso", count)]


ZERO, ONE, TWO = names(3)


def as_documented(name: str) -> QueueDescription:
    """What the broker has after a backlog queue was created (P2)."""
    return QueueDescription(
        name, max_size_in_megabytes=5120, max_delivery_count=2_147_483_647, dead_lettering_on_message_expiration=True
    )


@pytest.fixture
def here() -> Iterator[Site]:
    with site() as it:
        yield it


@pytest.fixture(params=BOTH)
def administration(request: pytest.FixtureRequest, here: Site) -> Iterator[Administration]:
    way: MakeAdministration = request.param
    with entered(way, here) as it:
        yield it


class Sleep:
    """A sleep that does not wait: it notes the seconds, and does what happens meanwhile."""

    def __init__(self, *meanwhile: Callable[[], object]) -> None:
        self.pauses: list[float] = []
        self._meanwhile = list(meanwhile)

    def __call__(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if self._meanwhile:
            self._meanwhile.pop(0)()


def never(seconds: float) -> None:
    pytest.fail(f"slept for {seconds} s")


def queues_there(here: Site) -> list[QueueDescription]:
    return sorted(here.emulator.call(here.namespace.queues), key=lambda queue: queue.name)


def requests(here: Site) -> int:
    return sum(counts.get("manage", 0) for counts in here.emulator.call(here.namespace.counters.by_entity).values())


def existing(name: QueueName, differences: tuple[Difference, ...] = ()) -> ProvisionedQueue:
    return ProvisionedQueue(name, ProvisionState.EXISTS, differences)


def missing(name: QueueName) -> ProvisionedQueue:
    return ProvisionedQueue(name, ProvisionState.MISSING)


def created(name: QueueName) -> ProvisionedQueue:
    return ProvisionedQueue(name, ProvisionState.CREATED)


# The plan -------------------------------------------------------------------------------------------------------------


def test_a_plan_says_what_exists_what_differs_and_what_would_be_made(
    here: Site, administration: Administration
) -> None:  # P1, P3
    other = QueueDescription(ONE, lock_duration=30_000, max_delivery_count=10, requires_session=True)
    here.do(
        lambda namespace: namespace.create_queue(as_documented(ZERO)), lambda namespace: namespace.create_queue(other)
    )
    before = queues_there(here)
    planned = plan(administration, names(3))
    assert planned.namespace == administration.namespace
    assert planned.queues == (
        existing(ZERO),
        existing(
            ONE,
            (
                Difference("max_size_in_megabytes", "1024", "5120"),
                Difference("max_delivery_count", "10", "2147483647"),
                Difference("lock_duration", "PT30S", "PT1M"),
                Difference("dead_lettering_on_message_expiration", "false", "true"),
                Difference("requires_session", "true", "false"),
            ),
        ),
        missing(TWO),
    )
    assert (planned.of(ProvisionState.EXISTS)[0], planned.of(ProvisionState.MISSING)) == (
        existing(ZERO),
        (missing(TWO),),
    )
    assert [queue.name for queue in planned.different] == [ONE]
    assert queues_there(here) == before, "a plan changes nothing"


AS_MADE = QueueInfo(
    **{name: getattr(DOCUMENTED, name) for name in (field.name for field in dataclasses.fields(DOCUMENTED))},
    requires_session=False,
    requires_duplicate_detection=False,
    enable_partitioning=False,
    enable_express=False,
    forward_to=None,
    forward_dead_lettered_messages_to=None,
    status="Active",
)


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(QueueInfo)])
def test_whatever_is_known_of_a_queue_is_a_difference_by_its_name_if_it_is_not_as_made(name: str) -> None:  # P3
    assert differences(AS_MADE) == ()
    made = getattr(AS_MADE, name)
    other: Any = not made if isinstance(made, bool) else 5_000 if isinstance(made, int) else "other"
    (difference,) = differences(dataclasses.replace(AS_MADE, **{name: other}))
    assert difference.property == name
    assert difference.found != difference.documented


def test_all_that_makes_a_queue_unfit_for_a_backlog_is_a_difference(
    here: Site, administration: Administration
) -> None:  # P3
    unfit = QueueDescription(
        ZERO,
        max_size_in_megabytes=5120,
        max_delivery_count=2_147_483_647,
        dead_lettering_on_message_expiration=True,
        default_message_time_to_live=60_000,
        auto_delete_on_idle=600_000,
        enable_batched_operations=False,
        requires_duplicate_detection=True,
        forward_to="other",
        status=EntityStatus.RECEIVE_DISABLED,
    )
    here.do(
        lambda namespace: namespace.create_queue(QueueDescription("other")),
        lambda namespace: namespace.create_queue(unfit),
    )
    (found,) = plan(administration, [ZERO]).different
    assert [difference.property for difference in found.differences] == [
        "default_message_time_to_live",
        "auto_delete_on_idle",
        "enable_batched_operations",
        "requires_duplicate_detection",
        "forward_to",
        "status",
    ]
    (merging,) = (one for one in found.differences if one.property == "requires_duplicate_detection")
    assert "different messages with the same message id become one" in str(merging)


def test_queues_beyond_the_count_are_extra(here: Site, administration: Administration) -> None:  # P4
    others = ["contoso/x-servicebus-transfer/x", "contoso-2/x-servicebus-transfer/7", "contoso/x-servicebus-transfer"]
    for name in [*names(12), *others]:
        here.do(lambda namespace, name=name: namespace.create_queue(as_documented(name)))  # type: ignore[misc]
    planned = plan(administration, names(2))
    assert planned.extra == tuple(names(12)[2:])
    assert planned.unlisted is None


def test_queues_are_the_same_in_capitals(here: Site, administration: Administration) -> None:  # P3, P4
    for name in (ZERO, ONE.title(), TWO.title()):
        here.do(lambda namespace, name=name: namespace.create_queue(as_documented(name)))  # type: ignore[misc]
    planned = plan(administration, [QueueName(ZERO.upper()), ONE])
    assert [queue.state for queue in planned.queues] == [ProvisionState.EXISTS] * 2
    assert [name.lower() for name in planned.extra] == [TWO]


def test_what_cannot_be_seen_is_part_of_the_plan(here: Site, administration: Administration) -> None:
    here.arm(Fault(Action.ERROR, Operation.MANAGE, entity=ONE), Fault(Action.DROP, Operation.MANAGE, entity="$*"))
    here.arm(Fault(Action.DROP, Operation.MANAGE, entity=""))  # the list, in Resource Manager's words
    here.do(lambda namespace: namespace.create_queue(as_documented(ZERO)))
    planned = plan(administration, names(2))
    assert planned.of(ProvisionState.EXISTS) == (existing(ZERO),)
    (unknown,) = planned.of(ProvisionState.UNKNOWN)
    assert unknown.name == ONE
    assert isinstance(unknown.because, AdministrationUnavailable)
    assert isinstance(planned.unlisted, AdministrationUnavailable)


def test_an_unreachable_namespace_is_asked_once_and_not_for_every_queue(
    here: Site, administration: Administration
) -> None:
    here.arm(Fault(Action.DROP, Operation.MANAGE))
    planned = plan(administration, names(10))
    assert [queue.name for queue in planned.of(ProvisionState.UNKNOWN)] == names(10)
    assert isinstance(planned.unlisted, AdministrationUnreachable)
    with pytest.raises(NoBacklogQueue):
        provision(administration, planned, sleep=Sleep())
    assert here.emulator.call(lambda: [fault.struck for fault in here.namespace.faults.armed()]) == [1 + 3]


def test_a_backlog_has_at_least_one_queue(administration: Administration) -> None:  # P1
    with pytest.raises(ValueError, match="at least one"):
        plan(administration, [])


def test_every_line_of_a_plan_can_be_read(here: Site, administration: Administration) -> None:
    here.do(
        lambda namespace: namespace.create_queue(as_documented(ZERO)),
        lambda namespace: namespace.create_queue(QueueDescription(ONE, max_delivery_count=10, lock_duration=5_000)),
    )
    lines = [str(queue) for queue in plan(administration, names(3)).queues]
    assert lines[0] == f"queue {ZERO} exists"
    assert "lock_duration is PT5S, documented is PT1M" in lines[1]
    assert lines[2] == f"queue {TWO} would be created"


# Making ---------------------------------------------------------------------------------------------------------------


def test_missing_queues_are_made_as_documented(here: Site, administration: Administration) -> None:  # P1, P2, P6
    done = provision(administration, plan(administration, names(10)), sleep=never)
    assert done == Provisioned(administration.namespace, tuple(map(created, names(10))))
    assert (done.count, done.names, done.warnings()) == (10, tuple(names(10)), [])
    assert queues_there(here) == [as_documented(name) for name in names(10)]


def test_provisioning_twice_makes_nothing_and_asks_no_more_than_the_plan(
    here: Site, administration: Administration
) -> None:  # P3
    provision(administration, plan(administration, names(3)), sleep=never)
    planned, before = plan(administration, names(3)), requests(here)
    done = provision(administration, planned, sleep=never)
    assert (done.created, done.count) == ((), 3)
    assert requests(here) == before


def test_a_queue_with_another_description_is_left_used_and_reported(
    here: Site, administration: Administration, caplog: pytest.LogCaptureFixture
) -> None:  # P3
    theirs = QueueDescription(ONE, max_delivery_count=10, lock_duration=5_000, user_metadata="mine")
    here.do(lambda namespace: namespace.create_queue(theirs))
    done = provision(administration, plan(administration, names(2)), sleep=never)
    assert queues_there(here) == [as_documented(ZERO), theirs]
    assert done.names == (ZERO, ONE)
    (warning,) = done.warnings()
    for part in (
        administration.namespace,
        ONE,
        "max_size_in_megabytes is 1024, documented is 5120",
        "max_delivery_count is 10, documented is 2147483647",
        "lock_duration is PT5S, documented is PT1M",
        "dead_lettering_on_message_expiration is false, documented is true",
    ):
        assert part in warning
    assert [(record.levelno, record.getMessage()) for record in caplog.records if "syphon" in record.name] == [
        (logging.WARNING, warning)
    ]


def test_extra_queues_are_reported_and_not_touched(here: Site, administration: Administration) -> None:  # P4
    for name in names(4):
        here.do(lambda namespace, name=name: namespace.create_queue(as_documented(name)))  # type: ignore[misc]
    done = provision(administration, plan(administration, names(2)), sleep=never)
    assert (done.names, done.extra) == ((ZERO, ONE), tuple(names(4)[2:]))
    assert [queue.name for queue in queues_there(here)] == names(4)
    (warning,) = done.warnings()
    assert f"{TWO}, {names(4)[3]} beyond the count of 2" in warning


def test_a_queue_that_was_created_after_the_plan_is_left_as_it_is(
    here: Site, administration: Administration
) -> None:  # P3
    planned = plan(administration, names(2))
    theirs = QueueDescription(ZERO, max_delivery_count=5)
    here.do(lambda namespace: namespace.create_queue(theirs))
    done = provision(administration, planned, sleep=never)
    assert [queue.name for queue in done.different] == [ZERO]
    assert done.created == (created(ONE),)
    assert queues_there(here) == [theirs, as_documented(ONE)]


class Overtaken:
    """An administration with a faster competitor: after we see that a queue is missing, the other one creates it."""

    def __init__(self, administration: Administration, overtake: Callable[[str], object]) -> None:
        self._administration = administration
        self._overtake = overtake

    def get_queue(self, name: str) -> object:
        facts = self._administration.get_queue(name)
        if facts is None:
            self._overtake(name)
        return facts

    def __getattr__(self, name: str) -> object:
        return getattr(self._administration, name)


def test_a_queue_that_another_client_creates_at_the_same_moment_is_fine(here: Site) -> None:  # P3
    def overtake(name: str) -> None:
        here.do(lambda namespace: namespace.create_queue(QueueDescription(name, max_delivery_count=5)))

    with entered(with_connection_string, here) as administration:
        planned = plan(administration, [ZERO])
        quicker = Overtaken(administration, overtake)
        done = provision(quicker, planned, sleep=never)  # type: ignore[arg-type]  # it passes everything on
    assert done.created == ()
    assert [queue.name for queue in done.different] == [ZERO]
    assert queues_there(here) == [QueueDescription(ZERO, max_delivery_count=5)]


# What goes wrong ------------------------------------------------------------------------------------------------------


def test_a_queue_that_fails_is_retried_after_half_a_minute(here: Site, administration: Administration) -> None:  # P5
    planned = plan(administration, names(2))
    here.arm(Fault(Action.ERROR, Operation.MANAGE, entity=ZERO, times=1))
    here.arm(Fault(Action.DROP, Operation.MANAGE, entity=ONE, times=2))
    sleep = Sleep()
    done = provision(administration, planned, sleep=sleep)
    assert sleep.pauses == [30.0, 30.0]
    assert (done.created, done.dropped) == ((created(ZERO), created(ONE)), ())
    assert queues_there(here) == [as_documented(ZERO), as_documented(ONE)]


def test_a_queue_that_fails_three_times_is_dropped_and_reported(
    here: Site, administration: Administration
) -> None:  # P5
    planned = plan(administration, names(3))
    here.arm(Fault(Action.REFUSE, Operation.MANAGE, entity=ONE, description="Not this one."))
    sleep = Sleep()
    done = provision(administration, planned, sleep=sleep)
    assert sleep.pauses == [30.0, 30.0]
    assert here.emulator.call(lambda: [fault.struck for fault in here.namespace.faults.armed()]) == [3]
    assert (done.count, done.names) == (2, (ZERO, TWO))
    (dropped,) = done.dropped
    assert (dropped.name, type(dropped.because)) == (ONE, AdministrationRefused)
    (warning,) = done.warnings()
    for part in (administration.namespace, ONE, "could not be created", "400", "Not this one."[:-1]):
        assert part in warning


def test_tries_and_pauses_can_be_set(here: Site, administration: Administration) -> None:
    planned = plan(administration, names(2))
    here.arm(Fault(Action.REFUSE, Operation.MANAGE, entity=ONE))
    sleep = Sleep()
    provision(administration, planned, sleep=sleep, attempts=5, delay=2)
    assert sleep.pauses == [2, 2, 2, 2]


def test_a_lost_answer_does_not_make_two(here: Site, administration: Administration) -> None:  # P3, P5
    planned = plan(administration, [ZERO])
    here.arm(Fault(Action.DELAY, Operation.MANAGE, entity=ZERO, times=1))  # the look
    here.arm(Fault(Action.LOSE_REPLY_AND_DROP, Operation.MANAGE, entity=ZERO, times=1))  # the creation
    sleep = Sleep()
    done = provision(administration, planned, sleep=sleep)
    assert sleep.pauses == [30.0]
    assert done.queues == (existing(ZERO),)
    assert queues_there(here) == [as_documented(ZERO)]


@pytest.mark.parametrize("outage", [Outage.REFUSE, Outage.DROP, Outage.BUSY])
def test_an_outage_that_ends_in_time_costs_nothing_but_time(
    here: Site, administration: Administration, outage: Outage
) -> None:  # P5
    planned = plan(administration, names(3))
    here.go_out(outage)
    sleep = Sleep(lambda: None, lambda: here.do(lambda namespace: namespace.faults.end_outage()))
    done = provision(administration, planned, sleep=sleep)
    assert sleep.pauses == [30.0, 30.0], "all queues wait together, not one after the other"
    assert done.created == tuple(map(created, names(3)))


def test_a_plan_made_during_an_outage_can_be_carried_out_after_it(here: Site, administration: Administration) -> None:
    here.do(lambda namespace: namespace.create_queue(as_documented(ONE)))
    here.go_out(Outage.DROP)
    planned = plan(administration, names(2))
    assert [queue.name for queue in planned.of(ProvisionState.UNKNOWN)] == [ZERO, ONE]
    here.do(lambda namespace: namespace.faults.end_outage())
    done = provision(administration, planned, sleep=never)
    assert done.queues == (created(ZERO), existing(ONE))


def test_not_one_queue_is_an_error(here: Site, administration: Administration) -> None:  # P5
    planned = plan(administration, names(3))
    here.go_out(Outage.BUSY)
    with pytest.raises(NoBacklogQueue) as failed:
        provision(administration, planned, sleep=Sleep())
    text = str(failed.value)
    assert text.startswith(f"{administration.namespace}: none of the 3 backlog queues")
    assert re.search(r"\b503\b", text)  # and not a part of the port
    assert [(dropped.name, type(dropped.because)) for dropped in failed.value.dropped] == [
        (name, AdministrationUnavailable) for name in names(3)
    ]


def test_one_queue_that_was_there_is_enough(here: Site, administration: Administration) -> None:  # P5
    here.do(lambda namespace: namespace.create_queue(as_documented(ONE)))
    planned = plan(administration, names(3))
    here.go_out(Outage.BUSY)
    done = provision(administration, planned, sleep=Sleep())
    assert (done.names, [dropped.name for dropped in done.dropped]) == ((ONE,), [ZERO, TWO])


def test_a_name_that_a_topic_has_is_dropped(here: Site, administration: Administration) -> None:  # P5
    here.do(lambda namespace: namespace.create_topic(TopicDescription(ZERO)))
    done = provision(administration, plan(administration, names(2)), sleep=Sleep())
    (dropped,) = done.dropped
    assert dropped.state is ProvisionState.FAILED
    assert (dropped.name, type(dropped.because)) == (ZERO, EntityConflict)
    assert done.names == (ONE,)


def test_a_missing_claim_is_an_error_at_once(here: Site) -> None:  # P5
    with entered(with_connection_string, here) as owner:
        planned = plan(owner, names(3))
    before = requests(here)
    string = here.connection_string("Sender", SENDERS_KEY)
    with DataPlaneAdministration.from_connection_string(string) as sender:
        for attempt in (lambda: plan(sender, names(3)), lambda: provision(sender, planned, sleep=never)):
            with pytest.raises(NotAuthorized, match=rf"127\.0\.0\.1:{here.port} .*The Manage claim is missing"):
                attempt()
    assert requests(here) == before + 2, "the first refusal is the last request"
    assert queues_there(here) == []


def test_refused_credentials_are_an_error_at_once(here: Site) -> None:  # P5
    string = here.connection_string(key="d3Jvbmcga2V5")
    stranger = DataPlaneAdministration.from_connection_string(string)
    with stranger, pytest.raises(NotAuthorized, match="credentials are refused") as refused:
        plan(stranger, names(3))
    assert "d3Jvbmcga2V5" not in f"{refused.value} {refused.value!r}"


def test_a_missing_role_is_an_error_at_once(here: Site) -> None:  # P5, P6
    with entered(with_resource_manager, here) as reader:
        planned = plan(reader, names(3))
        # A reader without the right to write: the look is answered, the creation is refused.
        here.arm(Fault(Action.DELAY, Operation.MANAGE, entity=ZERO, times=1))
        here.arm(Fault(Action.ERROR, Operation.MANAGE, condition="com.microsoft:entity-disabled"))
        with pytest.raises(NotAuthorized, match=r"contoso-dr .*Microsoft\.ServiceBus/namespaces/queues/write"):
            provision(reader, planned, sleep=never)
    assert queues_there(here) == []


def test_a_namespace_that_is_not_there_is_an_error_at_once(here: Site) -> None:  # P6
    base_url = f"http://127.0.0.1:{here.port}"
    administration = ArmAdministration(SUBSCRIPTION, "rg", "fabrikam", Token(), base_url=base_url)
    with administration, pytest.raises(NamespaceGone, match="fabrikam"):
        plan(administration, names(3))


def test_no_secret_is_in_any_report(
    here: Site, administration: Administration, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    planned = plan(administration, names(3))
    here.arm(Fault(Action.ERROR, Operation.MANAGE, entity=ONE), Fault(Action.DROP, Operation.MANAGE, entity=TWO))
    done = provision(administration, planned, sleep=Sleep())
    assert done.count == 1
    shown = [repr(planned), repr(done), *done.warnings(), *map(str, done.queues), *map(str, done.dropped), caplog.text]
    assert not [text for text in shown if any(secret in text for secret in (KEY, TOKEN, "sig=", "Bearer ey"))]


def test_both_ways_in_have_the_same_outcome() -> None:  # P6
    outcomes = []
    for way in BOTH:
        with site() as here, entered(way, here) as administration:
            here.do(lambda namespace: namespace.create_queue(QueueDescription(ONE, lock_duration=5_000)))
            here.do(lambda namespace: namespace.create_queue(as_documented(TWO)))
            done = provision(administration, plan(administration, names(2)), sleep=never)
            outcomes.append((done.queues, done.extra, queues_there(here)))
    assert outcomes[0] == outcomes[1]
