"""`syphon report` as an operator runs it: a real process and a real ledger.

What it answers is tested in tests/integration/ledger.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from syphon.cli import main
from syphon.cli.report_tables import show
from syphon.ledger import Ledger, RunRecord
from syphon.ledger.parquet import transfer_rows
from syphon.model import AttemptKey, ExitCode
from syphon.model.outcomes import Outcome, Result
from tests.support.cli_process import run_syphon
from tests.support.reports import a_report, an_empty_report

NOON = int(datetime(2026, 10, 5, 12, tzinfo=UTC).timestamp() * 1000)
HOUR = 3_600_000
CONFIG = """
pairs:
  - name: contoso
    primary: {{namespace: contoso.servicebus.windows.net}}
    secondary: {{namespace: contoso-dr.servicebus.windows.net}}
pipeline: {{master: "local[1]", ledger: "{ledger}"}}
"""


def transfer(number: int, result: Result, at: int = NOON, reason: str = "") -> Outcome:
    forwarded_at = at if result is Result.FORWARDED else None
    return Outcome(
        "contoso/x-servicebus-transfer/0",
        number,
        f"m-{number}",
        "orders",
        None,
        NOON - HOUR,
        at - 100,
        forwarded_at,
        at,
        1024,
        0,
        result,
        reason,
    )


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """An hour of transfers of one pair, written as a worker leaves it."""
    outcomes = [
        transfer(1, Result.FORWARDED),
        transfer(2, Result.LEFT, reason="The pump was told to stop."),
        transfer(2, Result.FORWARDED, at=NOON + HOUR),
        transfer(3, Result.DEAD_LETTERED, at=NOON + HOUR, reason="<b>Odd</b>: \x1b[2J"),
    ]
    folder = tmp_path / "ledger" / "transfers" / "date=2026-10-05"
    folder.mkdir(parents=True)
    pq.write_table(
        pa.Table.from_batches([transfer_rows(outcomes, AttemptKey("contoso", "job-1", 0, 0))]),
        folder / "part-1.parquet",
    )
    return tmp_path / "ledger"


def test_it_answers_as_json_and_as_a_page_and_its_exit_code_says_that_something_is_left(
    ledger: Path, tmp_path: Path
) -> None:  # X3, D12
    (tmp_path / "config.yaml").write_text(CONFIG.format(ledger=ledger))
    page = tmp_path / "report.html"
    day = ("--from", "2026-10-05", "--to", "2026-10-05")
    settings = ("-c", str(tmp_path / "config.yaml"), "--pair", "contoso")
    done = run_syphon("report", *settings, *day, "--json", "--html", str(page))
    assert (done.returncode, done.stderr) == (ExitCode.LEFT, f"Wrote {page}.\n")
    result = json.loads(done.stdout)
    assert result["verdict"] == "2 of 3 messages arrived. 1 dead-lettered. Every delivery is accounted for."
    assert result["transfers"] == {
        "received": 4,
        "forwarded": 2,
        "dead_lettered": 1,
        "left": 1,
        "unaccounted": 0,
        "possible_duplicates": 0,
        "bytes": 4096,
    }
    counts = {"total": 3, "forwarded": 2, "dead_lettered": 1, "left": 0, "repeated": 0, "copies": 0}
    assert result["messages"] == counts | {"arrived_otherwise": 0}
    assert result["period"] == {"since": "2026-10-05T00:00:00Z", "until": "2026-10-06T00:00:00Z"}
    assert "&lt;b&gt;Odd&lt;/b&gt;" in page.read_text("utf-8")


# --- usage -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs the command in a Python that cannot import Spark."""
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_help_teaches_with_examples(folder: Path) -> None:
    done = CliRunner().invoke(main, ["report", "--help"])
    assert done.exit_code == 0
    assert "syphon report --from 2026-10-05 --to 2026-10-05 --pair contoso" in done.stdout
    assert "received = forwarded + dead-lettered + left in the backlog + unaccounted" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        (["--ledger", "none"], "There is no ledger at {folder}/none."),
        (["--ledger", "file"], "There is no ledger at {folder}/file."),
        (
            ["-c", "config.yaml", "--pair", "fabrikam"],
            "There is no pair 'fabrikam' in config.yaml; its pairs are: contoso.",
        ),
        (["--ledger", ".", "--from", "yesterday"], "'yesterday' is not a time: use 2026-11-16T14:30"),
        (
            ["--ledger", ".", "--from", "2026-10-06", "--to", "2026-10-05"],
            "--from 2026-10-06T00:00:00Z is not before --to 2026-10-06T00:00:00Z.",
        ),
        (["--ledger", ".", "--html", "none/report.html"], "the folder none does not exist."),
    ],
)
def test_invalid_options_are_reported_at_once_and_without_spark(
    folder: Path, arguments: list[str], result: str
) -> None:
    (folder / "file").touch()
    (folder / "config.yaml").write_text(CONFIG.format(ledger="of-the-settings"))
    done = CliRunner().invoke(main, ["report", *arguments])
    assert done.exit_code == ExitCode.USAGE
    assert result.format(folder=folder) in " ".join(done.stderr.split())


def test_a_ledger_of_the_settings_that_is_not_there_yet_is_an_empty_one(folder: Path) -> None:
    (folder / "config.yaml").write_text(CONFIG.format(ledger="of-the-settings"))
    done = CliRunner().invoke(main, ["report", "-c", "config.yaml"])
    assert (done.exit_code, done.stdout) == (ExitCode.OK, "Nothing is recorded.\n")
    assert done.stderr.startswith(
        "The ledger at of-the-settings is empty, or does not exist yet. A worker or a drain creates"
    )


def test_a_small_ledger_is_read_without_spark(folder: Path, ledger: Path) -> None:
    done = CliRunner().invoke(main, ["report", "--ledger", str(ledger), "--json"])
    assert (done.exit_code, done.stderr) == (ExitCode.LEFT, "")
    assert json.loads(done.stdout)["messages"]["total"] == 3


def test_a_large_ledger_is_read_by_spark(folder: Path, ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syphon.ledger.reader.LARGEST", 100)
    done = CliRunner().invoke(main, ["report", "--ledger", str(ledger)])
    assert isinstance(done.exception, ModuleNotFoundError)  # Spark is hidden here
    assert "pyspark" in str(done.exception)


# --- tables ----------------------------------------------------------------------------------------------------------


def test_the_tables_say_what_matters_most_first(capsys: pytest.CaptureFixture[str]) -> None:
    report = a_report()
    show(report)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == report.verdict
    assert (
        lines[2]
        == "Transfers: 1,221 received = 1,200 forwarded + 7 dead-lettered + 9 left in the backlog + 5 unaccounted"
    )
    titles = (
        "Destinations",
        "Slowest to accept",
        "By hour and destination, in transfers",
        "Dead letters",
        "Left in the backlog",
        "Arrived more than once",
        "Unaccounted: counted by a task that was lost",
        "Never closed: the driver ended first; these are the counts of the last report",
        "Unreadable ledger files",
    )
    assert [line.rstrip() for line in lines if line.rstrip() in titles] == list(titles)
    assert max(map(len, lines[6:])) <= 120


def test_text_from_a_message_does_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show(a_report(destination="[red]a\x1b[2Jb", reason="Odd\x07", message_id="\x9b31m\u202e"))
    out = capsys.readouterr().out
    assert "[red]a\ufffd[2Jb" in out
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(out)


def test_past_drains_are_listed_with_their_results_the_newest_first(folder: Path) -> None:
    ledger = Ledger(None, f"file:{folder}/ledger")
    for day, options in ((5, ""), (6, "--destination orders")):
        at = datetime(2026, 10, day, 12, tzinfo=UTC)
        verdict = "3 messages are still in the backlog: 61 forwarded."
        ledger.put_run(
            RunRecord("drain", options, ["contoso"], at, 75.0, "host-1", 64, 61, 0, 0, 3, ExitCode.LEFT, verdict)
        )
    (folder / "ledger" / "runs" / "odd.json").write_text("{}")
    listed = CliRunner().invoke(main, ["report", "--ledger", "ledger", "--list"])
    assert listed.exit_code == ExitCode.LEFT
    assert "odd.json cannot be read." in listed.stderr
    newest, _, after = listed.stdout.partition("2026-10-05 12:00:00 UTC")
    assert "2026-10-06 12:00:00 UTC" in newest
    assert "2026-10-06 12:00:00 UTC: drain --destination orders: 3 messages are still in the backlog" in after
    (folder / "ledger" / "runs" / "odd.json").unlink()
    found = CliRunner().invoke(main, ["report", "--ledger", "ledger", "--list", "--json", "--from", "2026-10-06"])
    (run,) = json.loads(found.stdout)["runs"]
    assert (found.exit_code, run["options"], run["remaining"]) == (0, "--destination orders", 3)


def test_an_empty_report_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    show(an_empty_report())
    assert capsys.readouterr().out == "Nothing is recorded.\n"


def test_every_name_in_the_json_is_documented() -> None:
    def names(value: object) -> set[str]:
        if isinstance(value, dict):
            return set(value) | {name for item in value.values() for name in names(item)}
        return {name for item in value for name in names(item)} if isinstance(value, list) else set()

    documented = (Path(__file__).parents[3] / "docs" / "report.md").read_text("utf-8")
    assert {name for name in names(a_report().as_json()) if f"`{name}`" not in documented} == set()
