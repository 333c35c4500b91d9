"""The chart as helm renders it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from syphon.config import Config, load_config
from tests.support.tools import ROOT, run

CHART = ROOT / "helm" / "syphon"
CASES = {file.name.removesuffix("-values.yaml"): file for file in sorted((CHART / "ci").glob("*-values.yaml"))}
GOLDEN = Path(__file__).parents[1] / "integration" / "status" / "golden"
KUBERNETES = "1.31.0"

Manifest = dict[str, Any]


def template(*arguments: str | Path, chart: Path = CHART) -> subprocess.CompletedProcess[str]:
    return run("helm", "template", "syphon", chart, "-n", "messaging", "--kube-version", KUBERNETES, *arguments)


@cache
def rendered(case: str, *arguments: str) -> str:
    """All manifests of a file of ci/, as text."""
    result = template("-f", CASES[case], *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def manifests(case: str, *arguments: str) -> list[Manifest]:
    return [document for document in yaml.safe_load_all(rendered(case, *arguments)) if document]


def of_kind(found: list[Manifest], kind: str) -> list[Manifest]:
    return [manifest for manifest in found if manifest["kind"] == kind]


def pods(found: list[Manifest]) -> Iterator[Manifest]:
    """Every pod that can come out of the manifests, executors included: its metadata and spec."""
    for manifest in found:
        if manifest["kind"] in ("Deployment", "Job"):
            yield manifest["spec"]["template"]
        elif manifest["kind"] == "Pod":
            yield manifest
        elif executor := manifest.get("data", {}).get("executor.yaml"):
            yield yaml.safe_load(executor)


def containers(pod: Manifest) -> list[Manifest]:
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


def settings_in_pod(case: str, folder: Path) -> Config:
    """The settings as the worker in the pod reads them, secrets and environment included."""
    (text,) = (found for manifest in manifests(case) if (found := manifest.get("data", {}).get("config.yaml")))
    (folder / "config.yaml").write_text(text)
    (folder / "secrets").mkdir()
    for name in ("contoso", "contoso-dr"):
        key = f"Endpoint=sb://{name}.servicebus.windows.net;SharedAccessKeyName=a;SharedAccessKey=c2VjcmV0"
        (folder / "secrets" / name).write_text(key)
    (folder / "secrets" / "status-token").write_text("a token")
    return load_config(folder / "config.yaml", {"POD_NAME": "syphon-0", "SPARK_DRIVER_HOST": "driver.messaging.svc"})
