"""Scenarios of whole processes: `syphon run` and `syphon drain` on Spark, as an operator starts them."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from syphon.model import ExitCode
from tests.faults.checker import Verdict
from tests.faults.environment import PRIMARY, QUEUE, SECONDARY
from tests.faults.messages import Input
from tests.faults.scenario import Ending, Scenario, Summary, kill
from tests.support.broken_java import BrokenJava
from tests.support.processes import FAULTED_WITHIN, HAS_RECEIVED, STOPPED_WITHIN, Running, parent_of, python_workers
from tests.support.spark_cluster import cluster
from tests.support.waiting import eventually

IN_FLIGHT = 100
"""The messages that a transfer at this rate may have in flight: those of one second."""
UNREPORTED = 2 * IN_FLIGHT
"""A slot reports once per second (D7). Messages that it forwards later are unreported if it is killed."""
SILENT_FOR = 5
"""Seconds without an answer of the driver after which a slot stops (D7)."""


CLAIM = "Every delivery is accounted for"


class OnSpark(Scenario):
    """A scenario with a command on Spark."""

    volume, rate = 600, IN_FLIGHT
    starts_within = 240.0
    loads_before = True

    def allowed_duplicates(self, summary: Summary | None) -> int:
        return summary.possible_duplicates if summary is not None else IN_FLIGHT + self.extra_duplicates()


class OnDrain(OnSpark):
    on, code = "drain", ExitCode.LEFT

    def pipeline(self) -> dict[str, Any]:
        """Pipeline settings of the scenario."""
        return {}

    def start(self) -> Running:
        config = self.site.config(pipeline=self.pipeline())
        return self.site.drain("--json", "--rate", str(self.rate), config=config)

    def summary(self, running: Running) -> Summary:
        code, out = running.end(180)
        assert code == self.code, f"exit code {code}: {running.said}"
        self.result = json.loads(out)
        return Summary.of(code, self.result["account"])

    def stopped(self, running: Running) -> Summary:
        running.end_begins()
        running.process.send_signal(signal.SIGTERM)
        summary = self.summary(running)
        running.check_end_took(STOPPED_WITHIN)
        return summary

    def report(self) -> tuple[int, dict[str, Any]]:
        """The exit code and the result of `syphon report` on the ledger as it is now."""
        report = self.site.start("report", "--ledger", str(self.ledger), "--json")
        code, out = report.end()
        assert out, f"exit code {code}: {report.said}"
        return code, json.loads(out)

    @property
    def ledger(self) -> Path:
        return self.site.folder / "ledger"

    def check_report(self) -> None:
        """The report claims no more than its rows prove: messages that left the backlog are on record, or it says that
        something is missing (D17)."""
        gone = len(self.site.acknowledged) - sum(
            len(self.site.contents(SECONDARY, queue)) for queue in self.site.backlog_names
        )
        code, report = self.report()
        is_missing = report["open_jobs"] or report["transfers"]["unaccounted"]
        if is_missing:
            assert code == ExitCode.LEFT, report["verdict"]
            assert CLAIM not in report["verdict"]
        else:
            on_record = report["messages"]["forwarded"] + report["messages"]["dead_lettered"]
            assert on_record >= gone, f"{gone} messages are gone from the backlog: {report['verdict']}"
            assert CLAIM in report["verdict"]


class OnRun(OnSpark):
    """A worker that is stopped with SIGTERM prints no summary; no message may arrive twice then."""

    on = "run"

    def start(self) -> Running:
        return self.site.worker(config=self.site.config(pair={"rate": self.rate}))

    def end(self, running: Running) -> Summary | None:
        if self.ending is Ending.UNCLEAN:
            kill(running)
        else:
            code, _ = running.stop()
            assert code == self.code, f"exit code {code}: {running.said}"
            running.check_end_took(STOPPED_WITHIN)
        return None

    def allowed_duplicates(self, summary: Summary | None) -> int:
        return super().allowed_duplicates(summary) if self.ending is Ending.UNCLEAN else self.extra_duplicates()


class EndedBeforeCompletion(OnDrain):
    """Completions hang, so that the transfer ends between accepted and complete."""

    number, title = 1, "kill −9 between accepted and complete"

    def inject(self, running: Running) -> None:
        self.moved = self.site.moved()
        self.fault_id = self.site.fault(SECONDARY, action="hang", operation="settle", entity=QUEUE)

    def has_taken_effect(self, running: Running) -> bool:
        return bool(self.site.times_struck(SECONDARY, self.fault_id)) and self.site.moved() > self.moved + 20

    def end(self, running: Running) -> Summary | None:
        self.uncompleted = self.site.moved() - self.moved
        return super().end(running)

    def extra_duplicates(self) -> int:
        return self.uncompleted

    def verify(self, verdict: Verdict, summary: Summary | None) -> None:
        assert verdict.duplicates > 0, "messages that were accepted and not completed are redelivered"


class PythonWorkersEnded(OnDrain):
    """Spark replaces the Python workers, and the drain continues to its end."""

    number, title = 2, "Spark's Python workers ended at seeded random points"
    volume, times, code = 1000, 3, ExitCode.OK

    def inject(self, running: Running) -> None:
        self.ended = 0
        number = signal.SIGTERM if self.ending is Ending.CLEAN else signal.SIGKILL
        for _ in range(self.times):
            victims = eventually(lambda: python_workers(running), what=lambda: running.said)
            for pid in victims:
                os.kill(pid, number)
            self.ended += 1
            self.until_moved(self.rng.randrange(20, 200), running)

    def until_moved(self, more: int, running: Running) -> None:
        moment = min(self.site.moved() + more, self.volume)
        eventually(lambda: self.site.moved() >= moment, what=lambda: running.said)

    def has_taken_effect(self, running: Running) -> bool:
        return self.ended == self.times

    def end(self, running: Running) -> Summary | None:
        summary = self.summary(running)
        assert self.result["account"]["killed"] > 0, self.result
        return summary

    def allowed_duplicates(self, summary: Summary | None) -> int:
        return super().allowed_duplicates(summary) + self.times * IN_FLIGHT

    def unreported(self) -> int:
        return self.times * UNREPORTED


class StoppedMidBatch(OnRun):
    number, title = 3, "SIGTERM mid-batch: finished or released, no duplicates, exit 0"

    def has_taken_effect(self, running: Running) -> bool:
        assert self.site.moved() < self.volume, "it was too late to be in the middle"
        return True


class SecondSignal(OnRun):
    number, title = 4, "second SIGTERM: leaves at once"

    def has_taken_effect(self, running: Running) -> bool:
        assert self.site.moved() < self.volume, "it was too late to be in the middle"
        return True

    def end(self, running: Running) -> Summary | None:
        running.process.send_signal(signal.SIGTERM)
        running.until("Press Ctrl-C again")
        if self.ending is Ending.UNCLEAN:
            kill(running)
        else:
            code, _ = running.stop(signal.SIGTERM)
            assert code in (0, 128 + signal.SIGTERM), running.said
        return None

    def extra_duplicates(self) -> int:
        return IN_FLIGHT


class OutagesOneAfterAnother(OnRun):
    """Primary out, both out, only the secondary out, all back: the worker survives and continues."""

    number, title = 24, "primary out, both out, secondary out, back again"

    def inject(self, running: Running) -> None:
        def change(name: str, out: bool) -> None:
            kind = {"kind": self.rng.choice(["refuse", "drop"])}
            self.site.control(name, "PUT" if out else "DELETE", "outage", kind if out else None)

        self.before = self.site.moved()
        assert self.before < self.volume, "it was too late to be in the middle"
        change(PRIMARY, out=True)
        running.until("unreachable")
        change(SECONDARY, out=True)
        change(PRIMARY, out=False)
        self.heard = len(running.lines)
        eventually(lambda: len(running.lines) > self.heard, what=lambda: running.said)
        change(SECONDARY, out=False)

    def has_taken_effect(self, running: Running) -> bool:
        assert running.process.poll() is None, running.said
        return self.site.moved() > self.before

    def extra_duplicates(self) -> int:
        return 2 * IN_FLIGHT  # a connection was cut twice, and messages in flight are sent again


class PrimarySilent(OnRun):
    """Its connections stay open and carry no byte: only a timeout can detect that (D10)."""

    number, title = 9, "primary silent, and back again"

    def inject(self, running: Running) -> None:
        self.site.control(PRIMARY, "PUT", "outage", {"kind": "hang"})
        self.before = self.site.moved()
        assert self.before < self.volume, "it was too late to be in the middle"
        running.until("unreachable")
        self.site.control(PRIMARY, "DELETE", "outage")

    def has_taken_effect(self, running: Running) -> bool:
        assert running.process.poll() is None, running.said
        return self.site.moved() > self.before

    def extra_duplicates(self) -> int:
        return IN_FLIGHT  # it is unknown whether the messages in flight have arrived


class LedgerDiskFull(OnDrain):
    """The ledger is a record only: without it messages are still forwarded (D9)."""

    number, title = 25, "ledger disk full"
    code, volume = ExitCode.OK, 900

    def pipeline(self) -> dict[str, Any]:
        return {"ledger": str(full_disk(self.site.folder, self.stack) / "ledger"), "lease": "5s"}

    def has_taken_effect(self, running: Running) -> bool:
        return "The ledger at" in running.said

    def end(self, running: Running) -> Summary | None:
        if self.ending is Ending.UNCLEAN:
            kill(running)
            return None
        summary = self.summary(running)
        assert "cannot be written" in self.result["ledger_error"], self.result
        return summary


class DriverEnded(OnDrain):
    """Spark and its Python workers end with their driver. The report does not claim to be complete then (D17)."""

    number, title = 25, "driver killed"
    volume = 1200

    def has_taken_effect(self, running: Running) -> bool:
        assert self.site.moved() < self.volume, "it was too late to be in the middle"
        return any(HAS_RECEIVED.search(file.read_text()) for file in (self.ledger / "open").glob("*.progress"))

    def end(self, running: Running) -> Summary | None:
        if self.ending is Ending.CLEAN:
            summary = self.stopped(running)
            self.check_report()
            return summary
        children = [pid for pid, _ in running.descendants()]
        running.process.kill()
        running.process.wait()
        eventually(lambda: not any(parent_of(pid) for pid in children), what=lambda: children)
        code, report = self.report()
        (cut_off,) = report["open_jobs"]
        assert cut_off["queues"][0]["received"] > 0, report
        assert code == ExitCode.LEFT, report["verdict"]
        assert CLAIM not in report["verdict"]
        return None


class ExecutorEnded(OnDrain):
    """All executors of a cluster end, and the cluster replaces them."""

    number, title = 25, "executor killed"
    code, volume = ExitCode.OK, 1000

    def pipeline(self) -> dict[str, Any]:
        self.cluster = self.stack.enter_context(cluster(self.site.folder))
        return {
            "master": self.cluster.url,
            "spark": {
                "spark.driver.host": "127.0.0.1",
                "spark.executor.memory": "512m",
                "spark.cores.max": 2,
                "spark.authenticate": "true",
                "spark.authenticate.secret": self.cluster.secret,
            },
        }

    def inject(self, running: Running) -> None:
        self.ended = self.cluster.executors()
        for pid in self.ended:
            os.kill(pid, signal.SIGTERM if self.ending is Ending.CLEAN else signal.SIGKILL)

    def has_taken_effect(self, running: Running) -> bool:
        return bool(self.ended) and not any(parent_of(pid) for pid in self.ended)

    def end(self, running: Running) -> Summary | None:
        summary = self.summary(running)
        assert self.result["account"]["killed"] > 0, self.result
        return summary

    def allowed_duplicates(self, summary: Summary | None) -> int:
        return super().allowed_duplicates(summary) + IN_FLIGHT

    def unreported(self) -> int:
        return UNREPORTED


class TrickleOnAllQueues(OnRun):
    """Nine queues get a message per second each, and at most two slots serve them all. A lone message in the tenth,
    which was empty until then, does not wait for the end of the others (S10)."""

    number, title = 30, "a trickle on nine of ten queues: a lone message in the tenth waits for none of them"
    volume, queues, loads_before = 900, 10, False

    def start(self) -> Running:
        config = self.site.config(pair={"rate": self.rate}, pipeline={"master": "local[8]"})
        return self.site.worker(config=config)

    def inject(self, running: Running) -> None:
        self.running = running

    @property
    def others(self) -> list[str]:
        return self.site.backlog_names[:-1]

    def load_first(self, inputs: list[Input]) -> None:
        self.site.load(inputs, queues=self.others)

    def load_rest(self, inputs: list[Input]) -> None:
        *trickled, lone = inputs
        quiet = self.site.backlog_names[-1]
        before = {queue: self.site.received(queue) for queue in self.others}
        trickle = threading.Thread(target=self.site.load, args=(trickled, 1.0, self.others))
        trickle.start()
        self.stack.callback(trickle.join)  # also if a check fails before
        eventually(lambda: all(self.site.received(queue) > before[queue] for queue in self.others))
        self.site.load([lone], queues=[quiet])
        eventually(lambda: not self.site.contents(SECONDARY, quiet), what=lambda: self.running.said)
        loaded = len(self.site.acknowledged)
        assert len(python_workers(self.running)) <= 2, "a slot for each queue"
        trickle.join()
        assert loaded < len(self.site.acknowledged), "the lone message waited for the end of the trickle"

    def has_taken_effect(self, running: Running) -> bool:
        return True  # the trickle is over


class JvmKilled(OnDrain):
    """Spark's JVM has ended: the drain notices it by itself, says it in one line, and still prints its result."""

    number, title = 26, "Spark's JVM killed under a drain: exit 69"
    code = ExitCode.UNAVAILABLE

    def inject(self, running: Running) -> None:
        jvm = jvm_of(running)
        running.end_begins()
        os.kill(jvm, signal.SIGKILL)

    def has_taken_effect(self, running: Running) -> bool:
        return running.process.poll() is not None

    def end(self, running: Running) -> Summary | None:
        summary = self.summary(running)
        running.check_end_took(FAULTED_WITHIN)
        assert "Spark's JVM was killed by signal 9" in self.result["verdict"], self.result
        assert "Traceback" not in running.said, running.said
        self.check_report()
        return summary

    def allowed_duplicates(self, summary: Summary | None) -> int:
        return super().allowed_duplicates(summary) + IN_FLIGHT

    def unreported(self) -> int:
        return UNREPORTED + SILENT_FOR * IN_FLIGHT


class JvmKilledUnderWorker(OnRun):
    """The same under a worker: it starts Spark again."""

    number, title = 26, "Spark's JVM killed under a worker: it starts again"

    def inject(self, running: Running) -> None:
        os.kill(jvm_of(running), signal.SIGKILL)

    def has_taken_effect(self, running: Running) -> bool:
        return running.said.count("Spark runs, after") > 1

    def end(self, running: Running) -> Summary | None:
        super().end(running)
        assert "Spark's JVM was killed by signal 9" in running.said, running.said
        assert "Traceback" not in running.said, running.said
        return None

    def extra_duplicates(self) -> int:
        return 2 * IN_FLIGHT


class SparkDoesNotStart(OnRun):
    """Its Java ends with an error, and is repaired later: messages wait meanwhile."""

    number, title = 31, "Spark does not start, and later does"
    from_the_start = True

    def start(self) -> Running:
        self.java = BrokenJava(self.site.folder)
        config = self.site.config(pair={"rate": self.rate})
        return self.site.start("run", "-c", str(config), environment=self.java.environment)

    def inject(self, running: Running) -> None:
        running.until("starting Spark again in 4 s")
        assert self.site.moved() == 0
        self.java.repair()

    def has_taken_effect(self, running: Running) -> bool:
        return self.site.moved() > 0


class JvmKilledWhileStarting(OnRun):
    number, title = 32, "Spark's JVM killed while it starts"
    from_the_start = True

    def inject(self, running: Running) -> None:
        running.until("starting Spark")
        for pid in eventually(lambda: javas_of(running), what=lambda: running.said):
            end_process(pid)
        running.until("starting Spark again in")

    def has_taken_effect(self, running: Running) -> bool:
        return self.site.moved() > 0


class JvmKilledWhileStopping(OnRun):
    """Messages that come then start it again."""

    number, title = 33, "Spark's JVM killed while it stops"
    loads_before = False

    def start(self) -> Running:
        config = self.site.config(pair={"rate": self.rate}, pipeline={"idle_shutdown": "1s"})
        return self.site.worker(config=config)

    def inject(self, running: Running) -> None:
        jvm = jvm_of(running)
        running.until("stopping Spark")
        end_process(jvm)
        self.before = self.site.moved()

    def has_taken_effect(self, running: Running) -> bool:
        return self.site.moved() > self.before


class FreezesTheJvm(Scenario):
    """Spark's JVM answers nothing."""

    def inject(self, running: Running) -> None:
        self.jvm = jvm_of(running)
        os.kill(self.jvm, signal.SIGSTOP)
        self.stack.callback(end_process, self.jvm)

    def has_taken_effect(self, running: Running) -> bool:
        return state_of(self.jvm) == "T"


class JvmFrozen(FreezesTheJvm, OnDrain):
    """Spark's JVM answers nothing. SIGTERM ends the drain nevertheless, and the JVM with it."""

    number, title = 27, "Spark's JVM frozen: SIGTERM still ends a drain"

    def end(self, running: Running) -> Summary | None:
        if self.ending is Ending.UNCLEAN:
            kill(running)
            return None
        summary = self.stopped(running)
        assert "Traceback" not in running.said, running.said
        eventually(lambda: state_of(self.jvm) in ("", "Z"), what=lambda: f"the JVM {self.jvm} is left")
        return summary

    def unreported(self) -> int:
        return UNREPORTED


class JvmFrozenUnderWorker(FreezesTheJvm, OnRun):
    number, title = 27, "Spark's JVM frozen: SIGTERM still ends a worker"


class TerminalClosed(OnDrain):
    """The terminal of a drain is closed: it ends as with SIGTERM, and writing to the terminal is no error."""

    number, title = 28, "terminal of a drain closed: messages in flight are finished, exit as with SIGTERM"

    def start(self) -> Running:
        self.terminal = Terminal()
        self.stack.callback(self.terminal.close)
        config = self.site.config(pipeline=self.pipeline())
        running = self.site.drain("--json", "--rate", str(self.rate), config=config, terminal=self.terminal.theirs)
        self.terminal.hand_over()
        return running

    def inject(self, running: Running) -> None:
        running.end_begins()
        self.terminal.close()  # the kernel sends SIGHUP to the drain

    def has_taken_effect(self, running: Running) -> bool:
        return running.process.poll() is not None

    def end(self, running: Running) -> Summary | None:
        summary = self.summary(running)
        running.check_end_took(STOPPED_WITHIN)
        self.check_report()
        return summary


class Terminal:
    """A terminal that somebody reads: what is written to it is read, until it is closed."""

    def __init__(self) -> None:
        self._ours, self.theirs = pty.openpty()
        self._closing = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def hand_over(self) -> None:
        os.close(self.theirs)

    def _read(self) -> None:
        while not self._closing.is_set():
            if select.select([self._ours], [], [], 0.1)[0]:
                os.read(self._ours, 65_536)
        os.close(self._ours)

    def close(self) -> None:
        self._closing.set()
        self._reader.join()


def jvm_of(running: Running) -> int:
    """The process id of the JVM of Spark's driver."""
    return next(pid for pid, command in running.descendants() if "SparkSubmit" in command)


def javas_of(running: Running) -> list[int]:
    """All its Java processes, Spark's launcher included."""
    return [pid for pid, command in running.descendants() if "java" in command.partition(" ")[0]]


def state_of(pid: int) -> str:
    """The state of a process: T is stopped, Z has ended; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def end_process(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def full_disk(folder: Path, stack: ExitStack) -> Path:
    """A full disk; or, where none can be mounted, a folder that cannot be made, which has the same effect."""
    disk = folder / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        disk.rmdir()
        disk.write_text("a file where a folder should be")
        return disk
    stack.callback(subprocess.run, ["umount", "--lazy", str(disk)], check=True)
    (disk / "filled").write_bytes(bytes(64 * 1024))
    return disk
