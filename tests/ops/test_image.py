"""The image, as far as it can be checked without an engine that builds it."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

import pytest

from tests.support.chart import CASES, containers, manifests, pods
from tests.support.tools import ROOT, run, said

DOCKERFILE = ROOT / "Dockerfile"
ENTRYPOINT = ROOT / "docker" / "entrypoint.sh"
IN_EVERY_IMAGE = {PurePosixPath("/tmp")}


def stages() -> list[list[tuple[str, str]]]:
    """The instructions of each stage, with continued lines joined."""
    text = re.sub(r"(?m)^#.*\n", "", DOCKERFILE.read_text()).replace("\\\n", " ")
    found: list[list[tuple[str, str]]] = []
    for line in filter(None, text.splitlines()):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            found.append([])
        found[-1].append((word, rest))
    return found


def instructions(word: str, stage: int = -1) -> list[str]:
    return [rest for instruction, rest in stages()[stage] if instruction == word]


def copied(stage: int) -> list[str]:
    """The paths that a stage copies from the build folder."""
    lines = [line.split() for line in instructions("COPY", stage) if "--from" not in line]
    return [word.removeprefix("./") for words in lines for word in words[:-1] if not word.startswith("--")]


def test_the_linter_finds_nothing() -> None:
    linted = run("hadolint", DOCKERFILE)
    assert linted.returncode == 0, said(linted)


def test_the_linter_finds_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(re.sub(r"python:\S+", "python", DOCKERFILE.read_text()))
    linted = run("hadolint", tmp_path / "Dockerfile")
    assert linted.returncode != 0
    assert "DL3006" in said(linted)


def test_both_stages_stand_on_the_same_python() -> None:
    (build, final) = (stage[0][1].split()[0] for stage in stages())
    assert build == final


# --- the chart finds in it what it uses ------------------------------------------------------------------------------


def missing(paths: set[str]) -> set[str]:
    """The paths that the last stage does not create. A file that is mounted by itself needs only its folder."""
    text = " ".join(rest for word, rest in stages()[-1] if word in ("RUN", "COPY", "WORKDIR"))
    made = {PurePosixPath(path) for path in re.findall(r"(?<![\w/])/[\w./-]+", text)} | IN_EVERY_IMAGE
    made |= {parent for path in made for parent in path.parents}
    needed = {path: PurePosixPath(path).parent if PurePosixPath(path).suffix else PurePosixPath(path) for path in paths}
    return {path for path, place in needed.items() if place not in made}


def used(case: str) -> set[str]:
    """Every path in a pod: where something is mounted, started or read, in arguments and in environment variables."""
    paths = set()
    for pod in pods(manifests(case)):
        for container in containers(pod):
            words = [*container.get("args", []), *(env.get("value", "") for env in container.get("env", []))]
            words += [word for line in container.get("command", []) for word in line.split()]
            words += [mount["mountPath"] for mount in container.get("volumeMounts", [])]
            paths |= {word for word in [*words, container.get("workingDir", "")] if word.startswith("/")}
    return paths


@pytest.mark.parametrize("case", CASES)
def test_every_path_the_chart_uses_is_in_the_image(case: str) -> None:
    assert used(case) >= {"/etc/syphon/config.yaml", "/var/lib/syphon", "/tmp"}
    assert missing(used(case)) == set()


def test_a_path_that_is_missing_in_the_image_is_found() -> None:
    wrong = {"/etc/siphon", "/etc/siphon/config.yaml"}
    assert missing({"/etc/syphon", "/etc/syphon/config.yaml"} | wrong) == wrong


def test_the_charts_user_is_the_images() -> None:
    (user,) = instructions("USER")
    for pod in pods(manifests("spark")):
        security = pod["spec"]["securityContext"]
        assert user == f"{security['runAsUser']}:{security['runAsGroup']}"
    assert f"--uid {user.split(':')[0]} " in " ".join(instructions("RUN"))


# --- the steps of the build ------------------------------------------------------------------------------------------


def test_what_is_copied_is_not_ignored() -> None:
    """.dockerignore excludes everything but the paths that the Dockerfile copies."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    allowed = [line.removeprefix("!") for line in lines if line.startswith("!")]
    wanted = copied(0) + copied(1)
    assert len(wanted) == 5
    assert [path for path in wanted if not any(fnmatch(path, pattern) for pattern in allowed)] == []
    assert all((ROOT / path).exists() for path in wanted)


def test_what_is_copied_is_enough_to_build_the_package(tmp_path: Path) -> None:
    for path in copied(0):
        subprocess.run(["cp", "-r", ROOT / path, tmp_path], check=True)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", "out", "."]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert built.returncode == 0, said(built)
    (wheel,) = (tmp_path / "out").glob("syphon-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "syphon/cli/__init__.py" in names
    assert any(name.endswith("entry_points.txt") for name in names)


def test_sparks_folder_is_found_as_the_build_looks_for_it() -> None:
    (build,) = instructions("RUN", 0)
    (question,) = re.findall(r"bin/python -c '([^']+)'", build)
    found = subprocess.run([sys.executable, "-c", question], capture_output=True, text=True, check=True).stdout.strip()
    assert (Path(found) / "bin" / "spark-submit").exists()
    assert list((Path(found) / "jars").glob("spark-kubernetes_*.jar"))


# --- the entrypoint --------------------------------------------------------------------------------------------------


def test_the_entrypoint_starts_syphon_with_its_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "syphon").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m syphon "$@"\n')
    (tmp_path / "syphon").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    started = run("sh", ENTRYPOINT, "check", "-c", "no such file.yaml")
    assert started.returncode == 78, said(started)
    assert "no such file.yaml" in started.stderr
