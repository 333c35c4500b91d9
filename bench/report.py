"""The results of a run, as bench.json contains them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.costs import Cost
from bench.stage import Measured
from bench.targets import Target, targets


@dataclass(frozen=True)
class Report:
    machine: dict[str, object]
    results: dict[tuple[str, str], Measured]
    """By workload and loop."""
    costs: list[Cost]
    profile: dict[str, float]
    """Microseconds per message, by module of the pump."""
    absent: Mapping[str, str]
    """Loops that could not run here, and why."""

    def targets(self) -> list[Target]:
        return list(targets(self.results))

    def write(self, file: Path) -> None:
        found = {
            "machine": self.machine,
            "results": [asdict(result) for result in self.results.values()],
            "targets": [asdict(target) | {"is_met": target.is_met} for target in self.targets()],
            "costs": [asdict(cost) for cost in self.costs],
            "profile": self.profile,
            "absent": self.absent,
        }
        file.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")

    @classmethod
    def read(cls, file: Path) -> Report:
        found = json.loads(file.read_text())
        results = [Measured(**result) for result in found["results"]]
        by_name = {(result.workload, result.loop): result for result in results}
        costs = [Cost(**cost) for cost in found["costs"]]
        return cls(found["machine"], by_name, costs, found["profile"], found["absent"])
