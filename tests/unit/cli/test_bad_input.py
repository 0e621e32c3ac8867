"""Bad ladder files, tables, options and folders, as a person meets them: one message, status 2, nothing left behind.

What each reader refuses, and why, is tested with the reader.
"""

import csv
import os
from pathlib import Path

import pytest
from command_line import LADDER, assert_message, assert_refused, listing, marin_scale, marin_scale_process

from marin_scaling.printable import TABLE_WIDTH

COLUMNS = ("run", "flops", "params", "tokens", "loss")


def isoflop_rows(*, budgets=(1e18, 2e18, 4e18, 8e18), sizes=4):
    """Rows of a sound ladder: a bowl of `sizes` widths at each budget, bottoms on a power law."""
    rows = []
    for budget in budgets:
        for position in range(sizes):
            offset = position - (sizes - 1) / 2
            params = (budget / 120) ** 0.5 * 1.6**offset
            loss = 2 + 40 * budget**-0.08 + 0.02 * offset**2 + 0.001 * (-1) ** len(rows)
            rows.append(
                {"run": f"run-{len(rows)}", "flops": budget, "params": params, "tokens": budget / 6 / params, "loss": loss}
            )
    return rows


def write_table(path, rows, *, columns=COLUMNS):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path


def assert_refused_without_a_trace(folder, *arguments, fragments):
    before = listing(folder)
    done = marin_scale(*arguments, cwd=folder)
    assert_refused(done, *fragments)
    assert listing(folder) == before


LADDER_FAULTS = {
    "unknown key": ("recipe: quickstart", "recipe: quickstart\nbudgets: 3", "line 3: budgets: unknown key"),
    "negative budget": (
        "budget_flops: 6e10",
        "budget_flops: -6e10",
        "line 5: rungs.1.budget_flops: input should be greater than 0",
    ),
    "target not larger": (
        ": 1.2e12}",
        ": 2.4e11}",
        "line 8: target: its budget_flops 2.4e11",
    ),
    "text in a number": ("6e10", "many", "line 5: rungs.1.budget_flops: input should be a valid number"),
    "no number": ("6e10", ".nan", "line 5: rungs.1.budget_flops: input should be a finite number"),
    "unknown recipe": ("quickstart", "nosuch", "recipe 'nosuch'"),
    "unknown width": ("[8, 12, 16, 24]", "[8, 12, 16, 23]", "rungs.0: The recipe 'quickstart' has no width 23"),
    "budget too small": ("3e10", "3e2", "rungs.0: 3e2 FLOPs pay 0.0 steps at width 8"),
    "a width twice": ("[8, 12, 16, 24]", "[8, 12, 12, 24]", "rungs: width 12 occurs twice at 3e10 FLOPs"),
    "a seed twice": ("name: tiny", "name: tiny\nseeds: [1, 1]", "line 2: seeds: "),
    "a seed below zero": (
        "name: tiny",
        "name: tiny\nseeds: [-1]",
        "line 2: seeds.0: input should be greater than or equal to 0",
    ),
    "a key twice": ("name: tiny", "name: tiny\nname: other", "line 2: duplicate key name, first in line 1"),
    "no run at a time": (
        "name: tiny",
        "name: tiny\nhardware: {runs_at_a_time: 0}",
        "line 2: hardware.runs_at_a_time: input should be greater than 0 or input should be 'cores'.\n",
    ),
    "no seeds": ("name: tiny", "name: tiny\nseeds: []", "line 2: seeds: "),
    "no YAML": ("rungs:", "rungs: [", "is not YAML: line "),
    "a date that is none": ("name: tiny", "name: 2026-13-45", "is not YAML: month must be in 1..12"),
    "a file in itself": ("name: tiny", "name: &itself [*itself]", "`*name`"),
}
"""Name of the fault: what stands in the good file, what is put in its place, and what the message must say."""


@pytest.mark.parametrize("fault", LADDER_FAULTS)
def test_a_bad_ladder_file_is_refused_with_its_place(tmp_path, fault):
    """File, line and key stand in the message, before anything is planned or trained."""
    old, new, fragment = LADDER_FAULTS[fault]
    assert old in LADDER
    (tmp_path / "tiny.yaml").write_text(LADDER.replace(old, new, 1))
    assert_refused_without_a_trace(tmp_path, "ladder", "tiny.yaml", "--dry-run", fragments=("error: tiny.yaml", fragment))


DATA_FAULTS = {
    "more text than there is": (LADDER.replace("6e10, hidden_dims: [8, 12, 16, 24]", "6e11, hidden_dims: [8]"), "data have"),
    "more held-out text than there is": (LADDER + "evaluation: {windows: 640000}\n", "do not fit into"),
    "tokens for bytes": (
        "name: tiny\nrecipe: delphi\nrungs: [{budget_flops: 3e18}]\ntarget: {budget_flops: 1e21, batch_size: 512}\n",
        "128256; the data have 256 tokens (tokenizer: bytes)",
    ),
}


@pytest.mark.parametrize("fault", DATA_FAULTS)
def test_data_that_do_not_suffice_are_a_note_of_the_plan_and_a_refusal_to_train(tmp_path, fault):
    """The plan is printed, with status 1; training says the same and begins nothing."""
    text, fragment = DATA_FAULTS[fault]
    (tmp_path / "tiny.yaml").write_text(text)
    planned = marin_scale("ladder", "tiny.yaml", "--dry-run", cwd=tmp_path)
    assert (planned.returncode, planned.stderr) == (1, "")
    assert "the ladder cannot be trained" in planned.stdout
    assert fragment in planned.stdout
    assert_refused_without_a_trace(tmp_path, "ladder", "tiny.yaml", fragments=("error: tiny.yaml", fragment))


def test_a_bad_ladder_file_is_refused_the_same_way_when_it_is_to_be_trained_or_forecast(tmp_path):
    """Not only by --dry-run."""
    (tmp_path / "tiny.yaml").write_text(LADDER.replace("budget_flops: 6e10", "budget_flops: -6e10"))
    for command in ("ladder", "preregister"):
        assert_refused_without_a_trace(tmp_path, command, "tiny.yaml", fragments=("tiny.yaml, line 5: rungs.1.budget_flops",))


def test_a_ladder_that_is_not_trained_is_not_forecast(tmp_path):
    """The likeliest slip of a beginner: the message says how many rungs are missing, and the command that trains them."""
    (tmp_path / "tiny.yaml").write_text(LADDER)
    fragments = ("16 of 16 rungs of the ladder 'tiny'", "marin-scale ladder ladders/tiny.yaml")
    assert_refused_without_a_trace(tmp_path, "preregister", "tiny.yaml", fragments=fragments)


@pytest.mark.parametrize(
    ("column", "cell", "sentence"),
    [
        ("params", "big", "holds 'big', which is not a number"),
        ("loss", "nan", "holds nan"),
        ("loss", "inf", "holds inf"),
        ("flops", "0", "holds 0; it must be above zero"),
        ("flops", "-1e18", "holds -1e18; it must be above zero"),
        ("tokens", "", "is empty"),
        ("tokens", "5_0", "holds '5_0', which is not a number"),
    ],
)
def test_a_cell_that_is_no_usable_number_is_refused_with_file_line_and_column(tmp_path, column, cell, sentence):
    """The sixth run stands in line 7; the fix says how a diverged run may stay."""
    rows = isoflop_rows()
    rows[5][column] = cell
    write_table(tmp_path / "runs.csv", rows)
    fragments = (f"runs.csv, line 7, column '{column}' {sentence}", "--drop run-5")
    assert_refused_without_a_trace(tmp_path, "fit", "runs.csv", "--predict", "1e20", fragments=fragments)


def test_a_missing_column_is_refused_with_its_name_and_those_that_are_there(tmp_path):
    """And with the option that would settle it."""
    write_table(tmp_path / "runs.csv", isoflop_rows(), columns=("run", "flops", "params", "loss"))
    fragments = ("runs.csv has no column 'tokens'", "it has: run, flops, params, loss", "--column tokens=NAME")
    assert_refused_without_a_trace(tmp_path, "fit", "runs.csv", fragments=fragments)


@pytest.mark.parametrize(
    ("rows", "fragments"),
    [
        (isoflop_rows()[:3], ("runs.csv has 3 usable runs; a fit needs at least 4",)),
        (isoflop_rows(budgets=(1e18,), sizes=6), ("all 6 runs cost about 1e18 FLOPs",)),
        ([isoflop_rows()[0]] * 6, ("1 usable run;", "Left out were run-0: it is the same as", "and 2 more")),
    ],
    ids=["few runs", "one budget", "one run again and again"],
)
def test_fewer_runs_or_budgets_than_the_law_has_unknowns_are_refused_with_both_numbers(tmp_path, rows, fragments):
    """And with what would be enough; runs that were left out are named."""
    write_table(tmp_path / "runs.csv", rows)
    assert_refused_without_a_trace(tmp_path, "fit", "runs.csv", "--json", fragments=fragments)


def test_when_every_run_diverged_the_refusal_says_so_by_name(tmp_path):
    """A diverged run needs no loss where a status says that it diverged."""
    rows = [{**row, "loss": "", "status": "diverged"} for row in isoflop_rows()]
    write_table(tmp_path / "runs.csv", rows, columns=(*COLUMNS, "status"))
    fragments = ("0 usable runs", "run-0: it diverged (status)", "and 13 more")
    assert_refused_without_a_trace(tmp_path, "fit", "runs.csv", fragments=fragments)


def test_duplicates_and_a_diverged_run_beside_enough_others_are_left_out_by_name(tmp_path):
    """The fit goes on without them and lists each with its reason."""
    rows = isoflop_rows(budgets=(1e18, 2e18, 4e18, 8e18, 1.6e19))
    rows[6]["loss"] = "11.5"
    write_table(tmp_path / "runs.csv", [*rows, {**rows[0], "run": "again"}])
    done = marin_scale("fit", "runs.csv", "--predict", "1e20", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "2 left out" in done.stdout
    assert "again: it is the same as run-0" in done.stdout
    assert "run-6: diverged, or far off its bowl" in done.stdout


@pytest.mark.parametrize(
    ("name", "content", "fragment"),
    [
        ("empty.csv", b"", "empty.csv is empty"),
        ("head.csv", b"flops,params,tokens,loss\n", "head.csv holds no runs"),
        ("binary.csv", bytes(range(256)), "binary.csv is not text in UTF-8"),
        ("not.parquet", b"PAR1nothing of the kind", "not.parquet is not a Parquet table"),
        ("empty.parquet", b"", "empty.parquet is empty"),
        ("binary.jsonl", bytes(range(128, 256)), "binary.jsonl, line 1: not a JSON object"),
        ("runs.xlsx", b"PK", "files that end in '.xlsx'"),
    ],
)
def test_a_file_that_is_no_table_is_refused_by_name(tmp_path, name, content, fragment):
    """Empty, binary or of another kind."""
    (tmp_path / name).write_bytes(content)
    assert_refused_without_a_trace(tmp_path, "fit", name, fragments=(fragment,))


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (["fit", "nowhere.csv"], ("nowhere.csv cannot be read: no such file",)),
        (["fit", "folder"], ("folder holds no runs: neither runs.csv nor folders of finished rungs",)),
        (["ladder", "nowhere.yaml"], ("nowhere.yaml cannot be read: no such file",)),
        (["ladder", "folder"], ("folder cannot be read: is a directory", "name a file in it")),
        (["preregister", "nowhere.yaml"], ("nowhere.yaml cannot be read: no such file",)),
        (["run", "nowhere"], ("nowhere", "statement.json", "--registry")),
        (["run", "nowhere", "--registry", "folder"], ("There is no preregistration 'nowhere'",)),
        (["run", "all", "--registry", "folder"], ("one preregistration",)),
        (["verify"], ("preregistrations is not a folder", "--registry")),
        (["check"], ("preregistrations is not a folder", "--registry")),
        (["verify", "nowhere"], ("nowhere", "statement.json", "--registry")),
        (["check", "nowhere", "--registry", "folder"], ("There is no preregistration 'nowhere'", "folder has: none")),
        (["check", "--json", "--registry", "nowhere"], ("nowhere is not a folder",)),
    ],
    ids=" ".join,
)
def test_what_is_not_there_is_named(tmp_path, arguments, fragments):
    """Missing files and folders, and folders without what is sought."""
    (tmp_path / "folder").mkdir()
    assert_refused_without_a_trace(tmp_path, *arguments, fragments=fragments)


@pytest.mark.parametrize("text", ["abc", "-1", "0", "nan", "inf", "1e400", ""])
def test_a_budget_that_is_no_positive_number_is_refused(tmp_path, text):
    """Quoted as it was typed, with an example of how to write one; the table is not even opened."""
    fragments = (f"{text!r} is not a", "Write it like 1e23")
    assert_refused_without_a_trace(tmp_path, "fit", "nowhere.csv", "--predict", text, fragments=fragments)


def test_a_figure_of_unknown_kind_is_refused_with_the_kinds_that_are_known(tmp_path):
    """No file is left."""
    write_table(tmp_path / "runs.csv", isoflop_rows())
    fragments = ("out.xyz: figures are not written as '.xyz'", ".html, .svg, .png")
    assert_refused_without_a_trace(tmp_path, "fit", "runs.csv", "--plot", "out.xyz", fragments=fragments)


@pytest.mark.parametrize(
    "arguments",
    [["fit"], ["fit", "runs.csv", "--seed", "-1"], ["fit", "runs.csv", "--nosuch"], ["nosuch"]],
    ids=" ".join,
)
def test_a_command_typed_wrongly_is_refused_with_its_usage(tmp_path, arguments):
    """By the parser of the command line, with the way to the help."""
    done = marin_scale(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "Usage: marin-scale" in done.stderr
    assert "Error: " in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_output_that_cannot_be_printed_is_said_on_standard_error(tmp_path):
    """Redirected to a full disk, even the help ends with one message."""
    done = marin_scale_process("--help", cwd=tmp_path, before=lambda: os.dup2(os.open("/dev/full", os.O_WRONLY), 1) and None)
    assert done.returncode == 2
    assert_message(done, "standard output: no space left on device")


def test_an_error_is_wrapped_and_its_command_stays_on_one_line(tmp_path: Path) -> None:
    """At 80 columns where the output is no terminal."""
    name = "a-table-of-runs-with-a-rather-long-name.csv"
    (tmp_path / name).write_text("run\n")
    done = marin_scale("preregister", name, cwd=tmp_path, environment={"COLUMNS": f"{TABLE_WIDTH}"})
    *others, command = sorted(done.stderr.splitlines(), key=len)
    assert len(others[-1]) <= TABLE_WIDTH < len(command)
    assert command.split()[:2] == ["marin-scale", "preregister"]
