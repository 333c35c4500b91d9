"""The Grafana dashboard, as far as it can be checked without Grafana. test_metric_names.py checks its queries."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import yaml

from tests.support.chart import CHART, manifests
from tests.support.tools import run, said

DASHBOARD = json.loads((CHART / "files" / "dashboard.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]


def overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    a, b = one["gridPos"], other["gridPos"]
    return all(p[start] < q[start] + q[size] for start, size in (("x", "w"), ("y", "h")) for p, q in ((a, b), (b, a)))


def test_panels_have_their_own_ids_and_places_on_a_grid_of_24() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in PANELS)
    assert [(one["title"], other["title"]) for one, other in combinations(PANELS, 2) if overlap(one, other)] == []


def test_two_overlapping_panels_are_found() -> None:
    moved = {**PANELS[0], "gridPos": {**PANELS[1]["gridPos"]}}
    assert overlap(moved, PANELS[1])


def test_every_panel_has_a_description_and_uses_the_selected_data_source() -> None:
    assert [panel["title"] for panel in PANELS if not panel["description"]] == []
    sources = [asker["datasource"]["uid"] for panel in PANELS for asker in (panel, *panel["targets"])]
    assert set(sources) == {"${datasource}"}


def test_prometheus_accepts_every_query(tmp_path: Path) -> None:
    queries = [target["expr"] for panel in PANELS for target in panel["targets"]]
    rules = [
        {"record": f"panel:{number}", "expr": query.replace("$__rate_interval", "5m")}
        for number, query in enumerate(queries)
    ]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    checked = run("promtool", "check", "rules", tmp_path / "rules.yaml")
    assert checked.returncode == 0, said(checked)


def test_the_chart_hands_it_to_grafana_unchanged() -> None:
    (found,) = (manifest for manifest in manifests("monitoring") if manifest["metadata"]["name"] == "syphon-dashboard")
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(found["data"]["syphon.json"]) == DASHBOARD
