"""The values of the chart: what they may not say, and that its schema is closed everywhere."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.chart import CASES, CHART, template
from tests.support.tools import run, said

KEY = "Endpoint=sb://a.example;SharedAccessKeyName=a;SharedAccessKey=c2VjcmV0"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("replicas=2", "replicas"),
        ("image.tga=1", "tga"),
        ("replicaCount=many", "replicaCount"),
        ("terminationGracePeriodSeconds=10", "terminationGracePeriodSeconds"),
        ("resources.limit.memory=1Gi", "limit"),
        ("drain.resources.limits.memory=true", "resources"),
        ("tolerations[0].operater=Exists", "operater"),
        ("affinity.nodeAfinity.a=b", "nodeAfinity"),
        ("securityContext.runAsRoot=true", "runAsRoot"),
        ("extraVolumes[0].name=a,extraVolumes[0].emptydir.a=b", "emptydir"),
        ("networkPolicy.statusFrom[0].podSelecter.a=b", "podSelecter"),
        ("podDisruptionBudget.maxUnavailable=some", "maxUnavailable"),
        ("podDisruptionBudget.maxUnavailable=-1", "maxUnavailable"),
        ("podDisruptionBudget.maxUnavailable=101%", "maxUnavailable"),
        # Labels by which the chart's own selectors find pods.
        ("podLabels.app\\.kubernetes\\.io/component=drain", "app.kubernetes.io/component"),
        ("commonLabels.app\\.kubernetes\\.io/instance=other", "app.kubernetes.io/instance"),
        ("serviceMonitor.labels.app\\.kubernetes\\.io/name=other", "app.kubernetes.io/name"),
        ("config.pipline.lease=1m", "pipline"),
        ("config.pairs[0].backlog_queue_counts=3", "backlog_queue_counts"),
        ("config.pairs[0].time_to_live=forget", "time_to_live"),
        ("config.status.listen=0.0.0.0:80", "listen"),
        ("prometheusRule.overrides.SyphonBacklogOld.four=5m", "four"),
        # No literal secret, wherever it is tried.
        (f"config.pairs[0].secondary.connection_string={KEY}", "connection_string"),
        ("config.pipeline.spark.spark\\.hadoop\\.fs\\.azure\\.account\\.key=c2VjcmV0", "account.key"),
        ("config.status.token=c2VjcmV0", "token"),
        (f"extraEnv[0].name=A,extraEnv[0].value={KEY}", "extraEnv"),
        ("extraEnv[0].name=AZURE_CLIENT_SECRET,extraEnv[0].value=c2VjcmV0", "extraEnv"),
        ("extraEnv[0].name=AZURE_CLIENT_CERTIFICATE_PASSWORD,extraEnv[0].value=c2VjcmV0", "extraEnv"),
        *(
            (f"{place}[0].name=a,{place}[0].env[0].name={name},{place}[0].env[0].value={value}", place)
            for place in ("extraContainers", "initContainers")
            for name, value in (("AZURE_CLIENT_SECRET", "c2VjcmV0"), ("A", KEY))
        ),
        ("config.pipeline.spark.spark\\.executorEnv\\.AZURE_CLIENT_SECRET=c2VjcmV0", "AZURE_CLIENT_SECRET"),
        (f"config.pipeline.spark.spark\\.executorEnv\\.SIDE={KEY}", "SIDE"),
        ("config.pairs[0].primary.proxy.password=c2VjcmV0", "password"),
        ("config.pairs[0].primary.proxy.url=http://a:c2VjcmV0@proxy:3128", "url"),
    ],
)
def test_a_typo_or_a_literal_secret_in_values_is_refused(value: str, message: str) -> None:
    refused = template("-f", CASES["minimal"], "--set", value)
    assert refused.returncode != 0
    assert message in refused.stderr
    assert "values don't meet the specifications of the schema" in refused.stderr
    assert "c2VjcmV0" not in refused.stderr


@pytest.mark.parametrize(
    "values",
    [
        "persistence.enabled=true",
        "persistence.enabled=true,drain.enabled=true,replicaCount=0",
        "persistence.enabled=true,persistence.accessModes={ReadWriteMany},replicaCount=3,drain.enabled=true",
        "extraEnv[0].name=AZURE_FEDERATED_TOKEN_FILE,extraEnv[0].value=/var/run/token",
        "podDisruptionBudget.enabled=true,podDisruptionBudget.maxUnavailable=25%",
        "resources.limits.memory=3Gi,resources.requests.cpu=1",
        "podLabels.app\\.kubernetes\\.io/part-of=messaging",
    ],
)
def test_values_that_work_are_accepted(values: str) -> None:
    accepted = template("-f", CASES["minimal"], "--set", values)
    assert accepted.returncode == 0, accepted.stderr


def test_the_chart_may_be_a_part_of_another(tmp_path: Path) -> None:
    shutil.copytree(CHART, tmp_path / "charts" / "syphon")
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: whole\nversion: 0.0.1\n")
    part = {"global": {"region": "west"}, "syphon": yaml.safe_load(CASES["minimal"].read_text())}
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(part))
    whole = template(chart=tmp_path)
    assert whole.returncode == 0, whole.stderr
    assert "kind: Deployment" in whole.stdout


def left_open(schema: Any, path: str = "$") -> Iterator[str]:
    """The places in a schema where any key is accepted."""
    if isinstance(schema, list):
        for number, item in enumerate(schema):
            yield from left_open(item, f"{path}[{number}]")
    elif isinstance(schema, dict):
        types = schema.get("type", [])
        if "object" in types and schema.get("additionalProperties", True) is True:
            yield path
        for key, value in schema.items():
            yield from left_open(value, f"{path}.{key}")


def test_no_part_of_the_schema_accepts_any_key() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    # A chart that has this one as a part hands its `global` to all its parts.
    assert list(left_open(schema)) == ["$.properties.global"]
    assert list(left_open({"properties": {"a": {"type": "object"}}})) == ["$.properties.a"]


def test_every_default_has_a_place_in_the_schema() -> None:
    """A value without one would be refused; helm does not check defaults that are empty."""
    properties = json.loads((CHART / "values.schema.json").read_text())["properties"]
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(values) == set(properties) - {"global"}


def test_values_without_a_pair_are_refused_with_a_remedy() -> None:
    refused = template()
    assert refused.returncode != 0
    assert "config.pairs is missing: say which namespaces form a pair" in refused.stderr


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("status.tokenKey=token", "status.tokenKey names a key of existingSecret, which is empty"),
        ("serviceMonitor.enabled=true", "serviceMonitor needs status.tokenKey"),
        ("sparkOnKubernetes.enabled=true", "sparkOnKubernetes needs a ledger that all pods reach"),
        ("sparkOnKubernetes.enabled=true,replicaCount=2", "sparkOnKubernetes works with one worker"),
        ("persistence.enabled=true,replicaCount=3", "3 pods (3 worker(s)) cannot share a volume of ReadWriteOnce"),
        ("persistence.enabled=true,drain.enabled=true", "2 pods (1 worker(s) and a drain) cannot share a volume"),
        (
            "persistence.enabled=true,persistence.existingClaim=ledger,sparkOnKubernetes.enabled=true",
            "executors cannot share a volume of ReadWriteOnce",
        ),
        ("persistence.enabled=true,autoscaling.enabled=true,autoscaling.maxReplicas=2", "2 pods (2 worker(s)) cannot"),
        ("autoscaling.enabled=true,autoscaling.minReplicas=2", "autoscaling.minReplicas is above"),
    ],
)
def test_values_that_contradict_each_other_are_refused_with_a_remedy(value: str, message: str) -> None:
    refused = template("-f", CASES["minimal"], "--set", value)
    assert refused.returncode != 0
    assert message in refused.stderr


def test_the_schema_is_valid_and_a_broken_one_is_found(tmp_path: Path) -> None:
    schema = CHART / "values.schema.json"
    checked = run("check-jsonschema", "--check-metaschema", schema)
    assert checked.returncode == 0, said(checked)
    (tmp_path / "broken.json").write_text(schema.read_text().replace('"type": "boolean"', '"type": "bool"', 1))
    assert run("check-jsonschema", "--check-metaschema", tmp_path / "broken.json").returncode != 0
