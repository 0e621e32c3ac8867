"""Files of trackers and scripts as people have them become runs: several writers, steps in files, histories, JSON results."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from marin_scaling.errors import RunTableError
from marin_scaling.run.import_runs import TrackedRun, import_runs
from marin_scaling.run.trackers import read_tracked_runs

TOTALS = {"throughput/total_gflops": 6e9, "throughput/total_tokens": 1e10, "parameter_count": 1e8}
SUMMARY = TOTALS | {"eval/loss": 3.1}


def event(kind: str, prefix: str = "", **more: Any) -> str:
    return f"{prefix}{json.dumps({'tracker': 'json_logger', 'event': kind, **more})}\n"


def events_of(name: str, loss: float, prefix: str = "") -> list[str]:
    """The lines of a run that logs at two steps and finishes."""
    steps = [
        event("log", prefix, step=step, metrics={"throughput/total_tokens": 1e8 * step, "eval/loss": loss + 1 / step})
        for step in (50, 100)
    ]
    told = {"hparams": {"trainer": {"id": name}}} if name else {"hparams": {"seed": 1}}
    return [event("hparams", prefix, **told), *steps, event("finish", prefix, summary=SUMMARY | {"eval/loss": loss})]


def interleaved(*writers: list[str]) -> str:
    return "".join(line for lines in zip(*writers, strict=True) for line in lines)


def losses(path: Path) -> dict[str, float]:
    return {row["run"]: row["loss"] for row in import_runs(read_tracked_runs(str(path))).rows}


PREFIXES = (
    ("(train pid=101) ", "(train pid=202) "),
    ("\x1b[36m(train pid=101, ip=10.0.0.2)\x1b[0m ", "\x1b[36m(train pid=202, ip=10.0.0.3)\x1b[0m "),
    ("0: ", "1: "),
    ("[rank3] 2026-01-01 10:00:00,123 INFO ", "[rank7] 2026-01-01 10:00:07,456 INFO "),
    ("t1v-n-abc-w-0 | ", "t1v-n-abc-w-1 | "),
)


@pytest.mark.parametrize(("one", "other"), PREFIXES)
def test_workers_that_share_a_log_are_told_apart_by_their_prefix(tmp_path: Path, one: str, other: str) -> None:
    """As Ray, Slurm and pods print them."""
    path = tmp_path / "driver.log"
    path.write_text(interleaved(events_of("a", 3.1, one), events_of("b", 2.9, other)))
    assert losses(path) == {"a": 3.1, "b": 2.9}


@pytest.mark.parametrize("named", ["a", ""])
@pytest.mark.parametrize(("one", "other"), [*PREFIXES, ("", "")])
def test_hosts_of_one_run_are_one_run(tmp_path: Path, named: str, one: str, other: str) -> None:
    """Whether or not a prefix tells them apart, or the settings name the run."""
    path = tmp_path / "a.log"
    path.write_text(interleaved(events_of(named, 3.1, one), events_of(named, 3.1, other)))
    assert losses(path) == {"a": 3.1}


def test_times_before_a_line_tell_no_writers_apart(tmp_path: Path) -> None:
    """A clock that runs, and a line of code that differs between events."""
    lines = events_of("a", 3.1)
    path = tmp_path / "a.log"
    path.write_text(
        "".join(f"[{n}.{n}s] 2026-01-01T10:00:0{n}Z json_logger.py:{40 + n} {line}" for n, line in enumerate(lines))
    )
    assert losses(path) == {"a": 3.1}


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_runs_that_nothing_tells_apart_are_refused(tmp_path: Path, lag: int) -> None:
    """With the line; numbers would go to the wrong run."""
    one, other = events_of("a", 3.1), events_of("b", 2.9)
    path = tmp_path / "both.log"
    path.write_text(
        "".join([*one[:lag], *(line for pair in zip(one[lag:], other, strict=False) for line in pair), *other[4 - lag :]])
    )
    with pytest.raises(RunTableError, match=r"both\.log, line \d+: two runs write to this log at once"):
        read_tracked_runs(str(path))


def test_a_resumed_run_of_another_process_is_one_run(tmp_path: Path) -> None:
    """Ray starts it under another process id."""
    path = tmp_path / "driver.log"
    path.write_text("".join(events_of("a", 3.4, "(train pid=1) ")[:3] + events_of("a", 3.1, "(train pid=2) ")))
    assert losses(path) == {"a": 3.1}


def test_words_after_an_event_are_passed(tmp_path: Path) -> None:
    """Ray counts lines that several workers print."""
    path = tmp_path / "a.log"
    path.write_text("".join(line.strip() + " [repeated 4x across cluster]\n" for line in events_of("a", 3.1)))
    assert losses(path) == {"a": 3.1}


def test_step_files_of_a_folder_are_one_run_with_its_last_values(tmp_path: Path) -> None:
    """By the number of the step, not by the name's letters; settings may lie beside them."""
    folder = tmp_path / "run-a" / "metrics"
    folder.mkdir(parents=True)
    for step, loss in ((100, 3.5), (900, 3.2), (1000, 3.1)):
        metrics = {"eval": {"loss": loss}, "throughput/total_tokens": 1e7 * step, "throughput/total_gflops": 6e6 * step}
        (folder / f"step-{step}.json").write_text(json.dumps({"step": step, "metrics": metrics}))
    (folder.parent / "config.json").write_text(json.dumps({"parameter_count": 1e8, "trainer": {"seed": 4}}))
    (row,) = import_runs(read_tracked_runs(str(tmp_path))).rows
    assert (row["run"], row["loss"], row["tokens"], row["flops"], row["seed"]) == ("run-a", 3.1, 1e10, 6e18, 4)
    steps = [str(path) for path in sorted(folder.iterdir())]
    (again,) = import_runs(read_tracked_runs(*steps)).rows
    assert again == row


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "jsonl"])
def test_a_history_of_steps_is_one_run(tmp_path: Path, ending: str) -> None:
    """OLMo's columns; cells that are empty at the last step keep the value before."""
    rows = [(100, 1e9, 6e8, 3.5), (200, 2e9, 1.2e9, 3.2), (300, 3e9, 1.8e9, None)]
    names = ("_step", "throughput/total_tokens", "throughput/total_training_Gflops", "eval/c4_en-validation/CrossEntropyLoss")
    csv = "\n".join([",".join(names), *(",".join("" if cell is None else str(cell) for cell in row) for row in rows)])
    json_lines = "\n".join(json.dumps(dict(zip(names, row, strict=True))) for row in rows)
    content = (json_lines if ending == "jsonl" else csv).encode()
    path = tmp_path / f"190M-1xC.{ending}"
    path.write_bytes(gzip.compress(content) if ending.endswith("gz") else content)
    found = import_runs(read_tracked_runs(str(path)), keys={"params": "flops/6D"})
    (row,) = found.rows
    assert (row["run"], row["tokens"], row["flops"], row["loss"]) == ("190M-1xC", 3e9, 1.8e18, 3.2)
    assert row["params"] == pytest.approx(1e8)
    assert any("params" in note and "flops/6D" in note for note in found.notes)


def test_the_column_that_names_the_runs_of_a_history_may_be_chosen(tmp_path: Path) -> None:
    """Two rungs of three steps each; without the choice every row would be a run."""
    rows = [
        f"{rung},{step},{step * 1e6},1e6,{step * 6e12},{loss - step / 1e3}"
        for rung, loss in (("a", 4), ("b", 3))
        for step in (1, 2, 3)
    ]
    (tmp_path / "evals.csv").write_text("\n".join(["rung,step,tokens,params,flops,loss", *rows]) + "\n")
    assert any("--column run=" in note for note in import_runs(read_tracked_runs(str(tmp_path / "evals.csv"))).notes)
    found = read_tracked_runs(str(tmp_path / "evals.csv"), run_column="rung")
    assert [(run.name, float(run.metrics["loss"])) for run in found] == [("a", 3.997), ("b", 2.997)]


def test_histories_of_several_runs_in_one_table_are_a_run_for_each_name(tmp_path: Path) -> None:
    """Rows of one name are its steps."""
    path = tmp_path / "long.csv"
    lines = [f"{run},{step},{step * 1e7},1e8,{4 - step / 100 - n}" for n, run in enumerate("ab") for step in (10, 20, 30)]
    path.write_text("\n".join(["run,step,tokens,params,loss", *lines]))
    rows = import_runs(read_tracked_runs(str(path)), keys={"flops": "6ND"}).rows
    assert [(row["run"], row["tokens"], row["loss"], row["flops"]) for row in rows] == [
        ("a", 3e8, pytest.approx(3.7), 1.8e17),
        ("b", 3e8, pytest.approx(2.7), 1.8e17),
    ]


RECORDS = [
    {"name": "a", "model_flops": 6e18, "model_size": 1e8, "total_tokens": 1e10, "eval/bpb": 1.1},
    {"name": "b", "model_flops": 6e19, "model_size": 1e9, "total_tokens": 1e10, "eval/bpb": 0.9},
]


@pytest.mark.parametrize(
    "document",
    [
        RECORDS,
        {"runs": [{"run_info": record} for record in RECORDS]},
        {record["name"]: record for record in RECORDS},
        {key: [record[key] for record in RECORDS] for key in RECORDS[0]},
        {key: {str(n): record[key] for n, record in enumerate(RECORDS)} for key in RECORDS[0]},
        {"columns": list(RECORDS[0]), "index": [0, 1], "data": [list(record.values()) for record in RECORDS]},
    ],
    ids=["list", "speedrun", "by name", "columns", "pandas", "pandas split"],
)
def test_json_results_are_runs(tmp_path: Path, document: Any) -> None:
    """Nested or not, by row or by column."""
    path = tmp_path / "results.json"
    path.write_text(json.dumps(document))
    rows = import_runs(read_tracked_runs(str(path))).rows
    assert [(row["run"], row["flops"], row["loss"], row["metric"]) for row in rows] == [
        ("a", 6e18, 1.1, "bits_per_byte"),
        ("b", 6e19, 0.9, "bits_per_byte"),
    ]


def test_the_loss_is_chosen_from_finished_runs_and_the_choice_is_noted() -> None:
    """A killed run has no say; a finished one without the loss is named."""
    macro = "eval/paloma/macro_loss"
    runs = [TrackedRun(name=f"r{n}", source="x", config={}, metrics=SUMMARY | {macro: 3.3}, state="finished") for n in range(3)]
    killed = TrackedRun(name="killed", source="x", config={}, metrics=SUMMARY | {"eval/loss": 5.0}, state="crashed")
    bare = TrackedRun(name="bare", source="x", config={}, metrics=SUMMARY | {"eval/loss": 2.9}, state="finished")
    found = import_runs([killed, *runs, bare])
    assert found.loss_key == macro
    assert [name for name, _ in found.left_out] == ["killed", "bare"]
    assert all(macro in why for _, why in found.left_out)
    assert any("eval/loss (4)" in note and "3 of 4" in note for note in found.notes)


def test_naming_the_usual_key_changes_nothing() -> None:
    """The unit belongs to the key."""
    runs = [TrackedRun(name="a", source="x", config={}, metrics=SUMMARY)]
    usual = import_runs(runs)
    named = import_runs(runs, keys={"flops": "throughput/total_gflops", "params": "Parameter_Count", "loss": "eval/loss"})
    assert usual.rows == named.rows
    assert usual.rows[0]["flops"] == 6e18
    assert any("throughput/total_gflops" in note and "1e9" in note for note in usual.notes)


def test_active_parameters_of_mixtures_are_imported_and_dense_runs_leave_them_empty() -> None:
    """Under usual keys, or named."""
    sparse = TrackedRun(name="a", source="x", config={"active_parameter_count": 1e7}, metrics=SUMMARY)
    dense = TrackedRun(name="b", source="x", config={}, metrics=SUMMARY)
    assert [row["active_params"] for row in import_runs([sparse, dense]).rows] == [1e7, None]
    named = TrackedRun(name="a", source="x", config={"my_active": "1e7"}, metrics=SUMMARY)
    assert import_runs([named], keys={"active_params": "my_active"}).rows[0]["active_params"] == 1e7


def test_numbers_in_text_and_summaries_of_several_values_are_read() -> None:
    """As W&B keeps them where a metric is defined with a summary."""
    metrics = TOTALS | {"parameter_count": "100000000", "eval/loss/min": 2.0, "eval/loss/last": 3.1}
    (row,) = import_runs([TrackedRun(name="a", source="x", config={}, metrics=metrics)]).rows
    assert (row["params"], row["loss"]) == (1e8, 3.1)


def test_one_run_in_two_files_counts_once(tmp_path: Path) -> None:
    """Each host wrote a log of its own."""
    for host in range(3):
        (tmp_path / f"host{host}.log").write_text("".join(events_of("a", 3.1)))
    found = import_runs(read_tracked_runs(*(str(tmp_path / f"host{host}.log") for host in range(3))))
    assert len(found.rows) == 1
    assert ["host0.log" in why for _, why in found.left_out] == [True, True]


def test_two_values_at_the_last_step_of_a_run_are_named(tmp_path: Path) -> None:
    """Both, with the step; a value that is repeated is none."""
    rows = [{"run": "a", "step": step, "params": 1e8, "tokens": 2e9, "flops": 1.2e18, "loss": 4 - step} for step in (1, 2)]
    path = tmp_path / "runs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in (*rows, {**rows[1], "loss": 2.5})))
    found = import_runs(read_tracked_runs(str(path)))
    assert any("2" in note and "2.5" in note and "step 2" in note for note in found.notes)
    path.write_text("".join(json.dumps(row) + "\n" for row in (*rows, rows[1])))
    assert not import_runs(read_tracked_runs(str(path))).notes
