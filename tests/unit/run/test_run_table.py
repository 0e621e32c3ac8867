"""Tables of runs: what is read, what is mapped, what is refused and what is left out."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from registration_factory import run_spec, store_ladder, store_run, target_spec
from typer.testing import CliRunner

from marin_scaling.cli.app import app
from marin_scaling.errors import RunTableError, StorageError
from marin_scaling.ladder.config import Compute
from marin_scaling.run.spec import DataSpec, EvaluationSpec
from marin_scaling.run.table import read_run_table

DELPHI = Path(__file__).parents[3] / "runs" / "delphi"
HEAD = "flops,params,tokens,loss"
ROWS = ["1e18,1e8,1e9,3.5", "1e18,2e8,5e8,3.4", "3e18,2e8,2e9,3.2", "3e18,4e8,1e9,3.1"]


def write(path, *lines):
    path.write_text("\n".join(lines) + "\n")
    return path


def test_csv_parquet_and_json_lines_say_the_same(tmp_path):
    """One table in three formats."""
    csv = write(tmp_path / "runs.csv", HEAD, *ROWS)
    frame = pd.read_csv(csv)
    frame.to_parquet(tmp_path / "runs.parquet")
    write(tmp_path / "runs.jsonl", *(json.dumps(row) for row in frame.to_dict("records")))
    columns = ["flops", "params", "tokens", "loss", "budget_flops"]
    tables = [read_run_table(tmp_path / f"runs.{suffix}").frame[columns] for suffix in ("csv", "parquet", "jsonl")]
    pd.testing.assert_frame_equal(tables[0], tables[1])
    pd.testing.assert_frame_equal(tables[0], tables[2])


def test_numbers_are_read_to_the_last_digit(tmp_path):
    """Python's own conversion of decimal text, not a faster one that is off by a bit."""
    number = "3.000006086133547e+18"
    table = read_run_table(write(tmp_path / "runs.csv", HEAD, f"{number},156508160,4304928768,3.710956335067749"))
    assert table.frame["flops"][0] == float(number)
    assert table.frame["loss"][0] == 3.710956335067749


def test_six_times_params_times_tokens_does_not_overflow(tmp_path):
    """In 64-bit integers it would, silently."""
    frame = read_run_table(write(tmp_path / "runs.csv", HEAD, "1e24,70000000000,1400000000000,2")).frame
    assert (6 * frame["params"] * frame["tokens"])[0] == pytest.approx(5.88e23)


def test_the_delphi_suite_is_read_from_its_folder():
    """81 runs, nominal budgets, a metric, nothing left out."""
    table = read_run_table(DELPHI)
    assert (len(table.frame), table.excluded, table.metric) == (81, (), "paloma_macro_loss_nats")
    assert sorted(table.frame["budget_flops"].unique()) == [3e18, 9e18, 1.8e19, 3e19, 9e19, 1.8e20, 3e20]


def test_a_run_store_gives_its_rungs_and_names_what_diverged(tmp_path):
    """Targets are not part of a ladder; a diverged rung is left out with its reason."""
    rows = store_ladder(tmp_path / "runs")
    store_run(tmp_path / "runs", spec=target_spec(), loss=2.0)
    diverged = run_spec(hidden_dim=48)
    store_run(tmp_path / "runs", spec=diverged, loss=None)
    table = read_run_table(tmp_path / "runs" / "tiny")
    assert sorted(table.frame["run"]) == sorted(row["run"] for row in rows)
    assert [(each.run, each.why) for each in table.excluded] == [(diverged.digest, "it diverged (status)")]
    assert table.metric == "bits_per_byte"


@pytest.mark.parametrize(
    "head",
    [
        "C,N,D,eval/loss",
        "train_flops,total_params,tokens,final_loss",
        "train_flops_incl_lm_head,params,train_tokens,paloma_macro_loss_nats",
        "Compute,Parameters,Tokens,BPB",
        "FLOPs,Params,Tokens,Loss",
    ],
)
def test_common_names_are_recognised_and_the_mapping_is_kept(tmp_path, head):
    """Long names in any case; single letters as papers write them."""
    table = read_run_table(write(tmp_path / "runs.csv", head, *ROWS))
    assert list(table.column_mapping.values()) == head.split(",")
    assert list(table.column_mapping) == HEAD.split(",")


def test_the_name_of_a_loss_column_can_say_the_metric(tmp_path):
    """Bits per byte are bits per byte."""
    assert read_run_table(write(tmp_path / "runs.csv", HEAD.replace("loss", "bpb"), *ROWS)).metric == "bits_per_byte"


@pytest.mark.parametrize("name", ["tokens_per_second", "tps", "throughput/tokens_per_second"])
def test_throughput_may_be_missing_in_some_runs(tmp_path, name):
    """In any format: an empty cell is NaN, and no other column is read differently for it."""
    rows = [f"{row},{'' if number == 1 else '2.5e5'}" for number, row in enumerate(ROWS)]
    csv = write(tmp_path / "runs.csv", f"{HEAD},{name}", *rows)
    frame = pd.read_csv(csv)
    frame.to_parquet(tmp_path / "runs.parquet")
    frame.to_json(tmp_path / "runs.jsonl", orient="records", lines=True)
    for suffix in ("csv", "parquet", "jsonl"):
        table = read_run_table(tmp_path / f"runs.{suffix}")
        np.testing.assert_array_equal(table.frame["tokens_per_second"], [2.5e5, np.nan, 2.5e5, 2.5e5])
        assert table.frame["tokens_per_second"].dtype == np.float64
        assert table.column_mapping["tokens_per_second"] == name
    assert "tokens_per_second" not in read_run_table(write(tmp_path / "plain.csv", HEAD, *ROWS)).frame


@pytest.mark.parametrize(
    ("cell", "said"), [("fast", "'fast', which is not a number"), ("-3", "-3"), ("0", "0"), ("inf", "inf")]
)
def test_a_throughput_is_a_number_above_zero_or_nothing(tmp_path, cell, said):
    """Refused with file, line and column; the way out is an empty cell."""
    rows = [f"{row},{cell if number == 1 else 5}" for number, row in enumerate(ROWS)]
    with pytest.raises(RunTableError, match=f"line 3, column 'tps' holds {said}") as refusal:
        read_run_table(write(tmp_path / "runs.csv", f"{HEAD},tps", *rows))
    assert "empty" in refusal.value.fix


def test_an_empty_column_is_one_line_of_an_error(tmp_path):
    """With the number of its rows, and no run to leave out; other bad cells are named with their runs."""
    rows = [f"{10**n * 1e18:g},1e8,1e9," for n in range(20)]
    with pytest.raises(RunTableError) as refusal:
        read_run_table(write(tmp_path / "runs.csv", HEAD, *rows))
    (line,) = refusal.value.lines
    assert "'loss'" in line
    assert "20 rows" in line
    assert "--drop" not in refusal.value.fix
    with pytest.raises(RunTableError) as refusal:
        read_run_table(write(tmp_path / "runs.csv", HEAD, *rows[:-1], "1e18,none,1e9,"))
    assert len(refusal.value.lines) == 2
    assert "--drop" in refusal.value.fix


def test_two_candidates_are_settled_by_the_user(tmp_path):
    """The error says how, and what it says works."""
    path = write(tmp_path / "runs.csv", "flops,params,tokens,eval/loss,val_loss", *(f"{row},9" for row in ROWS))
    with pytest.raises(RunTableError, match="'eval/loss' and 'val_loss' could each be the column 'loss'") as refusal:
        read_run_table(path)
    assert "--column loss=eval/loss" in refusal.value.fix
    assert read_run_table(path, columns={"loss": "val_loss"}).frame["loss"].tolist() == [9, 9, 9, 9]


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("1e18,1e8,1e9,high", r"runs\.csv, line 6, column 'loss' holds 'high', which is not a number"),
        ("1e18,1e8,1e9,", r"line 6, column 'loss' is empty"),
        ("1e18,1e8,1e9", r"line 6, column 'loss' is empty"),
        ("1e18,1e8,1e9,nan", r"line 6, column 'loss' holds nan"),
        ("inf,1e8,1e9,3", r"line 6, column 'flops' holds inf"),
        ("0,1e8,1e9,3", r"line 6, column 'flops' holds 0; it must be above zero"),
        ("-1e18,1e8,1e9,3", r"line 6, column 'flops' holds -1e18; it must be above zero"),
        ("1e18,0,1e9,3", r"line 6, column 'params' holds 0"),
        ("1e18,1e8,-5,3", r"line 6, column 'tokens' holds -5"),
        ("1e308,1e8,1e9,3", r"line 6, column 'flops' holds 1e308; no run has such a number"),
    ],
)
def test_a_cell_that_is_no_usable_number_is_refused_with_its_place(tmp_path, cell, message):
    """File, line, column and what stands there."""
    with pytest.raises(RunTableError, match=message):
        read_run_table(write(tmp_path / "runs.csv", HEAD, *ROWS, cell))


def test_blank_lines_do_not_shift_the_line_numbers(tmp_path):
    """An editor counts them, too."""
    with pytest.raises(RunTableError, match="line 5, column 'loss' holds 'x'"):
        read_run_table(write(tmp_path / "runs.csv", HEAD, ROWS[0], "", "", "1,1,1,x"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "runs.csv",
            "flops,params,loss\n1,1,1\n",
            "has no column 'tokens', .* it has: flops, params, loss",
        ),
        ("runs.csv", f"{HEAD}\n", "holds no runs"),
        ("runs.csv", "", "runs.csv is empty"),
        ("runs.csv", f"{HEAD}\n{ROWS[0]}\n1,2,3,4,5\n", "is not a CSV table: Expected 4 fields in line 3, saw 5"),
        ("runs.csv", f"{HEAD}\n1,2,3,4,5\n1,2,3,4,5\n", "lines have more cells than the first has column names"),
        ("runs.csv", f"{HEAD},loss\n1,2,3,4,5\n", "two columns are named 'loss'"),
        ("runs.csv", b"flops\xff", "is not text in UTF-8"),
        ("runs.jsonl", '{"flops": 1}\nnonsense\n', "runs.jsonl, line 2: not a JSON object"),
        ("runs.jsonl", "[1]\n", "line 1: not a JSON object"),
        ("runs.parquet", b"PAR1nothing", "is not a Parquet table"),
        ("runs.xlsx", b"", r"files that end in '.xlsx'"),
        ("runs.csv.gz", b"\x1f\x8bcut", "is not a whole gzip file"),
        ("runs.json", '{"flops": 1', "is not JSON"),
        ("runs.json", "3", "is not a list of objects"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path, name, content, message):
    """With its name and the reason."""
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(RunTableError, match=message):
        read_run_table(path)


def test_a_missing_file_or_empty_folder_is_said_to_be_so(tmp_path):
    """Before anything is fitted."""
    with pytest.raises(StorageError, match=r"gone\.csv cannot be read"):
        read_run_table(tmp_path / "gone.csv")
    with pytest.raises(RunTableError, match=r"runs/gone is missing"):
        read_run_table(tmp_path / "runs" / "gone")
    with pytest.raises(StorageError, match="holds no runs"):
        read_run_table(tmp_path)


def test_a_diverged_run_may_have_no_loss(tmp_path):
    """Its status says why; it is left out by name, and so is a run that still trains."""
    rows = [f"{row},a{number},finished" for number, row in enumerate(ROWS)]
    path = write(tmp_path / "runs.csv", f"{HEAD},run,status", *rows, "3e18,1e8,5e9,,b,diverged", "3e18,1e8,5e9,9,c,running")
    table = read_run_table(path)
    assert [(each.run, each.why) for each in table.excluded] == [
        ("b", "it diverged (status)"),
        ("c", "its status is 'running', which does not say finished"),
    ]
    assert len(table.frame) == 4


def test_equal_rows_count_once_and_other_seeds_are_other_runs(tmp_path):
    """The second of two equal rows is left out; a third with another seed is not."""
    path = write(tmp_path / "runs.csv", f"{HEAD},seed", *(f"{row},0" for row in ROWS), f"{ROWS[1]},0", f"{ROWS[1]},1")
    table = read_run_table(path)
    assert [(each.run, each.why) for each in table.excluded] == [
        ("line 6", "it is the same as line 3: FLOPs, parameters, tokens and loss are equal")
    ]
    assert len(table.frame) == 5


@pytest.mark.parametrize("column", ["metric", "flops_convention", "evaluation", "eval_length", "cooldown"])
def test_runs_of_two_kinds_do_not_share_a_fit(tmp_path, column):
    """Two metrics, or two ways to count FLOPs, in one law would be neither."""
    rows = [f"{row},{'a' if number % 2 else 'b'}" for number, row in enumerate(ROWS)]
    with pytest.raises(RunTableError, match=f"the column '{column}' holds 'a' and 'b'"):
        read_run_table(write(tmp_path / "runs.csv", f"{HEAD},{column}", *rows))


@pytest.mark.parametrize("column", ["flops_convention", "evaluation", "eval_length", "cooldown"])
def test_a_metric_that_is_named_hides_no_other_difference(tmp_path, column):
    """The tables that this tool writes always name it."""
    rows = [f"{row},loss,{'a' if number % 2 else 'b'}" for number, row in enumerate(ROWS)]
    with pytest.raises(RunTableError, match=f"the column '{column}' holds 'a' and 'b'"):
        read_run_table(write(tmp_path / "runs.csv", f"{HEAD},metric,{column}", *rows))


@pytest.mark.parametrize("column", ["metric", "flops_convention", "evaluation", "eval_length", "cooldown"])
def test_the_few_of_another_kind_are_left_out_by_name(tmp_path, column):
    """At least three quarters of the runs say what kind the table is of; the others are no part of its law."""
    path = write(tmp_path / "runs.csv", f"run,{HEAD},{column}", *(f"r{n},{row},{'ab'[n == 1]}" for n, row in enumerate(ROWS)))
    table = read_run_table(path)
    assert [each.run for each in table.excluded] == ["r1"]
    assert "is 'b', and most runs' is 'a'" in table.excluded[0].why
    kept = read_run_table(path, keep=["r1"])
    assert (len(kept.frame), kept.excluded) == (4, ())
    assert any("kept as asked: r1, although its" in warning for warning in kept.warnings)


def test_a_run_that_is_dropped_is_not_read_and_is_listed(tmp_path):
    """Its cells may hold anything."""
    table = read_run_table(write(tmp_path / "runs.csv", HEAD, *ROWS, "1e19,1e9,lots,nan"), drop=["line 6"])
    assert [(each.run, each.why) for each in table.excluded] == [("line 6", "dropped as asked")]
    assert len(table.frame) == 4


@pytest.mark.parametrize(
    ("choices", "said"),
    [({"keep": ["r9"]}, "no run 'r9' to keep or drop"), ({"keep": ["r1"], "drop": ["r1"]}, "'r1' is both kept and dropped")],
)
def test_a_choice_that_cannot_be_followed_is_refused(tmp_path, choices, said):
    """A name that is no run's, or one run chosen for both."""
    path = write(tmp_path / "runs.csv", f"run,{HEAD}", *(f"r{n},{row}" for n, row in enumerate(ROWS)))
    with pytest.raises(RunTableError, match=said):
        read_run_table(path, **choices)


def test_rows_of_one_name_are_doubted(tmp_path):
    """Checkpoints of one run are no independent runs."""
    table = read_run_table(write(tmp_path / "runs.csv", f"run,{HEAD}", *(f"r{n // 2},{row}" for n, row in enumerate(ROWS))))
    assert any("several rows are called r0, r1: checkpoints of one run, or a slip?" in each for each in table.warnings)


def test_rows_of_one_name_with_different_seeds_are_not_doubted(tmp_path):
    rows = (f"r{n // 2},{row},{n % 2}" for n, row in enumerate(ROWS))
    table = read_run_table(write(tmp_path / "runs.csv", f"run,{HEAD},seed", *rows))
    assert not any("several rows are called" in each for each in table.warnings)


def test_a_budget_far_from_the_flops_is_doubted(tmp_path):
    """1e25 where runs cost 1e18 is a slip."""
    rows = [f"{row},{'1e25' if n == 2 else row[:4]}" for n, row in enumerate(ROWS)]
    table = read_run_table(write(tmp_path / "runs.csv", f"{HEAD},budget_flops", *rows))
    assert "FLOPs are more than 2 times off budget_flops in line 4" in table.warnings


def test_budgets_are_found_by_gaps_and_it_is_said(tmp_path):
    """Costs within 10 % of their neighbour are one budget; its FLOPs are their geometric mean."""
    costs = [1e18, 1.05e18, 0.98e18, 3e18, 3.1e18, 1e19]
    table = read_run_table(
        write(tmp_path / "runs.csv", HEAD, *(f"{cost},1e8,{cost / 6e8},3.{n}" for n, cost in enumerate(costs)))
    )
    budgets = table.frame["budget_flops"]
    assert budgets.nunique() == 3
    assert budgets[0] == pytest.approx(np.prod(costs[:3]) ** (1 / 3))
    assert "taken as 3 budgets" in table.warnings[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"data": DataSpec(source="stdlib", digest="e" * 64, train_bytes=1000, validation_bytes=100)},
            f"data: digest {'d' * 64}",
        ),
        ({"evaluation": EvaluationSpec(seq_len=64, windows=128)}, "evaluation: metric bits_per_byte, seq_len 64, windows 64"),
        ({"recipe": "quickstart"}, "recipe: delphi and quickstart"),
        ({"compute": Compute(precision="bfloat16")}, "compute: precision float32, attention plain"),
    ],
    ids=["data", "evaluation", "recipe", "compute"],
)
def test_rungs_of_two_kinds_do_not_share_a_fit(tmp_path, change, said):
    """Other data, another evaluation, recipe or precision in one ladder's folder: two runs are named, and both values."""
    store_ladder(tmp_path / "runs")
    other = run_spec(train_steps=150).model_copy(update=change)
    store_run(tmp_path / "runs", spec=other, loss=2.0)
    with pytest.raises(RunTableError, match="differ in their") as refusal:
        read_run_table(tmp_path / "runs" / "tiny")
    assert said in refusal.value.what
    assert other.directory_name in refusal.value.what


def test_a_column_named_twice_but_for_blanks_is_refused(tmp_path):
    """Names are compared as they are used: without blanks around them."""
    path = write(tmp_path / "runs.csv", f"{HEAD}, loss", *(f"{row},9" for row in ROWS))
    with pytest.raises(RunTableError, match="two columns are named 'loss'"):
        read_run_table(path)
    path = write(tmp_path / "runs.csv", f'{HEAD}," loss"', *(f"{row},9" for row in ROWS))
    with pytest.raises(RunTableError, match="two columns are named 'loss'"):
        read_run_table(path)


def test_a_name_holds_nothing_that_a_terminal_would_obey(tmp_path):
    """Escape sequences, lone surrogates and turned text become escapes at reading, in cells and in column names."""
    names = ["\\u001b[2Ja", "\\ud800b", "\\u202ec"]
    rows = [
        f'{{"run": "{name}", "flops": 1e18, "params": {n}e8, "tokens": 1e9, "loss": 3, "status": "diverged", "\\ud800": 1}}'
        for n, name in enumerate(names, start=1)
    ]
    path = write(tmp_path / "runs.jsonl", *rows)
    table = read_run_table(path)
    assert [each.run for each in table.excluded] == names
    result = CliRunner().invoke(app, ["fit", str(path), "--column", "loss=none"])
    assert "it has: run, flops, params, tokens, loss, status, \\ud800" in str(result.exception)


def test_columns_numbered_in_parquet_are_chosen_by_their_number(tmp_path):
    """A frame without names writes integers for names."""
    rows = [[float(cell) for cell in row.split(",")] for row in ROWS]
    pd.DataFrame(rows).to_parquet(tmp_path / "runs.parquet")
    table = read_run_table(tmp_path / "runs.parquet", columns={"flops": "0", "params": "1", "tokens": "2", "loss": "3"})
    assert table.frame["loss"].tolist() == [3.5, 3.4, 3.2, 3.1]


def test_runs_at_every_cost_are_many_budgets_and_not_one(tmp_path):
    """No gap of 10 % anywhere between 1e18 and 1e20: groups of at most 25 %, as many as fit into a factor of a hundred."""
    flops = np.geomspace(1e18, 1e20, 400)
    lines = [f"{cost:.17g},{1e8},{cost / 6e8:.17g},{3 - 0.1 * np.log10(cost / 1e18):.17g}" for cost in flops]
    (tmp_path / "runs.csv").write_text("\n".join(["flops,params,tokens,loss", *lines]) + "\n")
    table = read_run_table(tmp_path / "runs.csv")
    groups = table.frame.groupby("budget_flops")["flops"]
    assert (groups.max() / groups.min()).max() <= 1.25 * (1 + 1e-9)
    assert 20 <= groups.ngroups <= 22
    assert not [warning for warning in table.warnings if "off budget_flops" in warning]


def test_a_folder_of_ladders_names_those_in_it(tmp_path):
    """A person who gives the folder above is told which to give."""
    store_ladder(tmp_path / "runs")
    (tmp_path / "runs" / "public").mkdir()
    write(tmp_path / "runs" / "public" / "runs.csv", HEAD, *ROWS)
    with pytest.raises(StorageError, match="holds no runs") as error:
        read_run_table(tmp_path / "runs")
    named = ", ".join(str(tmp_path / "runs" / name) for name in ("public", "tiny"))
    assert error.value.fix == f"Name one of the ladders in it: {named}."
