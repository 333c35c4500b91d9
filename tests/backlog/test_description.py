"""The documented description of a backlog queue (P2), and what differs from it (P3)."""

from __future__ import annotations

import dataclasses

from syphon.backlog import DOCUMENTED


def test_the_documented_description_is_the_articles() -> None:  # P2
    assert DOCUMENTED.written() == {
        "max_size_in_megabytes": "5120",
        "max_delivery_count": "2147483647",
        "default_message_time_to_live": "P10675199DT2H48M5.4775807S",
        "auto_delete_on_idle": "P10675199DT2H48M5.4775807S",
        "lock_duration": "PT1M",
        "dead_lettering_on_message_expiration": "true",
        "enable_batched_operations": "true",
    }


def test_a_queue_as_documented_differs_in_nothing() -> None:  # P3
    assert DOCUMENTED.differences(dataclasses.replace(DOCUMENTED)) == []


def test_each_difference_is_told_by_its_property() -> None:  # P3
    found = dataclasses.replace(
        DOCUMENTED, max_delivery_count=10, lock_duration=30_000, dead_lettering_on_message_expiration=False
    )
    assert [str(difference) for difference in DOCUMENTED.differences(found)] == [
        "max_delivery_count is 10, documented is 2147483647",
        "lock_duration is PT30S, documented is PT1M",
        "dead_lettering_on_message_expiration is false, documented is true",
    ]
