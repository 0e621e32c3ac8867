"""Laws over data mixtures: known laws, optima with an independent solution, limits, invariances, bad tables, ladder files."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from marin_scaling.errors import FitRefused, LadderFileError, RunTableError, StorageError, UsageError
from marin_scaling.fitting.mixture import Family, best_mix, fit_best_law, fit_law, folds_of, nearest_mix
from marin_scaling.forecast.mixture import MixtureStatus, mix
from marin_scaling.ladder.config import read_ladder_file
from marin_scaling.run.tuning_runs import read_mixtures
from marin_scaling.yaml_config import with_value

DOMAINS = ("books", "code", "web")


def mixtures(count: int, *, domains: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(domains), size=count)


def table(weights: np.ndarray, *, noise: float = 0.0, **losses: np.ndarray) -> pd.DataFrame:
    generator = np.random.default_rng(9)
    frame = pd.DataFrame(weights, columns=[f"weight_{name}" for name in DOMAINS])
    return frame.assign(**{name: column + noise * generator.standard_normal(len(frame)) for name, column in losses.items()})


def bowl(weights: np.ndarray, place=(0.2, 0.3, 0.5)) -> np.ndarray:
    """Loss whose least value among mixtures is 3, at `place`."""
    return 3 + 0.5 * ((weights - np.array(place)) ** 2).sum(1)


@pytest.fixture(scope="module")
def fitted():
    weights = mixtures(60)
    return mix(table(weights, noise=1e-4, loss_a=bowl(weights), loss_b=2 + np.exp(1 - 3 * weights[:, 1])))


def test_a_linear_law_is_recovered():
    """Its values at mixtures beyond those tried are exact to the noise."""
    weights = mixtures(40)
    law, tried = fit_best_law(weights, weights @ [3.0, 2.0, 4.0] + 1e-3 * np.random.default_rng(1).standard_normal(40))
    assert law.family is Family.LINEAR
    assert law.interval(np.eye(3))[1] == pytest.approx([3.0, 2.0, 4.0], abs=5e-3)
    assert len(tried) == 3


def test_an_exponential_law_is_recovered():
    """Its family is chosen, and its values at the corners of the simplex are right to 2 %."""
    weights = mixtures(60)
    losses = 2 + np.exp(weights @ [1.0, -2.0, 0.0]) * np.exp(1e-3 * np.random.default_rng(1).standard_normal(60))
    law, _ = fit_best_law(weights, losses)
    assert law.family is Family.EXPONENTIAL
    assert law.interval(np.eye(3))[1] == pytest.approx(2 + np.exp([1.0, -2.0, 0.0]), rel=0.02)


def test_a_loss_with_an_interaction_takes_the_smooth_law():
    """Neither of the other families has a minimum inside."""
    weights = mixtures(60)
    law, tried = fit_best_law(weights, bowl(weights))
    assert law.family is Family.SMOOTH
    assert min(each.squared_error for each in tried) < 0.01 * tried[0].squared_error


def test_the_best_mix_of_a_bowl_is_its_bottom(fitted):
    """And the range of each weight contains it."""
    best = fitted.best("a")
    assert best.mix == pytest.approx([0.2, 0.3, 0.5], abs=0.03)
    assert ((best.ranges[:, 0] <= [0.2, 0.3, 0.5]) & (best.ranges[:, 1] >= [0.2, 0.3, 0.5])).all()
    assert best.status is MixtureStatus.USABLE


@given(place=st.lists(st.floats(-0.5, 1.5), min_size=4, max_size=4), caps=st.lists(st.floats(0.3, 1.0), min_size=4, max_size=4))
def test_the_minimum_of_a_distance_is_the_projection(place, caps):
    """Sequential quadratic programming agrees with the projection on the simplex with caps, found by bisection."""
    target, caps = np.array(place), np.array(caps)
    found = best_mix(lambda w: (float(((w - target) ** 2).sum()), 2 * (w - target)), caps, [np.full(4, 0.25)], unit=1.0)
    expected = nearest_mix(np.clip(target, -0.5, 1.5), caps) if abs(target).max() <= 1 else found
    assert found.sum() == pytest.approx(1)
    assert (found <= caps + 1e-9).all()
    assert ((found - target) ** 2).sum() <= ((expected - target) ** 2).sum() + 1e-6


@pytest.mark.parametrize("family", list(Family))
def test_slopes_of_paths_are_their_differences(family):
    """Central differences of the median and of a draw."""
    weights = mixtures(30, domains=4)
    law = fit_law(family, weights, 2 + np.exp(weights[:, 0]) + weights[:, 1] ** 2, generator=np.random.default_rng(0))
    for paths in (law.middle, law.paths(2, np.random.default_rng(1))):
        _, slope = paths.with_slope(weights[0], 0)
        steps = 1e-6 * np.eye(4)
        ends = (np.array([paths.with_slope(weights[0] + sign * step, 0)[0] for step in steps]) for sign in (1, -1))
        up, down = ends
        assert slope == pytest.approx((up - down) / 2e-6, rel=1e-3, abs=1e-4)
        assert paths.losses(weights[:1])[0, 0] == pytest.approx(paths.with_slope(weights[0], 0)[0])


def test_draws_have_the_mean_and_spread_of_the_law():
    """Of 400 draws, means lie within a quarter of the law's standard deviation, which is right to a fifth."""
    weights = mixtures(25)
    law = fit_law(Family.SMOOTH, weights, bowl(weights) + 0.02 * np.sin(9 * weights[:, 0]), generator=np.random.default_rng(0))
    new = mixtures(8, seed=3)
    drawn = law.paths(400, np.random.default_rng(1)).losses(new)
    low, middle, high = law.interval(new)
    without_noise = np.sqrt(((high - low) / 3.29) ** 2 - law.kernel.noise * law.spread**2)
    assert (np.abs(drawn.mean(1) - middle) < 0.25 * without_noise + 1e-4).all()
    assert np.median(drawn.std(1) / without_noise) == pytest.approx(1, abs=0.2)


def test_intervals_hold_the_losses_of_new_runs():
    """12 tables of 40 runs with noise, 50 new runs each: of 600 intervals of 90 %, at least 85 % and not all hold the loss."""
    held = []
    for seed in range(12):
        weights, new = mixtures(40, seed=seed), mixtures(50, seed=100 + seed)
        generator = np.random.default_rng(seed)
        law, _ = fit_best_law(weights, bowl(weights) + 0.01 * generator.standard_normal(40), seed=seed)
        low, _, high = law.interval(new)
        held.append(np.mean((low <= (loss := bowl(new) + 0.01 * generator.standard_normal(50))) & (loss <= high)))
    assert 0.85 <= np.mean(held) < 0.99


def test_limits_of_tokens_hold_and_are_named(fitted):
    """100 tokens, 10 of web twice: at most a fifth of the mix."""
    best = fitted.best("a", tokens=100, limits={"web": 10}, epochs=2, against={"code": 1})
    assert best.weights["web"] == pytest.approx(0.2)
    assert best.at_limit == ["web"]
    assert best.status is MixtureStatus.ON_LIMITS
    rest = np.array([0.2, 0.3]) + 0.15  # what is left over goes to both in equal parts
    assert [best.weights["books"], best.weights["code"]] == pytest.approx(rest, abs=0.04)


def test_weights_have_four_decimals_and_add_up_to_one(fitted):
    """Also where a limit has more decimals."""
    for best in (fitted.best("a"), fitted.best(tokens=3, limits={"web": 1})):
        units = best.mix * 10_000
        assert units == pytest.approx(units.round(), abs=1e-6)
        assert round(units.sum()) == 10_000
        assert best.weights["web"] <= 1 / 3 or math.isnan(best.frame.set_index("domain").loc["web", "limit"])


def test_limits_that_leave_too_few_tokens_are_refused(fitted):
    """Both numbers are named."""
    with pytest.raises(UsageError) as error:
        fitted.best(tokens=100e9, limits={"web": 20e9, "code": 10e9, "books": 15e9}, epochs=2)
    assert "90.0B" in str(error.value)
    assert "100B" in str(error.value)


@pytest.mark.parametrize(
    "choices",
    [
        {"minimize": "c"},
        {"minimize": {"a": -1.0}},
        {"tokens": 1e9},
        {"limits": {"web": 1e9}},
        {"tokens": 1e9, "limits": {"paper": 1e9}},
        {"tokens": math.nan, "limits": {"web": 1e9}},
        {"against": {"web": 0.5}},
        {"against": {"paper": 1.0}},
    ],
)
def test_choices_that_mean_nothing_are_refused(fitted, choices):
    """Unknown names, numbers that are none, and limits without tokens."""
    with pytest.raises(UsageError):
        fitted.best(**choices)


def test_gain_is_the_difference_of_the_losses(fitted):
    """Against the mix of the bottom of the bowl, nothing is gained; against the mean mix, what the bowl says."""
    best = fitted.best("a")
    true = bowl(best.reference[None])[0] - bowl(best.mix[None])[0]
    assert best.gains[0] - 1e-3 <= true <= best.gains[2] + 1e-3
    none = fitted.best("a", against={"books": 0.2, "code": 0.3, "web": 0.5})
    assert none.gains[1] == pytest.approx(0, abs=1e-3)


def test_order_of_columns_and_units_change_nothing():
    """Percentages, reversed columns, and a loss in another unit give the same weights."""
    weights = mixtures(40)
    frame = table(weights, noise=1e-3, loss=bowl(weights))
    one = mix(frame).best()
    other = mix(
        frame[frame.columns[::-1]].assign(loss=7 * frame["loss"], **{c: 100 * frame[c] for c in frame if c != "loss"})
    ).best()
    assert one.weights == pytest.approx(other.weights, abs=2e-3)
    assert one.gains * 7 == pytest.approx(other.gains, rel=0.02)


def test_the_same_seed_gives_the_same_result():
    """Folds, draws and starts are all drawn with it."""
    weights = mixtures(30)
    frame = table(weights, noise=1e-3, loss=bowl(weights))
    one, two = (mix(frame, seed=3) for _ in range(2))
    assert one.document(one.best()) == two.document(two.best())


def test_equal_mixtures_share_a_fold():
    """A run is never predicted from a run with its mix."""
    weights = np.repeat(mixtures(15), 2, axis=0)
    folds = folds_of(weights, seed=0)
    assert (folds[::2] == folds[1::2]).all()
    assert len(set(folds.tolist())) == 10


def test_losses_without_a_law_are_not_ranked():
    """Pure noise."""
    weights = mixtures(40)
    found = mix(table(weights, loss=3 + 0.1 * np.random.default_rng(0).random(40)))
    assert found.status is MixtureStatus.DOES_NOT_RANK
    assert found.best().status is MixtureStatus.DOES_NOT_RANK


def test_a_best_mix_at_the_largest_tried_weight_is_marked():
    """The loss falls with the weight of web, of which no more than 0.6 was tried."""
    weights = mixtures(200)
    weights = weights[weights[:, 2] < 0.6][:40]
    best = mix(table(weights, noise=1e-3, loss=3 - weights[:, 2])).best()
    assert best.mix[2] == pytest.approx(weights[:, 2].max(), abs=2e-4)
    assert best.at_border == ["web"]
    assert best.status is MixtureStatus.AT_BORDER


def test_a_best_mix_far_from_all_tried_ones_extrapolates():
    """Mixtures near the edges of a simplex, and a bowl whose bottom is in its middle."""
    generator = np.random.default_rng(0)
    edges = np.array([np.roll([a, 1 - a - 0.02, 0.02], turn) for a in generator.uniform(0.05, 0.95, 20) for turn in range(3)])
    found = mix(table(edges, noise=1e-4, loss=bowl(edges, (1 / 3, 1 / 3, 1 / 3)))).best()
    assert found.distance > found.usual_distance
    assert found.status is MixtureStatus.EXTRAPOLATES


def test_few_mixtures_for_the_domains_are_marked():
    """12 mixtures of 5 domains."""
    weights = mixtures(12, domains=5)
    frame = pd.DataFrame(weights, columns=list("abcde")).assign(loss=weights @ [1.0, 2.0, 3.0, 4.0, 5.0])
    assert mix(frame).status is MixtureStatus.FEW_MIXTURES


def test_fewer_than_ten_mixtures_are_refused():
    """Each fold needs one."""
    weights = mixtures(9)
    with pytest.raises(FitRefused):
        mix(table(weights, loss=bowl(weights)))


def test_an_equal_loss_is_refused():
    """No law ranks it."""
    with pytest.raises(FitRefused):
        mix(table(mixtures(20), loss=np.full(20, 3.0)))


def test_columns_are_found_by_their_sums():
    """By a common beginning, by a common ending, or next to each other; other columns are left alone."""
    weights = mixtures(12)
    losses = {"x_loss": bowl(weights), "y_loss": bowl(weights)}
    for names in (["w.a", "w.b", "w.c"], ["a_share", "b_share", "c_share"], ["a", "b", "c"]):
        frame = pd.DataFrame(weights, columns=names).assign(steps=100, **losses)
        found = read_mixtures(frame)
        assert found.domains == ("a", "b", "c")
        assert found.names == ("x", "y")
        assert found.weights == pytest.approx(weights)


def test_weights_that_do_not_add_up_are_all_listed():
    """Two of twelve rows, with their sums."""
    weights = mixtures(12)
    weights[3] *= 0.8
    weights[7] *= 1.1
    with pytest.raises(RunTableError) as error:
        read_mixtures(table(weights, loss=np.arange(1.0, 13)))
    assert "row 3" in error.value.lines[0]
    assert "0.8" in error.value.lines[0]
    assert "row 7" in error.value.lines[1]
    assert "1.1" in error.value.lines[1]
    dropped = read_mixtures(table(weights, loss=np.arange(1.0, 13)), drop=["row 3", "row 7"])
    assert len(dropped.weights) == 10
    assert set(dropped.excluded) == {"row 3", "row 7"}


def test_rounded_weights_are_normalized_with_a_note():
    """Three decimals of three weights add up to 0.999 to 1.001."""
    weights = mixtures(60)
    found = read_mixtures(table(weights.round(3), loss=bowl(weights)))
    assert found.weights.sum(1) == pytest.approx(1, abs=1e-12)
    assert len(found.notes) == 1
    assert not read_mixtures(table(weights, loss=bowl(weights))).notes


def test_all_bad_cells_are_listed():
    """A text, a negative weight, an empty loss."""
    weights = mixtures(12)
    frame = table(weights, loss=bowl(weights)).astype(object)
    frame.loc[1, "weight_web"], frame.loc[2, "weight_code"], frame.loc[4, "loss"] = "much", -0.1, None
    with pytest.raises(RunTableError) as error:
        read_mixtures(frame)
    assert len(error.value.lines) == 3
    for place, line in zip(
        ("row 4", "row 1", "row 2"), sorted(error.value.lines, key=lambda each: "loss" not in each), strict=True
    ):
        assert place in line or "row 2" in line or "row 1" in line


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame.drop(columns="loss"),
        lambda frame: frame.assign(bpb=1.0),
        lambda frame: frame.drop(columns="weight_web"),
        lambda frame: frame.assign(params=[1e6] * 6 + [1e9] * 6),
    ],
)
def test_tables_that_are_unclear_are_refused(change):
    """No loss, two units of loss, a missing weight, and two sizes."""
    weights = mixtures(12)
    with pytest.raises(RunTableError):
        read_mixtures(change(table(weights, loss=bowl(weights))))


def test_patterns_that_match_no_column_are_refused():
    """Of weights and of losses."""
    frame = table(mixtures(12), loss=np.arange(1.0, 13))
    for choices in ({"weights": ["w_*"]}, {"metrics": ["accuracy"]}):
        with pytest.raises(RunTableError):
            read_mixtures(frame, **choices)


BASE = """# A ladder
name: base  # the name
recipe: quickstart
rungs: [{budget_flops: 1e10}]
target: {budget_flops: 1e11}
data:
  source: mine
  corpora:  # three of them
    web: {files: web.jsonl}
    code: {files: code.jsonl}
    books: {files: books.jsonl}
  mix: {web: 1.0, code: 0.0}
seeds: [0]
"""
MIX = "  mix: {web: 1.0, code: 0.0}\n"


@pytest.mark.parametrize("old", [MIX, "  mix:\n    web: 0.5\n    code: 0.5\n"])
def test_a_written_ladder_is_the_base_with_the_mix(fitted, tmp_path, old):
    """Whatever mix the base had; comments stay."""
    base, path = tmp_path / "base.yaml", tmp_path / "best.yaml"
    base.write_text(BASE.replace(MIX, old))
    best = fitted.best("a")
    best.write_ladder(path, base=base)
    text = path.read_text()
    expected = yaml.safe_load(BASE)
    expected["name"], expected["data"]["mix"] = "best", best.weights
    assert yaml.safe_load(text) == expected
    assert read_ladder_file(path).data.mix == best.weights
    assert "# three of them" in text
    with pytest.raises(StorageError):
        best.write_ladder(path, base=base)


PHASES = "  phases: [{mix: {web: 1.0}, until: 0.5}, {mix: {code: 1.0}}]\n"


@pytest.mark.parametrize(
    "change",
    [("web: {files", "wiki: {files"), ("  corpora:", "  other:"), ("data:", "other:"), ("name:", "- name:"), (MIX, PHASES)],
)
def test_a_base_without_the_domains_writes_nothing(fitted, tmp_path, change):
    """Other names, no corpora, no data, no YAML, phases."""
    base = tmp_path / "base.yaml"
    base.write_text(BASE.replace(*change))
    with pytest.raises(LadderFileError):
        fitted.best("a").write_ladder(tmp_path / "best.yaml", base=base)
    assert [each.name for each in tmp_path.iterdir()] == ["base.yaml"]


@given(
    flow=st.booleans(),
    values=st.dictionaries(st.sampled_from("abcd"), st.one_of(st.integers(), st.lists(st.integers(), max_size=2)), min_size=1),
    key=st.sampled_from("abcdz"),
)
def test_setting_a_value_changes_nothing_else(flow, values, key):
    """Block or flow style, a new or an old key."""
    text = yaml.safe_dump({"top": values, "last": 1}, default_flow_style=flow, sort_keys=False)
    changed = yaml.safe_load(with_value(text, ("top", key), "{x: 0.5}"))
    assert changed == {"top": {**values, key: {"x": 0.5}}, "last": 1}


def test_the_text_fits_eighty_columns_and_the_document_is_json(fitted):
    """Names longer than a column are shortened."""
    best = fitted.best(tokens=3, limits={"web": 1})
    assert max(map(len, str(best).splitlines())) <= 80
    document = json.loads(json.dumps(fitted.document(best), allow_nan=False))
    assert sum(row["weight"] for row in document["best"]["domains"]) == pytest.approx(1)
    assert fitted.predict(best.weights)["median"].tolist() == pytest.approx(best.losses["best"].tolist())


def test_runs_of_one_mix_with_several_seeds_are_one_mixture():
    """In what is printed, and in the distances between tried mixtures."""
    weights = np.repeat(mixtures(16), 2, axis=0)
    noise = np.random.default_rng(1).normal(0, 0.01, 32)
    found = mix(table(weights, loss=weights @ [3.0, 2.0, 4.0] + noise))
    assert "32 runs of 16 mixtures" in str(found)
    assert found.best().usual_distance > 0


def test_a_domain_that_no_row_has_is_left_out_and_named():
    """It has no weight in the best mix; a loss or domain may be given by its column."""
    weights = mixtures(30)
    frame = table(weights, loss_a=weights @ [3.0, 2.0, 4.0], loss_b=weights[:, 0] + 2)
    frame[f"{frame.columns[0].rpartition('_')[0]}_wiki".lstrip("_")] = 0.0
    found = mix(frame, weights=[*frame.columns[:3], frame.columns[-1]])
    assert found.table.domains == DOMAINS
    assert any("wiki" in note for note in found.table.notes)
    by_column = found.best("loss_a", limits={frame.columns[0]: 1e9}, tokens=1e10)
    assert by_column.objective == {"a": 1.0}
