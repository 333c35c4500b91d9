"""The Spark session: how many tasks a master runs at once."""

from __future__ import annotations

import pytest

from syphon.spark.session import cores_of


@pytest.mark.parametrize(("master", "cores"), [("local", 1), ("local[3]", 3), ("local[2,4]", 2), ("local[5, 1]", 5)])
def test_a_local_master_says_how_many_tasks_it_runs(master: str, cores: int) -> None:
    assert cores_of(master) == cores


@pytest.mark.parametrize("master", ["spark://host:7077", "k8s://https://host", "yarn", "local-cluster[2,1,1024]"])
def test_a_cluster_knows_by_itself(master: str) -> None:
    assert cores_of(master) is None
