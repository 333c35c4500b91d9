"""The chart, checked by helm and by Kubernetes' own schemas, and the promises of its pods."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from syphon import __version__
from tests.support.chart import (
    CASES,
    CHART,
    KUBERNETES,
    containers,
    manifests,
    of_kind,
    pods,
    rendered,
    settings_in_pod,
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


@CASE
def test_a_worker_accepts_the_settings_in_its_pod(case: str, tmp_path: Path) -> None:
    config = settings_in_pod(case, tmp_path)
    assert [pair.name for pair in config.pairs] == (["contoso", "fabrikam"] if case == "autoscaling" else ["contoso"])
    assert str(config.status.listen) == "0.0.0.0:8080"


def test_the_status_token_comes_from_the_secret_and_the_monitor_shows_it(tmp_path: Path) -> None:
    config = settings_in_pod("monitoring", tmp_path)
    assert config.status.token is not None
    assert config.status.token.get_secret_value() == "a token"
    (monitor,) = of_kind(manifests("monitoring"), "ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["authorization"]["credentials"] == {"name": "syphon-credentials", "key": "status-token"}


def test_driver_and_executors_authenticate_and_encrypt(tmp_path: Path) -> None:
    spark = {key: value.get_secret_value() for key, value in settings_in_pod("spark", tmp_path).pipeline.spark.items()}
    assert spark["spark.authenticate"] == "true"
    assert spark["spark.network.crypto.enabled"] == "true"
    assert spark["spark.network.crypto.cipher"] == "AES/GCM/NoPadding"
    assert spark["spark.network.crypto.saslFallback"] == "false"
    assert spark["spark.io.encryption.enabled"] == "true"


def test_executors_get_their_drivers_address_and_the_operators_setting_overrides(tmp_path: Path) -> None:
    pipeline = settings_in_pod("spark", tmp_path).pipeline
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
