"""The table of all scenarios, and the few that run with every change."""

from __future__ import annotations

from types import ModuleType

from tests.faults import on_spark, on_the_pump, over_websockets
from tests.faults.on_spark import (
    EndedBeforeCompletion,
    JvmFrozenUnderWorker,
    StoppedMidBatch,
)
from tests.faults.on_the_pump import (
    BadAliases,
    BatchRefused,
    CredentialsRotated,
    EndedManyTimes,
    EveryType,
    LockLostBeforeCompletion,
    PrimaryOut,
    ResetDuringSend,
    WrongClock,
)
from tests.faults.scenario import Ending, Scenario


def _kinds(module: ModuleType) -> list[type[Scenario]]:
    """The scenarios of a module. Classes without a title are base classes."""
    found = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, Scenario)]
    return [kind for kind in found if kind.__module__ == module.__name__ and hasattr(kind, "title")]


ALL = sorted(_kinds(on_the_pump) + _kinds(on_spark) + _kinds(over_websockets), key=lambda kind: kind.name())

WITH_EVERY_CHANGE: set[tuple[type[Scenario], Ending]] = {
    (EndedBeforeCompletion, Ending.UNCLEAN),
    (EndedManyTimes, Ending.UNCLEAN),
    (StoppedMidBatch, Ending.CLEAN),
    (LockLostBeforeCompletion, Ending.CLEAN),
    (ResetDuringSend, Ending.UNCLEAN),
    (BadAliases, Ending.UNCLEAN),
    (EveryType, Ending.CLEAN),
    (BatchRefused, Ending.CLEAN),
    (CredentialsRotated, Ending.UNCLEAN),
    (WrongClock, Ending.CLEAN),
    (PrimaryOut, Ending.UNCLEAN),
    (over_websockets.ResetDuringSend, Ending.CLEAN),
    (JvmFrozenUnderWorker, Ending.CLEAN),
}
