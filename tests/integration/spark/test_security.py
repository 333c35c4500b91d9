"""What another user of the machine can do to a Spark session of ours: nothing (docs/security.md)."""

from __future__ import annotations

import os
import re
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from syphon.spark.classic import jvm_of
from syphon.spark.security import (
    DISK_SECURITY,
    MASKED,
    NETWORK_SECURITY,
    OLD_HANDSHAKE,
    private_folders,
    security_settings,
)
from tests.support.local_ports import listening_ports
from tests.support.processes import command_line, descendants_of
from tests.support.spark_attack import CHUNK, call_rpc, fetch_block
from tests.support.waiting import eventually

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

KEY = "the-key-of-the-owner"
JAVA_OBJECT = b"\x01\x00\x01a\x00\x00\x00\x01\x00\x01b" + b"\xac\xed\x00\x05" + b"sr\x00\x11java.lang.Integer"


@pytest.fixture
def working(spark: SparkSession, tmp_path: Path) -> Iterator[SparkSession]:
    """A session with a task at work, whose function holds a key, as the tasks of a drain do."""
    begun, over = tmp_path / "begun", tmp_path / "over"

    def work(batches: Iterator[pa.RecordBatch], key: str = KEY) -> Iterator[pa.RecordBatch]:
        begun.write_text(str(len(key)))
        eventually(over.exists)
        yield from batches

    job = threading.Thread(target=lambda: spark.range(0, 1, 1, 1).mapInArrow(work, "id long").collect())
    job.start()
    try:
        eventually(begun.exists)
        yield spark
    finally:
        over.touch()
        job.join()


def jvm(spark: SparkSession) -> int:
    process = jvm_of(spark)
    assert process is not None
    return process.pid


def python_of(spark: SparkSession) -> list[int]:
    """Spark's Python daemon, and the workers it has forked."""
    return [pid for pid in descendants_of(jvm(spark)) if "syphon.spark.daemon" in command_line(pid)]


def gateway(spark: SparkSession) -> int:
    """The port through which Python calls the JVM."""
    return int(parameters(spark).port)


def parameters(spark: SparkSession) -> Any:
    """How Python reaches the JVM: a port and a token."""
    found = spark.sparkContext._gateway
    assert found is not None
    return found.java_parameters


def test_no_port_hands_out_the_block_of_a_task(working: SparkSession) -> None:  # T1
    ports = listening_ports(jvm(working)) - {gateway(working)}
    assert len(ports) == 2, "the block manager, and the RPC port"
    answers = [fetch_block(port, f"broadcast_{number}_piece0") for port in ports for number in range(100)]
    assert not [answer for answer in answers if answer.kind == CHUNK]
    assert all("Unknown challenge message." in answer.text for answer in answers)


def test_no_port_reads_a_java_object_of_a_stranger(working: SparkSession) -> None:  # T1
    for port in listening_ports(jvm(working)) - {gateway(working)}:
        assert "Unknown challenge message." in call_rpc(port, JAVA_OBJECT).text


def test_the_gateway_obeys_only_calls_with_its_token(working: SparkSession) -> None:  # T2
    assert not made_object(gateway(working), b"")
    token = parameters(working).auth_token
    assert made_object(gateway(working), f"A\n{token}\n".encode()), "the attack works for one who has the token"


def made_object(port: int, before: bytes) -> bool:
    """Whether the gateway makes a Java object for a bare socket that sends this first."""
    said = b""
    with socket.create_connection(("127.0.0.1", port), 30) as stranger, suppress(ConnectionError):
        stranger.sendall(before + b"i\njava.lang.Object\ne\n")
        while b"!yro" not in said and (more := stranger.recv(1000)):
            said += more
    return b"!yro" in said


@pytest.mark.spark4  # an older Spark has ports here, which ask for a secret
def test_python_and_the_jvm_talk_through_files_that_others_cannot_open(working: SparkSession) -> None:  # T3
    running = python_of(working)
    assert len(running) >= 2, "the daemon, and the worker it has forked"
    assert [listening_ports(pid) for pid in running] == [set()] * len(running)
    settings = working.sparkContext.getConf()
    folder = Path(str(settings.get("spark.python.unix.domain.socket.dir")))
    assert {stat.S_IMODE(folder.stat().st_mode), folder.stat().st_uid} == {0o700, os.geteuid()}
    assert Path(str(working.sparkContext._accumulatorServer.server_address)).parent == folder
    assert any(stat.S_ISSOCK(file.stat().st_mode) for file in folder.iterdir())


def test_what_spark_writes_to_disk_is_private(working: SparkSession) -> None:  # T7
    for pid in (jvm(working), *python_of(working)):
        status = Path(f"/proc/{pid}/status").read_text()
        assert "Umask:\t0077" in status, status.splitlines()[0]


def test_hadoop_keeps_its_files_where_no_other_user_can_be_first(spark: SparkSession) -> None:  # T7
    place = Path(spark.sparkContext._jsc.hadoopConfiguration().get("hadoop.tmp.dir"))
    folder = place.parent
    assert {stat.S_IMODE(folder.stat().st_mode), folder.stat().st_uid} == {0o700, os.geteuid()}


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("spark.hadoop.fs.azure.account.key.contoso.dfs.core.windows.net", True),
        ("spark.hadoop.fs.azure.sas.ledger.contoso.blob.core.windows.net", True),
        ("spark.hadoop.fs.s3a.secret.key", True),
        ("spark.hadoop.fs.s3a.access.key", True),
        ("spark.authenticate.secret", True),
        ("spark.ssl.keyStorePassword", True),
        ("spark.executorEnv.SOME_TOKEN", True),
        ("connection_string", True),
        ("spark.master", False),
        ("spark.sql.execution.arrow.maxRecordsPerBatch", False),
    ],
)
def test_spark_knows_secrets_by_the_names_of_settings(name: str, is_secret: bool) -> None:  # T11
    assert bool(re.search(MASKED, name)) is is_secret


@pytest.mark.parametrize(("master", "is_local"), [("local[2,4]", True), ("k8s://https://host", False), ("yarn", False)])
def test_where_spark_makes_the_secret_the_network_is_closed_and_encrypted(master: str, is_local: bool) -> None:  # T9
    assert security_settings(master, is_local, {}).items() >= NETWORK_SECURITY.items()


def test_a_standalone_cluster_is_encrypted_once_the_operator_has_set_its_secret() -> None:  # T9
    safe_path = {"spark.executorEnv.PYTHONSAFEPATH": "1"}
    assert security_settings("spark://host:7077", False, {}) == safe_path
    chosen = {"spark.authenticate": "true", "spark.authenticate.secret": "s"}
    encrypted = security_settings("spark://host:7077", False, chosen)
    assert encrypted.pop(OLD_HANDSHAKE, None) is None, "the cluster's master may know no other"
    assert {**encrypted, OLD_HANDSHAKE: "false"} == NETWORK_SECURITY | DISK_SECURITY | safe_path


def test_an_operator_can_turn_it_off() -> None:
    # Spark refuses to start with encryption and without authentication: both go together.
    assert security_settings("local[2]", True, {"spark.authenticate": "false"}) == {}


@pytest.mark.spark4  # an older Spark has another cipher
def test_the_documents_name_the_settings_of_a_cluster() -> None:  # T9
    text = (Path(__file__).parents[3] / "docs/clusters.md").read_text()
    section = text.partition("## Authentication and encryption")[2].partition("\n## ")[0]
    named = yaml.safe_load(section.partition("```yaml")[2].partition("```")[0])
    assert named == security_settings("k8s://https://host", False, {})


def test_a_folder_with_a_long_path_is_not_used_for_sockets() -> None:
    def names(folder: str) -> set[str]:
        return set(private_folders(Path(folder)))

    sockets = {"spark.python.unix.domain.socket.enabled", "spark.python.unix.domain.socket.dir"}
    assert names("/tmp/syphon-12345678") > sockets
    assert not names("/" + "f" * 80) & sockets
