"""Entity paths and patterns of them: slashes, capitals, and what a pattern matches."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from syphon.model import EntityPath, PathPatterns, Renames

SEGMENTS = st.text(st.sampled_from("abAB01-_./\n ÄäßİK"), max_size=8)
PATTERNS = st.text(st.sampled_from("abAB*?[]!-^\\./|()$ Ää"), max_size=8)


@pytest.mark.parametrize("text", ["orders", "/orders", "orders/", "//Orders//", "ORDERS"])
def test_a_path_is_the_same_entity_however_it_is_written(text: str) -> None:
    path = EntityPath.of(text)
    assert path == EntityPath.of("orders")
    assert hash(path) == hash(EntityPath.of("orders"))
    assert path.key == "orders"


def test_a_path_keeps_its_capitals_for_people_and_its_inner_slashes() -> None:
    path = EntityPath.of("/Billing/Paid/")
    assert (path.name, path.key, str(path)) == ("Billing/Paid", "billing/paid", "Billing/Paid")
    assert path != EntityPath.of("billingpaid")


@pytest.mark.parametrize(
    ("pattern", "path", "is_match"),
    [
        ("*", "orders", True),
        ("*", "billing/paid/eu", True),
        ("*", "", True),
        ("orders", "orders", True),
        ("orders/", "/Orders", True),
        ("/ORDERS", "orders", True),
        ("orders", "orders2", False),
        ("orders", "my-orders", False),
        ("billing/*", "billing/paid", True),
        ("billing/*", "billing/paid/eu", True),  # `*` passes slashes
        ("billing/*", "billing", False),
        ("billing*", "billing", True),
        ("order?", "orders", True),
        ("order?", "order", False),
        ("order[st]", "OrderT", True),
        ("order[!s]", "orders", False),
        ("a.c", "abc", False),  # a dot is a dot
        ("", "", True),
        ("", "orders", False),
        ("/", "", True),
    ],
)
def test_a_pattern_matches_whole_paths(pattern: str, path: str, is_match: bool) -> None:
    assert PathPatterns.of([pattern]).fit(EntityPath.of(path)) is is_match


def test_one_pattern_of_several_is_enough_and_none_matches_nothing() -> None:
    patterns = PathPatterns.of(["orders", "billing/*"])
    assert [patterns.fit(EntityPath.of(path)) for path in ("orders", "billing/paid", "other")] == [True, True, False]
    assert not PathPatterns.of([]).fit(EntityPath.of("orders"))
    assert not PathPatterns.of([]).fit(EntityPath.of(""))


def test_only_the_star_alone_matches_everything() -> None:
    assert PathPatterns().fit_all
    assert PathPatterns.of(["orders", "*"]).fit_all
    assert not PathPatterns.of(["orders*", "?*"]).fit_all
    assert not PathPatterns.of([]).fit_all


@given(st.lists(PATTERNS, max_size=3), SEGMENTS)
@example(["[!"], "[!")
@example(["[]-a]"], "]")
@example(["a|b"], "a")
@example(["*"], "a\nb")
@example(["orders"], "orders\n")
def test_the_expression_agrees_with_fnmatch(patterns: list[str], text: str) -> None:
    path, made = EntityPath.of(text), PathPatterns.of(patterns)
    expected = any(fnmatchcase(path.key, pattern.strip("/").lower()) for pattern in patterns)
    assert made.fit(path) is expected
    # Python calls the end of the text \\Z, Java \\z.
    assert (re.search(made.java_regex.removesuffix("z") + "Z", path.key) is not None) is expected


def test_a_rename_is_one_step_by_whole_names() -> None:  # D13
    renames = Renames.of({"/Orders": "Orders-V2", "returns": "orders"})
    actual = {name: renames.actual(EntityPath.of(name)).name for name in ("orders", "RETURNS", "orders/2", "order")}
    assert actual == {"orders": "Orders-V2", "RETURNS": "orders", "orders/2": "orders/2", "order": "order"}
