"""The worker's settings: what they mean, and how mistakes are reported."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel, SecretStr, ValidationError

from syphon.config import (
    CanarySettings,
    Config,
    Credential,
    DestinationSettings,
    ListenAddress,
    PairSettings,
    PermanentError,
    SideSettings,
    Transport,
    Via,
    exposes_keys,
    load_config,
)
from syphon.model import SessionOrder, TimeToLive
from syphon.model.errors import DestinationDisabled, DestinationMissing, MessageTooLarge, NotAllowedByEntity
from syphon.transfer.pump_options import PERMANENT, PumpOptions
from syphon.yaml_settings import SettingsError, parse

EXAMPLE = Path(__file__).parents[3] / "config.example.yaml"
KEY = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlYz0="
STRING = f"Endpoint=sb://contoso-dr.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey={KEY}"
EMULATOR = "Endpoint=sb://127.0.0.1:{};SharedAccessKeyName=Root;SharedAccessKey=x;UseDevelopmentEmulator=true"
SMALLEST = f"""
pairs:
  - name: contoso
    primary: {{namespace: contoso.servicebus.windows.net}}
    secondary:
      connection_string: {STRING}
"""


def load(folder: Path, text: str, **environ: str) -> Config:
    file = folder / "syphon.yaml"
    file.write_text(text)
    return load_config(file, environ)


def told(folder: Path, text: str, **environ: str) -> list[str]:
    """The problems of a file, each from its line number on. Asserts that none shows a key."""
    with pytest.raises(SettingsError) as caught:
        load(folder, text, **environ)
    shown = str(caught.value) + repr(caught.value) + repr(caught.value.problems)
    assert KEY not in shown
    assert caught.value.__cause__ is None
    assert all(problem.remedy for problem in caught.value.problems)
    return [str(problem).removeprefix(f"{folder}/syphon.yaml:") for problem in caught.value.problems]


def pair(primary: str = "{namespace: a.example}", secondary: str = "{namespace: b.example}", more: str = "") -> str:
    return f"pairs:\n- name: contoso\n  primary: {primary}\n  secondary: {secondary}\n{more}"


# --- what can be said ------------------------------------------------------------------------------------------------


def test_only_a_pair_is_mandatory(tmp_path: Path) -> None:
    config = load(tmp_path, SMALLEST)
    (only,) = config.pairs
    assert (only.backlog_queue_count, only.destinations.allow) == (10, ["*"])  # P1, D13
    assert only.destinations.permanent_errors == {PermanentError.MESSAGE_TOO_LARGE, PermanentError.NOT_ALLOWED}  # S4
    assert (only.time_to_live, only.provision.via) == (TimeToLive.RESTORE, Via.ADMIN)  # M5, P6
    pipeline = config.pipeline
    assert (pipeline.master, pipeline.ledger, pipeline.long_poll, pipeline.lease, pipeline.spark) == (
        "local[*]",
        "./ledger",
        15 * 60_000,
        60_000,
        {},
    )
    assert config.status.listen == ListenAddress("127.0.0.1", 8080)


def seen_keys(model: type[BaseModel], data: Any, seen: dict[type[BaseModel], set[str]]) -> None:
    """Collects the keys that occur for each model of the settings."""
    seen.setdefault(model, set()).update(data)
    for name, field in model.model_fields.items():
        for inner in models_in(field.annotation):
            seen.setdefault(inner, set())
            values = data.get(name, [])
            for value in values if isinstance(values, list) else [values]:
                seen_keys(inner, value, seen)


def models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in models_in(argument)]


def write_secrets(folder: Path) -> None:
    (folder / "secrets").mkdir()
    (folder / "secrets" / "contoso-dr").write_text(STRING + "\n")
    (folder / "secrets" / "status-token").write_text("a token\n")
    (folder / "secrets" / "proxy-password").write_text("a password\n")


def test_the_example_loads_and_names_every_setting(tmp_path: Path) -> None:
    write_secrets(tmp_path)
    text = EXAMPLE.read_text()
    config = load(tmp_path, text, FABRIKAM_PRIMARY=EMULATOR.format(5672))

    contoso, fabrikam = config.pairs
    assert contoso.secondary.host == "contoso-dr.servicebus.windows.net"
    assert contoso.destinations.allow == ["orders", "billing/*", "syphon-canary"]
    assert contoso.canary is not None
    assert (contoso.canary.every, contoso.canary.within) == (300_000, 60_000)
    assert fabrikam.secondary.arm is not None
    assert fabrikam.secondary.arm.resource_group == "messaging"
    assert fabrikam.secondary.transport is Transport.WEBSOCKETS
    assert fabrikam.secondary.proxy is not None
    assert (fabrikam.secondary.proxy.host, fabrikam.secondary.proxy.port) == ("proxy.fabrikam.com", 3128)

    seen: dict[type[BaseModel], set[str]] = {}
    seen_keys(Config, parse(text, "example").data, seen)
    missing = {name for model, keys in seen.items() for name in set(model.model_fields) - keys}
    assert missing == {"ca_file"}  # the file must exist, so the example has the key as a comment
    assert "# ca_file: " in text
    assert len(seen) == 12


def websockets(proxy: str) -> str:
    return pair(f"{{namespace: a.example, transport: websockets, proxy: {proxy}}}")


def test_plain_amqp_is_the_usual_transport(tmp_path: Path) -> None:
    primary = load(tmp_path, pair()).pairs[0].primary
    assert (primary.transport, primary.proxy) == (Transport.AMQP, None)


def test_a_proxy_without_credentials_needs_its_address_only(tmp_path: Path) -> None:
    proxy = load(tmp_path, websockets("{url: 'http://[fe80::1]:3128/'}")).pairs[0].primary.proxy
    assert proxy is not None
    assert (proxy.host, proxy.port, proxy.username, proxy.password) == ("fe80::1", 3128, None, None)


def test_amqp_passes_no_proxy(tmp_path: Path) -> None:
    text = pair("{namespace: a.example, proxy: {url: 'http://proxy:3128'}}")
    assert told(tmp_path, text) == [
        "3: pairs[0].primary.proxy is given, but AMQP cannot pass an HTTP proxy; add transport: websockets"
    ]


def test_a_transport_that_is_not_known_is_named(tmp_path: Path) -> None:
    (problem,) = told(tmp_path, pair("{namespace: a.example, transport: websocket}"))
    assert problem == "3: pairs[0].primary.transport = \"websocket\" is unknown; write 'amqp' or 'websockets'"


@pytest.mark.parametrize("package", ["websocket", "wsproto"])
def test_websockets_need_an_extra_that_the_error_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else find(name))
    (problem,) = told(tmp_path, pair("{namespace: a.example, transport: websockets}"))
    assert problem == (
        '3: pairs[0].primary.transport = "websockets" needs packages that are not installed; '
        "pip install 'syphon-servicebus[websockets]'"
    )


@pytest.mark.parametrize(
    ("proxy", "expected"),
    [
        ("{url: proxy:3128}", "url is not the address of an HTTP proxy; write it as in http://proxy.contoso.com:3128"),
        ("{url: 'http://proxy'}", "url is not the address of an HTTP proxy"),
        ("{url: 'socks5://proxy:1080'}", "url is not the address of an HTTP proxy"),
        ("{url: 'http://proxy:x'}", "url is not the address of an HTTP proxy"),
        ("{url: 'http://proxy:3128/path'}", "url is not the address of an HTTP proxy"),
        ("{url: 'https://proxy:3128'}", "url is an https:// proxy, which is not supported"),
        (f"{{url: 'http://alice:{KEY}@proxy:3128'}}", "url contains credentials; write them under username and"),
        (f"{{url: 'alice:{KEY}@proxy:3128'}}", "url is not the address of an HTTP proxy"),
        ("{url: 'http://p:1', username: alice}", 'username = "alice" is given without a password; add password'),
        (f"{{url: 'http://p:1', password: '{KEY}'}}", "password is given without a username; add username"),
        ("{url: 'http://p:1', username: 'a:b', password: c}", 'username = "a:b" contains a colon, which ends a user'),
        ("{username: alice, password: b}", "url is missing; add it"),
    ],
)
def test_a_mistake_in_a_proxy_is_named_and_no_secret_is_shown(tmp_path: Path, proxy: str, expected: str) -> None:
    (problem,) = told(tmp_path, websockets(proxy))
    assert problem.startswith(f"3: pairs[0].primary.proxy.{expected}")


def test_no_secret_of_a_proxy_is_in_its_repr(tmp_path: Path) -> None:
    text = websockets(f"{{url: 'http://proxy:3128', username: alice, password: '{KEY}'}}")
    config = load(tmp_path, text)
    assert KEY not in repr(config)
    assert KEY not in config.model_dump_json()


@pytest.mark.parametrize("token", ["''", "'  '", "'${file:token}'", "'${env:TOKEN}'"])
def test_an_empty_token_is_a_mistake_and_does_not_open_the_server(tmp_path: Path, token: str) -> None:  # T12
    (tmp_path / "token").write_text(" \n")
    (problem,) = told(tmp_path, pair(more=f"status: {{token: {token}}}"), TOKEN="")
    assert problem.startswith("5: status.token")
    assert problem.endswith("is empty; write a token, or remove the setting")


@pytest.mark.parametrize(
    ("text", "holds_one"),
    [
        (pair(), False),
        (pair(f"{{connection_string: '{STRING}'}}"), True),
        (pair(f"{{connection_string: '{STRING};UseDevelopmentEmulator=true'}}"), False),
        (pair("{connection_string: '${file:key}'}"), False),
        (pair(more="status: {token: hunter2}"), True),
        (pair(more="status: {token: '${env:TOKEN}'}"), False),
        (pair(more=f"pipeline: {{spark: {{spark.a: '{KEY}'}}}}"), True),
        (websockets("{url: 'http://p:1', username: alice, password: hunter2}"), True),
    ],
)
def test_a_key_in_a_file_that_everybody_can_read_is_found(tmp_path: Path, text: str, holds_one: bool) -> None:  # T7
    file = tmp_path / "config.yaml"
    file.write_text(text)
    file.chmod(0o644)
    assert exposes_keys(file) is holds_one
    file.chmod(0o640)
    assert not exposes_keys(file)


def test_certificates_are_an_existing_file(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    text = pair(f"{{namespace: a.example, ca_file: {file}}}")
    (problem,) = told(tmp_path, text)
    # A long value is cut, and the length of the folder's name depends on the machine.
    assert problem.startswith('3: pairs[0].primary.ca_file = "/')
    assert problem.endswith(" is not a file; name the certificates' file, in PEM form")
    file.touch()
    assert load(tmp_path, text).pairs[0].primary.ca_file == file


def test_defaults_in_the_example_are_the_defaults(tmp_path: Path) -> None:
    write_secrets(tmp_path)
    example = load(tmp_path, EXAMPLE.read_text(), FABRIKAM_PRIMARY=EMULATOR.format(5672))
    default = load(tmp_path, SMALLEST)
    assert example.status.model_copy(update={"token": None, "state": None}) == default.status
    assert example.state_file == default.state_file
    assert example.pipeline.model_copy(update={"spark": {}}) == default.pipeline
    usual = {"destinations": DestinationSettings(), "primary": default.pairs[0].primary, "rate": None, "canary": None}
    assert example.pairs[0].canary == CanarySettings()
    assert example.pairs[0].model_copy(update=usual) == default.pairs[0]
    assert example.pairs[0].destinations.permanent_errors == DestinationSettings().permanent_errors


@pytest.mark.parametrize(
    ("more", "file"),
    [
        ("", "syphon-state.json"),
        ("pipeline: {ledger: /var/lib/syphon/ledger}", "/var/lib/syphon/syphon-state.json"),
        ("pipeline: {ledger: 'abfss://box@contoso.dfs.core.windows.net/ledger'}", "syphon-state.json"),
        ("pipeline: {ledger: 'abfss://box@c.dfs.core.windows.net/ledger'}\nstatus: {state: /srv/state}", "/srv/state"),
    ],
)
def test_the_state_file_is_beside_a_local_ledger(tmp_path: Path, more: str, file: str) -> None:
    assert load(tmp_path, pair(more=more)).state_file == Path(file)


@pytest.mark.parametrize(
    "address", ["collector:4318", "http://a b", "ftp://a", "http://user:pass@a", "http://a/?key=1"]
)
def test_a_collector_has_a_plain_address(tmp_path: Path, address: str) -> None:
    (problem,) = told(tmp_path, pair(more=f"telemetry: {{otlp_endpoint: '{address}'}}"))
    assert "is not the address of a collector" in problem


@pytest.mark.parametrize(
    ("telemetry", "said"),
    [
        ("traces: true", "needs a collector"),
        ("traces: true, otlp_endpoint: 'http://a/custom'", "does not show where to send traces"),
    ],
)
def test_traces_need_a_collector_address_for_traces(tmp_path: Path, telemetry: str, said: str) -> None:
    (problem,) = told(tmp_path, pair(more=f"telemetry: {{{telemetry}}}"))
    assert said in problem
    for endpoint in ("http://a", "http://a:4318/", "https://a/tenant/v1/metrics"):
        config = load(tmp_path, pair(more=f"telemetry: {{traces: true, otlp_endpoint: '{endpoint}'}}"))
        assert config.telemetry.traces


def test_a_credential_may_be_any_of_azure_identitys(tmp_path: Path) -> None:
    for credential in Credential:
        config = load(tmp_path, pair(f"{{namespace: a.example, credential: {credential}}}"))
        assert config.pairs[0].primary.credential is credential


def test_secrets_come_from_files_and_the_environment(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY + "\n")
    start = (
        "Endpoint=sb://contoso-dr.servicebus.windows.net/;SharedAccessKeyName=${env:POLICY};SharedAccessKey=${file:key}"
    )
    config = load(tmp_path, pair(secondary=f'{{connection_string: "{start}"}}'), POLICY="Root")
    secret = config.pairs[0].secondary.connection_string
    assert secret is not None
    assert secret.get_secret_value() == STRING


def test_a_namespace_has_a_host(tmp_path: Path) -> None:
    text = pair(f'{{connection_string: "{EMULATOR.format(5672)}"}}', "{namespace: Contoso.ServiceBus.Windows.net}")
    only = load(tmp_path, text).pairs[0]
    assert (only.primary.host, only.secondary.host) == ("127.0.0.1:5672", "contoso.servicebus.windows.net")
    string = SecretStr("Endpoint=sb://[::1]:5673;SharedAccessKeyName=a;SharedAccessKey=b")
    assert SideSettings(connection_string=string).host == "[::1]:5673"


def test_two_ports_of_one_host_are_two_namespaces_of_an_emulator(tmp_path: Path) -> None:
    first, second = (f'{{connection_string: "{EMULATOR.format(port)}"}}' for port in (5672, 5673))
    assert len(load(tmp_path, pair(first, second)).pairs) == 1


def test_permanent_errors_are_those_a_transfer_knows(tmp_path: Path) -> None:  # S4
    settings = DestinationSettings()
    assert settings.permanent() == {MessageTooLarge, NotAllowedByEntity} == PERMANENT
    assert settings.giving_up([PermanentError.ENTITY_DISABLED]).permanent() == {DestinationDisabled, *PERMANENT}
    assert settings.giving_up(PermanentError).permanent() == {DestinationMissing, DestinationDisabled, *PERMANENT}
    config = load(tmp_path, pair(more="  destinations: {permanent_errors: [message-too-large]}"))
    assert config.pairs[0].destinations.permanent() == {MessageTooLarge}
    config = load(tmp_path, pair(more="  destinations: {permanent_errors: []}"))
    assert config.pairs[0].destinations.permanent() == frozenset()


def test_spark_gets_text_whatever_people_write(tmp_path: Path) -> None:
    more = "pipeline: {spark: {spark.a: 4, spark.b: true, spark.c: x, spark.d: 0.5}}"
    spark = load(tmp_path, pair(more=more)).pipeline.spark
    assert [value.get_secret_value() for value in spark.values()] == ["4", "true", "x", "0.5"]


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("0.0.0.0:80", ListenAddress("0.0.0.0", 80)),
        ("localhost:0", ListenAddress("localhost", 0)),
        ("'[::1]:8080'", ListenAddress("::1", 8080)),
    ],
)
def test_the_status_server_listens_where_it_is_told(tmp_path: Path, written: str, address: ListenAddress) -> None:
    listen = load(tmp_path, pair(more=f"status: {{listen: {written}}}")).status.listen
    assert listen == address
    assert str(listen) == written.strip("'")


def test_destinations_can_be_renamed(tmp_path: Path) -> None:  # D13
    (only,) = load(tmp_path, pair(more="  destinations: {rename: {orders: orders-v2}}")).pairs
    assert only.destinations.rename == {"orders": "orders-v2"}


# --- what is wrong ---------------------------------------------------------------------------------------------------


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    text = f"""
pairs:
  - name: contoso
    primary: {{namespace: contoso, credential: magic}}
    secondary: {{connection_string: "Endpoint=sb://x;SharedAccessKey={KEY}", crednetial: cli}}
    backlog_queue_count: 0
    destinations: {{allow: [], permanent_errors: [gone]}}
    provision: {{via: arm}}
  - name: Contoso
    primary: {{}}
    secondary: {{namespace: b.example, connection_string: "${{env:NO}}"}}
    time_to_live: forever
pipeline: {{long_poll: 15, lease: 2h, spark: {{executor: 1}}}}
status: {{listen: 8080}}
stauts: 1
"""
    assert told(tmp_path, text) == [
        '4: pairs[0].primary.namespace = "contoso" is not a full host name; '
        "write the full host name only, as in contoso.servicebus.windows.net",
        '4: pairs[0].primary.credential = "magic" is unknown; '
        "write 'default', 'managed_identity', 'workload_identity', 'environment' or 'cli'",
        "5: pairs[0].secondary.connection_string has SharedAccessKey, but no SharedAccessKeyName; "
        "add the name of its policy",
        "5: pairs[0].secondary.crednetial is not a known key; did you mean credential?",
        "6: pairs[0].backlog_queue_count = 0 is too small; write 1 or more",
        "7: pairs[0].destinations.allow is empty; name at least one",
        '7: pairs[0].destinations.permanent_errors[0] = "gone" is unknown; '
        "write 'entity-not-found', 'entity-disabled', 'message-too-large' or 'not-allowed'",
        '8: pairs[0].provision.via = "arm" needs the secondary\'s place in Resource Manager; '
        "add arm with subscription_id and resource_group to the secondary",
        '9: pairs[1].name = "Contoso" is the name of another pair; give each its own',
        "10: pairs[1].primary has neither connection_string nor namespace; add one of them",
        "11: pairs[1].secondary.connection_string names the environment variable NO, which is not set; set it",
        '11: pairs[1].secondary.namespace = "b.example" is given together with a connection_string; keep one of them',
        "12: pairs[1].time_to_live = \"forever\" is unknown; write 'restore' or 'remaining'",
        "13: pipeline.long_poll = 15 has no unit; write it as 30s, 1h30m, 500ms, 14d, PT30S or never",
        '13: pipeline.lease = "2h" is longer than 1h; write 5s to 1h',
        "13: pipeline.spark.executor is not a setting of Spark; their names begin with spark.",
        "14: status.listen = 8080 is not an address to listen on; "
        "write HOST:PORT, as in 127.0.0.1:8080; 0 is any free port",
        "15: stauts is not a known key; did you mean status?",
    ]


@pytest.mark.parametrize(
    ("renames", "mistake"),
    [
        ("{orders*: new}", "is a pattern; write the whole name of each destination"),
        ("{orders: new, Orders/: newer}", "is the same entity as 'orders'; keep one of them"),
        ("{orders: /ORDERS}", "is renamed to itself; remove it"),
        ("{orders: x/$deadletterqueue}", "cannot be sent to 'x/$deadletterqueue': it is a part of an entity"),
        ("{orders: contoso/x-servicebus-transfer/0}", "it is a backlog queue"),
        (f"{{orders: {'n' * 261}}}", "it has more than 260 characters; name a queue or topic of the primary"),
        ("{orders: invoices, invoices: paid}", "is renamed to a destination that is itself renamed"),
        ("{secret: orders}", "is renamed but not allowed, so it gets no messages; add it to allow"),
        ("{orders: 5}", "is not text"),
        ("[orders]", "is not a mapping"),
    ],
)
def test_a_rename_that_cannot_be_meant_is_a_mistake(tmp_path: Path, renames: str, mistake: str) -> None:  # D13
    settings = f"  destinations: {{allow: ['orders*', invoices], rename: {renames}}}"
    (only,) = told(tmp_path, pair(more=settings))
    assert only.startswith("5: pairs[0].destinations.rename")
    assert mistake in only


@pytest.mark.parametrize("text", ["", "pairs:", "status: {listen: 'a:1'}"])
def test_a_file_without_pairs_is_a_mistake(tmp_path: Path, text: str) -> None:
    assert any("pairs is missing; add it" in line for line in told(tmp_path, text))


def test_an_empty_list_of_pairs_is_a_mistake(tmp_path: Path) -> None:
    assert told(tmp_path, "pairs: []") == ["1: pairs is empty; name at least one"]


@pytest.mark.parametrize(
    ("primary", "secondary"),
    [
        ("{namespace: a.example}", "{namespace: A.Example.}"),
        ("{namespace: contoso-dr.servicebus.windows.net}", f"{{connection_string: '{STRING}'}}"),
        (f"{{connection_string: '{STRING.replace('net/', 'net:5671/')}'}}", f"{{connection_string: '{STRING}'}}"),
        (f"{{connection_string: '{EMULATOR.format(5672)}'}}",) * 2,
    ],
)
def test_a_pair_is_two_namespaces(tmp_path: Path, primary: str, secondary: str) -> None:
    assert told(tmp_path, pair(primary, secondary)) == [
        "4: pairs[0].secondary is the same namespace as primary; name one that is available when the primary is not"
    ]


def test_two_namespaces_of_one_host_have_two_ports_with_and_without_tls(tmp_path: Path) -> None:
    secure = STRING.replace("net/", "net:{}/")
    for string in (EMULATOR, secure):
        sides = [f"{{connection_string: '{string.format(port)}'}}" for port in (5671, 5673)]
        assert load(tmp_path, pair(*sides)).pairs[0].secondary.host.endswith(":5673")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("{namespace: a.example}", "{namespace: A.example.}"),
        ("{namespace: a.example}", "{namespace: other.example, name: a}"),
        (f"{{connection_string: '{EMULATOR.format(1)}', name: x}}", "{namespace: x.example}"),
    ],
)
def test_no_two_pairs_are_at_one_backlog(tmp_path: Path, first: str, second: str) -> None:
    text = pair(first) + f"- name: other\n  primary: {second}\n  secondary: {{namespace: b.example}}\n  colour: red\n"
    same, unknown = told(tmp_path, text)
    assert same.startswith("5: pairs[1] has the same backlog queues as pairs[0]: ")
    assert "give its primary another name" in same
    assert "pairs[1].colour is not a known key" in unknown


def test_pairs_may_share_a_secondary(tmp_path: Path) -> None:
    text = pair() + "- name: other\n  primary: {namespace: c.example}\n  secondary: {namespace: b.example}\n"
    assert [pair.name for pair in load(tmp_path, text).pairs] == ["contoso", "other"]


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("backlog_queue_count: true", "is not a number"),
        ("backlog_queue_count: ten", "is not a whole number"),
        ("rate: 0", "is too small; write more than 0"),
        ("rate: 500/s", "is not a number; write digits only"),
        ("rate: 1e999", "is not a number; write digits only"),
    ],
)
def test_a_number_is_a_number(tmp_path: Path, setting: str, problem: str) -> None:
    (line,) = told(tmp_path, pair(more=f"  {setting}\n"))
    assert problem in line


def test_a_token_is_not_sent_unencrypted(tmp_path: Path) -> None:
    def told_of(endpoint: str) -> list[str]:
        arm = f"{{subscription_id: s, resource_group: g, endpoint: '{endpoint}'}}"
        return told(tmp_path, pair(secondary=f"{{namespace: b.example, arm: {arm}}}", more="  colour: red\n"))

    assert "would send our token unencrypted; write https://" in told_of("http://10.0.0.1:80")[0]
    assert len(told_of("http://localhost:5300")) == 1


def test_a_credential_beside_a_connection_string_is_a_mistake(tmp_path: Path) -> None:
    assert told(tmp_path, pair(f"{{connection_string: '{STRING}', credential: cli}}")) == [
        '3: pairs[0].primary.credential = "cli" is given together with a connection_string, which has its own key; '
        "remove it"
    ]


def test_resource_manager_needs_all_its_settings(tmp_path: Path) -> None:  # P6
    text = pair(secondary="{namespace: b.example, arm: {endpoint: management}}", more="  provision: {via: arm}")
    assert [line.partition("; ")[0] for line in told(tmp_path, text)] == [
        "4: pairs[0].secondary.arm.subscription_id is missing",
        "4: pairs[0].secondary.arm.resource_group is missing",
        '4: pairs[0].secondary.arm.endpoint = "management" is not the address of a Resource Manager',
    ]


@pytest.mark.parametrize("namespace", ["sb://a.example", "a.example/x", "a b.example", "a.example:5671", "-a.b", ""])
def test_a_namespace_is_a_host_name_alone(tmp_path: Path, namespace: str) -> None:
    (line,) = told(tmp_path, pair(f"{{namespace: '{namespace}'}}"))
    assert "is not the host name of a namespace; write the full host name only" in line


@pytest.mark.parametrize("name", ["a b", "a/b", "-a", "a" * 51, "''", "é"])
def test_a_pairs_name_is_valid_in_a_queues_name(tmp_path: Path, name: str) -> None:
    (line,) = told(tmp_path, pair().replace("contoso", name))
    assert "is not a valid name; write up to 50 letters, digits and hyphens" in line


# --- secrets ---------------------------------------------------------------------------------------------------------

MISPLACED = [
    pair(f"{{namespace: '{STRING}'}}"),
    pair(f"{{namespace: '{KEY}'}}"),
    pair(f"'{STRING}'"),
    pair(f"['{STRING}']"),
    pair(f"{{connectionstring: '{STRING}'}}"),
    pair(f"{{namespace: a.example, credential: '{KEY}'}}"),
    pair(f"{{namespace: a.example, name: '{KEY}'}}"),
    pair().replace("contoso", f"'{KEY}'"),
    pair(f"{{namespace: a.example, arm: {{subscription_id: '{KEY}', resource_group: x}}}}"),
    pair(more=f"  destinations: {{allow: ['{KEY}']}}"),
    pair(more=f"  time_to_live: '{STRING}'"),
    pair(more=f"pipeline: {{ledger: 'abfss://x;AccountKey={KEY}'}}"),
    pair(more=f"pipeline: {{master: '{STRING}'}}"),
    pair(more=f"pipeline: {{lease: '{KEY}'}}"),
    pair(more=f"pipeline: {{spark: {{key: '{KEY}'}}}}"),
    pair(more=f"pipeline: {{spark: '{KEY}'}}"),
    pair(more=f"status: {{listen: '{STRING}'}}"),
    pair(more=f"status: '{KEY}'"),
    pair(f"{{connection_string: ['{STRING}']}}"),
    pair(f"{{connection_string: {{key: '{STRING}'}}}}"),
    pair(f"{{connection_string: '{STRING};{KEY}'}}"),
    pair(f"{{connection_string: '{KEY}'}}"),
    pair(f"{{connection_string: *{KEY[:-1]}}}"),
    pair(f"{{connection_string: '{STRING}', namespace: '{STRING}'}}"),
    pair("{namespace: '${env:KEY}'}"),
    pair("{connection_string: '${env:KEY}'}"),
    pair(more="status: {listen: '${env:KEY}'}"),
]


@pytest.mark.parametrize("text", MISPLACED)
def test_a_secret_in_the_wrong_place_is_a_mistake_and_never_shown(tmp_path: Path, text: str) -> None:
    assert told(tmp_path, text, KEY=KEY)


def test_a_key_in_a_free_text_setting_is_a_mistake(tmp_path: Path) -> None:
    assert told(tmp_path, pair(more=f"pipeline: {{ledger: 'abfss://x;AccountKey={KEY}'}}")) == [
        "5: pipeline.ledger contains a secret key, which does not belong here; "
        "remove it; a connection string belongs under connection_string"
    ]


def test_nothing_of_sparks_settings_is_shown(tmp_path: Path) -> None:
    (line,) = told(tmp_path, pair(more="pipeline: {spark: {password: hunter2}}"))
    assert "hunter2" not in line


def test_a_connection_string_under_namespace_is_a_mistake_with_a_remedy(tmp_path: Path) -> None:
    assert told(tmp_path, pair(f"{{namespace: '{STRING}'}}")) == [
        "3: pairs[0].primary.namespace is a connection string; write it under connection_string"
    ]


def test_no_secret_is_in_the_repr_of_settings(tmp_path: Path) -> None:
    more = f"pipeline: {{spark: {{spark.hadoop.fs.azure.account.key.x: '{KEY}'}}}}"
    config = load(tmp_path, SMALLEST + more)
    assert KEY in str([value.get_secret_value() for value in config.pipeline.spark.values()])
    for shown in (repr(config), str(config), str(config.model_dump()), config.model_dump_json()):
        assert KEY not in shown


def test_in_python_mistakes_show_no_secret_either() -> None:
    side = SideSettings(namespace="a.example")
    with pytest.raises(ValidationError) as caught:
        SideSettings(connection_string=SecretStr(f"SharedAccessKey={KEY}"))
    assert KEY not in str(caught.value)
    with pytest.raises(ValidationError, match="same namespace"):
        Config(pairs=[PairSettings(name="x", primary=side, secondary=side)])


def test_settings_are_not_changed_later() -> None:
    side = SideSettings(namespace="a.example")
    with pytest.raises(ValidationError):
        side.namespace = "b.example"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("written", "order"), [("true", SessionOrder.KEPT), ("false", None), ("strict", SessionOrder.STRICT)]
)
def test_the_order_of_sessions_is_a_setting_of_a_pair(
    tmp_path: Path, written: str, order: SessionOrder | None
) -> None:  # X10
    (pair,) = load(tmp_path, f"{SMALLEST}    session_order: {written}\n").pairs
    assert PumpOptions.for_pair(pair).session_order is order


def test_another_order_of_sessions_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"session_order.*true, false or strict"):
        load(tmp_path, f"{SMALLEST}    session_order: sometimes\n")


@pytest.mark.parametrize(
    ("allow", "canary", "fits"),
    [("[orders]", "{}", False), ("[orders, 'syp*']", "{}", True), ("[a]", "{destination: a}", True)],
)
def test_probes_of_a_canary_must_be_allowed_to_arrive(tmp_path: Path, allow: str, canary: str, fits: bool) -> None:
    text = (
        "pairs:\n- name: contoso\n  primary: {namespace: a.example}\n  secondary: {namespace: b.example}\n"
        f"  destinations: {{allow: {allow}}}\n  canary: {canary}\n"
    )
    if fits:
        assert load(tmp_path, text).pairs[0].canary is not None
        return
    with pytest.raises(SettingsError, match=r"needs 'syphon-canary' in destinations\.allow"):
        load(tmp_path, text)
