"""The examples for Azure: the Bicep file makes the documented queues, the workbook is complete. Neither is deployed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

from syphon.backlog.queues import DOCUMENTED
from syphon.servicebus.arm_administration import _arm_name, _properties
from tests.support.tools import ROOT

BICEP = ROOT / "examples" / "azure" / "pair.bicep"
WORKBOOK = json.loads((ROOT / "examples" / "azure" / "workbook.json").read_text())


def resource(name: str) -> str:
    """The body of a resource of the Bicep file."""
    found = re.search(
        rf"^resource {name} .*?(?=^(?:resource|output|//)|\Z)", BICEP.read_text(), re.MULTILINE | re.DOTALL
    )
    assert found is not None, name
    return found[0]


def test_the_backlog_queues_of_the_example_are_the_documented_ones() -> None:  # P2
    body = resource("backlog")
    written = dict(re.findall(r"^    (\w+): (.+)$", body, re.MULTILINE))
    assert {name: json.loads(value.replace("'", '"')) for name, value in written.items()} == _properties(DOCUMENTED)
    assert _arm_name("contoso/x-servicebus-transfer/0") == "contoso~x-servicebus-transfer~0"
    assert "name: '${primaryName}~x-servicebus-transfer~${index}'" in body


def test_every_name_in_the_bicep_file_is_declared_and_every_bracket_closed() -> None:
    text = re.sub(r"//.*|'[^']*'", lambda found: " ".join(re.findall(r"\$\{([^}]*)\}", found[0])), BICEP.read_text())
    assert [text.count(one) for one in "{[("] == [text.count(other) for other in "}])"]
    declared = set(re.findall(r"^(?:param|var|resource) (\w+)", text, re.MULTILINE))
    used = set(re.findall(r"(?:parent|scope|roleDefinitionId|principalId|location|name): (\w+)\b(?!\()", text))
    assert used - declared - {"name"} == set()
    if (compiler := shutil.which("bicep")) is not None:
        subprocess.run([compiler, "build", "--stdout", BICEP], check=True, capture_output=True)


def test_the_charts_of_the_workbook_are_about_its_parameters() -> None:
    (parameters,) = [item["content"]["parameters"] for item in WORKBOOK["items"] if item["type"] == 9]
    names = {parameter["name"] for parameter in parameters}
    charts = [item["content"] for item in WORKBOOK["items"] if item["type"] == 10]
    assert len({chart["chartId"] for chart in charts}) == len(charts) == 7
    for chart in charts:
        assert {chart["resourceParameter"], chart["timeContextFromParameter"]} <= names
        assert chart["resourceIds"] == [f"{{{chart['resourceParameter']}}}"]
        for metric in chart["metrics"]:
            assert re.fullmatch(r"microsoft\.servicebus/namespaces--[A-Za-z]+", metric["metric"])
