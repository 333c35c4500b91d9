"""The chart's options: the drain, what operators add to pods, the network, scaling, names and `helm test`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from syphon.backlog import queue_names
from syphon.model.exit_codes import ExitCode
from tests.support.chart import (
    CASES,
    CHART,
    KUBERNETES,
    Manifest,
    containers,
    manifests,
    of_kind,
    pods,
    settings_in_pod,
)
from tests.support.tools import run

# --- the drain -------------------------------------------------------------------------------------------------------


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

    changes = [
        "drain.args={--yes}",
        "image.tag=two",
        "config.pipeline.lease=30s",
        "drain.run=again",
        "extraEnv[0].name=A",
    ]
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
    inherited = components(
        manifests("cluster", "--set", "drain.enabled=true,replicaCount=1,sparkOnKubernetes.enabled=true")
    )
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


def test_the_metadata_service_is_reachable_where_an_identity_needs_it_or_the_operator_says_so() -> None:
    metadata = {"to": [{"ipBlock": {"cidr": "169.254.169.254/32"}}], "ports": [{"port": 80}]}
    assert metadata not in policy("minimal")["egress"]
    assert metadata in policy("minimal", "--set", "networkPolicy.metadataService=true")["egress"]
    assert metadata in policy("minimal", "--set", "config.pairs[0].secondary.credential=managed_identity")["egress"]


# --- KEDA ------------------------------------------------------------------------------------------------------------


def test_keda_counts_exactly_the_backlog_queues_and_owns_the_number_of_workers(tmp_path: Path) -> None:
    found = manifests("autoscaling")
    (scaled,) = of_kind(found, "ScaledObject")
    config = settings_in_pod("autoscaling", tmp_path)
    triggers = [trigger["metadata"] for trigger in scaled["spec"]["triggers"]]
    assert [(trigger["useRegex"], trigger["operation"]) for trigger in triggers] == [("true", "sum")] * len(
        config.pairs
    )
    others = ["contoso/x-servicebus-transfer/10", "contoso/x-servicebus-transfer/0/$DeadLetterQueue", "orders"]
    for pair, trigger in zip(config.pairs, triggers, strict=True):
        names = queue_names(pair)
        assert [name for name in [*names, *others] if re.search(trigger["queueName"], name)] == list(names)
    (deployment,) = of_kind(found, "Deployment")
    assert "replicas" not in deployment["spec"]
    assert scaled["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]


def test_keda_finds_a_namespace_of_another_cloud() -> None:
    def asked(host: str) -> dict[str, str]:
        values = f"autoscaling.enabled=true,config.pairs[0].secondary.namespace={host}"
        (scaled,) = of_kind(manifests("minimal", "--set", values), "ScaledObject")
        metadata: dict[str, str] = scaled["spec"]["triggers"][0]["metadata"]
        return {key: metadata[key] for key in ("namespace", "cloud", "endpointSuffix") if key in metadata}

    assert asked("contoso-dr.servicebus.windows.net") == {"namespace": "contoso-dr"}
    assert asked("contoso-dr.servicebus.chinacloudapi.cn") == {
        "namespace": "contoso-dr",
        "cloud": "Private",
        "endpointSuffix": "servicebus.chinacloudapi.cn",
    }


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
    assert command("minimal", "--set", "replicaCount=0") == ["check", "-c", "/etc/syphon/config.yaml", "--no-provision"]
    assert command("autoscaling")[0] == "check"
    assert command("autoscaling", "--set", "autoscaling.minReplicas=1")[0] == "python"


def test_the_check_of_helm_test_needs_no_volume_that_may_be_in_use_elsewhere() -> None:
    values = "replicaCount=0,persistence.accessModes={ReadWriteOnce}"
    (pod,) = of_kind(manifests("cluster", "--set", values), "Pod")
    assert {"name": "state", "emptyDir": {}} in pod["spec"]["volumes"]
