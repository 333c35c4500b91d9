"""Subscription rule filters: which messages they match, and which filters are refused."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from syphon.emulator.broker.filters import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    SqlFilter,
    TrueFilter,
)
from syphon.emulator.broker.refusals import BadArgument
from syphon.sql import FilterableProperties, parse


class Long(int):
    """As an AMQP decoder hands over a number: a subclass that says which type it was."""


@dataclass
class FakeMessage:
    """Folds user property names as Service Bus does."""

    users: Mapping[str, object] = field(default_factory=dict)
    systems: Mapping[str, object] = field(default_factory=dict)

    def system(self, name: str) -> object | None:
        return self.systems.get(name)

    def user(self, name: str) -> object | None:
        return {key.casefold(): value for key, value in self.users.items()}.get(name.casefold())

    def has_user(self, name: str) -> bool:
        return name.casefold() in {key.casefold() for key in self.users}


def message(**users: object) -> FilterableProperties:
    return FakeMessage(users)


def broker_message(**systems: object) -> FilterableProperties:
    return FakeMessage(systems=systems)


def matches(expression: str, properties: FilterableProperties | None = None, **parameters: object) -> bool:
    return SqlFilter(expression, parameters).matches(properties or message())


def answer(expression: str, properties: FilterableProperties | None = None) -> bool | None:
    """Tells unknown from false, which a filter does not."""
    return parse(expression, {}).holds(properties or message())


def refusal(expression: str, **parameters: object) -> str:
    with pytest.raises(BadArgument) as refused:
        SqlFilter(expression, parameters)
    return refused.value.description


# The filters without a language


def test_a_true_filter_matches_every_message_and_a_false_filter_none() -> None:
    assert TrueFilter().matches(message(a=1))
    assert not FalseFilter().matches(message(a=1))


@pytest.mark.parametrize("made", [TrueFilter(), FalseFilter(), CorrelationFilter(to="x"), SqlFilter("1=1")])
def test_a_filter_is_a_value(made: Filter) -> None:
    with pytest.raises(FrozenInstanceError):
        made.surprise = 1  # type: ignore[union-attr]


def test_sql_filters_of_the_same_text_and_parameters_are_equal() -> None:
    assert SqlFilter("a = @x", {"@x": 1}) == SqlFilter("a = @x", {"@x": 1})
    assert SqlFilter("a = @x", {"@x": 1}) != SqlFilter("a = @x", {"@x": 2})


@pytest.mark.parametrize(
    ("wants", "name"),
    [
        (CorrelationFilter(correlation_id="Red"), "correlationid"),
        (CorrelationFilter(message_id="Red"), "messageid"),
        (CorrelationFilter(to="Red"), "to"),
        (CorrelationFilter(reply_to="Red"), "replyto"),
        (CorrelationFilter(label="Red"), "label"),
        (CorrelationFilter(session_id="Red"), "sessionid"),
        (CorrelationFilter(reply_to_session_id="Red"), "replytosessionid"),
        (CorrelationFilter(content_type="Red"), "contenttype"),
    ],
)
def test_each_field_of_a_correlation_filter_is_compared_with_its_system_property(
    wants: CorrelationFilter, name: str
) -> None:
    assert wants.matches(broker_message(**{name: "Red"}))
    assert not wants.matches(broker_message(**{name: "red"}))
    assert not wants.matches(broker_message())


def test_all_fields_and_properties_of_a_correlation_filter_must_be_equal() -> None:
    wants = CorrelationFilter(label="order", session_id="s", properties={"color": "red", "size": 5})
    users = {"color": "red", "size": 5}
    assert wants.matches(FakeMessage(users, {"label": "order", "sessionid": "s"}))
    assert not wants.matches(FakeMessage(users, {"label": "order"}))
    assert not wants.matches(FakeMessage({"color": "red"}, {"label": "order", "sessionid": "s"}))


def test_an_empty_string_in_a_correlation_filter_must_match() -> None:
    assert not CorrelationFilter(label="").matches(broker_message(label="x"))
    assert CorrelationFilter(label="").matches(broker_message(label=""))


@pytest.mark.parametrize(
    ("wanted", "value", "equal"),
    [
        (1, Long(1), True),
        (1, 1.0, True),
        ("1", 1, False),
        (1, "1", False),
        (True, 1, False),
        (1, True, False),
        (True, True, True),
        (b"x", "x", False),
        (b"x", b"x", True),
        (None, None, False),
        (datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC), True),
    ],
)
def test_a_correlation_filter_knows_types_but_all_numbers_are_one(wanted: object, value: object, equal: bool) -> None:
    assert CorrelationFilter(properties={"a": wanted}).matches(message(a=value)) is equal


# Names


def test_a_bare_name_and_a_user_name_are_the_same_property() -> None:
    assert matches("color = 'red' AND user.color = 'red' AND USER.Color = 'red'", message(color="red"))


def test_system_properties_are_found_in_any_case() -> None:
    assert matches("sys.Label = 'a' AND SYS.label = 'a' AND sys.[LABEL] = 'a'", broker_message(label="a"))


def test_the_subject_is_the_label() -> None:
    assert matches("sys.Subject = 'a'", broker_message(label="a"))


def test_a_user_property_does_not_stand_in_for_a_system_property() -> None:
    assert not matches("sys.Label = 'a'", message(label="a"))
    assert not matches("Label = 'a'", broker_message(label="a"))


def test_delimited_and_quoted_names_may_hold_anything() -> None:
    odd = FakeMessage({"a b": 1, "c]d": 2, 'e"f': 3, "AND": 4, "x.y": 5})
    assert matches('[a b] = 1 AND "a b" = 1 AND [c]]d] = 2 AND "e""f" = 3 AND [AND] = 4 AND user.[x.y] = 5', odd)


def test_names_may_be_in_any_script() -> None:
    assert matches("größe_2 = 1 AND 色 = 2", FakeMessage({"größe_2": 1, "色": 2}))


def test_a_property_named_like_a_function_is_still_a_property() -> None:
    assert matches("p = 1 AND newid = 2", message(p=1, newid=2))


# Comparing


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("1 = 1", True),
        ("1 = 1.0", True),
        ("2E3 = 2000", True),
        ("0.5e-2 = .005", True),
        ("1 <> 2", True),
        ("1 != 1", False),
        ("1 < 2", True),
        ("2 <= 2", True),
        ("3 > 3", False),
        ("3 >= 3", True),
        ("'a' = 'a'", True),
        ("'a' = 'A'", False),
        ("'B' < 'a'", True),
        ("'it''s' = 'it''s'", True),
        ("'' = ''''", False),
        ("TRUE = true", True),
        ("TRUE <> FALSE", True),
        ("TRUE > FALSE", None),
        ("TRUE = 1", None),
        ("'1' = 1", None),
        ("'1' <> 1", None),
        ("1 = NULL", None),
        ("NULL = NULL", None),
    ],
)
def test_constants_compare_within_their_type_and_are_unknown_across_types(
    expression: str, expected: bool | None
) -> None:
    assert answer(expression) is expected


@pytest.mark.parametrize("symbol", ["=", "<>", "!=", "<", "<=", ">", ">="])
def test_a_missing_property_makes_every_comparison_unknown(symbol: str) -> None:
    assert answer(f"missing {symbol} 1") is None
    assert answer(f"NOT (missing {symbol} 1)") is None
    assert answer(f"sys.Label {symbol} 'a'") is None


def test_identifiers_and_bytes_are_equal_or_not_but_have_no_order() -> None:
    one, other = uuid.UUID(int=1), uuid.UUID(int=2)
    assert answer("a <> b AND a = a", message(a=one, b=other)) is True
    assert answer("a < b", message(a=one, b=other)) is None
    assert answer("a < b", message(a=b"1", b=b"2")) is None
    assert answer("a = b", message(a=b"1", b="1")) is None


def test_instants_and_durations_are_ordered_and_an_instant_without_a_zone_is_utc() -> None:
    properties = FakeMessage(
        {"now": datetime(2024, 1, 2, tzinfo=UTC), "hour": timedelta(hours=1)},
        {"enqueuedtimeutc": datetime(2024, 1, 1), "timetolive": timedelta(days=1)},
    )
    assert matches("sys.EnqueuedTimeUtc < now AND sys.TimeToLive > hour", properties)


def test_a_value_of_a_type_filters_do_not_know_is_unknown() -> None:
    assert answer("a = a", message(a=[1])) is None
    assert answer("a IS NULL", message(a=[1])) is False


@given(st.integers() | st.floats(), st.integers() | st.floats())
def test_numbers_compare_as_numbers(a: float, b: float) -> None:
    properties = message(a=a, b=b)
    assert answer("a = b", properties) is (a == b)
    assert answer("a < b", properties) is (a < b)
    assert answer("a >= b", properties) is (a >= b)


@given(st.text())
def test_any_text_can_be_written_as_a_literal(text: str) -> None:
    literal = text.replace("'", "''")
    if len(literal) < 1000:
        assert matches(f"a = '{literal}'", message(a=text))


# Logic

TRUTH = {"T": "1 = 1", "F": "1 = 0", "U": "missing = 1"}
ANSWERS = {"T": True, "F": False, "U": None}


@pytest.mark.parametrize(
    ("left", "right", "conjunction", "disjunction"),
    [
        ("T", "T", "T", "T"),
        ("T", "F", "F", "T"),
        ("T", "U", "U", "T"),
        ("F", "T", "F", "T"),
        ("F", "F", "F", "F"),
        ("F", "U", "F", "U"),
        ("U", "T", "U", "T"),
        ("U", "F", "F", "U"),
        ("U", "U", "U", "U"),
    ],
)
def test_and_and_or_follow_the_documented_truth_tables(
    left: str, right: str, conjunction: str, disjunction: str
) -> None:
    assert answer(f"{TRUTH[left]} AND {TRUTH[right]}") is ANSWERS[conjunction]
    assert answer(f"{TRUTH[left]} OR {TRUTH[right]}") is ANSWERS[disjunction]


def test_unknown_is_no_match_and_its_negation_neither() -> None:
    assert not matches("missing = 1")
    assert not matches("NOT missing = 1")


def test_not_binds_tighter_than_and_which_binds_tighter_than_or() -> None:
    assert matches("1=1 OR 1=0 AND 1=0")
    assert not matches("(1=1 OR 1=0) AND 1=0")
    assert matches("NOT 1=0 AND 1=1")
    assert not matches("NOT (1=0 AND 1=0 OR 1=1)")
    assert matches("NOT NOT 1=1")


def test_keywords_may_be_written_in_any_case() -> None:
    assert matches("a Is nOt NuLl aNd Not a iN (2) oR eXists(a)", message(a=1))


# Arithmetic


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("1 + 2 * 3 = 7", True),
        ("(1 + 2) * 3 = 9", True),
        ("10 - 3 - 2 = 5", True),
        ("7 / 2 = 3", True),
        ("-7 / 2 = -3", True),
        ("7 % -4 = 3", True),
        ("-7 % 4 = -3", True),
        ("7 / 2.0 = 3.5", True),
        ("-7.5 % 2 = -1.5", True),
        ("- - 2 = +2", True),
        ("-(1 + 1) = -2", True),
        ("'a' + 'b' = 'ab'", True),
        ("'a' + 1 = 'a1'", None),
        ("'a' - 'b' = ''", None),
        ("-'a' = 'a'", None),
        ("TRUE + 1 = 2", None),
        ("1 + NULL = 1", None),
        ("missing * 0 = 0", None),
        ("-missing = 0", None),
        ("1 / 0 = 1", None),
        ("1 % 0 = 1", None),
        ("1.0 / 0 = 1", None),
        ("1e308 * 1e308 % 2 = 1", None),
        ("9223372036854775807 * 3 > 0", None),
    ],
)
def test_arithmetic_is_that_of_c_sharp_and_unknown_where_it_would_fail(expression: str, expected: bool | None) -> None:
    assert answer(expression) is expected


def test_typed_numbers_of_a_message_are_calculated_with() -> None:
    assert matches("a * 2 + b = 7 AND a % 2 = 1 AND -a = 0 - 3", message(a=Long(3), b=Long(1)))


def test_a_concatenation_cannot_outgrow_a_message() -> None:
    chain = "+".join("a" * 400)
    assert answer(f"{chain} = 'x'", message(a="x" * 60_000)) is None


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1).filter(bool))
@example(-(2**63), -1)
def test_quotient_and_remainder_give_the_dividend_back(a: int, b: int) -> None:
    assert matches("a / b * b + a % b = a", message(a=a, b=b))


# IN, LIKE, IS NULL, EXISTS


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a IN (1, 2, 3)", True),
        ("a IN (4, 1 + 1)", True),
        ("a IN (3)", False),
        ("a NOT IN (3, 4)", True),
        ("a NOT IN (2)", False),
        ("a IN (3, NULL)", None),
        ("a IN (2, NULL)", True),
        ("a NOT IN (3, NULL)", None),
        ("a IN ('2')", None),
        ("missing IN (1)", None),
        ("missing NOT IN (1)", None),
        ("NOT a IN (3)", True),
    ],
)
def test_in_is_true_false_or_unknown_as_a_row_of_comparisons_would_be(expression: str, expected: bool | None) -> None:
    assert answer(expression, message(a=2)) is expected


@pytest.mark.parametrize(
    ("text", "pattern", "expected"),
    [
        ("bus", "bus", True),
        ("Bus", "bus", False),
        ("a bus stop", "%bus%", True),
        ("bus", "%bus%", True),
        ("bus stop", "bus%", True),
        ("a bus", "%bus", True),
        ("bus stop", "%bus", False),
        ("b.s", "b.s", True),
        ("bus", "b.s", False),
        ("bus", "b_s", True),
        ("bs", "b_s", False),
        ("", "", True),
        ("", "%", True),
        ("", "_", False),
        ("a\nb", "a_b", True),
        ("a\nb\n", "a%b%", True),
        ("bus\n", "bus", False),
        ("aab", "a%ab", True),
        ("ab", "ab%ab", False),
        ("aba", "ab%ba", False),
        ("abXba", "ab%%ba", True),
        ("[a]", "[a]", True),
        ("a", "[a]", False),
    ],
)
def test_like_knows_percent_and_underscore_and_takes_all_else_literally(
    text: str, pattern: str, expected: bool
) -> None:
    assert answer(f"a LIKE '{pattern}'", message(a=text)) is expected
    assert answer(f"a NOT LIKE '{pattern}'", message(a=text)) is not expected


def test_an_escape_character_makes_the_next_one_literal() -> None:
    assert matches(r"a LIKE 'ABC\%' ESCAPE '\'", message(a="ABC%"))
    assert not matches(r"a LIKE 'ABC\%' ESCAPE '\'", message(a="ABCD"))
    assert matches("a LIKE '!!!_%!%' ESCAPE '!'", message(a="!_x%"))
    assert matches("a LIKE '%%x' ESCAPE '%'", message(a="%x"))


@pytest.mark.parametrize(
    "expression",
    [
        "missing LIKE '%'",
        "missing NOT LIKE '%'",
        "number LIKE '1'",
        "text LIKE number",
        "text LIKE missing",
        "text LIKE NULL",
        "text LIKE 'a' ESCAPE missing",
        "text LIKE 'a' ESCAPE NULL",
        "text LIKE 'a' ESCAPE number",
        "text LIKE 'a' ESCAPE long",
        "text LIKE long + '!' ESCAPE '!'",
        "text LIKE huge",
    ],
)
def test_like_is_unknown_where_a_message_brings_no_text_or_no_pattern(expression: str) -> None:
    assert answer(expression, message(text="a", number=1, long="aa", huge="a" * 2000)) is None


def test_a_pattern_may_come_from_the_message() -> None:
    assert matches("a LIKE b + '%'", message(a="stopover", b="st_p"))


def naive_like(text: str, pattern: str) -> bool:
    reached = {0}
    for character in pattern:
        if character == "%":
            reached = set(range(min(reached, default=len(text) + 1), len(text) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(text) and character in ("_", text[at])}
    return len(text) in reached


@given(st.text("ab\n%", max_size=12), st.text("ab_%\n", max_size=8))
def test_like_agrees_with_trying_every_possibility(text: str, pattern: str) -> None:
    assert answer(f"a LIKE '{pattern}'", message(a=text)) is naive_like(text, pattern)


@pytest.mark.parametrize(
    "pattern", ["%a" * 400 + "b", "%" + "a" * 900 + "b%", "%" + "_a" * 400 + "b%", "%a_" * 300 + "c%"]
)
def test_like_takes_no_long_time_over_a_hostile_pattern(pattern: str) -> None:
    hostile = SqlFilter(f"a LIKE '{pattern}'")
    began = time.process_time()
    assert not hostile.matches(message(a="a" * 30_000))
    # Backtracking would need longer than anyone lives; the bound only has to be out of a slow machine's reach.
    assert time.process_time() - began < 10


def test_is_null_is_true_for_a_null_and_for_a_missing_property() -> None:
    properties = message(empty=None, one=1)
    assert matches("empty IS NULL AND missing IS NULL AND one IS NOT NULL AND sys.Label IS NULL", properties)
    assert not matches("one IS NULL", properties)
    assert not matches("missing IS NOT NULL", properties)
    assert matches("property('missing') IS NULL", properties)


def test_exists_is_true_for_a_null_but_not_for_a_missing_property() -> None:
    properties = FakeMessage({"empty": None, "a b": 1}, {"label": "x"})
    assert matches("EXISTS(empty) AND EXISTS (user.[a b]) AND NOT EXISTS(missing)", properties)
    assert matches("EXISTS(sys.Label) AND NOT EXISTS(sys.To) AND EXISTS(p('a b'))", properties)


# Functions and parameters


def test_property_finds_a_user_property_by_a_name_that_may_be_computed() -> None:
    properties = FakeMessage({"a b": 1, "which": "a b"}, {"label": "x"})
    assert matches("property('a b') = 1 AND P('a' + ' b') = 1 AND p(which) = 1", properties)
    assert answer("property('missing') = 1", properties) is None
    assert answer("property(1) = 1", properties) is None
    assert answer("property('sys.Label') = 'x'", properties) is None


def test_newid_is_a_new_identifier_each_time() -> None:
    ids = iter([uuid.UUID(int=1), uuid.UUID(int=1), uuid.UUID(int=2)])
    condition = parse("newid() = a", {}, new_id=lambda: next(ids))
    properties = message(a=uuid.UUID(int=1))
    assert [condition.holds(properties) for _ in range(3)] == [True, True, False]
    assert matches("newid() <> newid()")


def test_parameters_are_found_with_and_without_their_at_sign_and_in_any_case() -> None:
    assert SqlFilter("a = @One AND b = @two", {"@one": 1, "Two": "x"}).matches(message(a=1, b="x"))


def test_a_parameter_is_a_value_and_never_text_of_the_expression() -> None:
    assert not matches("a = @x", message(a="b"), x="b' OR 'a' = 'a")
    assert matches("a LIKE @x", message(a="it's"), x="it'%")


def test_changing_the_parameters_afterwards_does_not_change_the_filter() -> None:
    parameters: dict[str, object] = {"@x": 1}
    made = SqlFilter("a = @x", parameters)
    parameters["@x"] = 2
    assert made.matches(message(a=1))


# Refusals


@pytest.mark.parametrize(
    ("expression", "at", "expected"),
    [
        ("", 1, "a property, a value or ("),
        ("  ", 3, "a property, a value or ("),
        ("a", 2, "a comparison, IN, LIKE or IS"),
        ("TRUE", 5, "a comparison"),
        ("a AND b = 1", 3, "a comparison"),
        ("a = 1 AND", 10, "a property, a value or ("),
        ("NOT a", 6, "a comparison"),
        ("a =", 4, "a property, a value or ("),
        ("a = = 1", 5, "a property, a value or ("),
        ("a = 1 b", 7, "AND, OR or the end"),
        ("a = 1 = 2", 7, "AND, OR or the end"),
        ("(a = 1", 7, "AND, OR, an operator or )"),
        ("a = 1)", 6, "AND, OR or the end"),
        ("()", 2, "a property, a value or ("),
        ("(a = 1) + 1 = 2", 1, "a value rather than a condition"),
        ("1 + (a = 1) = 2", 5, "a value rather than a condition"),
        ("a = (b = 1)", 5, "a value rather than a condition"),
        ("-(a = 1) = 1", 2, "a value rather than a condition"),
        ("a = 'it", 5, "a closing '"),
        ("a = 'it''", 5, "a closing '"),
        ("[a = 1", 1, "a name and a closing ]"),
        ("[] = 1", 1, "a name and a closing ]"),
        ('"a = 1', 1, 'a name and a closing "'),
        ("a # 1", 3, "a name, a value or an operator"),
        ("_a = 1", 1, "a name, a value or an operator"),
        ("a IN ()", 7, "a property, a value or ("),
        ("a IN 1", 6, "( and the values"),
        ("a IN (1 2)", 9, "a comma or )"),
        ("a NOT = 1", 7, "IN or LIKE after NOT"),
        ("a IS 1", 6, "NULL or NOT NULL"),
        ("a IS NOT 1", 10, "NULL"),
        ("1 IS NULL", 1, "a property before IS"),
        ("newid() IS NULL", 1, "a property before IS"),
        ("EXISTS a", 8, "( and a property"),
        ("EXISTS(1)", 8, "a property"),
        ("EXISTS(newid())", 8, "a property"),
        ("a LIKE 'x' ESCAPE '!!'", 8, "an escape character of length 1"),
        ("a LIKE 'x' ESCAPE ''", 8, "an escape character of length 1"),
        ("a LIKE 'x!' ESCAPE '!'", 8, "a character after the escape character"),
        ("other.a = 1", 1, "sys or user"),
        ("sys.Colour = 1", 5, "the name of a system property"),
        ("sys. = 1", 6, "a property's name after the dot"),
        ("user.NOT = 1", 6, "a property's name after the dot"),
        ("NULL IS NULL", 1, "a property before IS"),
        ("lower(a) = 'x'", 1, "the function newid, property or p"),
        ("newid(1) = a", 7, ")"),
        ("a = 9223372036854775808", 5, "a number within the range"),
        ("a = 1E999", 5, "a number within the range"),
        ("a = @x", 5, "a parameter the filter has a value for"),
        ("a = 0x10", 6, "AND, OR or the end"),
    ],
)
def test_a_bad_expression_is_refused_with_its_place_and_what_was_expected(
    expression: str, at: int, expected: str
) -> None:
    text = refusal(expression)
    assert f"at character {at}: expected {expected}" in text
    assert ", found " in text


def test_a_parameter_of_a_type_filters_do_not_know_is_refused() -> None:
    assert "a parameter whose value a filter can compare" in refusal("a = @x", x=[1])


def test_an_expression_may_have_1024_characters_and_no_more() -> None:
    exact = "a = '" + "x" * 1018 + "'"
    assert len(exact) == 1024
    assert matches(exact, message(a="x" * 1018))
    assert "1025 characters; expected at most 1024" in refusal(exact + " ")


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 500 + "1=1" + ")" * 500,
        "(" * 1024,
        "p(" * 250 + "'a'" + ")" * 250 + "= 1",
        "a IN (" + "p(" * 250,
        "-(" * 500,
        "NOT (" * 200,
    ],
)
def test_deep_nesting_is_refused_before_it_exhausts_the_stack(expression: str) -> None:
    assert "at most 32 parentheses within each other" in refusal(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 32 + "1=1" + ")" * 32,
        "NOT " * 254 + "1=1",
        "-" * 1000 + "1 = 1",
        "1" + "+1" * 500 + " = 501",
        "1=1" + " AND 1=1" * 127,
        "1=0" + " OR 1=1" * 140,
    ],
)
def test_long_chains_and_allowed_nesting_are_no_strain(expression: str) -> None:
    assert matches(expression)


WORDS = st.sampled_from(
    [
        "a",
        "[b c]",
        "sys.Label",
        "user.d",
        "1",
        "2.5",
        "'x'",
        "'%'",
        "@p",
        "=",
        "<>",
        "<",
        "+",
        "-",
        "*",
        "/",
        "%",
        "(",
        ")",
        ",",
        ".",
        "NOT",
        "AND",
        "OR",
        "IN",
        "LIKE",
        "ESCAPE",
        "IS",
        "NULL",
        "EXISTS",
        "TRUE",
        "p(",
        "newid()",
        "'",
    ]
)
PROPERTIES = st.dictionaries(
    st.sampled_from(["a", "b c", "d"]),
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3) | st.uuids(),
)


@given(st.lists(WORDS, max_size=15).map(" ".join) | st.text(max_size=40), PROPERTIES)
def test_every_text_is_either_refused_or_gives_an_answer(expression: str, users: dict[str, object]) -> None:
    try:
        made = SqlFilter(expression, {"@p": 1})
    except BadArgument:
        return
    assert made.matches(FakeMessage(users)) in (True, False)


OPERANDS = st.sampled_from(["a", "[b c]", "user.d", "1", "2.5", "'x'", "TRUE", "NULL", "@p", "newid()", "p('a')"])
VALUES = st.recursive(
    OPERANDS,
    lambda inner: st.tuples(inner, st.sampled_from("+-*/%"), inner).map(lambda it: f"({' '.join(it)})"),
    max_leaves=4,
)
TESTS = (
    st.tuples(VALUES, st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">=", "LIKE", "NOT LIKE"]), VALUES).map(
        " ".join
    )
    | st.tuples(VALUES, VALUES, VALUES).map(lambda it: f"{it[0]} IN ({it[1]}, {it[2]})")
    | st.just("a IS NULL")
    | st.just("EXISTS(d)")
)
CONDITIONS = st.recursive(
    TESTS,
    lambda inner: (
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda it: f"({' '.join(it)})")
        | inner.map(lambda it: f"NOT ({it})")
    ),
    max_leaves=6,
)


@given(CONDITIONS, PROPERTIES)
def test_every_well_formed_condition_is_accepted_and_never_holds_with_its_negation(
    expression: str, users: dict[str, object]
) -> None:
    if len(expression) > 1000 or "newid" in expression:
        return
    properties = FakeMessage(users)
    affirmed, denied = (parse(text, {"p": 1}).holds(properties) for text in (expression, f"NOT ({expression})"))
    assert (affirmed, denied) in [(True, False), (False, True), (None, None)]
