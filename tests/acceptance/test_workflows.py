"""The workflows of GitHub Actions, as far as they can be checked without GitHub."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import syphon
from tests.support.tools import ROOT, run, said

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+(\.\d+)*")


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_it_is_a_workflow(workflow: Path) -> None:
    checked = run("check-jsonschema", "--builtin-schema", "vendor.github-workflows", workflow)
    assert checked.returncode == 0, said(checked)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_by_its_commit_and_names_its_version(workflow: Path) -> None:
    used = re.findall(r"(?m)^\s*(?:- )?uses: (.+)$", workflow.read_text())
    assert used
    assert [each for each in used if not each.startswith("./") and not PINNED.fullmatch(each)] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_nothing_may_be_written_unless_a_job_says_so(workflow: Path) -> None:
    content = yaml.safe_load(workflow.read_text())
    assert "write" not in content["permissions"].values()


def test_a_release_needs_the_tests_and_has_notes() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    for publishes in ("pypi", "image"):
        assert "tests" in jobs[publishes]["needs"]
        assert jobs[publishes]["environment"]["name"]
    assert f"## [{syphon.__version__}] - " in (ROOT / "CHANGELOG.md").read_text()
