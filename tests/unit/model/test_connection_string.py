"""Connection strings: their contents, and the errors for bad ones."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syphon.model.connection_string import BadConnectionString, ConnectionString

KEY = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlYz0="
GOOD = f"Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey={KEY}"


def flaws(text: str) -> list[str]:
    with pytest.raises(BadConnectionString) as caught:
        ConnectionString.parse(text)
    assert all(flaw.remedy for flaw in caught.value.flaws)
    assert KEY.rstrip("=") not in str(caught.value)
    return [flaw.text for flaw in caught.value.flaws]


@pytest.mark.parametrize(
    ("text", "host", "port", "key_name", "emulator"),
    [
        (GOOD, "contoso.servicebus.windows.net", None, "Root", False),
        (f"  {GOOD};\n", "contoso.servicebus.windows.net", None, "Root", False),
        (GOOD.replace("Endpoint", "ENDPOINT"), "contoso.servicebus.windows.net", None, "Root", False),
        (f"{GOOD};TransportType=Amqp", "contoso.servicebus.windows.net", None, "Root", False),
        (
            "Endpoint=sb://X.Example.;SharedAccessSignature=SharedAccessSignature sr=a&sig=b",
            "x.example",
            None,
            None,
            False,
        ),
        (
            "Endpoint=sb://127.0.0.1:5673;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true",
            "127.0.0.1",
            5673,
            "a",
            True,
        ),
        (
            "Endpoint=sb://[::1]:5673;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true",
            "::1",
            5673,
            "a",
            True,
        ),
    ],
)
def test_a_good_one_has_host_and_policy(text: str, host: str, port: int | None, key_name: str, emulator: bool) -> None:
    assert ConnectionString.parse(text) == ConnectionString(host, port, key_name, emulator)


def test_the_key_is_not_kept() -> None:
    assert KEY not in repr(ConnectionString.parse(GOOD))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", ["is empty"]),
        (" \n", ["is empty"]),
        (GOOD.replace("Endpoint=sb://contoso.servicebus.windows.net/;", ""), ["has no Endpoint"]),
        (GOOD.replace("sb://", "https://"), ["has an Endpoint with https://"]),
        (GOOD.replace("sb://", ""), ["has an Endpoint that is not understood"]),
        (GOOD.replace("net/", "net/orders"), ["has an Endpoint that is not understood"]),
        (GOOD.replace("net/", "net:x/"), ["has an Endpoint that is not understood"]),
        (GOOD.replace("//contoso", f"//{KEY}@contoso"), ["has an Endpoint that is not understood"]),
        (GOOD.replace("SharedAccessKeyName=Root;", ""), ["has SharedAccessKey, but no SharedAccessKeyName"]),
        (GOOD.rpartition(";")[0], ["has SharedAccessKeyName, but no SharedAccessKey"]),
        ("contoso", ["is no connection string"]),
        (f"{GOOD}\n{GOOD}", ["has several lines"]),
        ("Endpoint=sb://a.b", ["has neither SharedAccessKey nor SharedAccessSignature"]),
        (f"{GOOD};SharedAccessSignature=x", ["has SharedAccessKey and SharedAccessSignature"]),
        (f"{GOOD};EntityPath=orders", ["is valid for one entity only (EntityPath)"]),
        (f"{GOOD};UseDevelopmentEmulator=True", ["has a UseDevelopmentEmulator that is neither true nor false"]),
        (
            f"{GOOD};{KEY}x",
            ["has a part (number 4) whose name is not known"],
        ),  # half of a key looks like a name
        (f"{GOOD};x", ["has a part (number 4) that is not Name=Value"]),
        (f"{GOOD};Endpoint=sb://a.b", ["has a part (number 4) that occurs twice"]),
        (
            GOOD.replace(";", "; "),
            [
                "has a part (number 2) with white space around it",
                "has a part (number 3) with white space around it",
            ],
        ),
        (
            "Endpoint=x;SharedAccessKey=",
            [
                "has a part (number 2) that is not Name=Value",
                "has SharedAccessKey, but no SharedAccessKeyName",
                "has an Endpoint that is not understood",
            ],
        ),
    ],
)
def test_every_flaw_is_reported_and_no_part_of_the_string_is_repeated(text: str, told: list[str]) -> None:
    assert flaws(text) == told


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(BadConnectionString):
        ConnectionString.parse(text)
    with contextlib.suppress(BadConnectionString):
        ConnectionString.parse(f"Endpoint={text};SharedAccessKeyName=a;SharedAccessKey=b")
