"""Every link of a document to a file, and to a heading in it, leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.tools import ROOT

SKIPPED = {".venv", ".venv-spark35", ".tools", ".clients", "node_modules", "build", "dist"}
PAGES = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not SKIPPED & set(path.relative_to(ROOT).parts) and not path.relative_to(ROOT).parts[0].startswith(".")
)
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of the headings of a page."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"(?m)^#{1,6} (.+)$", text)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page: Path, text: str) -> list[str]:
    problems = []
    for file, anchor in LINK.findall(re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)):
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            problems.append(f"{file}#{anchor}" if anchor else file)
    return problems


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert broken(page, page.read_text()) == []


def test_a_link_that_leads_nowhere_is_found() -> None:
    readme = ROOT / "README.md"
    assert broken(readme, "[a](docs/design.md#words-we-keep) [b](docs/no.md) [c](docs/design.md#no) [d](#no)") == [
        "docs/no.md",
        "docs/design.md#no",
        "#no",
    ]
