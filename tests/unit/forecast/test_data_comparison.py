"""Paired comparisons of training texts: exact differences, verdicts at their stated error rates, controls, and refusals."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from command_line import assert_refused, make_repository, marin_scale

import marin_scaling as ms
from marin_scaling.errors import RunTableError, UsageError
from marin_scaling.forecast.data_comparison import DataStatus, DataVerdict
from marin_scaling.run.table import RunTable

SIZES = ((1e15, 1e5, 1.6e9), (4e15, 2e5, 3.2e9), (1.6e16, 4e5, 6.4e9), (6.4e16, 8e5, 1.28e10))


LADDER = """\
name: tiny
recipe: {recipe}
rungs:
  - {{budget_flops: 6e10, hidden_dims: [8, 12]}}
  - {{budget_flops: 1.2e11, hidden_dims: [12]}}
seeds: [0, 1, 2]
target: {{budget_flops: 1.2e12}}
"""


def runs(effect=0.0, *, noise: float = 0.0, of_seed: float = 0.0, seeds=(0, 1, 2), generator=None) -> pd.DataFrame:
    """Runs whose log loss is shifted by an effect, by noise of a run, and by noise that all runs of a seed share."""
    generator = generator or np.random.default_rng(0)
    shared = {seed: of_seed * generator.standard_normal() for seed in seeds}
    rows = [
        (
            flops,
            params,
            tokens,
            seed,
            3 * (flops / 1e15) ** -0.05 * math.exp(effect + shared[seed] + noise * generator.standard_normal()),
        )
        for flops, params, tokens in SIZES
        for seed in seeds
    ]
    return pd.DataFrame(rows, columns=["flops", "params", "tokens", "seed", "loss"])


def as_table(frame: pd.DataFrame) -> RunTable:
    """A table without the time of an audit."""
    frame = frame.assign(run=[f"r{n}" for n in range(len(frame))], seed=frame["seed"].astype(str))
    return RunTable(frame=frame, source="made", metric="bits_per_byte")


def test_a_table_against_itself_is_called_identical():
    """One changed loss is enough for two tables."""
    base = runs(noise=0.01)
    changed = base.assign(loss=[base["loss"][0] * 1.001, *base["loss"][1:]])
    assert [sum("identical" in each for each in ms.compare_data(base, other).warnings) for other in (base, changed)] == [1, 0]


def test_the_difference_is_the_mean_over_rungs_and_its_interval_that_of_seeds():
    """By hand: log differences of seeds -0.01, -0.02 and -0.03 at every rung; t of two degrees of freedom is 2.920."""
    base = runs()
    other = base.assign(loss=base["loss"] * np.exp(-0.01 * (1 + base["seed"])))
    (found,) = ms.compare_data(base, other).texts
    assert found.difference == pytest.approx(math.expm1(-0.02))
    assert found.high == pytest.approx(math.expm1(-0.02 + 2.91999 * 0.01 / math.sqrt(3)), rel=1e-4)
    assert found.verdict is DataVerdict.BETTER
    assert [rung.difference for rung in found.rungs] == pytest.approx([math.expm1(-0.02)] * 4)


@pytest.mark.parametrize(
    ("effect", "margin", "verdict"),
    [(-0.02, 0.005, "better"), (0.001, 0.005, "not worse"), (0.02, 0.005, "worse"), (0.001, 0.0012, "undecided")],
)
def test_verdicts_by_effect_and_margin(effect, margin, verdict):
    """With differences of seeds that scatter by 0.1 %."""
    base = runs()
    other = base.assign(loss=base["loss"] * np.exp(effect + 0.001 * (base["seed"] - 1)))
    assert ms.compare_data(base, other, margin=margin).texts[0].verdict.value == verdict


@pytest.mark.parametrize("of_seed", [0.0, 0.003])
def test_false_verdicts_are_as_rare_as_stated(of_seed):
    """100 comparisons without a difference, also if runs of a seed share noise: over 13 are rarer than 1 in 1,000."""
    generator = np.random.default_rng(1)
    tables = [as_table(runs(noise=0.003, of_seed=of_seed, generator=generator)) for _ in range(200)]
    found = [ms.compare_data(*pair).texts[0] for pair in zip(tables[::2], tables[1::2], strict=True)]
    assert sum(each.p_values[0] <= 0.05 for each in found) <= 13
    assert sum(each.p_values[2] <= 0.05 for each in found) <= 13


def test_holms_correction_is_over_all_texts():
    """One text alone is better; among ten others without a difference it is not."""
    base = runs()
    shift = np.array([-0.4, 0.0, 0.4])[base["seed"]]
    just = base.assign(loss=base["loss"] * np.exp(0.01 * (shift - 0.9)))
    others = [runs(noise=0.01, generator=np.random.default_rng(n)) for n in range(10)]
    assert ms.compare_data(base, just).texts[0].verdict_after_holm is DataVerdict.BETTER
    together = ms.compare_data(base, just, *others).texts[0]
    assert together.verdict is DataVerdict.BETTER
    assert together.verdict_after_holm is not DataVerdict.BETTER


def test_a_control_that_is_better_is_the_worst_status():
    """The same tables without the control are usable."""
    base = runs()
    better = base.assign(loss=base["loss"] * 0.98)
    assert ms.compare_data(base, better).status is DataStatus.USABLE
    assert ms.compare_data(base, better, controls=[better]).status is DataStatus.CONTROL_WINS
    assert ms.compare_data(base, better, controls=[base]).status is DataStatus.USABLE


def test_a_text_that_is_worse_at_the_largest_rung_turns():
    """Its mean over rungs is better all the same."""
    base = runs()
    rung = base["flops"].rank(method="dense") - 1
    other = base.assign(loss=base["loss"] * np.exp(-0.03 + 0.0105 * rung + 0.0001 * base["seed"]))
    found = ms.compare_data(base, other)
    assert found.texts[0].verdict is DataVerdict.BETTER
    assert found.status is DataStatus.TURNS


def test_equal_tables_have_no_difference():
    """And are not worse, since their scatter is zero."""
    found = ms.compare_data(runs(noise=0.01), runs(noise=0.01))
    assert found.texts[0].difference == 0
    assert found.texts[0].verdict is DataVerdict.NOT_WORSE


def test_runs_without_a_partner_are_named():
    """A fourth seed of one side, at every rung."""
    found = ms.compare_data(runs(seeds=(0, 1, 2, 3)), runs(0.01))
    assert len(found.texts[0].left_out) == 4
    assert found.texts[0].seeds == ("0", "1", "2")


def test_repeated_text_on_one_side_is_a_warning():
    """Epochs differ inside of pairs."""
    base = runs().assign(epochs=1.0)
    found = ms.compare_data(base, base.assign(epochs=2.0, loss=base["loss"] * 0.98))
    assert found.status is DataStatus.REPEATS


@pytest.mark.parametrize(
    ("other", "facts"),
    [
        (runs().drop(columns="seed"), ("seed",)),
        (runs(seeds=(0, 1)), ("2 seeds", "of 3", "0, 1, 2")),
        (runs(seeds=(5, 6, 7)), ("0 seeds", "5, 6, 7")),
        (
            runs().assign(tokens=lambda frame: frame["tokens"] * 1.2, flops=lambda frame: frame["flops"] * 1.2),
            ("tokens", "1.92e9"),
        ),
        (runs().assign(evaluation="other text"), ("evaluation",)),
    ],
)
def test_tables_that_are_no_pairs_are_refused(other, facts):
    """With both numbers."""
    with pytest.raises(RunTableError) as error:
        ms.compare_data(runs().assign(evaluation="text"), other)
    for fact in facts:
        assert fact in str(error.value)


def test_ladders_are_paired_by_rung_and_seed_and_have_one_recipe(tmp_path):
    """Nine pairs of equal losses; a ladder of another recipe is refused with both names."""
    recipes = ("quickstart", "quickstart", "quickstart-moe")
    folders = [
        make_repository(tmp_path / str(n), ladder=LADDER.format(recipe=recipe)) / "runs" / "tiny"
        for n, recipe in enumerate(recipes)
    ]
    (found,) = ms.compare_data(*folders[:2]).texts
    assert (len(found.rungs), len(found.seeds), found.difference) == (3, 3, 0.0)
    with pytest.raises(RunTableError) as error:
        ms.compare_data(folders[0], folders[2])
    assert "quickstart-moe" in str(error.value)


def test_a_margin_out_of_range_and_a_single_table_are_refused():
    """Before the tables are read."""
    with pytest.raises(UsageError):
        ms.compare_data("none.csv", "none.csv", margin=0.0)
    with pytest.raises(UsageError):
        ms.compare_data("none.csv")


def test_the_command_prints_verdicts_within_80_columns(tmp_path):
    """And the same verdicts as JSON; a missing table is named."""
    for name, effect in (("web", 0.0), ("web-filtered-by-a-long-name", -0.02), ("random", 0.0)):
        runs(effect, noise=0.001, generator=np.random.default_rng(len(name))).to_csv(tmp_path / f"{name}.csv", index=False)
    arguments = ("data", "compare", "web.csv", "web-filtered-by-a-long-name.csv", "--control", "random.csv")
    done = marin_scale(*arguments, cwd=tmp_path, environment={"COLUMNS": "80"})
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    found = json.loads(marin_scale(*arguments, "--json", cwd=tmp_path).stdout)
    assert [each["control"] for each in found["texts"]] == [False, True]
    assert found["texts"][0]["verdict_after_holm"] == "better"
    assert_refused(marin_scale("data", "compare", "web.csv", "none.csv", cwd=tmp_path), "none.csv")


def test_a_table_that_names_its_metric_and_one_that_does_not_are_no_sure_pair():
    """Nats and bits differ by 1.44, which no verdict survives."""
    base = runs()
    other = base.assign(loss=base["loss"] * 0.97).rename(columns={"loss": "bits_per_byte"})
    assert ms.compare_data(base, other).status is DataStatus.ONE_METRIC_OPEN
    assert ms.compare_data(base, other.rename(columns={"bits_per_byte": "loss"})).status is DataStatus.USABLE
