"""What of a statement follows from the files beside it: a registrant types none of it, and a verifier derives it again.

In pure Python, so that `marin-scale verify` needs no library for it. Whether the fit gives the forecast is seen elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from marin_scaling.errors import StatementError
from marin_scaling.preregistration.baseline import line_through_the_best
from marin_scaling.preregistration.statement_format import CRPS_RULE, HIT_RULE, METRICS, SCORES
from marin_scaling.preregistration.version_0_2 import (
    BASELINE_RULE,
    CHECKPOINT_RULE,
    LINEAGE_RULE,
    SAMPLE_COUNT,
    as_in_statement,
)
from marin_scaling.preregistration.versions import VERSION_0_1, FormatVersion
from marin_scaling.recipe.flop_counting import flops_convention, training_flops
from marin_scaling.recipe.model_family import shape_of

_SAMPLING = 0.05  # of the 90 % interval: what a thousand samples show of a quantile, also of one near the end
_CHOSEN = ("batch_size",)  # a constant of some recipes that a ladder file may set otherwise for its target
_ROUNDING = 1e-9  # sums, logarithms and powers may round differently on another machine


def derived_fields(documents: Mapping[str, Any], *, version: FormatVersion) -> dict[str, dict[str, Any]]:
    """The fields of the predicate that follow from the subjects (by name), grouped as they stand there.

    `StatementError` when the subjects do not carry a promise, or do not speak of one run.
    """
    fields = _fields_of_every_version(documents)
    return fields if version is VERSION_0_1 else _with_those_of_0_2(fields, documents)


def agrees(expected: Any, found: Any) -> bool:
    """Whether two values of JSON are the same but for the last digits of numbers.

    >>> agrees({"a": [1.0]}, {"a": [1.0 + 1e-12]}), agrees({"a": True}, {"a": 1})
    (True, False)
    """
    if isinstance(expected, dict) and isinstance(found, dict):
        return expected.keys() == found.keys() and all(agrees(expected[key], found[key]) for key in expected)
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(agrees(*pair) for pair in zip(expected, found, strict=True))
    if isinstance(expected, float) and isinstance(found, int | float) and not isinstance(found, bool):
        return math.isclose(expected, found, rel_tol=_ROUNDING)
    return type(expected) is type(found) and bool(expected == found)


def _fields_of_every_version(documents: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    ladder, fit, target = documents["ladder.json"], documents["forecast.json"], documents["target.json"]
    if ladder["ladder"] != target["ladder"]:
        refuse(
            f"ladder.json is about the ladder {ladder['ladder']!r} and the target belongs to {target['ladder']!r}",
            fix="Forecast a target from the runs of its own ladder.",
        )
    metric = target["evaluation"]["metric"]
    for name, other in (("ladder.json", ladder["metric"]), ("forecast.json", fit["metric"])):
        if other != metric:
            refuse(
                f"{name} is about {other!r} and the target is measured in {metric!r}", fix="Fit runs of the target's metric."
            )
    if metric not in METRICS:
        refuse(f"the metric {metric!r} has no unit and support here", fix=f"Use one of: {', '.join(METRICS)}.")
    target_run = target_run_of(target)
    prediction = prediction_at(fit, flops=target_run["flops"])
    return {
        "targetRun": target_run,
        "metric": {"name": metric, **METRICS[metric], "protocol": target["evaluation"]},
        "forecast": {
            "point": prediction["median"],
            "pointIs": "median",
            "quantiles": {f"{level:g}": value for level, value in sorted_quantiles(prediction["quantiles"]).items()},
            "bands": prediction["bands"],
            "extrapolation": _extrapolation(ladder["rows"], target_flops=target_run["flops"]),
        },
        "fit": {
            "law": fit["law"],
            "parameters": fit["parameters"],
            "fixed": fit.get("fixed", {}),
            "seed": fit["seed"],
            "excluded": fit["excluded"],
        },
        "scoring": {
            "primary": "crps",
            "crpsRule": CRPS_RULE,
            "secondary": list(SCORES),
            "hit": HIT_RULE,
            "reducibleE": fit["parameters"].get("E"),
        },
    }


def _with_those_of_0_2(fields: dict[str, dict[str, Any]], documents: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    ladder, fit, target = documents["ladder.json"], documents["forecast.json"], documents["target.json"]
    run = fields["targetRun"]
    prediction = prediction_at(fit, flops=run["flops"])
    _require_one_run(documents)
    baseline = {f"{level:g}": value for level, value in line_through_the_best(ladder["rows"], flops=run["flops"]).items()}
    added: dict[str, dict[str, Any]] = {
        "targetRun": {"lineageRule": LINEAGE_RULE},
        "recipe": {
            "data": target["data"],
            "optimizer": target["optimizer"],
            "batchSize": target["batch_size"],
            "trainSteps": target["train_steps"],
            "beyondLadder": _beyond(ladder["rows"], run),
        },
        "metric": {"checkpointRule": CHECKPOINT_RULE},
        **_doubts(fit, prediction),
        "scoring": {"baseline": {"rule": BASELINE_RULE, "point": baseline["0.5"], "quantiles": baseline}},
    }
    return {part: fields.get(part, {}) | added.get(part, {}) for part in (*fields, *(added.keys() - fields.keys()))}


def amended_fields(documents: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What of an amendment follows from its files and the target.json of its original: `forecast` and `fit`.

    `StatementError` where these, its samples among them, are not about that target.
    """
    fields, fit = _fields_of_every_version(documents), documents["forecast.json"]
    _require_samples(documents["samples.json"], documents["target.json"])
    doubts = _doubts(fit, prediction_at(fit, flops=fields["targetRun"]["flops"]))
    return {part: fields[part] | doubts[part] for part in ("forecast", "fit")}


def _doubts(fit: Mapping[str, Any], prediction: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        "forecast": {"samples": "samples.json", "sensitivity": _sensitivity(prediction)},
        "fit": {"backtest": [as_in_statement(row) for row in fit["backtest"]], "warnings": fit["warnings"]},
    }


def _require_one_run(documents: Mapping[str, Any]) -> None:
    """Evaluation, recipe and samples must be of the target, and not of another run."""
    target = documents["target.json"]
    expected = {"format_version": 1, "evaluation": target["evaluation"], "data": target["data"]}
    if not agrees(expected, documents["evaluation.json"]):
        refuse("evaluation.json measures in another way than target.json", fix="Register it again, from its ladder.")
    numbers = {**target["model"], **target["optimizer"], **target}
    recipe = documents["recipe.json"]
    said = [(number["name"], number["value"]) for number in recipe["numbers"]]
    said += [(each.get("name"), each.get("value")) for each in recipe["constants"] if each.get("name") not in _CHOSEN]
    own = {name: float(value) for name, value in numbers.items() if isinstance(value, int | float)}
    differing = [name for name, value in said if name in own and not agrees(own[name], value)]
    if recipe["recipe"] != target["recipe"] or differing:
        what = differing[0] if differing else "recipe"
        refuse(f"recipe.json gives another {what} than target.json", fix="Register it again, from its ladder.")
    _require_samples(documents["samples.json"], target)


def _require_samples(samples: Mapping[str, Any], target: Mapping[str, Any]) -> None:
    losses = samples["losses"]
    if len(losses) != SAMPLE_COUNT or losses != sorted(losses):
        refuse(f"samples.json does not hold {SAMPLE_COUNT} rising losses", fix="Register it again, from its ladder.")
    of_target = {"metric": target["evaluation"]["metric"], "flops": target_run_of(target)["flops"]}
    for key, value in of_target.items():
        if not agrees(value, samples[key]):
            refuse(f"samples.json says {key} {samples[key]!r}, and the target's is {value!r}", fix="Register it again.")


def require_samples_of(losses: Sequence[float], quantiles: Mapping[float, float]) -> None:
    """Samples beside honest quantiles could tell another story: their own quantiles must be these."""
    width = quantiles[0.95] - quantiles[0.05]
    for level, value in quantiles.items():
        found = _quantile(losses, level)
        if abs(found - value) > _SAMPLING * width:
            refuse(
                f"samples.json has {found:.6g} at the level {level:g}, and the forecast {value:.6g}",
                fix="Register it again, from its ladder.",
            )


def _quantile(losses: Sequence[float], level: float) -> float:
    """Of rising losses, each the middle of its share."""
    place = min(max(level * len(losses) - 0.5, 0.0), len(losses) - 1.0)
    low = int(place)
    high = min(low + 1, len(losses) - 1)
    return losses[low] + (place - low) * (losses[high] - losses[low])


def _beyond(rows: Sequence[Mapping[str, Any]], run: Mapping[str, Any]) -> dict[str, float]:
    pairs = {"flops": run["flops"], "params": run["paramsTotal"], "tokens": run["tokens"]}
    return {name: value / max(row[name] for row in rows) for name, value in pairs.items()}


def _sensitivity(prediction: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = prediction["sensitivity"]
    if not rows:
        refuse("the forecast has no sensitivity table", fix="Forecast with: marin-scale preregister")
    return [as_in_statement(row) for row in rows]


def target_run_of(target: Mapping[str, Any]) -> dict[str, Any]:
    """What the statement says of the target, from the content of `target.json` (a spec that no statement is bound to yet)."""
    model = target["model"]
    shape = shape_of(model)
    tokens = target["batch_size"] * target["train_steps"] * shape.seq_len
    return {
        "ladder": target["ladder"],
        "recipe": target["recipe"],
        "budgetFlops": target["budget_flops"],
        "flops": training_flops(shape, tokens=tokens),
        "flopsConvention": flops_convention(shape),
        "paramsTotal": shape.params_total,
        "paramsActive": shape.params_active,
        "tokens": tokens,
        "shape": model,
    }


def prediction_at(fit: Mapping[str, Any], *, flops: float) -> dict[str, Any]:
    """The one prediction of a fit document for a run of `flops`; `StatementError` when there is none, or more than one."""
    at_target = [prediction for prediction in fit["predictions"] if abs(prediction["flops"] / flops - 1) <= 1e-6]
    if len(at_target) != 1:
        refuse(
            f"the fit has {len(at_target)} predictions at the target's {flops:.6g} FLOPs",
            fix=f"Predict exactly there: marin-scale fit … --predict {flops!r}",
        )
    prediction: dict[str, Any] = at_target[0]
    return prediction


def sorted_quantiles(quantiles: Mapping[str, float]) -> dict[float, float]:
    """Quantiles by their level as a number, increasing.

    >>> sorted_quantiles({"0.50": 2.0, "0.05": 1.0})
    {0.05: 1.0, 0.5: 2.0}
    """
    try:
        by_level = dict(sorted((float(level), value) for level, value in quantiles.items()))
    except ValueError as error:
        refuse(f"a quantile level is not a number ({error})", fix='Write levels like "0.05".')
    if len(by_level) < len(quantiles):
        refuse("two of its quantiles are of one level, written in two ways", fix='Write levels like "0.05", each once.')
    return by_level


def _extrapolation(rows: Sequence[Mapping[str, Any]], *, target_flops: float) -> float:
    largest = max((row["flops"] for row in rows), default=0.0)
    if not 0 < largest < target_flops:
        refuse(
            f"the target costs {target_flops:.3g} FLOPs and the largest of {len(rows)} fitted runs {largest:.3g}",
            fix="Register a target that costs more than every run it is forecast from.",
        )
    return float(target_flops / largest)


def refuse(what: str, *, fix: str) -> NoReturn:
    """Say why something is no promise."""
    raise StatementError(
        f"This is not a sound preregistration: {what}.",
        why="What is promised must be scored later by anyone, without asking what was meant.",
        fix=fix,
    )
