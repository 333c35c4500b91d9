"""What the image leaves out is not missed: a drain, an inspection with SQL and a report, on an environment that
docker/slim.sh has been over."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support.processes import Running, aliased, emulated_pair
from tests.support.tools import ROOT

GONE = ("rocksdbjni", "breeze", "spark-mllib", "hive-exec", "spark-connect", "scala-compiler")
"""The heaviest jars that nothing of ours loads."""
QUERY = "select destination, count(*) as n, max(enqueued_at) from backlog group by all order by n desc limit 5"


@pytest.fixture(scope="module")
def slim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment like this one, without what the image leaves out. Its files are links: nothing is copied."""
    target = tmp_path_factory.mktemp("image") / "syphon"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", target], check=True)
    (packages,) = target.glob("lib/python3*/site-packages")
    shutil.copytree(sysconfig.get_path("purelib"), packages, copy_function=linked, dirs_exist_ok=True)
    slimmed = subprocess.run([ROOT / "docker" / "slim.sh", target], capture_output=True, text=True, check=False)
    assert slimmed.returncode == 0, slimmed.stderr
    return target


def linked(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def jars(environment: Path) -> dict[str, int]:
    return {jar.name: jar.stat().st_size for jar in environment.glob("lib/python3*/site-packages/pyspark/jars/*.jar")}


def test_the_heaviest_jars_are_removed_and_the_originals_still_exist(slim: Path) -> None:
    before, after = jars(Path(sys.prefix)), jars(slim)
    for name in GONE:
        assert any(jar.startswith(name) for jar in before)
        assert not any(jar.startswith(name) for jar in after)
    assert sum(before.values()) - sum(after.values()) > 150e6


def test_the_client_of_kubernetes_stays_if_it_is_wanted(tmp_path: Path) -> None:
    folder = tmp_path / "lib" / "python3.12" / "site-packages"
    for name in ("pyspark/jars", "pyarrow"):
        (folder / name).mkdir(parents=True)
    for wanted, left in ((["kubernetes"], True), ([], False)):
        jar = folder / "pyspark" / "jars" / "spark-kubernetes_2.13-4.3.0.jar"
        jar.touch()
        subprocess.run([ROOT / "docker" / "slim.sh", tmp_path, *wanted], check=True)
        assert jar.exists() is left


@pytest.mark.timeout(400)  # three starts of Spark, on a machine that may be busy
def test_nothing_that_a_drain_an_inspection_or_a_report_needs_is_missing(slim: Path, tmp_path: Path) -> None:
    with emulated_pair(tmp_path) as pair:
        pair.put([aliased(number, "orders") for number in range(20)])
        config = str(pair.config())

        def syphon(*arguments: str) -> tuple[int, str]:
            running = Running([*arguments], tmp_path, {"PYTHONPATH": ""}, executable=slim / "bin" / "python")
            pair.running.append(running)
            code, out = running.end()
            return code, out + running.said

        code, said = syphon("inspect", "-c", config, "--json", "--sql", QUERY)
        assert code == 0, said
        assert '"n":20' in said
        code, said = syphon("drain", "-c", config, "--yes", "--json")
        assert code == 0, said
        assert len(pair.arrived("orders")) == 20
        code, said = syphon("report", "-c", config, "--from", "6h", "--html", str(tmp_path / "report.html"))
        assert code == 0, said
        assert (tmp_path / "report.html").stat().st_size > 1000
