"""Runs and targets that repeat data: effective tokens, the optimum that unique tokens limit, and what is signed."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fitted_registration import simulated_ladder
from registration_factory import make_registration, target_spec
from scipy.optimize import minimize_scalar
from typer.testing import CliRunner

import marin_scaling as ms
from marin_scaling.cli.app import app
from marin_scaling.errors import FitRefused, UsageError, VerificationError
from marin_scaling.fitting.fit import fit, with_effective_tokens
from marin_scaling.forecast.backtest import backtest_of_fit
from marin_scaling.forecast.forecast import forecast, forecast_runs, optimal_target, samples, sensitivity
from marin_scaling.forecast.report import forecast_document
from marin_scaling.forecast.targets import target_runs, targets_of_frame
from marin_scaling.laws import SurfaceLaw, effective_tokens, surface_loss
from marin_scaling.preregistration.registry import signers_path
from marin_scaling.preregistration.verify.refit import verify_and_fit
from marin_scaling.run.cells import has_many_per_cell
from marin_scaling.run.table import table_of_frame

SURFACE = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
DELPHI = Path(__file__).parents[3] / "runs" / "delphi"


def grid(*, epochs: float = 8.0, noise: float = 0.001) -> pd.DataFrame:
    """Runs whose loss follows effective tokens, half of them on new tokens, half with `epochs` passes."""
    budgets = np.repeat([1e18, 3e18, 1e19, 3e19, 1e20], 5)
    params = 0.09 * budgets**0.5 * np.tile([0.25, 0.5, 1, 2, 4], 5)
    frame = pd.DataFrame({"flops": budgets, "params": params, "tokens": budgets / 6 / params})
    frame = pd.concat([frame.assign(epochs=1.0), frame.assign(epochs=epochs)], ignore_index=True)
    worth = effective_tokens(frame["tokens"], unique_tokens=frame["tokens"] / frame["epochs"])
    loss = surface_loss(SURFACE, params=frame["params"].to_numpy(), tokens=worth)
    scatter = np.exp(noise * np.random.default_rng(0).standard_normal(len(frame)))
    return frame.assign(loss=loss * scatter, run=[f"r{row}" for row in range(len(frame))])


@pytest.mark.parametrize(("epochs", "worth"), [(1, 1.0), (4, 3.726), (16, 10.582), (44, 15.447), (1e9, 16.388)])
def test_effective_tokens_are_those_of_the_published_formula(epochs, worth):
    """Muennighoff et al. 2023, eq. 5 with R* = 15.387756: four epochs are worth 93 %, and no number more than 16.4 epochs."""
    assert effective_tokens(epochs * 1e9, unique_tokens=1e9) / 1e9 == pytest.approx(worth, abs=5e-4)


def test_more_unique_tokens_than_trained_ones_change_nothing():
    """Bit for bit."""
    assert effective_tokens(3e9, unique_tokens=7e9) == 3e9


def test_a_table_is_fitted_in_effective_tokens_once():
    """FLOPs count in proportion; what was trained is kept, and is what a statement signs."""
    table = table_of_frame(grid())
    result = fit(table)
    assert result.has_effective_tokens
    share = result.frame["tokens"] / result.frame["trained_tokens"]
    np.testing.assert_allclose(share[25:], float(effective_tokens(8.0, unique_tokens=1.0)) / 8)
    np.testing.assert_allclose(result.frame["flops"] / result.frame["trained_flops"], share)
    assert [row["tokens"] for row in result.rows] == list(table.frame["tokens"])
    again = replace(table, frame=result.frame)
    assert with_effective_tokens(again) is again
    assert fit(replace(table, frame=pd.DataFrame(result.rows))).law.parameters == result.law.parameters


def test_a_table_without_repeated_data_is_unchanged():
    """A column of epochs alone changes no number."""
    new = table_of_frame(grid().iloc[:25])
    assert with_effective_tokens(new) is new
    without = table_of_frame(grid().iloc[:25].drop(columns="epochs"))
    assert fit(new).law.parameters == fit(without).law.parameters


def test_forecasts_of_new_and_of_repeated_tokens_are_right_where_the_formula_holds():
    """The law is Hoffmann's, so both truths are known."""
    found = ms.fit(grid())
    for unique in (None, 1e10):
        ahead = found.forecast(1e21, params=3e9, tokens=1e21 / 18e9, unique_tokens=unique)
        truth = surface_loss(SURFACE, params=np.array([3e9]), tokens=np.array([ahead.effective_tokens]))[0]
        assert ahead.interval()[0] < truth < ahead.interval()[1]
        assert ahead.median == pytest.approx(truth, rel=0.01)


def test_tokens_as_trained_forecast_the_same_runs_worse():
    """The sensitivity table has that choice."""
    result = fit(table_of_frame(grid(epochs=30.0)))
    ahead = forecast(result, flops=1e21)
    rows = {row.choice: row.median for row in sensitivity(result, ahead)}
    truth = surface_loss(SURFACE, params=np.array([ahead.params]), tokens=np.array([ahead.tokens]))[0]
    assert abs(ahead.median - truth) < 0.5 * abs(rows["repeated tokens counted as new"] - truth)


@pytest.mark.parametrize("epochs", [2.0, 6.0, 20.0, 60.0])
def test_unique_tokens_limit_the_optimum(epochs):
    """The best size of Hoffmann's surface at 6 N D' = C is found by minimization, and the fit's is near."""
    result = fit(table_of_frame(grid(noise=0.0).iloc[:25]), law="additive-surface")
    flops, unlimited = 1e21, optimal_target(result, 1e21)
    unique = unlimited.tokens / epochs
    limited = optimal_target(result, flops, unique_tokens=unique)
    assert limited.active_params * limited.tokens == pytest.approx(unlimited.active_params * unlimited.tokens)
    ratio = limited.active_params / unlimited.active_params
    best = [_optimum(flops, unique=unique), _optimum(flops, unique=np.inf)]
    assert ratio == pytest.approx(best[0] / best[1], rel=0.03)
    assert forecast(result, flops=flops, unique_tokens=unique).median > forecast(result, flops=flops).median


def _optimum(flops: float, *, unique: float) -> float:
    def loss(log_params: float) -> float:
        params = np.exp([log_params])
        tokens = flops / 6 / params
        worth = effective_tokens(tokens, unique_tokens=min(unique, 1e30))
        return float(surface_loss(SURFACE, params=params, tokens=worth)[0])

    return float(np.exp(minimize_scalar(loss, bounds=(np.log(1e8), np.log(1e12)), method="bounded").x))


def test_enough_unique_tokens_change_no_number():
    """More than the run trains on: the same quantiles to the last digit."""
    result = fit(table_of_frame(grid().iloc[:25]))
    plain, ample = forecast(result, flops=1e21), forecast(result, flops=1e21, unique_tokens=1e15)
    assert plain.quantiles == ample.quantiles
    assert plain.params_interval == ample.params_interval


def test_a_law_of_optima_refuses_a_limited_optimum():
    """It knows no other sizes."""
    result = fit(table_of_frame(grid().iloc[:25]), law="isoflop-frontier")
    with pytest.raises(FitRefused, match="1e8 unique tokens"):
        forecast(result, flops=1e21, unique_tokens=1e8)


def test_tables_of_targets_may_repeat_data():
    """By epochs or by unique tokens, in the unit that the name states."""
    result = fit(table_of_frame(grid()))
    sizes = pd.DataFrame({"params": [3e9], "tokens": [6e10]})
    by_epochs, by_unique = (
        target_runs(result, targets_of_frame(sizes.assign(**column), like=table_of_frame(grid())))[0]
        for column in ({"epochs": [4.0]}, {"unique_tokens_B": [15.0]})
    )
    assert by_epochs.unique_tokens == by_unique.unique_tokens == 1.5e10
    new, repeated = forecast_runs(result, [replace(by_epochs, unique_tokens=None), by_epochs])
    assert repeated.median > new.median


def test_runs_that_differ_in_epochs_are_no_sweep():
    """Five runs of one size and length, each with other epochs."""
    rows = [(params, 20 * params, epochs) for params in (1e7, 2e7, 4e7, 8e7, 1.6e8) for epochs in (1, 2, 4, 8, 16)]
    frame = pd.DataFrame(rows, columns=["params", "tokens", "epochs"], dtype=float)
    assert not has_many_per_cell(frame)
    assert has_many_per_cell(frame.drop(columns="epochs"))


def test_the_command_and_the_document_name_effective_tokens(tmp_path):
    """Runs that repeat data, their least share, and the target's epochs; without a budget the option is refused."""
    grid().to_csv(tmp_path / "runs.csv", index=False)
    arguments = ["fit", str(tmp_path / "runs.csv"), "--predict", "1e21", "--unique-tokens", "5B"]
    printed = CliRunner().invoke(app, arguments).stdout
    assert "effective tokens: 25 runs repeat data" in printed
    assert "epochs of 5.00B unique tokens" in printed
    document = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert document["effective_tokens"]["runs"] == 25
    (prediction,) = document["predictions"]
    assert prediction["unique_tokens"] == 5e9
    assert prediction["effective_tokens"] < prediction["tokens"]
    refused = CliRunner().invoke(app, ["fit", str(DELPHI), "--unique-tokens", "5e9"])
    assert isinstance(refused.exception, UsageError)
    assert "5e9" in str(refused.exception)


@pytest.mark.parametrize("limited", [True, False])
def test_a_signed_forecast_of_a_run_that_repeats_its_text_is_refitted_with_that_text(tmp_path, limited):
    """Epochs and training tokens are in the statement; a forecast that takes the tokens for new is refused."""
    new = target_spec()
    data = new.data.model_copy(update={"train_bytes": new.trained_tokens // 8})
    target = new.model_copy(update={"epochs": 8, "data": data})
    unique_tokens = target.unique_tokens if limited else None
    result = fit(simulated_ladder())
    ahead = forecast(result, flops=target.flops, unique_tokens=unique_tokens)
    document = forecast_document(result, [ahead], sensitivities=[sensitivity(result, ahead)], tested=backtest_of_fit(result))
    losses = samples(result, flops=target.flops, unique_tokens=unique_tokens).tolist()
    evidence = {"forecast": document | {"metric": "bits_per_byte"}, "losses": losses, "target": target}
    folder = make_registration(tmp_path, rows=result.rows, **evidence).folder
    if not limited:
        with pytest.raises(VerificationError, match="refitting its ladder gives"):
            verify_and_fit(folder, allowed_signers=signers_path(folder))
        return
    (step,) = [each for each in verify_and_fit(folder, allowed_signers=signers_path(folder)).steps if each.what == "fit"]
    assert step.compared
