"""What must be shorter than what in the time budget (D25). A unit test asserts it; as a module it prints the table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from syphon import time_budget
from syphon.config import PipelineSettings
from syphon.control import FAULTED, STOPPED
from syphon.control.shutdown_budget import LEAVE_AFTER, Step
from syphon.ledger.report_query import HEARD
from syphon.sender.embedded import OPTIONS
from syphon.transfer import PumpOptions
from tests.support.tools import ROOT


def stop_timeout_of(unit: str) -> float:
    found = re.search(r"^TimeoutStopSec=(\d+)s$", (ROOT / "systemd" / unit).read_text(), re.MULTILINE)
    assert found is not None
    return float(found[1])


def grace_period_of_pods() -> float:
    values = (ROOT / "helm" / "syphon" / "values.yaml").read_text()
    found = re.search(r"^terminationGracePeriodSeconds: (\d+)$", values, re.MULTILINE)
    assert found is not None
    return float(found[1])


NAMES: dict[str, Any] = {
    **{name: value for name, value in vars(time_budget).items() if name.isupper()},
    "grace of a pump": PumpOptions().grace,
    "grace of the embedded syphon": OPTIONS.grace,
    "default lease": PipelineSettings().lease / 1000,
    "slots' share of a stop": STOPPED.slots,
    "ledger's share of a stop": STOPPED.ledger,
    "a stop": STOPPED.until_end_of(Step.SPARK) + LEAVE_AFTER,
    "an ending after a fault": FAULTED.until_end_of(Step.SPARK) + LEAVE_AFTER,
    "promise after SIGTERM": 25.0,
    "promise after a fault": 8.0,
    "TimeoutStopSec of systemd": min(map(stop_timeout_of, ("syphon@.service", "syphon-drain@.service"))),
    "terminationGracePeriodSeconds": grace_period_of_pods(),
    "silence after which a report calls a job dead": HEARD.total_seconds(),
    "end of an outage is noticed": 5.0,
}


class Relation(NamedTuple):
    """Durations, each at most as long as the next, and why."""

    chain: tuple[str, ...]
    why: str

    def values(self) -> Iterator[float]:
        """In seconds. A link may be a sum, a product or a quotient of names and numbers."""
        for link in self.chain:
            terms = [self._product(term) for term in link.split(" + ")]
            yield sum(terms)

    @staticmethod
    def _product(term: str) -> float:
        name, divided, by = term.partition(" / ")
        times, _, rest = name.partition(" × ")
        value: float = float(times) * NAMES[rest] if rest else NAMES[name]
        return value / float(by) if divided else value

    def __str__(self) -> str:
        links = zip(self.chain, self.values(), strict=True)
        return " ≤ ".join(f"{link} ({value:g})" for link, value in links)


RELATIONS = (
    Relation(("SETTLED_WITHIN", "LOCK_DURATION / 3"), "A settlement can be repeated under the lock"),
    Relation(("SHORTEST_LOCK", "LOCK_DURATION", "LONGEST_LOCK"), "A queue has one of these locks"),
    Relation(("PUMP_TICK", "SHORTEST_LOCK / 10"), "A lock is renewed before a tenth of it is left"),
    Relation(("PUMP_TURN", "PAUSED_BY_OS_AFTER", "SHORTEST_LOCK / 2"), "A pause of the process is seen in time"),
    Relation(("SEND_ANSWER_WITHIN", "LATEST_ANSWER"), "A silent destination closes its link, not the connection"),
    Relation(("LISTENER_TICK", "IDLE_TIMEOUT / 4"), "Heartbeats leave before the peer counts the connection as broken"),
    Relation(("DOORBELL_CHECK_EVERY", "LONG_POLL / 10"), "A deaf doorbell is found early in its poll"),
    Relation(("NOTICING_DELAY + HANDSHAKE_WITHIN", "end of an outage is noticed"), "The promise of D16"),
    Relation(("OPEN_WITHIN", "FIRST_OPENING_WITHIN", "GIVE_UP_OPENING_AFTER"), "A first opening ends by its own limit"),
    Relation(
        ("SEND_ANSWER_WITHIN", "LONGEST_DESTINATION_DELAY", "SEEN_FOR"), "A waiting message counts until its retry"
    ),
    Relation(
        ("REPORT_EVERY", "LONGEST_HOLD", "REPORT_ANSWER_WITHIN", "DRIVER_SILENCE", "SLOT_SHARES_FOR"),
        "A held answer is not silence, and a silent slot stops before its share of the rate is given away",
    ),
    Relation(
        ("grace of a pump + DRIVER_SILENCE", "JOB_SETTLES_WITHIN"), "A stopped slot finishes, or is known to be dead"
    ),
    Relation(("DRIVER_SILENCE", "RETRY_REACHES_SLOTS"), "A slot that has not heard of a retry by then has stopped"),
    Relation(("DRIVER_SILENCE", "default lease / 3"), "A slot without a driver ends long before its lease"),
    Relation(("DRAIN_QUIET", "LINGER", "SHORT_LEASE", "default lease"), "A slot ends idle or makes room in its lease"),
    Relation(("SPARK_CHECK_EVERY", "JVM_IS_GONE_WITHIN"), "A lost JVM is told from a failed job"),
    Relation(("JOB_SETTLES_WITHIN", "LOST_JOBS_END_WITHIN / 3"), "The jobs of a lost Spark are on record in time"),
    Relation(("LISTENER_TICK", "HUNG_AFTER / 3"), "No healthy loop counts as hung"),
    Relation(
        ("3 × LEDGER_KEEP_ALIVE_EVERY", "silence after which a report calls a job dead"), "A job that waits is open"
    ),
    Relation(("MERGE_NEEDS", "ledger's share of a stop"), "The last merge fits into a stop"),
    Relation(
        ("grace of a pump", "slots' share of a stop", "a stop", "promise after SIGTERM", "TimeoutStopSec of systemd"),
        "A service manager never has to kill",
    ),
    Relation(("UNATTENDED_LEASE", "slots' share of a stop"), "A drain that is stopped hears of a slot without orders"),
    Relation(("promise after SIGTERM", "terminationGracePeriodSeconds"), "Kubernetes never has to kill"),
    Relation(
        ("OTHER_SIDE_ENDS_WITHIN", "an ending after a fault", "promise after a fault"),
        "Both sides end together (C1), and then the command",
    ),
    Relation(("REPLAY_RELEASE_WITHIN", "REPLAY_ENDS_WITHIN"), "The end of a worker waits for its replay's releases"),
    Relation(("grace of the embedded syphon", "CLOSE_WITHIN"), "Closing a client ends its syphon in order"),
    Relation(
        ("REQUEST_WITHIN", "LIST_READS_FOR", "LIST_WITHIN", "CONNECTION_LIFE"),
        "A list of dead letters is answered while its connection lives",
    ),
    Relation(("LIST_WITHIN", "STATUS_ANSWER_WITHIN"), "A command waits for the slowest answer of the status server"),
    Relation(("CHECK_ANSWER_WITHIN", "CHECK_PATIENCE"), "One silent link does not use up the time of all"),
)


if __name__ == "__main__":
    for relation in RELATIONS:
        print(f"{relation}\n    {relation.why}")
