"""The chart, checked by helm and by Kubernetes' own schemas, and the promises of its pods."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from syphon import __version__
from syphon.backlog import queue_names
from syphon.cli.exit_codes import ExitCode
from syphon.config import Config, load_config
from tests.support.chart import (
    CASES,
    CHART,
    KUBERNETES,
    Manifest,
    containers,
    manifests,
    of_kind,
    pods,
    rendered,
    template,
)
from tests.support.tools import run, said

CASE = pytest.mark.parametrize("case", CASES)
OPERATORS_KINDS = {"ServiceMonitor", "PrometheusRule", "ScaledObject", "TriggerAuthentication"}
"""Kinds of the Prometheus operator and of KEDA: Kubernetes has no schema for them."""


def validated(found: list[dict[str, Any]], folder: Path) -> tuple[int, str]:
    """The objections of Kubernetes 1.31 to manifests: unknown and missing fields, wrong types."""
    (folder / "manifests.yaml").write_text(yaml.safe_dump_all(found))
    result = run("kubernetes-validate", "-k", "1.31", "--strict", "--quiet", folder / "manifests.yaml")
    return result.returncode, said(result)


def in_kubernetes(case: str) -> list[dict[str, Any]]:
    """Everything that Kubernetes sees: the manifests, and the pods that Spark makes of a template."""
    known = [manifest for manifest in manifests(case) if manifest["kind"] not in OPERATORS_KINDS]
    return [*known, *(pod for pod in pods(known) if pod["metadata"].get("name") == "executor")]


# --- helm and Kubernetes ---------------------------------------------------------------------------------------------


def test_helm_finds_nothing_wrong_with_the_chart_alone() -> None:
    linted = run("helm", "lint", "--strict", CHART)
    assert linted.returncode == 0, said(linted)


@CASE
def test_helm_finds_nothing_wrong_with_any_case(case: str) -> None:
    linted = run("helm", "lint", "--strict", CHART, "-f", CASES[case], "--kube-version", KUBERNETES)
    assert linted.returncode == 0, said(linted)


def test_helm_finds_a_broken_template(tmp_path: Path) -> None:
    broken = shutil.copytree(CHART, tmp_path / "syphon")
    service = broken / "templates" / "service.yaml"
    service.write_text(service.read_text().replace("ports:", "ports: {{ .Values.nothing.here }}"))
    assert run("helm", "lint", "--strict", broken, "-f", CASES["minimal"]).returncode != 0


@CASE
def test_helm_would_install_it_and_prints_the_next_commands(case: str) -> None:
    installed = run("helm", "install", "syphon", CHART, "-n", "messaging", "--dry-run=client", "-f", CASES[case])
    assert installed.returncode == 0, said(installed)
    assert "helm test syphon -n messaging" in installed.stdout


@CASE
def test_kubernetes_accepts_every_manifest(case: str, tmp_path: Path) -> None:
    assert validated(in_kubernetes(case), tmp_path) == (0, "")


def test_kubernetes_refuses_a_misspelt_or_wrong_field(tmp_path: Path) -> None:
    found = in_kubernetes("minimal")
    (deployment,) = of_kind(found, "Deployment")
    deployment["spec"]["replica"] = 1
    code, text = validated(found, tmp_path)
    assert code != 0
    assert "replica" in text


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


# --- what pods promise -----------------------------------------------------------------------------------------------


@CASE
def test_every_container_is_restricted(case: str) -> None:
    for pod in pods(manifests(case)):
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert pod["spec"]["securityContext"].get("runAsUser") == (None if case == "openshift" else 10001)
        assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in containers(pod):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


@CASE
def test_a_token_of_the_cluster_is_mounted_only_where_spark_starts_executors(case: str) -> None:
    mounted = [pod for pod in pods(manifests(case)) if pod["spec"]["automountServiceAccountToken"]]
    components = {pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in mounted}
    assert components == ({"worker", "drain"} if case == "spark" else set())


def test_an_outage_restarts_nothing_and_a_start_may_take_a_minute() -> None:
    (deployment,) = of_kind(manifests("minimal"), "Deployment")
    (worker,) = deployment["spec"]["template"]["spec"]["containers"]
    paths = {probe: worker[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert paths == {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    assert worker["startupProbe"]["periodSeconds"] * worker["startupProbe"]["failureThreshold"] >= 60


@pytest.mark.parametrize(("code", "ends"), [(0, 0), (1, 0), (69, 0), (77, 77), (78, 78), (2, 2)])
def test_a_check_stops_a_pod_for_settings_and_credentials_and_not_for_an_outage(
    code: int, ends: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (deployment,) = of_kind(manifests("minimal"), "Deployment")
    (check,) = deployment["spec"]["template"]["spec"]["initContainers"]
    script = f'#!/bin/sh\n[ "$*" = "check -c /etc/syphon/config.yaml" ] || exit 99\nexit {code}\n'
    (tmp_path / "syphon").write_text(script)
    (tmp_path / "syphon").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    shell, *arguments = check["command"]
    assert run(shell, *arguments).returncode == ends


def test_a_worker_that_creates_no_queues_is_not_checked_for_the_manage_claim() -> None:
    def checks(*more: str) -> dict[str, bool]:
        found = [pod for pod in pods(manifests("drain", *more)) if "initContainers" in pod["spec"]]
        return {
            pod["metadata"]["labels"]["app.kubernetes.io/component"]: "--no-provision"
            in pod["spec"]["initContainers"][0]["command"][-1]
            for pod in found
        }

    assert checks() == {"worker": False, "drain": True}
    assert checks("--set", "extraArgs={--no-provision}") == {"worker": True, "drain": True}


def test_a_change_of_settings_brings_new_pods() -> None:
    def checksum(*more: str) -> str:
        (deployment,) = of_kind(manifests("minimal", *more), "Deployment")
        return str(deployment["spec"]["template"]["metadata"]["annotations"]["checksum/config"])

    assert checksum() == checksum()
    assert checksum() != checksum("--set", "config.pipeline.lease=30s")


def drain_of(*more: str, case: str = "drain") -> Manifest:
    (job,) = of_kind(manifests(case, *more), "Job")
    return job


def test_a_drain_is_tried_once_unless_the_operator_says_otherwise() -> None:
    job = drain_of()
    assert job["spec"]["backoffLimit"] == 0
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["args"][:3] == ["drain", "-c", "/etc/syphon/config.yaml"]
    assert [deployment["spec"]["replicas"] for deployment in of_kind(manifests("drain"), "Deployment")] == [0]


def test_a_changed_drain_is_another_job_and_an_unchanged_one_is_the_same() -> None:
    """Argo CD renders every time as revision 1, and a Job's template cannot be changed."""

    def name(*more: str) -> str:
        return str(drain_of(*more)["metadata"]["name"])

    changes = ["drain.args={--yes}", "image.tag=two", "config.pipeline.lease=30s", "drain.run=again", "extraEnv[0].name=A"]
    names = [name(), *(name("--set", change) for change in changes)]
    assert len(set(names)) == len(names)
    assert name("--is-upgrade") == name()
    assert name("--set", "replicaCount=1") == name()


def test_a_drain_that_lost_its_node_begins_again_and_one_that_needs_a_person_does_not() -> None:
    lost, needs_a_person = drain_of()["spec"]["podFailurePolicy"]["rules"]
    assert lost == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert needs_a_person["action"] == "FailJob"
    codes = {ExitCode.LEFT, ExitCode.USAGE, ExitCode.NOT_AUTHORIZED, ExitCode.CONFIG}
    assert set(needs_a_person["onExitCodes"]["values"]) == {int(code) for code in codes}


def test_a_finished_drain_is_kept_if_the_operator_says_so() -> None:
    assert drain_of()["spec"]["ttlSecondsAfterFinished"] == 604800
    assert drain_of("--set", "drain.ttlSecondsAfterFinished=0")["spec"]["ttlSecondsAfterFinished"] == 0
    assert "ttlSecondsAfterFinished" not in drain_of(case="extras")["spec"]


# --- what operators add to pods --------------------------------------------------------------------------------------


def components(found: list[Manifest]) -> dict[str, Manifest]:
    return {pod["metadata"]["labels"]["app.kubernetes.io/component"]: pod for pod in pods(found)}


def test_volumes_and_environment_reach_worker_drain_and_executors(tmp_path: Path) -> None:
    executors = ["sparkOnKubernetes.enabled=true", "config.pipeline.ledger=abfss://a@b/c"]
    found = components(manifests("extras", *(word for value in executors for word in ("--set", value))))
    assert set(found) == {"worker", "drain", "executor", "test"}
    for component in ("worker", "drain", "executor"):
        spec = found[component]["spec"]
        assert "key-vault" in {volume["name"] for volume in spec["volumes"]}
        ours = [container for container in containers(found[component]) if container["name"] not in ("mesh", "proxy")]
        assert len(ours) == (1 if component == "executor" else 2)
        for container in ours:
            assert container["envFrom"] == [{"configMapRef": {"name": "proxy"}}]
            assert "AZURE_CLIENT_SECRET" in {variable["name"] for variable in container["env"]}
            assert "key-vault" in {mount["name"] for mount in container["volumeMounts"]}


def test_a_sidecar_is_beside_the_worker_and_not_beside_a_drain_that_has_to_end() -> None:
    found = components(manifests("extras"))
    names = {component: [each["name"] for each in containers(pod)] for component, pod in found.items()}
    assert names["worker"] == ["mesh", "check", "syphon", "proxy"]
    assert names["drain"] == ["mesh", "check", "syphon"]


def test_common_labels_and_annotations_are_on_every_object_and_pod() -> None:
    found = manifests("extras")
    for labelled in [*found, *pods(found)]:
        assert labelled["metadata"]["labels"]["example.com/cost-center"] == "4711"
        assert labelled["metadata"]["annotations"]["example.com/owner"] == "messaging"
    claimed = of_kind(manifests("cluster", "--set", "commonAnnotations.a=b"), "PersistentVolumeClaim")
    assert [claim["metadata"]["annotations"] for claim in claimed] == [{"a": "b", "helm.sh/resource-policy": "keep"}]


def test_drain_and_executors_run_where_their_own_values_say_else_where_the_worker_runs() -> None:
    own = components(manifests("extras"))
    assert own["drain"]["spec"]["nodeSelector"] == {"pool": "batch"}
    assert own["drain"]["spec"]["priorityClassName"] == "incident"
    assert own["drain"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "2"
    assert "nodeSelector" not in own["worker"]["spec"]
    executor = components(manifests("spark"))["executor"]["spec"]
    assert (executor["nodeSelector"], executor["priorityClassName"]) == ({"pool": "batch"}, "batch")
    places = ["nodeSelector", "tolerations", "affinity", "topologySpreadConstraints", "priorityClassName"]
    inherited = components(manifests("cluster", "--set", "drain.enabled=true,replicaCount=1,sparkOnKubernetes.enabled=true"))
    for component in ("drain", "executor", "test"):
        for place in places:
            assert inherited[component]["spec"][place] == inherited["worker"]["spec"][place]


def test_openshift_chooses_the_user_and_the_rest_of_the_restrictions_stays() -> None:
    for pod in pods(manifests("openshift")):
        restrictions = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        assert pod["spec"]["securityContext"] == restrictions


# --- the network -----------------------------------------------------------------------------------------------------


def policy(case: str, *more: str) -> dict[str, Any]:
    (found,) = of_kind(manifests(case, "--set", "networkPolicy.enabled=true", *more), "NetworkPolicy")
    spec: dict[str, Any] = found["spec"]
    return spec


def test_without_named_clients_only_the_releases_own_pods_are_admitted() -> None:
    (own,) = policy("minimal")["ingress"]
    assert list(own) == ["from"]
    assert own["from"] == [{"podSelector": policy("minimal")["podSelector"]}]
    named = policy("cluster")["ingress"]
    assert [rule.get("ports") for rule in named] == [[{"port": 8080}], None]
    assert all(rule["from"] for rule in named)


def test_the_metadata_service_is_reachable_only_if_the_operator_says_so() -> None:
    metadata = {"to": [{"ipBlock": {"cidr": "169.254.169.254/32"}}], "ports": [{"port": 80}]}
    assert metadata not in policy("minimal")["egress"]
    assert metadata in policy("minimal", "--set", "networkPolicy.metadataService=true")["egress"]


# --- KEDA ------------------------------------------------------------------------------------------------------------


def test_keda_counts_exactly_the_backlog_queues_and_owns_the_number_of_workers(tmp_path: Path) -> None:
    found = manifests("autoscaling")
    (scaled,) = of_kind(found, "ScaledObject")
    config = settings("autoscaling", tmp_path)
    queues = [name for pair in config.pairs for name in queue_names(pair)]
    assert [trigger["metadata"]["queueName"] for trigger in scaled["spec"]["triggers"]] == queues
    (deployment,) = of_kind(found, "Deployment")
    assert "replicas" not in deployment["spec"]
    assert scaled["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]


def test_keda_asks_with_the_workers_secret_or_identity() -> None:
    found = manifests("autoscaling")
    by_key, by_identity = (each["spec"] for each in of_kind(found, "TriggerAuthentication"))
    assert by_key == {
        "secretTargetRef": [{"parameter": "connection", "name": "syphon-credentials", "key": "contoso-dr"}]
    }
    assert by_identity["podIdentity"]["provider"] == "azure-workload"
    (scaled,) = of_kind(found, "ScaledObject")
    names = {trigger["authenticationRef"]["name"] for trigger in scaled["spec"]["triggers"]}
    assert names == {each["metadata"]["name"] for each in of_kind(found, "TriggerAuthentication")}


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", ["1st", "2nd.syphon", "a.b", "syphon", "0" * 53])
def test_a_release_may_have_any_name_that_helm_allows(release: str) -> None:
    command = ("helm", "template", release, CHART, "--kube-version", KUBERNETES, "-f", CASES["spark"])
    rendered = run(*command)
    assert rendered.returncode == 0, rendered.stderr
    for manifest in filter(None, yaml.safe_load_all(rendered.stdout)):
        if manifest["kind"] == "Service":
            assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", manifest["metadata"]["name"])


# --- helm test -------------------------------------------------------------------------------------------------------


def test_helm_test_asks_the_worker_or_runs_the_check_where_there_may_be_none() -> None:
    def command(case: str, *more: str) -> list[str]:
        (pod,) = (each for each in of_kind(manifests(case, *more), "Pod"))
        (container,) = pod["spec"]["containers"]
        return [*container.get("command", []), *container.get("args", [])]

    assert command("minimal")[0] == "python"
    assert command("minimal", "--set", "replicaCount=0") == "check -c /etc/syphon/config.yaml --no-provision".split()
    assert command("autoscaling")[0] == "check"
    assert command("autoscaling", "--set", "autoscaling.minReplicas=1")[0] == "python"


def test_the_check_of_helm_test_needs_no_volume_that_may_be_in_use_elsewhere() -> None:
    values = "replicaCount=0,persistence.accessModes={ReadWriteOnce}"
    (pod,) = of_kind(manifests("cluster", "--set", values), "Pod")
    assert {"name": "state", "emptyDir": {}} in pod["spec"]["volumes"]


@CASE
def test_names_that_belong_together_agree(case: str) -> None:
    """Volumes, claims, service accounts, selectors: every name refers to an object of the chart or of the operator."""
    found = manifests(case)
    names = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in found}
    brought = {("ServiceAccount", "messaging"), ("PersistentVolumeClaim", "ledger")}
    for pod in pods(found):
        spec = pod["spec"]
        volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
        for container in containers(pod):
            assert {mount["name"] for mount in container.get("volumeMounts", [])} <= set(volumes)
        wanted = {("ServiceAccount", spec["serviceAccountName"])} if "serviceAccountName" in spec else set()
        for volume in volumes.values():
            if "configMap" in volume:
                wanted.add(("ConfigMap", volume["configMap"]["name"]))
            if "persistentVolumeClaim" in volume:
                wanted.add(("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]))
        assert wanted <= names | brought
    selected = [pod["metadata"]["labels"].items() for pod in pods(found)]
    for service in of_kind(found, "Service"):
        assert any(service["spec"]["selector"].items() <= labels for labels in selected)


# --- the settings in the pod -----------------------------------------------------------------------------------------


def settings(case: str, folder: Path) -> Config:
    """The settings as the worker in the pod reads them, secrets and environment included."""
    (text,) = (found for manifest in manifests(case) if (found := manifest.get("data", {}).get("config.yaml")))
    (folder / "config.yaml").write_text(text)
    (folder / "secrets").mkdir()
    for name in ("contoso", "contoso-dr"):
        key = f"Endpoint=sb://{name}.servicebus.windows.net;SharedAccessKeyName=a;SharedAccessKey=c2VjcmV0"
        (folder / "secrets" / name).write_text(key)
    (folder / "secrets" / "status-token").write_text("a token")
    return load_config(folder / "config.yaml", {"POD_NAME": "syphon-0", "SPARK_DRIVER_HOST": "driver.messaging.svc"})


@CASE
def test_a_worker_accepts_the_settings_in_its_pod(case: str, tmp_path: Path) -> None:
    config = settings(case, tmp_path)
    assert [pair.name for pair in config.pairs] == (["contoso", "fabrikam"] if case == "autoscaling" else ["contoso"])
    assert str(config.status.listen) == "0.0.0.0:8080"


def test_the_status_token_comes_from_the_secret_and_the_monitor_shows_it(tmp_path: Path) -> None:
    config = settings("monitoring", tmp_path)
    assert config.status.token is not None
    assert config.status.token.get_secret_value() == "a token"
    (monitor,) = of_kind(manifests("monitoring"), "ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["authorization"]["credentials"] == {"name": "syphon-credentials", "key": "status-token"}


def test_driver_and_executors_authenticate_and_encrypt(tmp_path: Path) -> None:
    spark = {key: value.get_secret_value() for key, value in settings("spark", tmp_path).pipeline.spark.items()}
    assert spark["spark.authenticate"] == "true"
    assert spark["spark.authenticate.secret.file"] == "/etc/syphon/secrets/spark"
    assert spark["spark.network.crypto.enabled"] == "true"
    assert spark["spark.network.crypto.cipher"] == "AES/GCM/NoPadding"
    assert spark["spark.network.crypto.saslFallback"] == "false"
    assert spark["spark.io.encryption.enabled"] == "true"


def test_executors_get_their_drivers_address_and_the_operators_setting_overrides(tmp_path: Path) -> None:
    pipeline = settings("spark", tmp_path).pipeline
    spark = {key: value.get_secret_value() for key, value in pipeline.spark.items()}
    assert pipeline.master == "k8s://https://kubernetes.default.svc"
    assert spark["spark.driver.host"] == "driver.messaging.svc"
    assert spark["spark.kubernetes.driver.pod.name"] == "syphon-0"
    assert spark["spark.executor.memory"] == "2g"
    services = {service["metadata"]["name"]: service["spec"] for service in of_kind(manifests("spark"), "Service")}
    for component in ("worker", "drain"):
        driver = services[f"syphon-{component}-driver"]
        assert driver["clusterIP"] == "None"
        assert driver["selector"]["app.kubernetes.io/component"] == component
        ports = {str(port["port"]) for port in driver["ports"]}
        assert ports == {spark["spark.driver.port"], spark["spark.driver.blockManager.port"]}


# --- what values may not say -----------------------------------------------------------------------------------------

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
    ],
)
def test_values_that_work_are_accepted(values: str) -> None:
    accepted = template("-f", CASES["minimal"], "--set", values)
    assert accepted.returncode == 0, accepted.stderr


def left_open(schema: Any, path: str = "$") -> Iterator[str]:
    """The places in a schema where any key is accepted."""
    if isinstance(schema, list):
        for number, item in enumerate(schema):
            yield from left_open(item, f"{path}[{number}]")
    elif isinstance(schema, dict):
        types = schema.get("type", [])
        if "object" in types and "additionalProperties" not in schema:
            yield path
        for key, value in schema.items():
            yield from left_open(value, f"{path}.{key}")


def test_no_part_of_the_schema_accepts_any_key() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert list(left_open(schema)) == []
    assert list(left_open({"properties": {"a": {"type": "object"}}})) == ["$.properties.a"]


def test_every_default_has_a_place_in_the_schema() -> None:
    """A value without one would be refused; helm does not look at defaults that are empty."""
    properties = json.loads((CHART / "values.schema.json").read_text())["properties"]
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(values) == set(properties)


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
        ("sparkOnKubernetes.authenticationKey=spark", "authenticationKey names a key of existingSecret, which is empty"),
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


def test_the_chart_accepts_the_readmes_values(tmp_path: Path) -> None:
    page = (CHART / "README.md").read_text()
    blocks = page.split("```yaml\n")[1:]
    assert len(blocks) == 2
    for block in blocks:
        (tmp_path / "values.yaml").write_text(block.partition("```")[0])
        result = template("-f", tmp_path / "values.yaml")
        assert result.returncode == 0, result.stderr


def test_every_option_of_the_chart_is_rendered_in_some_case() -> None:
    kinds = {manifest["kind"] for case in CASES for manifest in manifests(case)}
    written = {
        line.removeprefix("kind: ").strip()
        for file in (CHART / "templates").rglob("*.yaml")
        for line in file.read_text().splitlines()
        if line.startswith("kind: ")
    }
    assert written == kinds
    assert all(rendered(case) for case in CASES)
