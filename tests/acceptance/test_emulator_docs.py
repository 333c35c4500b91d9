"""docs/emulator.md shows the emulator's settings; what it shows is true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from syphon.emulator.settings import EmulatorSettings, load_settings
from syphon.yaml_settings import SettingsError

WHOLE = (Path(__file__).parents[2] / "docs" / "emulator.md").read_text()
PAGE = WHOLE.partition("\n## Settings\n")[2]
EXAMPLE = Path(__file__).parents[2] / "examples" / "emulator.yaml"


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def keys(model: type[BaseModel]) -> set[str]:
    """All keys a settings model knows, at any depth."""

    def models(annotation: Any) -> list[type[BaseModel]]:
        inner = [model for argument in get_args(annotation) for model in models(argument)]
        return [annotation, *inner] if isinstance(annotation, type) and issubclass(annotation, BaseModel) else inner

    below = [keys(found) for field in model.model_fields.values() for found in models(field.annotation)]
    return set(model.model_fields).union(*below)


def test_the_yaml_on_the_page_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "emulator.yaml"
    file.write_text(block("yaml"))
    assert [namespace.name for namespace in load_settings(file).namespaces] == ["contoso"]


def test_the_example_is_taken() -> None:
    assert [namespace.name for namespace in load_settings(EXAMPLE).namespaces] == ["contoso", "fabrikam"]


def test_the_example_shows_every_key_there_is() -> None:
    shown = set(re.findall(r"(\w+):(?: |$)", EXAMPLE.read_text(), re.MULTILINE))
    assert keys(EmulatorSettings) - shown == set()


def test_the_mistakes_on_the_page_are_reported_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("emulator.yaml").write_text(
        "namespaces:\n  - name: a\n    queus: []\n    queues:\n      - {name: q, lock_duration: 1h}\n"
    )
    with pytest.raises(SettingsError) as caught:
        load_settings(Path("emulator.yaml"))
    assert str(caught.value) + "\n" == block("text")


def test_the_fixture_on_the_page_works_in_a_project_that_knows_nothing_of_syphon(tmp_path: Path) -> None:
    files = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", WHOLE, re.DOTALL))
    assert set(files) == {"test_orders.py"}
    for name, code in files.items():
        (tmp_path / name).write_text(code)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
