"""Columns of tables as people name them: one error for all that is missing, formulas on request, units in names."""

import numpy as np
import pandas as pd
import pytest

from marin_scaling.errors import RunTableError
from marin_scaling.run.columns import map_columns, spelled, unit_of_name
from marin_scaling.run.table import read_cells, read_run_table, table_of_frame
from marin_scaling.run.table_io import RawTable

FLOPS, PARAMS, TOKENS, LOSS = (
    [1e18, 1e18, 3e18, 3e18],
    [1e8, 2e8, 2e8, 4e8],
    [1.7e9, 8e8, 2.5e9, 1.2e9],
    [3.5, 3.4, 3.2, 3.1],
)
FRAME = pd.DataFrame({"flops": FLOPS, "params": PARAMS, "tokens": TOKENS, "loss": LOSS})


def raw(**columns):
    cells = pd.DataFrame(columns).astype(str)
    return RawTable(name="runs.csv", cells=cells, places=tuple(f"line {row + 2}" for row in range(len(cells))))


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("throughput/total_tokens", "tokens"),
        ("Tokens Trained", "tokens"),
        ("TOTAL_PARAMS", "params"),
        ("throughput.total_training_Gflops", "flops"),
        ("Val_BPB", "loss"),
    ],
)
def test_a_name_is_recognized_without_case_and_with_any_sign_between_words(name, column):
    """W&B, Levanter, OLMo and nanochat spell one thing in several ways."""
    assert map_columns(raw(**{name: ["1"]}), chosen={}, required=()) == {column: name}


def test_all_missing_columns_are_one_error_that_names_the_nearest_of_many():
    """A hundred names are not listed."""
    columns = {"cost_of_run": ["1"], "size_of_model": ["1"], "items_seen": ["1"], "nats_score": ["1"]}
    with pytest.raises(RunTableError) as caught:
        map_columns(raw(**{f"metric_{n:03}": ["1"] for n in range(100)}, **columns), chosen={})
    for option in ("flops=cost_of_run", "params=size_of_model", "tokens=items_seen", "loss=nats_score"):
        assert f"--column {option}" in caught.value.fix
    assert "metric_050" not in str(caught.value)


def test_a_missing_and_an_ambiguous_column_are_one_error():
    """One round, not two."""
    with pytest.raises(RunTableError) as caught:
        map_columns(raw(flops=["1"], params=["1"], eval_loss=["2"], val_loss=["3"]), chosen={})
    assert "'eval_loss' and 'val_loss'" in caught.value.what
    assert "no column 'tokens'" in caught.value.what
    assert "--column tokens=flops/6N" in caught.value.fix


def test_equal_columns_need_no_choice_and_numbers_win_over_labels():
    """28M beside 28490000 is a label."""
    table = raw(flops=["6e17"], N=["28490000"], Params=["28M"], D=["1e9"], train_tokens=["1000000000"], loss=["3"])
    assert map_columns(table, chosen={}) == {"flops": "flops", "params": "N", "tokens": "D", "loss": "loss"}


@pytest.mark.parametrize(
    ("column", "formula", "expected"),
    [
        ("flops", "6ND", [6 * n * d for n, d in zip(PARAMS, TOKENS, strict=True)]),
        ("tokens", "flops/6N", [c / (6 * n) for c, n in zip(FLOPS, PARAMS, strict=True)]),
        ("params", "C/(6D)", [c / (6 * d) for c, d in zip(FLOPS, TOKENS, strict=True)]),
    ],
)
def test_a_formula_gives_a_column_that_a_table_lacks(column, formula, expected):
    """On request only; the mapping says so."""
    table = table_of_frame(FRAME.drop(columns=column), columns={column: formula})
    assert table.frame[column].tolist() == pytest.approx(expected)
    with pytest.raises(RunTableError, match=f"no column '{column}'"):
        table_of_frame(FRAME.drop(columns=column))


def test_a_formula_takes_the_active_parameters_of_a_mixture():
    """FLOPs of experts that a token does not pass are not spent."""
    frame = FRAME.drop(columns="flops").assign(active_params=[n / 4 for n in PARAMS])
    found = table_of_frame(frame, columns={"flops": "6ND"}).frame["flops"]
    assert found.tolist() == pytest.approx([1.5 * n * d for n, d in zip(PARAMS, TOKENS, strict=True)])


def test_a_formula_counts_in_the_stated_unit_of_its_factors():
    """Parameters in millions cost a million times more than the numbers of the column say."""
    frame = FRAME.drop(columns="flops").assign(params=[n / 1e6 for n in PARAMS])
    found = table_of_frame(frame, columns={"flops": "6ND"}, units={"params": "millions"}).frame
    assert found["params"].tolist() == pytest.approx(PARAMS)
    assert found["flops"].tolist() == pytest.approx([6 * n * d for n, d in zip(PARAMS, TOKENS, strict=True)])
    with pytest.raises(RunTableError, match="--unit params=millions"):
        table_of_frame(frame, columns={"flops": "6ND"})


@pytest.mark.parametrize("empty", [[0, 1], [1, 4, 7]], ids=["of small runs", "of any runs"])
@pytest.mark.parametrize(("column", "formula"), [("flops", "6ND"), ("tokens", "flops/6N")])
def test_a_formula_that_counts_unlike_the_given_cells_is_the_cause_of_a_step(column, formula, empty):
    """FLOPs are 8 N D in the given cells; the finding has both counts, the factor, the formula and the options."""
    params, tokens = np.geomspace(1e8, 2e9, 12), np.geomspace(2e9, 4e10, 12)
    frame = pd.DataFrame({"params": params, "tokens": tokens, "flops": 8 * params * tokens, "loss": np.linspace(3.5, 2.5, 12)})
    frame.loc[empty, column] = np.nan
    found = table_of_frame(frame, columns={column: formula}).findings
    (step,) = (each for each in found if each.code == "flop-count")
    facts = [formula, f"{len(empty)} empty", f"{12 - len(empty)} given", "1.33" if column == "flops" else "0.75"]
    assert [fact for fact in facts if fact not in step.message] == []
    assert "--skip-incomplete" in step.message


def test_a_formula_that_counts_like_the_given_cells_is_a_note():
    """Attention moves a count by a few per cent."""
    params, tokens = np.geomspace(1e8, 2e9, 12), np.geomspace(2e9, 4e10, 12)
    frame = pd.DataFrame(
        {"params": params, "tokens": tokens, "flops": 6.3 * params * tokens, "loss": np.linspace(3.5, 2.5, 12)}
    )
    frame.loc[[1, 4], "flops"] = np.nan
    codes = [each.code for each in table_of_frame(frame, columns={"flops": "6ND"}).findings]
    assert "computed-cells" in codes
    assert "flop-count" not in codes


def test_a_formula_keeps_the_cells_that_are_given():
    """Only the empty cell is computed, in the unit of its column, and a note counts it."""
    given = [tokens / 1e9 for tokens in TOKENS]
    frame = FRAME.assign(tokens=[None, *given[1:]])
    table = table_of_frame(frame, columns={"tokens": "flops/6N"}, units={"tokens": "billions"})
    assert table.frame["tokens"].tolist() == pytest.approx([FLOPS[0] / (6 * PARAMS[0]), *TOKENS[1:]])
    assert [each.where for each in table.findings if each.code == "computed-cells"] == ["tokens"]


def test_a_formula_that_would_replace_given_numbers_is_refused_with_both():
    """The first of the rows, its number and the formula's."""
    frame = FRAME.assign(tokens=[2 * tokens for tokens in TOKENS])
    with pytest.raises(RunTableError, match="'tokens'") as caught:
        table_of_frame(frame, columns={"tokens": "flops/6N"})
    assert "row 0" in str(caught.value)
    assert f"{2 * TOKENS[0]:.4g}" in str(caught.value)


def test_two_formulas_are_refused():
    """Each needs what the other gives."""
    with pytest.raises(RunTableError, match="flops=6ND and tokens=flops/6N"):
        table_of_frame(FRAME[["params", "loss"]], columns={"flops": "6ND", "tokens": "flops/6N"})


def test_nominal_budgets_stand_for_missing_flops_with_a_warning():
    """As in results of a script that trains at fixed budgets."""
    table = table_of_frame(FRAME.rename(columns={"flops": "flops_budget"}))
    assert table.frame["flops"].tolist() == FLOPS
    assert any("flops_budget" in warning for warning in table.warnings)


def test_empty_active_params_are_params():
    """A dense row of a table of mixtures."""
    table = table_of_frame(FRAME.assign(active_params=[5e7, None, 1e8, None]))
    assert table.frame["active_params"].tolist() == [5e7, 2e8, 1e8, 4e8]


def test_all_bad_cells_are_one_error_with_options_that_leave_the_runs_out(tmp_path):
    """Every line and run; the options work."""
    lines = ["run,flops,params,tokens,loss", *(f"r{n},{FLOPS[n]},{PARAMS[n]},{TOKENS[n]},{LOSS[n]}" for n in range(4))]
    path = tmp_path / "runs.csv"
    path.write_text("\n".join([*lines, "p1,1e19,1e9,1e9,", "p2,1e19,many,1e9,", "p3,1e19,1e9,1e9,3.0"]) + "\n")
    with pytest.raises(RunTableError) as caught:
        read_run_table(path)
    for fact in ("line 6", "line 7", "p1", "p2", "'many'", "column 'loss'", "column 'params'"):
        assert fact in caught.value.what
    assert "--drop p1 --drop p2" in caught.value.fix
    assert len(read_run_table(path, drop=["p1", "p2"]).frame) == 5
    skipped = read_run_table(path, skip_incomplete=True, drop=["p3"])
    assert [(each.run, each.why) for each in skipped.excluded][:2] == [("p1", "its loss is empty"), ("p2", "its loss is empty")]


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["28,490,000", "1,000,000"], [28_490_000, 1_000_000]),
        (["28.5M", "1.2B"], [28.5e6, 1.2e9]),
        (["28 490 000", "1'000'000"], [28_490_000, 1_000_000]),
    ],
)
def test_counts_are_read_as_people_write_them(cells, numbers):
    """Thousands separators and rounded labels."""
    frame = FRAME.iloc[:2].assign(params=cells, flops=[6 * n * 1e9 for n in numbers], tokens=1e9)
    assert table_of_frame(frame).frame["params"].tolist() == numbers


def test_decimal_commas_are_read_where_nothing_else_can_be_meant(tmp_path):
    """A comma before three digits could be either."""
    head = "flops;params;tokens;loss\n"
    path = tmp_path / "runs.csv"
    path.write_text(head + "1e18;1e8;1,7e9;3,52\n3e18;2e8;2,5e9;3,1\n")
    assert read_run_table(path).frame["loss"].tolist() == [3.52, 3.1]
    path.write_text(head + "1e18;1e8;1.7e9;3,521\n3e18;2e8;2.5e9;3,102\n")
    with pytest.raises(RunTableError, match=r"'3,521': 3521 .*3\.521"):
        read_run_table(path)


def test_final_validation_losses_are_proposed_before_others():
    """Then training losses, then those of the best checkpoint, with the reason."""
    frame = FRAME.rename(columns={"loss": "val/loss_best"}).assign(**{"train/loss": LOSS, "my/val/loss": LOSS})
    with pytest.raises(RunTableError) as caught:
        table_of_frame(frame)
    fix = caught.value.fix
    assert "--column loss=my/val/loss" in fix
    assert fix.index("my/val/loss") < fix.index("train/loss (") < fix.index("val/loss_best (best checkpoint")


def test_the_prefix_of_a_summary_is_no_obstacle():
    """As in a table of runs from W&B, beside losses of other kinds."""
    mapping = map_columns(
        raw(**{"summary.val/loss": ["3"], "train/loss": ["2.9"], "val/loss_best": ["2.8"]}), chosen={}, required=()
    )
    assert mapping == {"loss": "summary.val/loss"}


def test_active_params_serve_as_params_of_a_dense_model():
    """The error offers it, and what it offers works."""
    frame = FRAME.rename(columns={"params": "active_params"})
    with pytest.raises(RunTableError) as caught:
        table_of_frame(frame)
    assert "dense" in caught.value.fix
    assert "--column params=active_params" in caught.value.fix
    assert table_of_frame(frame, columns={"params": "active_params"}).frame["params"].tolist() == PARAMS


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("tokens;loss\n1,705;3,521\n", ["1.705", "3.521"]),
        ('params,tokens,loss\n"100,5","1,705","3,521"\n', ["100.5", "1.705", "3.521"]),
        ('flops,tokens\n"3,004E+18","1,705"\n', ["3.004E+18", "1.705"]),
        ('params,tokens\n"1.234,567","1,705"\n', ["1234.567", "1.705"]),
        ('params,tokens,loss\n"100,000,000","1,705",3.521\n', ["100,000,000", "1705", "3.521"]),
    ],
)
def test_unambiguous_cells_of_a_file_decide_what_a_comma_means(tmp_path, text, cells):
    """Also in columns whose cells all have three digits after the comma; a note tells the choice."""
    path = tmp_path / "runs.csv"
    path.write_text(text)
    table = read_cells(path)
    assert table.cells.iloc[0].tolist() == cells
    assert [each.code for each in table.notes] == ["commas"]


def test_undecided_commas_are_one_line_for_each_column(tmp_path):
    """With the number of cells; the fix changes the file and leaves no run out."""
    path = tmp_path / "runs.csv"
    rows = [f'{FLOPS[n]},{PARAMS[n]},"1,70{n}","3,52{n}"' for n in range(4)]
    path.write_text("\n".join(["flops,params,tokens,loss", *rows]) + "\n")
    with pytest.raises(RunTableError) as caught:
        read_run_table(path)
    assert len(caught.value.lines) == 2
    assert all("4 cells" in line for line in caught.value.lines)
    assert "--drop" not in caught.value.fix


@pytest.mark.parametrize(
    ("column", "name", "factor"),
    [
        ("flops", "throughput/total_gflops", 1e9),
        ("flops", "train_tflops", 1e12),
        ("flops", "petaflop_s_days", 8.64e19),
        ("flops", "ZFLOPs", 1e21),
        ("flops", "throughput/total_flops", 1.0),
        ("params", "params_in_millions", 1e6),
        ("tokens", "Tokens (B)", 1e9),
        ("loss", "loss_b", 1.0),
    ],
)
def test_a_name_states_its_unit(column, name, factor):
    """Whoever chose the column."""
    assert unit_of_name(column, name) == factor


def test_one_letter_names_keep_their_case():
    """N is parameters, n may be a count of samples."""
    assert spelled("N") != spelled("n")


def test_a_chart_of_losses_is_no_table_of_runs():
    """The error says what takes it."""
    chart = raw(**{"Step": ["0"], "a - train/loss": ["7"], "a - train/loss__MIN": ["7"], "a - train/loss__MAX": ["7"]})
    with pytest.raises(RunTableError) as caught:
        map_columns(chart, chosen={})
    assert "train/loss" in caught.value.what
    assert "marin-scale track" in caught.value.fix
