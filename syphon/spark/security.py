"""What keeps others out of Spark: the settings of a session that syphon starts (docs/security.md).

A session opens ports, also where everything runs on one machine: the block manager serves the broadcast blocks that
hold tasks, connection strings included, and the RPC port reads Java objects. So both ask for a secret, which Spark
makes for each session and keeps in memory.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PRIVATE = 0o077
"""The umask of Spark's JVM and of its Python workers: they write to disk what does not fit into memory."""
OLD_HANDSHAKE = "spark.network.crypto.saslFallback"
"""Whether Spark proves the secret by SASL where the other side does not encrypt. That is older, and weaker."""


def _is_old_spark() -> bool:
    """Whether this is Spark 3. A managed cluster may not say: its sessions exist already, and need no settings."""
    with suppress(PackageNotFoundError):
        return int(version("pyspark").partition(".")[0]) < 4
    return False


CIPHER = {} if _is_old_spark() else {"spark.network.crypto.cipher": "AES/GCM/NoPadding"}
"""Spark's own choice, CTR, lets a listener change what it hears. Spark 3.5 has no other: nothing could connect."""
NETWORK_SECURITY = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.authEngineVersion": "2",
    **CIPHER,
    OLD_HANDSHAKE: "false",
}
"""Between driver and executors: only processes of this session are answered, and all traffic is encrypted."""
DISK_SECURITY = {"spark.io.encryption.enabled": "true"}
"""On executors: what they write to their disks is encrypted."""
SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""For the environment of Python: it imports no modules from the working directory, where others may write."""
MASKED = r"(?i)secret|password|token|credential|connection[._-]?string|(?:access|account|shared)[._-]?key|[._-]sas[._-]"
"""Settings with such names are masked where Spark shows its settings: in event logs, its page and its own log.

Spark's own list does not have the key of a storage account, `fs.azure.account.key`.
"""
LONGEST_FOLDER = 60
"""Characters of a folder for Unix sockets. The names of sockets take 42 more, and macOS allows 104 together."""


def security_settings(master: str, is_local: bool, chosen: Mapping[str, str]) -> dict[str, str]:
    """The settings for a session on this master. `chosen` is what the operator has set.

    Spark makes the secret itself where it starts all processes: on this machine, on Kubernetes and on YARN. A
    standalone cluster has a secret of its own, which the operator must set on the cluster and here.
    """
    makes_secret = is_local or master.startswith(("k8s://", "yarn"))
    is_closed = chosen.get("spark.authenticate", str(makes_secret)).lower() == "true"
    settings = dict(NETWORK_SECURITY) if is_closed else {}
    if not makes_secret:
        settings.pop(OLD_HANDSHAKE, None)  # the cluster's master may know no other
    if not is_local:
        settings |= {f"spark.executorEnv.{name}": value for name, value in SAFE_PATH.items()}
        settings |= DISK_SECURITY if is_closed else {}
    return settings


def private_folders(folder: Path) -> dict[str, str]:
    """Settings for files on one machine, in a folder that only this user may enter.

    Hadoop would keep what it uploads in /tmp/hadoop-USER, which another user may have made before. The JVM and Python
    talk through files there. Otherwise they use ports: these ask for a secret, too, but Spark starts a process for
    each connection before that.
    """
    settings = {"spark.hadoop.hadoop.tmp.dir": f"{folder}/hadoop"}
    if len(os.fsencode(folder)) > LONGEST_FOLDER:
        return settings
    sockets = {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": str(folder)}
    return settings | sockets
