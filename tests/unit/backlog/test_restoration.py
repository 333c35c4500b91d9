"""Restoring: each form that a value may have, what is refused, and what the dead letter says (M2 to M6)."""

from __future__ import annotations

import json
import tracemalloc
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syphon.amqp import (
    Array,
    Byte,
    Char,
    Decimal128,
    Described,
    Float,
    Header,
    Int,
    Long,
    Map,
    Message,
    Properties,
    Section,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Value,
    data_section,
    encode,
    header_bytes,
    properties_bytes,
    section_bytes,
)
from syphon.backlog import Restored, Unrestorable, UnrestorableReason, restore, stamps_of, to_backlog
from syphon.backlog.restoration import _usual_header
from syphon.emulator.broker.message import BrokeredMessage
from syphon.model import TimeToLive
from tests.support.amqp_strategies import examples, mutated, noise, values
from tests.support.backlog_messages import NOW, sent

SECOND, DAY = 1_000, 86_400_000
TIMESPAN, OFFSET = Symbol("com.microsoft:timespan"), Symbol("com.microsoft:datetime-offset")
YEAR_1970 = 621_355_968_000_000_000
"""In ticks."""


def map_of(descriptor: bytes, key: str, value: bytes) -> bytes:
    """A section of one pair, with the path where it belongs, and no body."""
    pairs = encode(key) + value
    count = 2
    if descriptor.endswith(b"\x74") and key != "x-ms-path":
        pairs, count = encode("x-ms-path") + encode("orders") + pairs, 4
    return descriptor + b"\xd1" + (len(pairs) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + pairs


def backlogged(
    aliases: dict[str, Value],
    properties: Properties | None = None,
    header: Header | None = None,
    annotations: dict[str, Value] | None = None,
) -> bytes:
    """A backlog message with any values as its aliases."""
    return b"".join(
        (
            header_bytes(header) if header else b"",
            section_bytes(Section.MESSAGE_ANNOTATIONS, Map.symbols(annotations)) if annotations else b"",
            properties_bytes(properties) if properties else b"",
            section_bytes(Section.APPLICATION_PROPERTIES, Map.of(aliases)),
            data_section(b"body"),
        )
    )


def off(
    payload: bytes, now: int = NOW, ttl: TimeToLive = TimeToLive.RESTORE, enqueued_at: int | None = None
) -> Restored:
    found = restore(payload, enqueued_at=enqueued_at, now=now, ttl=ttl)
    assert isinstance(found, Restored), found
    return found


def refused(payload: bytes, ttl: TimeToLive = TimeToLive.RESTORE, enqueued_at: int | None = None) -> Unrestorable:
    found = restore(payload, enqueued_at=enqueued_at, now=NOW, ttl=ttl)
    assert isinstance(found, Unrestorable), found
    return found


def with_ttl(value: Value) -> bytes:
    return backlogged({"x-ms-path": "orders", "x-ms-timetolive": value})


def with_schedule(value: Value) -> bytes:
    return backlogged({"x-ms-path": "orders", "x-ms-scheduledenqueuetimeutc": value})


def ttl_of(payload: bytes) -> Value:
    return Message(payload).header().ttl


def schedule_of(payload: bytes) -> Value:
    return Message(payload).annotations().get("x-opt-scheduled-enqueue-time")


# --- M3: the forms ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "millis"),
    [
        (Described(TIMESPAN, Long(600_000_000)), 60_000),
        (Described("com.microsoft:timespan", Long(600_000_000)), 60_000),
        (Described(TIMESPAN, Long(5 * DAY * 10_000 + 10_000)), 5 * DAY + 1),
        (UByte(200), 200),
        (UShort(60_000), 60_000),
        (UInt(60_000), 60_000),
        (ULong(60_000), 60_000),
        (Byte(100), 100),
        (Short(30_000), 30_000),
        (Int(60_000), 60_000),
        (Long(60_000), 60_000),
        ("PT1M", 60_000),
        ("P1DT2H3M4.5S", DAY + 7_384_500),
        ("P2W", 14 * DAY),
        ("PT0.0015S", 2),
        ("00:01:00", 60_000),
        ("1.02:03:04.5000000", DAY + 7_384_500),
        ("0:00:01", 1_000),
        ("23:59:59.999", 86_399_999),
    ],
)
def test_a_time_to_live_is_understood_in_each_of_its_forms(written: Value, millis: int) -> None:  # M3
    assert ttl_of(off(with_ttl(written)).payload) == UInt(millis)


@pytest.mark.parametrize(
    ("written", "millis"),
    [
        (Timestamp(NOW + 5_000), NOW + 5_000),
        (Described(OFFSET, Long(YEAR_1970 + (NOW + 5_000) * 10_000)), NOW + 5_000),
        (Long(NOW + 5_000), NOW + 5_000),
        (ULong(NOW + 5_000), NOW + 5_000),
        ("2023-11-14T22:13:25Z", NOW + 5_000),
        ("2023-11-14T22:13:25", NOW + 5_000),
        ("2023-11-14T23:13:25+01:00", NOW + 5_000),
        ("2023-11-14 17:13:25-0500", NOW + 5_000),
        ("2023-11-14T22:13:25.1234567Z", NOW + 5_123),
        ("2023-11-14T23:13:25.1234567+01:00", NOW + 5_123),
        ("2023-11-14T22:13:25.1234567", NOW + 5_123),
        ("2023-11-14T22:14", NOW + 40_000),
        ("2023-11-15", NOW + 6_400_000),
        ("9999-12-31T23:59:59.9999999", 253_402_300_799_999),
    ],
)
def test_a_scheduled_time_is_understood_in_each_of_its_forms(written: Value, millis: int) -> None:  # M3
    found = schedule_of(off(with_schedule(written)).payload)
    assert (type(found), found) == (Timestamp, millis)


# --- M4: what makes no sense -----------------------------------------------------------------------------------------

SENSELESS_SPANS: list[tuple[Value, str]] = [
    (None, "null"),
    (True, "boolean True"),
    (60.0, "double 60.0"),
    (float("nan"), "double nan"),
    (Float(1), "float 1.0"),
    (Long(-1), "long -1, which is negative"),
    (Long(0), "long 0, which is zero"),
    (UInt(0), "uint 0, which is zero"),
    ("PT0S", "string 'PT0S', which is zero"),
    ("00:00:00", "string '00:00:00', which is zero"),
    (Described(TIMESPAN, Long(0)), "timespan long 0, which is zero"),
    (Described(TIMESPAN, Long(-1)), "timespan long -1, which is"),
    (Described(TIMESPAN, Long(-600_000_000)), "timespan long -600000000, which is negative"),
    (Described(TIMESPAN, "x"), "which does not contain a whole number"),
    (Described(TIMESPAN, None), "timespan null"),
    (Described(OFFSET, Long(1)), "com.microsoft:datetime-offset long 1"),
    (Described(ULong(5), Long(1)), "5 long 1"),
    (ULong(2**64 - 1), "longer than any"),
    (Long(2**63 - 1), "longer than any"),
    ("P99999999999D", "longer than any"),
    ("", "string ''"),
    ("soon", "string 'soon'"),
    ("P", "string 'P'"),
    ("PT", "'PT'"),
    ("P1DT", "'P1DT'"),
    ("PS", "'PS'"),
    ("-PT1S", "which is negative"),
    ("-00:00:01", "which is negative"),
    ("24:00:00", "'24:00:00'"),
    ("00:60:00", "'00:60"),
    ("00:00:60", "'00:00:60'"),
    ("60000", "string '60000'"),
    ("PT1,5S", "'PT1,5S'"),
    ("٣:00:00", "'٣:00:00'"),
    (Timestamp(60_000), "timestamp 60000"),
    (b"PT1M", "binary b'PT1M'"),
    (Char(65), "char 65"),
    (Decimal128(b"0" * 16), "decimal128"),
    (uuid.UUID(int=1), "uuid"),
    ([Long(1)], "list"),
    (Map(), "map"),
    (Array(0x50), "array"),
]


@pytest.mark.parametrize(("value", "told"), SENSELESS_SPANS)
def test_an_invalid_time_to_live_is_reported_with_name_value_and_expected_type(value: Value, told: str) -> None:  # M4
    found = refused(with_ttl(value))
    assert found.reason == UnrestorableReason.BAD_ALIAS
    assert found.description.startswith("x-ms-timetolive is ")
    assert told in found.description
    assert "expected com.microsoft:timespan, whole milliseconds, an ISO-8601 duration" in found.description


SENSELESS_TIMES: list[tuple[Value, str]] = [
    (None, "null"),
    (False, "boolean False"),
    (1.7e12, "double"),
    (float("nan"), "nan"),
    (Long(-1), "which is negative"),
    (Timestamp(2**63 - 1), "outside the years"),
    (Timestamp(-(2**63)), "outside the years"),
    (Long(638_000_000_000_000_000), "outside the years"),
    (Described(OFFSET, Long(-1)), "outside the years"),
    (Described(OFFSET, Long(2**63 - 1)), "outside the years"),
    (Described(OFFSET, 1.0), "does not contain a whole number"),
    (Described(TIMESPAN, Long(1)), "com.microsoft:timespan long 1"),
    ("", "''"),
    ("tomorrow", "'tomorrow'"),
    ("1712101234567", "'1712101234567'"),
    ("2023-02-30T00:00:00", "'2023-02-30"),
    ("2023-11-14T25:00", "'2023-11-14T25"),
    ("2023-W46-2", "'2023-W46-2'"),
    ("0001-01-01T00:00:00+01:00", "outside the years"),
    (b"2023-11-14", "binary"),
]


@pytest.mark.parametrize(("value", "told"), SENSELESS_TIMES)
def test_an_invalid_scheduled_time_is_reported_with_name_value_and_expected_type(value: Value, told: str) -> None:  # M4
    found = refused(with_schedule(value))
    assert found.reason == UnrestorableReason.BAD_ALIAS
    assert found.description.startswith("x-ms-scheduledenqueuetimeutc is ")
    assert told in found.description
    assert "expected a timestamp, com.microsoft:datetime-offset, whole milliseconds" in found.description


@pytest.mark.parametrize("value", [None, Int(5), b"session", Symbol("session"), True, Described(Symbol("a"), "b")])
def test_a_session_id_that_is_no_string_is_refused(value: Value) -> None:  # M4
    found = refused(backlogged({"x-ms-path": "orders", "x-ms-sessionid": value}))
    assert found.reason == UnrestorableReason.BAD_ALIAS
    assert found.description.startswith("x-ms-sessionid is ")
    assert found.description.endswith("expected a string.")


@pytest.mark.parametrize(
    ("path", "told"),
    [
        (None, "null"),
        ("", "empty"),
        ("  ", "empty"),
        (b"orders", "binary b'orders'"),
        (Int(1), "int 1"),
        (Symbol("orders"), "symbol 'orders'"),
        ("x" * 261, "string 'xxx"),
        ([], "list []"),
    ],
)
def test_without_a_usable_path_there_is_no_destination(path: Value, told: str) -> None:  # M4
    found = refused(backlogged({"x-ms-path": path}))
    assert found.reason == UnrestorableReason.NO_DESTINATION
    assert found.description.startswith(f"x-ms-path is {told}")
    assert "(1 to 260 characters)" in found.description
    assert len(found.description) < 300


def test_a_message_without_a_path_says_that_it_is_missing() -> None:  # M4
    for payload in (backlogged({"other": "x"}), data_section(b"body"), b""):
        found = refused(payload)
        assert found.reason == UnrestorableReason.NO_DESTINATION
        assert "x-ms-path is missing" in found.description


def test_a_path_of_260_characters_is_one() -> None:  # M4
    assert off(backlogged({"x-ms-path": "x" * 260})).destination.name == "x" * 260


def test_an_alias_that_occurs_twice_is_refused() -> None:  # M4: which of them is it?
    twice = Map((("x-ms-path", "orders"), (Symbol("x-ms-path"), "billing")))
    found = refused(section_bytes(Section.APPLICATION_PROPERTIES, twice))
    assert found.reason == UnrestorableReason.MALFORMED
    assert "x-ms-path twice" in found.description


def test_one_bad_alias_is_enough_even_if_the_others_are_good() -> None:  # M4: never half-restored
    aliases: dict[str, Value] = {"x-ms-sessionid": "s", "x-ms-path": "orders", "x-ms-timetolive": "never"}
    assert refused(backlogged(aliases)).reason == UnrestorableReason.BAD_ALIAS


@examples(200)
@given(st.sampled_from(["x-ms-path", "x-ms-sessionid", "x-ms-timetolive", "x-ms-scheduledenqueuetimeutc"]), values)
def test_whatever_stands_in_an_alias_it_is_restored_or_told_in_few_words(name: str, value: Value) -> None:  # M4
    aliases: dict[str, Value] = {"x-ms-path": "orders", name: value}
    found = restore(backlogged(aliases), enqueued_at=None, now=NOW)
    if isinstance(found, Unrestorable):
        assert name in found.description
        assert len(found.description) < 400


@examples(300)
@given(mutated(sent.map(lambda message: to_backlog(message.payload, "orders"))), st.sampled_from(TimeToLive))
def test_bytes_that_are_almost_a_message_never_raise(payload: bytes, rule: TimeToLive) -> None:  # M4
    found = restore(payload, enqueued_at=NOW, now=NOW, ttl=rule)
    if isinstance(found, Restored):
        Message(found.payload)  # what is forwarded is well-formed


@examples(200)
@given(noise)
def test_bytes_that_are_no_message_never_raise(payload: bytes) -> None:  # M4
    restore(payload, enqueued_at=None, now=NOW)


def test_malformed_bytes_are_reported_in_the_codecs_words() -> None:  # M4
    found = refused(b"\x00\x53\x70\xc0\x09\x01")
    assert found.reason == UnrestorableReason.MALFORMED
    assert found.description == ("The message is not well-formed AMQP 1.0: the value at byte 3 runs past its end.")


# --- M5: time to live ------------------------------------------------------------------------------------------------

MINUTE_TO_LIVE = with_ttl(Described(TIMESPAN, Long(600_000_000)))


def test_a_time_to_live_is_restored_as_it_was_however_long_the_message_waited() -> None:  # M5
    assert ttl_of(off(MINUTE_TO_LIVE, enqueued_at=NOW - 90 * DAY).payload) == 60_000


def test_remaining_takes_off_the_time_spent_in_the_backlog() -> None:  # M5
    left = off(MINUTE_TO_LIVE, ttl=TimeToLive.REMAINING, enqueued_at=NOW - 59_999)
    assert ttl_of(left.payload) == 1


def test_remaining_refuses_what_has_expired() -> None:  # M5
    found = refused(MINUTE_TO_LIVE, TimeToLive.REMAINING, NOW - 60_000)
    assert found.reason == "Expired"
    assert found.description == "The message had 60000 ms to live and came into the backlog 60000 ms ago."


def test_remaining_reads_the_brokers_stamp_by_default() -> None:  # M5
    aliases: dict[str, Value] = {"x-ms-path": "orders", "x-ms-timetolive": "PT1M"}
    stamped = backlogged(aliases, annotations={"x-opt-enqueued-time": Timestamp(NOW - 20_000)})
    assert ttl_of(off(stamped, ttl=TimeToLive.REMAINING).payload) == 40_000
    assert ttl_of(off(stamped, ttl=TimeToLive.REMAINING, enqueued_at=NOW - 1).payload) == 59_999
    senseless = backlogged(aliases, annotations={"x-opt-enqueued-time": "yesterday"})
    assert ttl_of(off(senseless, ttl=TimeToLive.REMAINING).payload) == 60_000


def test_a_clock_behind_the_brokers_makes_no_message_live_longer() -> None:  # M5
    assert ttl_of(off(MINUTE_TO_LIVE, ttl=TimeToLive.REMAINING, enqueued_at=NOW + 5_000).payload) == 60_000


def test_a_scheduled_message_ages_from_its_scheduled_time() -> None:  # M5, as Service Bus counts
    def scheduled(when: int) -> bytes:
        aliases: dict[str, Value] = {
            "x-ms-path": "orders",
            "x-ms-timetolive": "PT1M",
            "x-ms-scheduledenqueuetimeutc": Timestamp(when),
        }
        return backlogged(aliases)

    long_ago = NOW - 10 * DAY
    assert ttl_of(off(scheduled(NOW + 5), ttl=TimeToLive.REMAINING, enqueued_at=long_ago).payload) == 60_000
    assert ttl_of(off(scheduled(NOW - 20_000), ttl=TimeToLive.REMAINING, enqueued_at=long_ago).payload) == 40_000
    assert "scheduled time" in refused(scheduled(NOW - 60_000), TimeToLive.REMAINING, long_ago).description


def test_never_means_no_time_to_live() -> None:  # M3: TimeSpan.MaxValue
    for never in (Described(TIMESPAN, Long(2**63 - 1)), "P10675199DT2H48M5.4775807S", "10675199.02:48:05.4775807"):
        back = off(with_ttl(never), ttl=TimeToLive.REMAINING, enqueued_at=NOW - DAY)
        assert Message(back.payload).header() == Header()


def test_a_life_longer_than_a_header_can_say_is_written_as_expiry_and_creation_time() -> None:  # M5
    ninety = {"x-ms-path": "orders", "x-ms-timetolive": "P90D"}
    found = Message(off(backlogged(dict(ninety), Properties(message_id="1", reply_to_group_id="r"))).payload)
    assert found.header().ttl == 2**32 - 1
    assert found.properties() == Properties(
        message_id="1",
        absolute_expiry_time=Timestamp(NOW + 90 * DAY),
        creation_time=Timestamp(NOW),
        reply_to_group_id="r",
    )
    eternity = Message(off(backlogged({"x-ms-path": "orders", "x-ms-timetolive": "P10000000D"})).payload).properties()
    assert eternity.absolute_expiry_time == Timestamp(253_402_243_199_000)  # as far as SDKs count
    by_its_sender = Properties(absolute_expiry_time=Timestamp(NOW + 5), creation_time=Timestamp(5))
    assert Message(off(backlogged(dict(ninety), by_its_sender)).payload).properties() == by_its_sender


SDK_MESSAGES = [
    json.loads(line) for line in (Path(__file__).parent / "retired_sdk_messages.jsonl").read_text().splitlines()
]
"""Messages with a time to live that the retired .NET SDK has put into a backlog, as they were sent."""


@pytest.mark.parametrize("rule", TimeToLive)
@pytest.mark.parametrize("sample", SDK_MESSAGES, ids=lambda sample: f"{sample['sdk']}-{sample['name']}")
def test_what_the_retired_sdk_wrote_beside_a_time_to_live_is_corrected(
    sample: dict[str, Any], rule: TimeToLive
) -> None:  # M9
    before = Message(bytes.fromhex(sample["hex"]))
    assert before.header().ttl == 1_566_804_069
    assert before.properties().absolute_expiry_time == Timestamp(253_402_214_400_000)
    after = Message(off(before.data, ttl=rule, enqueued_at=NOW).payload)
    assert after.header().ttl == min(sample["ttl"], 2**32 - 1)
    assert after.properties() == replace(
        before.properties(),
        creation_time=Timestamp(NOW),
        absolute_expiry_time=Timestamp(NOW + sample["ttl"]),
        group_id=sample["session"],
    )
    assert after.raw(Section.VALUE) == before.raw(Section.VALUE)


@pytest.mark.parametrize("sample", SDK_MESSAGES, ids=lambda sample: f"{sample['sdk']}-{sample['name']}")
def test_it_is_corrected_behind_a_broker_too(sample: dict[str, Any]) -> None:  # M9
    delivered = BrokeredMessage.parse(bytes.fromhex(sample["hex"])).to_bytes()
    after = Message(off(delivered).payload)
    assert after.header().ttl == min(sample["ttl"], 2**32 - 1)
    assert after.properties().absolute_expiry_time == Timestamp(NOW + sample["ttl"])


def test_what_is_left_of_a_time_to_live_counts_for_the_expiry_time() -> None:  # M5, M9
    sample = bytes.fromhex(SDK_MESSAGES[0]["hex"])
    found = Message(off(sample, ttl=TimeToLive.REMAINING, enqueued_at=NOW - 60_000).payload)
    assert found.header().ttl == SDK_MESSAGES[0]["ttl"] - 60_000
    assert found.properties().absolute_expiry_time == Timestamp(NOW + SDK_MESSAGES[0]["ttl"] - 60_000)


@pytest.mark.parametrize("lifespan", [60_000, 5])
def test_creation_and_expiry_time_of_the_application_stay_as_they_are(lifespan: int) -> None:  # M2, M9
    own = Properties(absolute_expiry_time=Timestamp(NOW + lifespan), creation_time=Timestamp(NOW))
    aliased = backlogged({"x-ms-path": "orders", "x-ms-timetolive": "PT1M"}, own)
    assert Message(off(aliased).payload).properties() == own
    agreeing = backlogged({"x-ms-path": "orders", "x-ms-timetolive": Long(lifespan)}, own, header=Header(ttl=UInt(9)))
    assert Message(off(agreeing).payload).properties() == own


def test_what_was_never_set_is_not_set_afterwards() -> None:
    # M2: a time to live of the backlog queue is not the sender's
    payload = backlogged({"x-ms-path": "orders"}, header=Header(True, None, UInt(5), None, UInt(3)))
    assert Message(off(payload).payload).header() == Header(durable=True)


# --- M6: schedule ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", [NOW + 1, NOW, NOW - DAY, 0])
def test_whether_a_scheduled_time_has_passed_is_for_the_destination_to_say(when: int) -> None:  # M6
    assert schedule_of(off(with_schedule(Timestamp(when))).payload) == when


def test_the_first_moment_of_dotnet_is_no_schedule() -> None:  # M3
    assert schedule_of(off(with_schedule(Timestamp(-62_135_596_800_000))).payload) is None


def test_a_schedule_of_the_backlog_itself_is_not_the_senders() -> None:  # M2
    payload = backlogged({"x-ms-path": "orders"}, annotations={"x-opt-scheduled-enqueue-time": Timestamp(NOW + DAY)})
    assert schedule_of(off(payload).payload) is None


# --- M2: session and partition key -----------------------------------------------------------------------------------


def test_a_session_id_comes_back_where_it_was() -> None:  # M2
    properties = Properties(message_id="m", subject="s", reply_to_group_id="r")
    back = off(backlogged({"x-ms-sessionid": "session", "x-ms-path": "orders"}, properties))
    expected = Properties(message_id="m", subject="s", group_id="session", reply_to_group_id="r")
    assert (Message(back.payload).properties(), back.session_id) == (expected, "session")


def test_a_session_id_comes_back_to_a_message_without_properties() -> None:  # M2
    for properties in (None, Properties()):
        back = off(backlogged({"x-ms-sessionid": "session", "x-ms-path": "orders"}, properties))
        assert Message(back.payload).properties() == Properties(group_id="session")


def test_an_alias_rules_over_a_session_id_that_stands_in_its_place() -> None:  # M2
    back = off(backlogged({"x-ms-sessionid": "alias", "x-ms-path": "orders"}, Properties(group_id="other")))
    assert (Message(back.payload).properties().group_id, back.session_id) == ("alias", "alias")


def test_a_session_id_without_an_alias_stays_and_is_reported() -> None:  # M2: put there by hand
    back = off(backlogged({"x-ms-path": "orders"}, Properties(group_id="by hand")))
    assert (Message(back.payload).properties().group_id, back.session_id) == ("by hand", "by hand")


def test_a_partition_key_is_carried_and_told() -> None:  # M2, S8
    annotations: dict[str, Value] = {
        "x-opt-partition-key": "key",
        "x-opt-via-partition-key": "via",
        "mine": Int(1),
        "x-opt-message-state": Int(0),
    }
    back = off(backlogged({"x-ms-path": "orders"}, annotations=annotations))
    del annotations["x-opt-message-state"]
    assert Message(back.payload).annotations() == Map.symbols(annotations)
    assert back.partition_key == "key"


def test_a_partition_key_that_is_no_string_is_left_to_the_destination_to_refuse() -> None:  # M2
    back = off(backlogged({"x-ms-path": "orders"}, annotations={"x-opt-partition-key": Int(5)}))
    assert back.partition_key is None
    assert Message(back.payload).annotations().get("x-opt-partition-key") == 5


@pytest.mark.parametrize("identity", ["text", ULong(7), uuid.UUID(int=7), b"raw", None])
def test_a_message_id_keeps_its_type(identity: Value) -> None:  # M2, S2
    back = off(backlogged({"x-ms-path": "orders"}, Properties(message_id=identity, to="x")))
    assert (type(back.message_id), back.message_id) == (type(identity), identity)


def test_an_alias_is_known_in_every_form_a_key_can_have() -> None:  # M2
    long_key = b"\xb1\x00\x00\x00\x09x-ms-path"
    pair = long_key + encode("orders")
    payload = b"\x00\x53\x74\xc1" + bytes((len(pair) + 1, 2)) + pair
    back = off(payload)
    assert (back.destination.name, back.payload) == ("orders", b"")


def test_only_what_is_called_exactly_so_is_an_alias() -> None:  # M2
    others: dict[str, Value] = {"X-MS-PATH": "x", "x-ms-path2": "y", "x-ms-": "z", "x-ms-sessionid ": "s"}
    back = off(backlogged({"x-ms-path": "orders", **others}))
    assert Message(back.payload).application_properties() == Map.of(others)


def test_a_header_of_any_size_passes() -> None:
    long = Header(priority="x" * 300)
    before = _usual_header.cache_info().currsize
    assert Message(off(backlogged({"x-ms-path": "orders"}, header=long)).payload).header() == long
    assert _usual_header.cache_info().currsize == before  # and large ones are not kept in memory


def test_what_a_dead_letter_tells_of_a_value_steers_no_terminal_and_ends_no_line() -> None:  # M4
    hostile = Described(Symbol("\r\n\x1b[2Jall is well"), Described("\x1b]0;title\x07", Symbol("\n")))
    back = restore(backlogged({"x-ms-path": "orders", "x-ms-timetolive": hostile}), enqueued_at=None, now=NOW)
    assert isinstance(back, Unrestorable)
    assert back.description.isprintable()
    assert "\\x1b[2Jall is well" in back.description


BOMB = b"\xd0" + (2**20 + 4).to_bytes(4, "big") + (2**20).to_bytes(4, "big") + b"\x45" * 2**20
"""A million empty lists in a million bytes."""


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"\x00\x53\x70" + BOMB, id="header"),
        pytest.param(b"\x00\x53\x73" + BOMB + map_of(b"\x00\x53\x74", "x-ms-path", encode("orders")), id="properties"),
        pytest.param(map_of(b"\x00\x53\x72", "x-opt-sequence-number", BOMB), id="annotation"),
        *(
            pytest.param(map_of(b"\x00\x53\x74", name, BOMB), id=name)
            for name in ("x-ms-path", "x-ms-sessionid", "x-ms-timetolive", "x-ms-scheduledenqueuetimeutc")
        ),
    ],
)
def test_a_message_that_is_a_bomb_is_refused_in_memory_that_fits_it(payload: bytes) -> None:  # M4
    """It would be received again and again, and end the process each time."""
    tracemalloc.start()
    try:
        back = restore(payload, enqueued_at=None, now=NOW)
        stamps_of(payload)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(back, Unrestorable)
    assert peak < 2 * len(payload) + 64 * 1024
