"""The options of the data source: all mistakes at once, and no secret in any text."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from syphon.config import load_config
from syphon.datasource.source_options import BadRows, BadSourceOptions, Start, parse_options, refuse_written_secrets

KEY = "c2VjcmV0LWtleS10aGF0LW11c3Qtbm90LWJlLXNlZW4="
STRING = f"Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=x;SharedAccessKey={KEY}"


def test_usual_options_and_their_defaults() -> None:
    found = parse_options({"Connection_String": STRING, "entity": " orders , news/Subscriptions/all,/ORDERS/ "})
    assert found.entities == ("orders", "news/Subscriptions/all")
    assert found.side.host == "contoso.servicebus.windows.net"
    assert not found.behaviour.bodies
    assert (found.behaviour.start, found.behaviour.bad_rows) == (Start.EARLIEST, BadRows.FAIL)
    with pytest.raises(BadSourceOptions, match="one entity, not orders, news/Subscriptions/all"):
        _ = found.entity


def test_a_namespace_with_an_identity_and_a_proxy() -> None:
    found = parse_options(
        {
            "namespace": "contoso.servicebus.windows.net",
            "credential": "managed_identity",
            "entity": "orders",
            "transport": "websockets",
            "proxy": "http://proxy:3128",
            "proxy_username": "me",
            "proxy_password": KEY,
            "checkpointLocation": "/tmp/x",
            "bodies": "TRUE",
            "max_rows": "10",
        }
    )
    assert found.side.proxy is not None
    assert (found.side.proxy.host, found.behaviour.max_rows, found.behaviour.bodies) == ("proxy", 10, True)
    assert KEY not in repr(found) + str(found)
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, ["neither connection_string nor namespace", "entity is missing"]),
        ({"conection_string": STRING, "entity": "q"}, ["did you mean connection_string?"]),
        ({"connection_string": STRING, "namespace": "a.b", "entity": "q"}, ["together with a connection_string"]),
        ({"connection_string": f"Endpoint=x;SharedAccessKey={KEY}", "entity": "q"}, ["connection_string"]),
        ({"namespace": STRING, "entity": "q"}, ["is a connection string"]),
        ({"connection_string": STRING, "entity": "q", "partition_size": "0"}, ["partition_size", "1 or more"]),
        ({"connection_string": STRING, "entity": "q", "bad_rows": "drop"}, ["'fail' or 'skip'"]),
        ({"connection_string": STRING, "entity": "q", "proxy": "http://me:secret@p:1"}, ["contains credentials"]),
        ({"connection_string": STRING, "entity": "q", "bodies": KEY}, ["bodies"]),
        (
            {"connection_string": STRING, "entity": "q", "startingOffsets": "soon"},
            ["is not an offset", '{"orders": 51}'],
        ),
        ({"connection_string": STRING, "entity": "q", "startingOffsets": '{"q": 0}'}, ["is not an offset"]),
        ({"connection_string": STRING, "entity": "q", "endingOffsets": "earliest"}, ["is no end"]),
        ({"connection_string": STRING, "entity": "q", "startingTimestamp": "soon"}, ["is not a time", "milliseconds"]),
        (
            {"connection_string": STRING, "entity": "q", "first": "1", "startingOffsets": "1"},
            ["together with starting"],
        ),
        ({"entity": STRING}, ["entity is a connection string"]),
        ({"config": STRING, "pair": STRING}, ["config is a connection string", "pair is a connection string"]),
    ],
)
def test_every_mistake_is_named_with_its_remedy(options: dict[str, str], words: list[str]) -> None:
    with pytest.raises(BadSourceOptions) as caught:
        parse_options(options)
    for word in words:
        assert word in str(caught.value)
    assert KEY not in str(caught.value) + repr(caught.value)
    assert "secret@" not in str(caught.value)


@pytest.fixture
def config(tmp_path: Path) -> str:
    (tmp_path / "key").write_text(STRING)
    file = tmp_path / "config.yaml"
    file.write_text(
        "pairs:\n"
        "  - name: contoso\n"
        "    primary: {namespace: contoso-a.servicebus.windows.net}\n"
        f"    secondary: {{connection_string: '${{file:{tmp_path}/key}}', name: dr}}\n"
        "    backlog_queue_count: 2\n"
        "  - name: other\n"
        "    primary: {namespace: other.servicebus.windows.net}\n"
        "    secondary: {namespace: other-dr.servicebus.windows.net}\n"
    )
    return str(file)


def test_a_settings_file_names_the_sides_so_that_no_key_is_typed(config: str) -> None:
    found = parse_options({"config": config, "pair": "Contoso"})
    assert found.entities == ("contoso-a/x-servicebus-transfer/0", "contoso-a/x-servicebus-transfer/1")
    assert found.side.connection_string is not None
    assert found.side.connection_string.get_secret_value() == STRING
    assert KEY not in repr(found)
    primary = parse_options({"config": config, "pair": "contoso", "side": "primary", "entity": "orders"})
    assert (primary.side.host, primary.entities) == ("contoso-a.servicebus.windows.net", ("orders",))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "option.pair is missing; write one of contoso, other"),
        ({"pair": "none"}, "is not in the settings"),
        ({"pair": "contoso", "side": "both"}, "write primary or secondary"),
        ({"pair": "contoso", "side": "primary"}, "option.entity is missing"),
        ({"pair": "contoso", "connection_string": STRING}, "is given together with config"),
    ],
)
def test_mistakes_beside_a_settings_file(config: str, options: dict[str, str], words: str) -> None:
    with pytest.raises(BadSourceOptions, match=words) as caught:
        parse_options({"config": config, **options})
    assert KEY not in str(caught.value)


def test_a_settings_file_that_is_missing_is_named() -> None:
    with pytest.raises(BadSourceOptions, match=r"/no/such/file.yaml: the file does not exist"):
        parse_options({"config": "/no/such/file.yaml"})
    with pytest.raises(BadSourceOptions, match=r"option.config is missing"):
        parse_options({"pair": "contoso"})


def test_settings_that_the_source_was_registered_with_count_unless_a_query_names_a_namespace(config: str) -> None:
    pairs = load_config(Path(config)).pairs
    assert parse_options({"pair": "contoso"}, pairs) == parse_options({"config": config, "pair": "contoso"})
    assert parse_options({"entity": "q"}, pairs[1:]).side.host == "other-dr.servicebus.windows.net"
    elsewhere = {"namespace": "elsewhere.servicebus.windows.net", "entity": "q"}
    assert parse_options(elsewhere, pairs) == parse_options(elsewhere)


def test_secrets_in_the_options_of_a_query_are_refused_where_spark_writes_options_down() -> None:  # T11
    refuse_written_secrets(["entity", "config", "namespace", "proxy_username"])
    with pytest.raises(
        BadSourceOptions, match=r"Give connection_string and proxy_password to syphon\.datasource\.register_"
    ):
        refuse_written_secrets(["Connection_String", "PROXY_PASSWORD"])
