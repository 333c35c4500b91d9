"""The cores and the memory of a container decide how many slots run at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from syphon.spark.container_limits import Container, this_container

GIB = 1024**3


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path, "proc/meminfo", "MemTotal:       67108864 kB\nMemFree:  1 kB\n")
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def found(root: Path, cores: int = 64) -> Container:
    return this_container({"SYPHON_SYSTEM_ROOT": str(root), "PYTHON_CPU_COUNT": str(cores)})


def test_without_limits_it_is_the_machine(root: Path) -> None:  # X8
    write(root, "proc/self/cgroup", "0::/\n")
    write(root, "sys/fs/cgroup/memory.max", "max\n")
    write(root, "sys/fs/cgroup/cpu.max", "max 100000\n")
    assert found(root) == Container(64, 64 * GIB)


def test_a_container_with_a_control_group_of_version_2(root: Path) -> None:  # X8
    write(root, "proc/self/cgroup", "0::/\n")
    write(root, "sys/fs/cgroup/memory.max", f"{2 * GIB}\n")
    write(root, "sys/fs/cgroup/cpu.max", "150000 100000\n")
    assert found(root) == Container(2, 2 * GIB)


def test_a_container_with_control_groups_of_version_1(root: Path) -> None:  # X8
    write(root, "proc/self/cgroup", "5:memory:/docker/a1\n3:cpu,cpuacct:/docker/a1\n1:name=systemd:/docker/a1\n")
    # inside the container, its own group is what it sees as the root
    write(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", f"{GIB}\n")
    write(root, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "400000\n")
    write(root, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
    assert found(root) == Container(4, GIB)


def test_a_group_of_version_1_without_limits(root: Path) -> None:
    write(root, "proc/self/cgroup", "5:memory:/\n3:cpu,cpuacct:/\n")
    write(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    write(root, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n")
    write(root, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
    assert found(root) == Container(64, 64 * GIB)


def test_the_tightest_limit_on_the_way_to_the_root_counts(root: Path) -> None:
    write(root, "proc/self/cgroup", "0::/system.slice/syphon.service\n")
    write(root, "sys/fs/cgroup/system.slice/syphon.service/memory.max", "max\n")
    write(root, "sys/fs/cgroup/system.slice/memory.max", f"{3 * GIB}\n")
    write(root, "sys/fs/cgroup/system.slice/cpu.max", "max 100000\n")
    write(root, "sys/fs/cgroup/system.slice/syphon.service/cpu.max", "300000 100000\n")
    assert found(root) == Container(3, 3 * GIB)


def test_a_system_without_limits_has_all_cores(tmp_path: Path) -> None:
    container = this_container({"SYPHON_SYSTEM_ROOT": str(tmp_path)})
    assert container.cores >= 1
    assert container.memory > 0


@pytest.mark.parametrize(
    ("container", "slots"),
    [
        (Container(1, 64 * GIB), 2),  # one for the queue that is full, one for what rings meanwhile
        (Container(4, 64 * GIB), 4),
        (Container(64, 64 * GIB), 64),
        (Container(64, 2 * GIB), 10),
        (Container(64, GIB), 3),
        (Container(64, GIB // 2), 2),
    ],
)
def test_cores_and_memory_decide_how_many_slots_run_at_once(container: Container, slots: int) -> None:  # X8
    assert container.slots == slots
