"""Alert rules, checked by promtool: they are valid, and each fires when it should and not otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.support.chart import CHART, manifests, of_kind
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
    broken.write_text(RULES.read_text().replace("max by (pair) (", "max by pair (", 1))
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
        ('up{job="syphon"} == 1', 'up{job="syphon"}'),
        ("and on (pair)", "or on (pair)"),
        ("> 900", "> 9"),
        ("unless syphon_messages_dead_lettered_total offset 15m", "offset 15m"),
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
