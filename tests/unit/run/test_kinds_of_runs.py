"""Columns and budgets that set kinds of runs apart, and the choice of one kind."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from marin_scaling.errors import FitRefused, RunTableError, Severity, UsageError
from marin_scaling.fitted import load_runs
from marin_scaling.fitting.fit import FitStatus, fit
from marin_scaling.forecast.backtest import backtest
from marin_scaling.forecast.forecast import forecast
from marin_scaling.forecast.report import forecast_document
from marin_scaling.laws import SurfaceLaw, surface_loss
from marin_scaling.run.table import read_run_table, table_of_frame

LAW = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)


def grid(*, sizes=5, noise=0.002, seed=0):
    """Runs of six sizes at five budgets; 6 N D FLOPs each."""
    budget = np.repeat(np.geomspace(1e18, 1e20, 5), sizes)
    params = np.sqrt(budget / 120) * np.tile(np.geomspace(0.4, 2.5, sizes), 5)
    tokens = budget / 6 / params
    loss = surface_loss(LAW, params=params, tokens=tokens) * np.exp(
        noise * np.random.default_rng(seed).standard_normal(len(budget))
    )
    names = [f"run-{n}" for n in range(len(budget))]
    return pd.DataFrame(
        {"run": names, "flops": budget, "params": params, "tokens": tokens, "loss": loss, "budget_flops": budget}
    )


def two_kinds(shift=0.3):
    web, code = grid(seed=1).assign(dataset="web"), grid(seed=2).assign(dataset="code")
    code = code.assign(run="code-" + code["run"], loss=code["loss"] * np.exp(-shift))
    return pd.concat([web, code], ignore_index=True)


def codes(table):
    return [(each.severity, each.code) for each in table.findings]


def test_a_column_that_explains_the_residuals_makes_the_fit_unusable_and_is_named():
    """Two corpora in one table; a column of machines explains nothing."""
    table = table_of_frame(two_kinds().assign(machine=["a", "b"] * 25))
    (finding,) = table.findings
    assert (finding.severity, finding.code, finding.where) == (Severity.ERROR, "groups", "dataset")
    assert "'web'" in finding.message
    assert "machine" not in finding.message
    result = fit(table)
    assert result.status is FitStatus.CONTRADICTED
    assert not result.status.may_be_used
    for refused in (lambda: forecast(result, flops=1e22), lambda: backtest(table)):
        with pytest.raises(FitRefused, match="dataset"):
            refused()


def test_experts_whose_losses_follow_sparsity_are_a_warning_and_others_an_error():
    """With 64 and 256 experts of each width, losses as of (total / active)^0.4 times the active parameters, then 8 % apart."""
    active = grid()
    two = pd.concat([active.assign(n_experts=n, sparsity=n / 8 * (active["params"] / 1e8) ** -0.1) for n in (64, 256)])
    dense = two["params"] * two["sparsity"] ** 0.4
    loss = surface_loss(LAW, params=dense, tokens=two["tokens"]) * np.exp(
        0.002 * np.random.default_rng(3).normal(size=len(two))
    )
    names = [f"{name}-{n}" for name, n in zip(two["run"], two["n_experts"], strict=True)]
    sized = two.assign(run=names, loss=loss, active_params=two["params"], params=two["params"] * two["sparsity"])
    table = table_of_frame(sized.drop(columns="sparsity"))
    assert [(each.severity, each.where) for each in table.findings] == [(Severity.WARNING, "n_experts")]
    result = fit(table)
    assert result.status.may_be_used
    assert "kappa" in result.law.report()
    other = sized.assign(n_experts=8, data=["a", "b"] * 25, loss=sized["loss"] * np.tile([1.0, 1.08], 25))
    assert (Severity.ERROR, "groups") in codes(table_of_frame(other.drop(columns="sparsity")))


def test_one_kind_can_be_chosen_and_all_of_them_taken_as_they_are(tmp_path):
    """With --where the other runs are left out with the reason; --allow makes the error a warning."""
    two_kinds().to_csv(tmp_path / "runs.csv", index=False)
    web = read_run_table(tmp_path / "runs.csv", where={"dataset": "web"})
    assert (len(web.frame), web.findings) == (25, ())
    assert {each.why for each in web.excluded} == {"its dataset is 'code'"}
    assert codes(read_run_table(tmp_path / "runs.csv", allow=["groups"])) == [(Severity.WARNING, "groups")]
    for wrong, named in (({"corpus": "web"}, "dataset"), ({"dataset": "books"}, "code, web")):
        with pytest.raises(RunTableError, match=named):
            read_run_table(tmp_path / "runs.csv", where=wrong)


def test_a_pattern_chooses_all_values_that_it_matches():
    """An asterisk stands for any text; a pattern that matches nothing is refused with the values there are."""
    frame = two_kinds()
    assert len(table_of_frame(frame, where={"dataset": "w*"}).frame) == 25
    with pytest.raises(RunTableError, match="code, web"):
        table_of_frame(frame, where={"dataset": "x*"})


def test_a_number_is_chosen_however_it_is_written():
    """A column of whole numbers reads as 1.0 where a cell is empty."""
    frame = two_kinds().assign(stage=[1.0] * 25 + [2.0] * 25)
    assert len(table_of_frame(frame, where={"stage": "1"}).frame) == 25
    with pytest.raises(RunTableError, match=r"--where dataset=web"):
        table_of_frame(two_kinds(), where={"dataset": "Webb"})


def test_a_difference_of_one_per_cent_is_a_warning_and_columns_of_size_are_none():
    """Widths and names of sizes go with parameters; a difference within most intervals leaves the fit usable with care."""
    assert codes(table_of_frame(two_kinds(shift=0.015))) == [(Severity.WARNING, "groups")]
    frame = grid()
    sized = frame.assign(width=(frame["params"] ** 0.4).round(-1), label=pd.cut(frame["params"], 5).astype(str))
    assert table_of_frame(sized).findings == ()


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_budgets_counted_by_another_convention_are_named(steps):
    """The upper budgets count 8 N D."""
    frame = grid()
    upper = frame["budget_flops"] >= np.unique(frame["budget_flops"])[-steps]
    factor = np.where(upper, 4 / 3, 1.0)
    table = table_of_frame(frame.assign(flops=frame["flops"] * factor, budget_flops=frame["budget_flops"] * factor))
    assert codes(table) == [(Severity.ERROR, "flop-count")]
    assert "1.33" in table.findings[0].message
    assert "1.33e20" in table.findings[0].message


def test_a_smooth_ratio_of_flops_is_no_step():
    """Attention and embeddings move FLOPs / (6 N D) with size, and whole batches scatter it."""
    frame = grid()
    smooth = 1 + 0.8 * (frame["params"] / 1e8) ** -0.4 + np.random.default_rng(0).normal(0, 0.01, len(frame))
    table = table_of_frame(frame.assign(flops=frame["flops"] * smooth).drop(columns="budget_flops"))
    assert [each.code for each in table.findings] == ["budgets"]


def test_perplexities_are_refused_by_name_and_by_level_and_converted_on_request():
    """The logarithm of a perplexity is the loss in nats."""
    frame = grid().rename(columns={"loss": "val_ppl"})
    frame["val_ppl"] = np.exp(frame["val_ppl"])
    for table, named in ((frame, "val_ppl"), (frame.rename(columns={"val_ppl": "loss"}), "12.6")):
        column = {"loss": "val_ppl" if "val_ppl" in table else "loss"}
        with pytest.raises(RunTableError, match=named):
            table_of_frame(table, columns=column)
        nats = table_of_frame(table, columns=column, units={"loss": "perplexity"})
        np.testing.assert_allclose(nats.frame["loss"], grid()["loss"])


def test_perplexities_among_losses_are_named_and_not_converted():
    """Also where they are most of the table; no unit of the column makes them right."""
    for rows in ([2, 7, 11], list(range(3, 25))):
        frame = grid()
        frame.loc[rows, "loss"] = np.exp(frame.loc[rows, "loss"])
        for units in ({}, {"loss": "perplexity"}):
            with pytest.raises(RunTableError, match=rf"of {len(rows)} of 25 runs.*perplexities") as refused:
                table_of_frame(frame, units=units)
            assert "run-2" in str(refused.value)
            assert "--unit loss=perplexity" not in str(refused.value)


@pytest.mark.parametrize(
    "rows", [[3, 9], list(range(0, 25, 3)), [0, 1, 5, 20, 21, 22, 23, 24], list(range(15, 25)), list(range(5))]
)
def test_runs_whose_losses_are_in_bits_are_named(rows):
    """1 / ln 2 times the others' losses, not divergence."""
    frame = grid()
    frame.loc[rows, "loss"] /= np.log(2)
    with pytest.raises(RunTableError, match=r"1\.44 = 1 / ln 2.*run-"):
        table_of_frame(frame)


def test_unique_tokens_make_epochs_and_runs_that_repeat_them_are_named():
    """Under any name that says so, in any unit that the name states."""
    table = table_of_frame(grid().assign(dataset_tokens_B=2.0))
    np.testing.assert_allclose(table.frame["epochs"], np.maximum(table.frame["tokens"] / 2e9, 1))
    assert any("epoch" in warning for warning in table.warnings)
    document = forecast_document(fit(table), [forecast(fit(table), flops=1e21)])
    assert any("epochs of the 2e9 unique ones" in warning for warning in document["warnings"])


def test_a_forecast_that_its_own_law_contradicts_is_not_usable():
    """A size that is known to two decades only, another size that is better, and a target a million times beyond."""
    result = fit(table_of_frame(grid()))
    sound = forecast(result, flops=1e21)
    assert forecast_document(result, [sound])["may_be_used"]
    wrong = (
        replace(sound, params_interval=(1e8, 1e11)),
        replace(sound, mis_sizing=(-0.05, 0.02)),
        forecast(result, flops=2e26),
    )
    for each in wrong:
        document = forecast_document(result, [each])
        assert document["status"] == FitStatus.IMPLAUSIBLE.value
        assert len(document["warnings"]) > len(result.warnings)


def test_an_unknown_code_is_refused_with_the_nearest():
    """It would allow nothing; a code alone may be text."""
    with pytest.raises(UsageError, match="--allow groups"):
        load_runs(grid(), allow=["group"])
    assert codes(load_runs(two_kinds(), allow="groups")) == [(Severity.WARNING, "groups")]
    assert len(load_runs(grid(), drop="run-3").frame) == 24


def test_a_stated_unit_of_loss_is_applied_where_two_units_are_allowed():
    """The error becomes a warning, and the column is converted as asked."""
    frame = grid()
    frame.loc[[3, 9], "loss"] /= np.log(2)
    table = table_of_frame(frame, units={"loss": "bits"}, allow=["loss-unit"])
    found = table.frame.set_index("run")["loss"]
    np.testing.assert_allclose(found, frame.set_index("run")["loss"].loc[found.index] * np.log(2))
    assert (Severity.WARNING, "loss-unit") in codes(table)


def test_repeats_of_a_run_that_contradict_each_other_are_named():
    """A copy of one run with 6 % more loss; with 1 % more it is the noise of a seed."""
    runs = grid()
    again = runs.iloc[[7]].assign(run="again")
    off, near = (table_of_frame(pd.concat([runs, again.assign(loss=again["loss"] * each)])) for each in (1.06, 1.01))
    assert [each.code for each in off.findings] == ["repeats"]
    assert "run-7" in off.findings[0].message
    assert near.findings == ()
    seeds = pd.concat([runs, runs.assign(run="second-" + runs["run"], loss=1.05 * runs["loss"])])
    assert table_of_frame(seeds).findings == ()
    assert fit(off).status is not FitStatus.USABLE
