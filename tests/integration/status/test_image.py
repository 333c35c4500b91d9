"""The image, as far as it can be checked without an engine that builds it."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

import pytest

from syphon.spark import jvm_archive
from tests.support.chart import CASES, containers, manifests, pods
from tests.support.tools import ROOT, run, said

DOCKERFILE = ROOT / "Dockerfile"
ENTRYPOINT = ROOT / "docker" / "entrypoint.sh"
IN_EVERY_IMAGE = {PurePosixPath("/tmp")}
MAKER = f"python -m {jvm_archive.__name__} "
OPTIONS = """
import glob, os, re, pyspark, zipfile
(jar,) = glob.glob(os.path.join(os.path.dirname(pyspark.__file__), "jars", "spark-launcher_*.jar"))
code = zipfile.ZipFile(jar).read("org/apache/spark/launcher/JavaModuleOptions.class")
print(*(found.decode() for found in re.findall(rb"--[ -~]+", code)))
"""
"""Prints the options with which Spark starts every JVM."""


def stages() -> list[list[tuple[str, str]]]:
    """The instructions of each stage, with continued lines joined."""
    text = re.sub(r"(?m)^#.*\n", "", DOCKERFILE.read_text()).replace("\\\n", " ")
    found: list[list[tuple[str, str]]] = []
    for line in filter(None, text.splitlines()):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            found.append([])
        if found:  # arguments come before the first stage
            found[-1].append((word, rest))
    return found


def stage_named(name: str) -> int:
    return next(number for number, stage in enumerate(stages()) if stage[0][1].endswith(f" AS {name}"))


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
    (tmp_path / "Dockerfile").write_text(DOCKERFILE.read_text().replace("--no-install-recommends ", ""))
    linted = run("hadolint", tmp_path / "Dockerfile")
    assert linted.returncode != 0
    assert "DL3015" in said(linted)


def test_all_stages_stand_on_one_base_that_a_digest_can_pin_and_the_images_on_nothing() -> None:
    images = [stage_named("emulator"), len(stages()) - 1]
    for number, stage in enumerate(stages()):
        assert stage[0][1].split()[0] == ("scratch" if number in images else "${BASE}")
    (base,) = re.findall(r"(?m)^ARG BASE=(\S+)$", DOCKERFILE.read_text())
    assert re.fullmatch(r"python:\d+\.\d+-slim-\w+", base)


# --- the chart finds in it what it uses ------------------------------------------------------------------------------


def missing(paths: set[str]) -> set[str]:
    """The paths that the image's stages do not create. A file that is mounted by itself needs only its folder."""
    image = [stages()[stage_named("system")], stages()[-1]]
    text = " ".join(rest for stage in image for word, rest in stage if word in ("RUN", "COPY", "WORKDIR"))
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
    assert instructions("USER", stage_named("emulator")) == [user]
    for pod in pods(manifests("spark")):
        security = pod["spec"]["securityContext"]
        assert user == f"{security['runAsUser']}:{security['runAsGroup']}"
    assert f"--uid {user.split(':')[0]} " in " ".join(instructions("RUN", stage_named("system")))


# --- the steps of the build ------------------------------------------------------------------------------------------


def test_what_is_copied_is_not_ignored() -> None:
    """.dockerignore excludes everything but the paths that the Dockerfile copies."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    allowed = [line.removeprefix("!") for line in lines if line.startswith("!")]
    wanted = [path for stage in range(len(stages())) for path in copied(stage)]
    assert len(wanted) == 15
    patterns = [*allowed, *(f"{pattern}/*" for pattern in allowed)]
    assert [path for path in wanted if not any(fnmatch(path, pattern) for pattern in patterns)] == []
    assert all((ROOT / path).exists() for path in wanted)


def test_what_is_copied_is_enough_to_build_the_package(tmp_path: Path) -> None:
    for path in copied(0):
        subprocess.run(["cp", "-r", ROOT / path, tmp_path], check=True)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", "out", "."]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert built.returncode == 0, said(built)
    (wheel,) = (tmp_path / "out").glob("syphon_servicebus-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "syphon/cli/__init__.py" in names
    assert any(name.endswith("entry_points.txt") for name in names)


def test_nothing_is_installed_that_is_not_locked() -> None:
    """Each installation has hashes, or installs our own wheel without its dependencies."""
    script = (ROOT / "docker" / "install.sh").read_text()
    installs = re.findall(r"\$pip .*?(?:install|wheel) .*", script)
    assert len(installs) == 4
    assert all("--require-hashes" in line or "--no-deps" in line for line in installs)
    assert instructions("RUN", 0) == ["docker/install.sh . /opt/syphon && docker/slim.sh /opt/syphon ${SPARK_ON}"]
    lock = "docker/emulator/requirements.lock"
    assert instructions("RUN", stage_named("emulator-packages")) == [f"docker/install.sh . /opt/syphon {lock}"]
    assert (ROOT / lock).read_text().count("--hash=") > 100
    assert "pip" not in " ".join(rest for stage in stages() for _, rest in stage)


def test_the_build_makes_the_archive_of_sparks_classes_with_what_the_image_has() -> None:  # D11
    """As root, before the user changes: Java trusts an archive, so the user of the worker must not own it."""
    last = stages()[-1]
    (step,) = [number for number, (word, rest) in enumerate(last) if word == "RUN" and MAKER in rest]
    before = dict(last[:step])
    assert "USER" not in before
    for name in (jvm_archive.FOLDER, "JAVA_HOME", "SPARK_HOME"):
        assert f"{name}=" in before["ENV"], "the worker would look for another archive"
    assert "COPY" not in {word for word, _ in last[step:]}, "it would not be the archive of these jars"


def test_java_has_the_modules_that_sparks_own_options_name() -> None:
    options = subprocess.run(
        [sys.executable, "-c", OPTIONS], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    named = set(re.findall(r"--add-modules=([\w.]+)", options))
    assert named
    assert all(module in (ROOT / "docker" / "java.sh").read_text() for module in named)


def test_the_system_loses_pip_and_the_rights_of_others(tmp_path: Path) -> None:
    packages = tmp_path / "usr" / "local" / "lib" / "python3.12" / "site-packages"
    for name in ("pip", "pip-26.0.dist-info", "certifi"):
        (packages / name).mkdir(parents=True)
    (tmp_path / "usr" / "local" / "bin").mkdir()
    for name, mode in (("pip3", 0o755), ("mount", 0o4755), ("wall", 0o2755), ("sh", 0o755)):
        (tmp_path / "usr" / "local" / "bin" / name).touch()
        (tmp_path / "usr" / "local" / "bin" / name).chmod(mode)
    (tmp_path / "var" / "lib" / "dpkg").mkdir(parents=True)
    (tmp_path / "var" / "lib" / "dpkg" / "status").touch()
    stripped = run("sh", ROOT / "docker" / "strip-system.sh", tmp_path)
    assert stripped.returncode == 0, said(stripped)
    assert [path.name for path in packages.iterdir()] == ["certifi"]
    left = {path.name: path.stat().st_mode & 0o7777 for path in (tmp_path / "usr" / "local" / "bin").iterdir()}
    assert left == {"mount": 0o755, "wall": 0o755, "sh": 0o755}
    assert (tmp_path / "var" / "lib" / "dpkg" / "status").exists()


# --- the entrypoint --------------------------------------------------------------------------------------------------


def test_the_entrypoint_starts_syphon_with_its_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "syphon").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m syphon "$@"\n')
    (tmp_path / "syphon").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    started = run("sh", ENTRYPOINT, "check", "-c", "no such file.yaml")
    assert started.returncode == 78, said(started)
    assert "no such file.yaml" in started.stderr


def test_an_empty_option_of_java_does_not_end_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    (tmp_path / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("SPARK_HOME", "/opt/syphon/spark")
    for name in re.findall(r'"\$(SPARK_[A-Z_]+)"', ENTRYPOINT.read_text()):
        monkeypatch.setenv(name, "1")
    for number, option in enumerate(["-Da=1", "", "-Db=two words", "none", ""]):
        monkeypatch.setenv(f"SPARK_JAVA_OPT_{number}", option)
    started = run("sh", ENTRYPOINT, "executor")
    assert started.returncode == 0, said(started)
    assert started.stdout.splitlines()[:4] == ["-Da=1", "-Db=two words", "none", "-Xms1"]
