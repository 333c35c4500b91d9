"""The emulator's settings: in Python, as YAML, and as Microsoft's Config.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from syphon.emulator.broker.actions import SqlAction
from syphon.emulator.broker.descriptions import (
    Claim,
    EntityStatus,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    Tier,
    TopicDescription,
)
from syphon.emulator.broker.filters import CorrelationFilter, FalseFilter, SqlFilter, TrueFilter
from syphon.emulator.clock import FOREVER
from syphon.emulator.entity_settings import QueueSettings
from syphon.emulator.settings import (
    EmulatorSettings,
    NamespaceSettings,
    PolicySettings,
    default_settings,
    load_settings,
    parse_namespace_option,
    with_default_ports,
)
from syphon.yaml_settings import LONGEST, SettingsError

EVERYTHING = """
state: ./state
tls: true
seed: 7
namespaces:
  - name: contoso
    host: 0.0.0.0
    amqp_port: 6000
    http_port: 0
    tier: Premium
    accept_any_jwt: true
    link_idle_timeout: 2m
    policies:
      - {name: RootManageSharedAccessKey, key: open-sesame}
      - {name: reader, key: other, claims: [Listen]}
    queues:
      - name: orders
        lock_duration: 30s
        max_size_in_megabytes: 2048
        requires_duplicate_detection: true
        duplicate_detection_history_time_window: PT1M
        default_message_time_to_live: 14d
        dead_lettering_on_message_expiration: true
        max_delivery_count: 3
        enable_batched_operations: false
        status: SendDisabled
        auto_delete_on_idle: never
        forward_dead_lettered_messages_to: Graveyard
        user_metadata: ours
        max_message_size_in_kilobytes: 2048
      - {name: graveyard}
    topics:
      - name: events
        support_ordering: false
        subscriptions:
          - name: large
            requires_session: true
            rules:
              - {name: big, sql: "amount > 100"}
              - {name: ours, correlation: {label: x, properties: {region: eu, level: 3, urgent: true}}}
              - {name: everything, matches: all}
              - {name: nothing, matches: none}
          - name: plain
            forward_to: orders
  - name: contoso-dr
"""


def write(tmp_path: Path, text: str, name: str = "emulator.yaml") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def told(path: Path) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load_settings(path)
    return [f"{problem.line} {problem.path}" for problem in caught.value.problems]


def test_without_settings_there_is_a_primary_and_a_secondary() -> None:
    found = [(space.name, space.amqp_port, space.http_port, space.host) for space in default_settings().namespaces]
    assert found == [("contoso", 5672, 5300, "127.0.0.1"), ("contoso-dr", 5673, 5301, "127.0.0.1")]


def test_in_python_a_namespace_takes_any_free_port_and_the_well_known_key() -> None:
    namespace = NamespaceSettings(name="a")
    policy = namespace.policies[0]
    assert (namespace.amqp_port, namespace.http_port, namespace.tier) == (0, 0, Tier.STANDARD)
    assert (policy.name, policy.key.get_secret_value()) == ("RootManageSharedAccessKey", "SAS_KEY_VALUE")
    assert policy.claims == {Claim.SEND, Claim.LISTEN, Claim.MANAGE}
    assert namespace.link_idle_timeout == 600_000


def test_yaml_says_all_there_is_to_say(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path, EVERYTHING))
    contoso, second = settings.namespaces
    assert (settings.state, settings.tls, settings.seed) == (Path("state"), True, 7)
    assert (contoso.host, contoso.amqp_port, contoso.http_port) == ("0.0.0.0", 6000, 0)
    assert (contoso.tier, contoso.accept_any_jwt, contoso.link_idle_timeout) == (Tier.PREMIUM, True, 120_000)
    reader = PolicySettings(name="reader", key=SecretStr("other"), claims=frozenset({Claim.LISTEN}))
    assert contoso.policies[1] == reader
    assert (second.amqp_port, second.http_port) == (5673, 5301)


def test_entities_become_the_brokers_own_descriptions(tmp_path: Path) -> None:
    contoso = load_settings(write(tmp_path, EVERYTHING)).namespaces[0]
    assert contoso.queues[0].description() == QueueDescription(
        name="orders",
        lock_duration=30_000,
        max_size_in_megabytes=2048,
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window=60_000,
        default_message_time_to_live=14 * 86_400_000,
        dead_lettering_on_message_expiration=True,
        max_delivery_count=3,
        enable_batched_operations=False,
        status=EntityStatus.SEND_DISABLED,
        auto_delete_on_idle=FOREVER,
        forward_dead_lettered_messages_to="Graveyard",
        user_metadata="ours",
        max_message_size_in_kilobytes=2048,
    )
    assert contoso.queues[1].description() == QueueDescription("graveyard")
    topic = contoso.topics[0]
    assert topic.description() == TopicDescription("events", support_ordering=False)
    large, plain = topic.subscriptions
    assert large.description("events") == SubscriptionDescription("events", "large", requires_session=True)
    assert plain.description("events") == SubscriptionDescription("events", "plain", forward_to="orders")
    assert [rule.description() for rule in large.rules] == [
        RuleDescription("big", SqlFilter("amount > 100")),
        RuleDescription("ours", CorrelationFilter(label="x", properties={"region": "eu", "level": 3, "urgent": True})),
        RuleDescription("everything", TrueFilter()),
        RuleDescription("nothing", FalseFilter()),
    ]


def test_never_is_what_the_broker_calls_forever() -> None:
    assert LONGEST == FOREVER


def test_what_the_service_would_refuse_is_refused_here_all_at_once(tmp_path: Path) -> None:
    text = """
namespaces:
  - name: contoso
    queues:
      - name: a b
        lock_duration: 10m
      - name: c d
        requires_session: true
        max_size_in_megabytes: 7
        max_delivery_count: 0
      - name: ok
        max_size_in_megabytes: 7
        enable_express: true
        requires_duplicate_detection: true
    topics:
      - name: t
        subscriptions:
          - name: s
            rules:
              - {name: r, sql: "a >"}
              - {name: q, sql: "a = 1", matches: all}
              - {name: p, matches: all, action: "SET = 1"}
"""
    assert told(write(tmp_path, text)) == [
        "6 namespaces[0].queues[0].lock_duration",
        "10 namespaces[0].queues[1].max_delivery_count",
        "12 namespaces[0].queues[2].max_size_in_megabytes",
        "13 namespaces[0].queues[2].enable_express",
        "20 namespaces[0].topics[0].subscriptions[0].rules[0].sql",
        "21 namespaces[0].topics[0].subscriptions[0].rules[1]",
        "22 namespaces[0].topics[0].subscriptions[0].rules[2].action",
    ]


def test_what_the_namespace_makes_impossible_is_reported_too(tmp_path: Path) -> None:
    text = """
namespaces:
  - name: premium
    tier: Premium
    queues:
      - {name: q, enable_partitioning: true}
      - {name: r, forward_to: nowhere}
    topics:
      - {name: Q}
      - name: t
        subscriptions:
          - {name: s, forward_dead_lettered_messages_to: nowhere}
  - name: standard
    queues:
      - {name: q, max_size_in_megabytes: 81920}
      - {name: r, enable_partitioning: true, max_size_in_megabytes: 81920}
"""
    assert told(write(tmp_path, text)) == [
        "6 namespaces[0].queues[0].enable_partitioning",
        "7 namespaces[0].queues[1].forward_to",
        "9 namespaces[0].topics[0].name",
        "12 namespaces[0].topics[1].subscriptions[0].forward_dead_lettered_messages_to",
        "15 namespaces[1].queues[0].max_size_in_megabytes",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("namespaces: []", "namespaces is empty"),
        ("namespaces: [{name: a b}]", 'name = "a b" is not a name for a namespace'),
        ("namespaces: [{name: a, amqp_port: 70000}]", "amqp_port = 70000 is too large"),
        ("namespaces: [{name: a, amqp_port: 99}, {name: b, http_port: 99}]", "is the port of a"),
        ("namespaces: [{name: a, policies: [{name: p, key: k, claims: [Manage]}]}]", "has Manage alone"),
        ("namespaces: [{name: a, policies: []}]", "policies is empty"),
        ("namespaces: [{name: a, queues: [{name: q}, {name: Q}]}]", "is the name of another queue"),
        ("namespaces: [{name: a, queues: [orders]}]", "is not a mapping"),
        ("UserConfig: {}", "UserConfig.Namespaces is missing"),
    ],
)
def test_a_mistake_is_reported_in_words(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(write(tmp_path, text))
    assert problem in str(caught.value)


def test_in_python_the_same_rules_hold_and_the_key_stays_hidden() -> None:
    with pytest.raises(ValidationError, match="longer than 5m"):
        QueueSettings(name="q", lock_duration=600_000)
    with pytest.raises(ValidationError) as caught:
        NamespaceSettings.model_validate({"name": "a", "policies": [{"name": "p", "key": ["hunter2"]}]})
    assert "hunter2" not in str(caught.value)
    assert "SAS_KEY_VALUE" not in repr(default_settings())


# Ports ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("contoso", ("contoso", 5672, 5300)),
        ("contoso:6000", ("contoso", 6000, 5300)),
        ("contoso:6000:7000", ("contoso", 6000, 7000)),
        ("contoso:0:0", ("contoso", 0, 0)),
    ],
)
def test_a_namespace_option_names_its_ports_or_gets_the_usual_ones(text: str, expected: tuple[str, int, int]) -> None:
    (namespace,) = with_default_ports([parse_namespace_option(text)])
    assert (namespace.name, namespace.amqp_port, namespace.http_port) == expected


@pytest.mark.parametrize("text", ["", ":1", "a:", "a:x", "a:1:2:3", "a:-1", "a:65536", "a b", "a/b", "-a", "a:1:²"])
def test_a_namespace_option_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write"):
        parse_namespace_option(text)


def test_default_ports_keep_clear_of_those_that_were_named() -> None:
    given = [parse_namespace_option(text) for text in ("a:5673:5301", "b", "c")]
    found = [(space.amqp_port, space.http_port) for space in with_default_ports(given)]
    assert found == [(5673, 5301), (5674, 5302), (5675, 5303)]
    assert len(EmulatorSettings(namespaces=with_default_ports(given)).namespaces) == 3


# Microsoft's file -----------------------------------------------------------------------------------------------------

MICROSOFT = """{
  // as their emulator takes it
  "UserConfig": {
    "Namespaces": [
      {
        "Name": "sbemulatorns",
        "Queues": [
          {
            "Name": "queue.1",
            "Properties": {
              "DeadLetteringOnMessageExpiration": true,
              "DefaultMessageTimeToLive": "PT10M",
              "DuplicateDetectionHistoryTimeWindow": "PT30S",
              "ForwardDeadLetteredMessagesTo": "",
              "ForwardTo": "queue.2",
              "LockDuration": "PT2M",
              "MaxDeliveryCount": 50,
              "RequiresDuplicateDetection": true,
              "RequiresSession": false
            }
          },
          { "Name": "queue.2" }
        ],
        "Topics": [
          {
            "Name": "topic.1",
            "Properties": {
              "DefaultMessageTimeToLive": "PT1H",
              "DuplicateDetectionHistoryTimeWindow": "PT20S",
              "RequiresDuplicateDetection": true
            },
            "Subscriptions": [
              {
                "Name": "subscription.1",
                "Properties": {
                  "DeadLetteringOnMessageExpiration": false,
                  "DefaultMessageTimeToLive": "PT1H",
                  "LockDuration": "PT1M",
                  "MaxDeliveryCount": 3,
                  "ForwardDeadLetteredMessagesTo": "",
                  "ForwardTo": "",
                  "RequiresSession": true
                },
                "Rules": [
                  {
                    "Name": "every-property",
                    "Properties": {
                      "FilterType": "Correlation",
                      "CorrelationFilter": {
                        "ContentType": "application/json",
                        "CorrelationId": "id1",
                        "Label": "subject1",
                        "MessageId": "msgid1",
                        "ReplyTo": "someQueue",
                        "ReplyToSessionId": "sessionId",
                        "SessionId": "session1",
                        "To": "xyz",
                        "Properties": { "prop1": "value1" } // and more
                      }
                    }
                  },
                  {
                    "Name": "sql",
                    "Properties": {
                      "FilterType": "Sql",
                      "SqlFilter": { "SqlExpression": "sys.MessageId = '1' AND userProp1 = 'value1'" },
                      "Action": { "SqlExpression": "SET sys.To = 'Entity'" }
                    }
                  }
                ]
              },
              { "Name": "subscription.2" }
            ]
          }
        ]
      }
    ],
    "Logging": { "Type": "File" }
  }
}"""


def test_microsofts_file_is_taken_as_it_is(tmp_path: Path) -> None:
    (namespace,) = load_settings(write(tmp_path, MICROSOFT, "Config.json")).namespaces
    assert (namespace.name, namespace.amqp_port, namespace.http_port) == ("sbemulatorns", 5672, 5300)
    assert namespace.queues[0].description() == QueueDescription(
        name="queue.1",
        dead_lettering_on_message_expiration=True,
        default_message_time_to_live=600_000,
        duplicate_detection_history_time_window=30_000,
        forward_to="queue.2",
        lock_duration=120_000,
        max_delivery_count=50,
        requires_duplicate_detection=True,
    )
    topic = namespace.topics[0]
    assert topic.description().requires_duplicate_detection
    first, second = topic.subscriptions
    assert first.description("topic.1").requires_session
    assert [rule.description() for rule in first.rules] == [
        RuleDescription(
            "every-property",
            CorrelationFilter(
                content_type="application/json",
                correlation_id="id1",
                label="subject1",
                message_id="msgid1",
                reply_to="someQueue",
                reply_to_session_id="sessionId",
                session_id="session1",
                to="xyz",
                properties={"prop1": "value1"},
            ),
        ),
        RuleDescription(
            "sql",
            SqlFilter("sys.MessageId = '1' AND userProp1 = 'value1'"),
            SqlAction("SET sys.To = 'Entity'"),
        ),
    ]
    assert second.rules == []


def test_what_microsofts_file_leaves_out_has_the_defaults_of_its_schema(tmp_path: Path) -> None:
    (namespace,) = load_settings(write(tmp_path, MICROSOFT, "Config.json")).namespaces
    assert namespace.queues[1].description() == QueueDescription(
        name="queue.2",
        default_message_time_to_live=3_600_000,
        duplicate_detection_history_time_window=20_000,
        lock_duration=60_000,
        max_delivery_count=3,
    )
    assert namespace.topics[0].subscriptions[1].description("topic.1").max_delivery_count == 3


def changed(tmp_path: Path, *steps: str | int, to: Any) -> Path:
    """Microsoft's file with one value replaced or added."""
    lines = (line.partition(" //")[0] for line in MICROSOFT.splitlines())
    config = json.loads("\n".join(line for line in lines if not line.strip().startswith("//")))
    place = config["UserConfig"]["Namespaces"][0]
    for step in steps[:-1]:
        place = place[step]
    place[steps[-1]] = to
    return write(tmp_path, json.dumps(config), "Config.json")


RULE = ("Topics", 0, "Subscriptions", 0, "Rules", 1, "Properties")


@pytest.mark.parametrize(
    ("steps", "to", "path"),
    [
        (("Queues", 0, "Properties", "LockDuration"), "PT10M", "Queues[0].Properties.LockDuration"),
        (("Queues", 0, "Properties", "LockDuraton"), "PT1M", "Queues[0].Properties.LockDuraton"),
        (("Queues", 0, "Properties", "MaxDeliveryCount"), "x", "Queues[0].Properties.MaxDeliveryCount"),
        (("Queues", 0, "Properties", "ForwardTo"), "nowhere", "Queues[0].Properties.ForwardTo"),
        (("Queues", 0, "Properties", "MaxSizeInMegabytes"), 81920, "Queues[0].Properties.MaxSizeInMegabytes"),
        (("Queues", 0, "Name"), "a b", "Queues[0].Name"),
        (("Queues", 1, "Name"), "Queue.1", "Queues[1].Name"),
        (("Topics", 0, "Name"), "queue.2", "Topics[0].Name"),
        (("Name",), "a b", "Name"),
        ((*RULE, "FilterType"), "SqlFilter", "Topics[0].Subscriptions[0].Rules[1].Properties.FilterType"),
        ((*RULE, "FilterType"), "Correlation", "Topics[0].Subscriptions[0].Rules[1].Properties.CorrelationFilter"),
        (
            (*RULE, "SqlFilter", "SqlExpression"),
            "a >",
            "Topics[0].Subscriptions[0].Rules[1].Properties.SqlFilter.SqlExpression",
        ),
        (
            (*RULE, "Action", "SqlExpression"),
            "SET sys.SequenceNumber = 1",
            "Topics[0].Subscriptions[0].Rules[1].Properties.Action.SqlExpression",
        ),
    ],
)
def test_a_mistake_in_microsofts_file_is_reported_in_its_own_terms(
    tmp_path: Path, steps: tuple[str | int, ...], to: Any, path: str
) -> None:
    assert told(changed(tmp_path, *steps, to=to)) == [f"1 UserConfig.Namespaces[0].{path}"]
