"""Laws over data mixtures on RegMix's models of 1M parameters: how they rank held-out mixtures, and mixtures of larger models.

`--data DIR` names the folder with regmix_1m_train.csv, regmix_1m_test.csv and regmix_60m_test.csv. LightGBM is compared if it
is installed; it is no dependency.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from report import parser, publish

from marin_scaling.fitting.mixture import Family, MixtureLaw, fit_best_law, fit_law
from marin_scaling.forecast.mixture import mix
from marin_scaling.laws import Array
from marin_scaling.run.tuning_runs import MixtureTable, read_mixtures

LEARNED = (17, 34, 51, 102, 256)
"""Mixtures of the learning curve: one to fifteen for each of 17 domains."""
SOME = ("pile_cc", "github", "hackernews", "dm_mathematics")


def rank(predicted: Array, observed: Array) -> float:
    """Return Spearman's rank correlation."""
    from scipy.stats import spearmanr

    return float(spearmanr(predicted, observed).statistic)


def by_family(family: Family) -> Callable[[Array, Array, Array], Array]:
    """Return a function of training weights, their losses and new weights that predicts by one family."""

    def predict(weights: Array, losses: Array, new: Array) -> Array:
        return fit_law(family, weights, losses, generator=np.random.default_rng(0)).interval(new)[1]

    return predict


def by_trees(weights: Array, losses: Array, new: Array) -> Array:
    """Predict by LightGBM with the settings of RegMix: 1,000 rounds at learning rate 0.01; none of the tests stops them."""
    import lightgbm

    settings = {"objective": "regression", "learning_rate": 0.01, "seed": 42, "num_threads": 1, "verbosity": -1}
    model = lightgbm.train(settings, lightgbm.Dataset(weights, losses), num_boost_round=1000)
    return np.asarray(model.predict(new))


def baselines(train: MixtureTable, tests: dict[str, MixtureTable]) -> Iterator[str]:
    """Yield the mean rank correlation over the losses of each kind of law, fitted to all training mixtures."""
    kinds = {family.value: by_family(family) for family in Family}
    if find_spec("lightgbm"):
        kinds["LightGBM"] = by_trees
    for name, predict in kinds.items():
        found = {
            label: [
                rank(predict(train.weights, column, test.weights), test.losses[:, place])
                for place, column in enumerate(train.losses.T)
            ]
            for label, test in tests.items()
        }
        listed = ", ".join(f"{label} {np.mean(each):.3f} (least {min(each):.3f})" for label, each in found.items())
        yield f"Baseline {name}, mean rank correlation over {len(train.names)} losses: {listed}."


def learning(train: MixtureTable) -> Iterator[str]:
    """Yield how laws of few training mixtures rank the other training mixtures."""
    for count in LEARNED:
        ranks, held = list[float](), list[float]()
        for repeat in range(2):
            some = np.random.default_rng([count, repeat]).permutation(len(train.weights))
            used, others = some[:count], some[count:]
            for place in map(train.names.index, SOME):
                law, _ = fit_best_law(train.weights[used], train.losses[used, place], seed=repeat)
                ranks.append(rank(law.interval(train.weights[others])[1], train.losses[others, place]))
                held.append(inside(law, train, place, others))
        yield (
            f"{count} training mixtures: mean rank correlation {np.mean(ranks):.3f} (least {min(ranks):.3f}) on the other "
            f"training mixtures, {np.mean(held):.0%} inside of 90 % intervals; {', '.join(SOME)}, two random subsets each."
        )


def inside(law: MixtureLaw, table: MixtureTable, place: int, rows: Array | slice = slice(None)) -> float:
    """Return the share of losses in their 90 % intervals."""
    low, _, high = law.interval(table.weights[rows])
    losses = table.losses[rows, place]
    return float(np.mean((low <= losses) & (losses <= high)))


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--data", type=Path, required=True, help="folder of RegMix's tables")
    chosen = options.parse_args()
    names = {"1M test": "regmix_1m_test.csv", "60M test": "regmix_60m_test.csv"}
    fit = mix(chosen.data / "regmix_1m_train.csv")
    tests = {label: read_mixtures(chosen.data / name) for label, name in names.items()}
    rows, all_ranks = list[list[object]](), list[list[float]]()
    for place, row in enumerate(fit.frame.to_dict("records")):
        law = fit.laws[row["loss"]]
        ranks = [row["rank_correlation"]]
        ranks += [rank(law.interval(test.weights)[1], test.losses[:, place]) for test in tests.values()]
        all_ranks.append(ranks)
        rows.append(
            [row["loss"], row["law"], *(f"{each:.3f}" for each in ranks), f"{inside(law, tests['1M test'], place):.0%}"]
        )
    means, least = np.mean(all_ranks, axis=0), np.min(all_ranks, axis=0)
    rows.append(["mean", "", *(f"{each:.3f}" for each in means), ""])
    rows.append(["least", "", *(f"{each:.3f}" for each in least), ""])
    notes = [
        "512 training mixtures of 17 domains and 256 test mixtures, of RegMix (Liu et al. 2024, arXiv:2407.01492). Families "
        "are chosen by ten-fold cross-validation on the training mixtures; the test mixtures are for this report only. The "
        "models of 60M parameters have the mixtures of the 1M test, and no law saw them.",
    ]
    for label, test in tests.items():
        predicted = np.mean([fit.laws[name].interval(test.weights)[1] for name in fit.table.names], axis=0)
        observed = test.losses.mean(1)
        best = observed[predicted.argmin()]
        notes.append(
            f"Mean of the losses, {label}: rank correlation {rank(predicted, observed):.3f}; the mixture predicted best is "
            f"number {int((observed < best).sum()) + 1} of {len(observed)}, {best - observed.min():.4f} above the best."
        )
    publish(
        "Laws over data mixtures",
        columns=("loss", "law", "rank, cross-validated", "rank, 1M test", "rank, 60M test", "1M test inside of 90 %"),
        rows=rows,
        packages=("numpy", "scipy", "lightgbm"),
        notes=[*notes, *baselines(fit.table, tests), *learning(fit.table)],
        write=chosen.write,
    )


if __name__ == "__main__":
    main()
