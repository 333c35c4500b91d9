"""Alert rules, checked by promtool: they are valid, and each fires when it should and not otherwise."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.chart import CASES as CHART_CASES
from tests.support.chart import CHART, manifests, of_kind, template
from tests.support.tools import ROOT, run, said

RULES = CHART / "files" / "alerts.yaml"
CASES = Path(__file__).parent / "alerts_test.yaml"
NAMES = [rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def tried(rules: str, folder: Path) -> tuple[int, str]:
    """The test cases with changed rules."""
    (folder / "alerts.yaml").write_text(rules)
    (folder / "cases.yaml").write_text(CASES.read_text().replace("../../helm/syphon/files/", ""))
    result = run("promtool", "test", "rules", folder / "cases.yaml")
    return result.returncode, said(result)


def test_prometheus_accepts_the_rules() -> None:
    checked = run("promtool", "check", "rules", RULES)
    assert checked.returncode == 0, said(checked)
    assert f"{len(NAMES)} rules found" in said(checked)


def test_prometheus_refuses_a_broken_rule(tmp_path: Path) -> None:
    broken = tmp_path / "alerts.yaml"
    broken.write_text(RULES.read_text().replace("max by (job, namespace, service) (", "max by job (", 1))
    assert run("promtool", "check", "rules", broken).returncode != 0


def test_each_alert_fires_when_it_should_and_no_sooner() -> None:
    result = run("promtool", "test", "rules", CASES)
    assert result.returncode == 0, said(result)


@pytest.mark.parametrize("name", NAMES)
def test_an_alert_that_never_fires_is_found(name: str, tmp_path: Path) -> None:
    rules = yaml.safe_load(RULES.read_text())
    (broken,) = (rule for group in rules["groups"] for rule in group["rules"] if rule["alert"] == name)
    broken["expr"] = f"({broken['expr']}) and on () vector(1) < 0"
    code, text = tried(yaml.safe_dump(rules), tmp_path)
    assert code != 0
    assert name in text


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("max by (job, namespace, service) (up", "max by (job) (up"),
        ('absent(up{job="syphon"})', 'absent(up{job="syphon"} == 1)'),
        ("[1h])) > 2", "[1h])) > 1"),
        ("and on (namespace, service, pair)", "or on (namespace, service, pair)"),
        ("> 900", "> 9"),
        ('unless syphon_messages_dead_lettered_total{job="syphon"} offset 15m', "offset 15m"),
        ("[15m]", "[5h]"),
        ("for: 5m", "for: 1m"),
    ],
)
def test_an_alert_that_fires_too_early_or_too_late_is_found(right: str, wrong: str, tmp_path: Path) -> None:
    rules = RULES.read_text()
    assert right in rules
    assert tried(rules.replace(right, wrong), tmp_path)[0] != 0


def test_the_page_on_metrics_has_every_alert() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    assert [name for name in NAMES if f"| `{name}` |" not in page] == []


def test_the_charts_rules_are_these_with_the_operators_changes(tmp_path: Path) -> None:
    (manifest,) = of_kind(manifests("monitoring"), "PrometheusRule")
    rules = {rule["alert"]: rule for group in manifest["spec"]["groups"] for rule in group["rules"]}
    assert set(rules) == set(NAMES) - {"SyphonPossibleDuplicates"}  # left out in ci/monitoring-values.yaml
    assert rules["SyphonBacklogOld"]["for"] == "30m"
    assert rules["SyphonBacklogOld"]["labels"] == {"severity": "info"}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": manifest["spec"]["groups"]}))
    checked = run("promtool", "check", "rules", tmp_path / "rules.yaml")
    assert checked.returncode == 0, said(checked)


# --- rules of a release ----------------------------------------------------------------------------------------------

MONITORED = ("-f", CHART_CASES["secret"], "--set", "prometheusRule.enabled=true")


def rules_of(release: str, *arguments: str) -> list[dict[str, Any]]:
    """The rules of a release of this name."""
    rendered = template(*MONITORED, *arguments, "--set", f"fullnameOverride={release}")
    assert rendered.returncode == 0, rendered.stderr
    (manifest,) = of_kind(list(filter(None, yaml.safe_load_all(rendered.stdout))), "PrometheusRule")
    return [rule for group in manifest["spec"]["groups"] for rule in group["rules"]]


def test_a_release_watches_its_own_workers_and_each_dead_one_fires_once(tmp_path: Path) -> None:
    for release in ("east", "west"):
        rules = {"groups": [{"name": release, "rules": rules_of(release)}]}
        (tmp_path / f"{release}.yaml").write_text(yaml.safe_dump(rules))
    alive = 'up{job="syphon", namespace="messaging", service="west", instance="b"}'
    # The pod of east is gone, and another namespace has a release of the same name.
    other = 'up{job="syphon", namespace="elsewhere", service="east", instance="c"}'
    fired = (
        'ALERTS{alertname="SyphonWorkerAbsent", alertstate="firing", job="syphon", namespace="messaging", '
        'service="east", severity="critical"}'
    )
    question = {
        "eval_time": "10m",
        "expr": 'ALERTS{alertname="SyphonWorkerAbsent", alertstate="firing"}',
        "exp_samples": [{"value": 1, "labels": fired}],
    }
    series = [{"series": name, "values": "1x30"} for name in (alive, other)]
    case = {"interval": "1m", "input_series": series, "promql_expr_test": [question]}
    cases = {"rule_files": ["east.yaml", "west.yaml"], "evaluation_interval": "1m", "tests": [case]}
    (tmp_path / "cases.yaml").write_text(yaml.safe_dump(cases))
    result = run("promtool", "test", "rules", tmp_path / "cases.yaml")
    assert result.returncode == 0, said(result)


def test_every_selector_of_a_release_names_its_namespace_and_service() -> None:
    for rule in rules_of("east"):
        selectors = re.findall(r"\b(?:up|syphon_\w+)(\{[^}]*\})?", rule["expr"])
        assert selectors
        assert all('job="syphon", namespace="messaging", service="east"' in selector for selector in selectors)


@pytest.mark.parametrize("values", ["replicaCount=0", "autoscaling.enabled=true"])
def test_no_worker_is_missing_where_there_may_be_none(values: str) -> None:
    arguments = ("-f", str(CHART_CASES["autoscaling"])) if "autoscaling" in values else ()
    names = {rule["alert"] for rule in rules_of("east", *arguments, "--set", values)}
    assert names == set(NAMES) - {"SyphonWorkerAbsent"}


# --- runbooks --------------------------------------------------------------------------------------------------------


def test_every_alert_has_a_runbook() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    headings = {heading.lower() for heading in re.findall(r"(?m)^### (Syphon\w+)$", page)}
    assert headings == {name.lower() for name in NAMES}
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"]["runbook_url"] == f"docs/operations.md#{rule['alert'].lower()}"


def test_the_operator_says_where_the_runbooks_are() -> None:
    (absent, *_) = rules_of("east", "--set", "prometheusRule.runbookBase=https://git.example/syphon/blob/main/")
    link = "https://git.example/syphon/blob/main/docs/operations.md#syphonworkerabsent"
    assert absent["annotations"]["runbook_url"] == link
