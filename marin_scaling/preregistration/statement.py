"""Statement: built from evidence, with derived fields, parsed and checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from statistics import NormalDist
from typing import Any, NoReturn

from marin_scaling.canonical_json import digest_of, dump_canonical, load_canonical, sha256_hex
from marin_scaling.errors import DocumentError, StatementError
from marin_scaling.preregistration.format import (
    BASELINE_RULE,
    CHECKPOINT_RULE,
    CRPS_RULE,
    DECLARATION,
    HIT_RULE,
    IF_OVERDUE,
    LEVELS,
    LINEAGE_RULE,
    METRICS,
    OUTSIDE_CHECKPOINT_RULE,
    OUTSIDE_LINEAGE_RULE,
    PREDICATE_TYPE,
    SAMPLE_COUNT,
    SCORES,
    STATEMENT_TYPE,
    SUBJECT_FILES,
    StatementFile,
    as_in_statement,
    is_outside,
    model_of_subject,
)
from marin_scaling.preregistration.signing.allowed_signers import compared_name
from marin_scaling.recipe.model_shape import flops_convention, shape_of, training_flops
from marin_scaling.strict_model import check_document
from marin_scaling.units import format_flops, format_number

_LARGEST = 700.0  # a logarithm that a float still holds; no loss is near it


def line_through_the_best(rows: Sequence[Mapping[str, Any]], *, flops: float) -> dict[float, float]:
    """Return losses by quantile level at `flops`, from rows with `budget_flops`, `flops` and `loss`.

    With two budgets, all quantiles lie on the line. With one budget, the result is the best run's loss.

    >>> rows = [{"budget_flops": c, "flops": c, "loss": 3 * c**-0.1} for c in (1e3, 1e4, 1e5)]
    >>> round(line_through_the_best(rows, flops=1e6)[0.5], 9) == round(3 * 1e6**-0.1, 9)
    True
    """
    best: dict[float, Mapping[str, Any]] = {}
    for row in rows:
        budget = row["budget_flops"]
        if budget not in best or row["loss"] < best[budget]["loss"]:
            best[budget] = row
    points = [(math.log(row["flops"]), math.log(row["loss"])) for row in best.values()]
    middle, deviation = _predicted(points, at=math.log(flops))
    normal = NormalDist()
    at_levels = {level: deviation * (normal.inv_cdf(level) if level != 0.5 else 0.0) for level in LEVELS}
    return {level: math.exp(min(middle + away, _LARGEST)) for level, away in at_levels.items()}


def _predicted(points: Sequence[tuple[float, float]], *, at: float) -> tuple[float, float]:
    """Return the line's value at `at`, and the standard deviation of a new value."""
    count = len(points)
    mean_x, mean_y = (sum(point[axis] for point in points) / count for axis in (0, 1))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
    middle = mean_y + slope * (at - mean_x)
    if count < 3 or not spread:
        return middle, 0.0
    squares = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in points)
    return middle, math.sqrt(squares / (count - 2) * (1 + 1 / count + (at - mean_x) ** 2 / spread))


_SAMPLING = 0.05  # of the 90 % interval: what a thousand samples show of a quantile, also of one near the end
_CHOSEN = ("batch_size",)  # a constant of some recipes that a ladder file may set otherwise for its target
_ROUNDING = 1e-9  # sums, logarithms and powers may round differently on another machine


def derived_fields(documents: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the predicate's fields that follow from the subjects (by name), grouped as in the predicate.

    `StatementError` if the subjects are incomplete or refer to different runs.
    """
    ladder, target = documents["ladder.json"], documents["target.json"]
    fields = _fields_of_forecast(documents)
    run = fields["targetRun"]
    _require_one_run(documents)
    baseline = {f"{level:g}": value for level, value in line_through_the_best(ladder["rows"], flops=run["flops"]).items()}
    added: dict[str, dict[str, Any]] = {
        "targetRun": {"lineageRule": OUTSIDE_LINEAGE_RULE if is_outside(target) else LINEAGE_RULE},
        "recipe": {**_training_of(target), "beyondLadder": _beyond(ladder["rows"], run)},
        "metric": {"checkpointRule": OUTSIDE_CHECKPOINT_RULE if is_outside(target) else CHECKPOINT_RULE},
        "scoring": {"baseline": {"rule": BASELINE_RULE, "point": baseline["0.5"], "quantiles": baseline}},
    }
    return {part: fields.get(part, {}) | added.get(part, {}) for part in (*fields, *(added.keys() - fields.keys()))}


def _training_of(target: Mapping[str, Any]) -> dict[str, Any]:
    """Return the statement's constants of the target's training."""
    if is_outside(target):
        return {"data": target["data"], "optimizer": {}, "described": target["described"]}
    return {
        "data": target["data"],
        "optimizer": target["optimizer"],
        "batchSize": target["batch_size"],
        "trainSteps": target["train_steps"],
        **{key: target[key] for key in ("epochs", "mix", "compute") if key in target},
        **({"horizonTokens": target["horizon_tokens"]} if "horizon_tokens" in target else {}),
    }


def agrees(expected: Any, found: Any) -> bool:
    """Return True if two JSON values are equal up to rounding of numbers.

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


def _fields_of_forecast(documents: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    ladder, fit, target = documents["ladder.json"], documents["forecast.json"], documents["target.json"]
    if ladder["ladder"] != target["ladder"]:
        refuse(
            f"ladder.json is about the ladder {ladder['ladder']!r} and the target belongs to {target['ladder']!r}",
            fix="Forecast a target from the runs of its own ladder.",
        )
    if is_outside(target) != ("source" in ladder):
        refuse("ladder.json names a table exactly if another trainer trains the target", fix="Register it again.")
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
    if ("curve" in prediction) != ("curves" in ladder):
        refuse("forecast.json forecasts a curve exactly if ladder.json has curves", fix="Register it again.")
    return {
        "targetRun": target_run,
        "metric": {"name": metric, **METRICS[metric], "protocol": target["evaluation"]},
        "forecast": {
            "point": prediction["median"],
            "pointIs": "median",
            "quantiles": {f"{level:g}": value for level, value in sorted_quantiles(prediction["quantiles"]).items()},
            "bands": prediction["bands"],
            "extrapolation": _extrapolation(ladder["rows"], target_flops=target_run["flops"]),
            "samples": "samples.json",
            "sensitivity": _sensitivity(prediction),
        },
        "fit": {
            "law": fit["law"],
            "parameters": fit["parameters"],
            "fixed": fit.get("fixed", {}),
            "seed": fit["seed"],
            "excluded": fit["excluded"],
            "backtest": [as_in_statement(row) for row in fit["backtest"]],
            "warnings": fit["warnings"],
        },
        "scoring": {
            "primary": "crps",
            "crpsRule": CRPS_RULE,
            "secondary": list(SCORES),
            "hit": HIT_RULE,
            "reducibleE": fit["parameters"].get("E"),
        },
    }


def amended_fields(documents: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return `forecast` and `fit` of an amendment, derived from its files and the original's target.json.

    `StatementError` if the files, including the samples, are about another target.
    """
    fields = _fields_of_forecast(documents)
    _require_samples(documents["samples.json"], documents["target.json"])
    return {part: fields[part] for part in ("forecast", "fit")}


def _require_one_run(documents: Mapping[str, Any]) -> None:
    """Require that evaluation, recipe and samples belong to the target."""
    target = documents["target.json"]
    expected = {"format_version": 1, "evaluation": target["evaluation"], "data": target["data"]}
    if not agrees(expected, documents["evaluation.json"]):
        refuse("evaluation.json measures in another way than target.json", fix="Register it again, from its ladder.")
    numbers = {**target.get("model", {}), **target.get("optimizer", {}), **target}
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
    """Require that the quantiles of the samples equal the stated ones."""
    width = quantiles[0.95] - quantiles[0.05]
    for level, value in quantiles.items():
        found = _between(losses, min(max(level * len(losses) - 0.5, 0.0), len(losses) - 1.0))  # each at the middle of its share
        if abs(found - value) > _SAMPLING * width:
            refuse(
                f"samples.json has {found:.6g} at the level {level:g}, and the forecast {value:.6g}",
                fix="Register it again, from its ladder.",
            )


def _beyond(rows: Sequence[Mapping[str, Any]], run: Mapping[str, Any]) -> dict[str, float]:
    pairs = {"flops": run["flops"], "params": run["paramsTotal"], "tokens": run["tokens"]}
    return {name: value / max(row[name] for row in rows) for name, value in pairs.items()}


def _sensitivity(prediction: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = prediction["sensitivity"]
    if not rows:
        refuse("the forecast has no sensitivity table", fix="Forecast with: marin-scale preregister")
    return [as_in_statement(row) for row in rows]


def target_run_of(target: Mapping[str, Any]) -> dict[str, Any]:
    """Return the statement's description of the target, from the content of an unbound `target.json`."""
    if is_outside(target):
        return {
            **{key: target[key] for key in ("ladder", "recipe", "flops", "tokens")},
            "assurance": "tracked",
            "budgetFlops": target["budget_flops"],
            "flopsConvention": target["flops_convention"],
            "paramsTotal": target["params"],
            "paramsActive": target["active_params"],
            "shape": {},
        }
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


def size_of(target: Mapping[str, Any]) -> dict[str, Any]:
    """Return the size of the target, from the content of `target.json`, with the keys of a row of `ladder.json`."""
    run, keys = target_run_of(target), {"params": "paramsTotal", "active_params": "paramsActive"}
    return {name: run[keys.get(name, name)] for name in ("flops", "params", "active_params", "tokens")}


def prediction_at(fit: Mapping[str, Any], *, flops: float) -> dict[str, Any]:
    """Return the one prediction of a fit document at `flops`; `StatementError` for none or several."""
    at_target = [prediction for prediction in fit["predictions"] if abs(prediction["flops"] / flops - 1) <= 1e-6]
    if len(at_target) != 1:
        refuse(
            f"the fit has {len(at_target)} predictions at the target's {format_number(flops)} FLOPs",
            fix=f"Predict exactly there: marin-scale fit … --predict {flops!r}",
        )
    prediction: dict[str, Any] = at_target[0]
    return prediction


def sorted_quantiles(quantiles: Mapping[str, float]) -> dict[float, float]:
    """Return quantiles by numeric level, increasing.

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
            f"the target costs {format_flops(target_flops)} FLOPs and the largest of {len(rows)} fitted runs "
            f"{format_number(largest, 3)}",
            fix="Register a target that costs more than every run it is forecast from.",
        )
    return float(target_flops / largest)


def refuse(what: str, *, fix: str) -> NoReturn:
    """Raise `StatementError` with this fault."""
    raise StatementError(
        f"This is not a sound preregistration: {what}.",
        why="What is promised must be scored later by anyone, without asking what was meant.",
        fix=fix,
    )


LONGEST_TERM = timedelta(days=4 * 366)
"""Longest time from a statement to its due date: four years, as for a seal."""


@dataclass(frozen=True, kw_only=True)
class Statement:
    """Statement with its exact bytes and its content."""

    raw: bytes
    document: dict[str, Any]

    @property
    def predicate(self) -> dict[str, Any]:
        """Content of the promise."""
        predicate: dict[str, Any] = self.document["predicate"]
        return predicate

    @property
    def unique_tokens(self) -> int | None:
        """Number of training tokens if the target run repeats them, else None."""
        recipe = self.predicate["recipe"]
        data = recipe["data"]
        return (data.get("train_tokens") or data["train_bytes"]) if recipe.get("epochs", 1) > 1 else None

    @property
    def is_outside(self) -> bool:
        """Return True if another trainer trains its run, which was named in advance."""
        return bool(self.predicate["targetRun"].get("assurance") == "tracked")

    @property
    def sha256(self) -> str:
        """Digest of the exact bytes, which the run carries."""
        return sha256_hex(self.raw)

    @property
    def created_at(self) -> datetime:
        """Time of the statement as the registrant states it (UTC)."""
        return parse_moment(self.predicate["createdAt"])

    @property
    def due(self) -> datetime:
        """Deadline of its run (UTC)."""
        return parse_moment(self.predicate["resolution"]["due"])

    def is_overdue(self, *, at: datetime) -> bool:
        """Return True if the deadline of its run has passed at that time."""
        return at > self.due

    @property
    def quantiles(self) -> dict[float, float]:
        """Quantiles by level, in the metric's unit."""
        return sorted_quantiles(self.predicate["forecast"]["quantiles"])

    @property
    def subjects(self) -> dict[str, str]:
        """SHA-256 digests by file name."""
        return {subject["name"]: subject["digest"]["sha256"] for subject in self.document["subject"]}


def build_statement(
    files: Mapping[str, bytes],
    *,
    registration_id: str,
    registrant: str,
    created_at: datetime,
    tool: Mapping[str, Any],
    declared: Mapping[str, Any],
) -> Statement:
    """Return the statement about the subjects in `files` (name to canonical bytes).

    `declared` has the registrant's declarations, grouped as in the predicate; everything else comes from the files.
    `StatementError` if the target is not larger than the ladder, the metric differs, or the quantiles are not 23 increasing
    ones.
    """
    documents = {name: read_subject(files[name], name=name, path=name) for name in SUBJECT_FILES}
    predicate: dict[str, Any] = {
        "id": registration_id,
        "kind": "register",
        "registrant": registrant,
        "createdAt": moment_text(created_at),
        "tool": dict(tool),
        "knowledge": {"targetRunStepsSeen": 0, "declaration": DECLARATION},
        "resolution": {"ifOverdue": IF_OVERDUE},
        **derived_fields(documents),
    }
    for part, said in declared.items():
        predicate[part] = {**predicate.get(part, {}), **said} if isinstance(said, dict) else said
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": sha256_hex(files[name])}} for name in SUBJECT_FILES],
        "predicateType": PREDICATE_TYPE,
        "predicate": predicate,
    }
    made = read_statement(dump_canonical(statement), name="statement.json")
    _require_term(made)
    require_samples_of(documents["samples.json"]["losses"], made.quantiles)
    return made


@lru_cache(maxsize=64)
def read_statement(raw: bytes, *, name: str) -> Statement:
    """Return the statement in the bytes of `statement.json` (cached); `DocumentError` or `StatementError` names a fault."""
    document = load_canonical(raw, name=name)
    _require_format(document, name=name)
    check_document(document, StatementFile, name=name)
    statement = Statement(raw=raw, document=document)
    try:
        _check_meaning(statement)
    except StatementError as error:
        raise error.at(name) from error
    return statement


def _require_format(document: Any, *, name: str) -> None:
    """Refuse a statement of another format, with the remedy."""
    found = document.get("predicateType") if isinstance(document, dict) else None
    if isinstance(found, str) and found != PREDICATE_TYPE:
        raise DocumentError(
            f"{name}: predicateType is {found[:80]!r}, and this version of marin-scaling reads {PREDICATE_TYPE!r}.",
            why="Each format has a type of its own, so that no field is read in two ways.",
            fix="Install the version that reads it; or restore the file from version control.",
        )


def read_subject(raw: bytes, *, name: str, path: str) -> Any:
    """Return the document of one subject in the shape of `name`; `path` is for errors."""
    document = load_canonical(raw, name=path)
    check_document(document, model_of_subject(name, document), name=path)
    return document


def moment_text(moment: datetime) -> str:
    """Return a time in UTC to the second, as in the files.

    >>> moment_text(datetime(2026, 11, 20, 8, tzinfo=UTC))
    '2026-11-20T08:00:00Z'
    """
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def parse_moment(text: str) -> datetime:
    """Parse a time in UTC as in the files.

    >>> parse_moment("2026-11-20T08:00:00Z").isoformat()
    '2026-11-20T08:00:00+00:00'
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        refuse(f"the time {text!r} is no moment ({error})", fix="Write it like 2026-11-20T08:00:00Z.")
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _check_meaning(statement: Statement) -> None:
    names = SUBJECT_FILES
    if tuple(sorted(statement.subjects)) != names or len(statement.document["subject"]) != len(names):
        refuse(f"its subjects are {sorted(statement.subjects)}, not {list(names)}", fix="Register it again.")
    require_sound_forecast(statement)
    if f"{statement.created_at:%Y-%m-%d}" != statement.predicate["id"][:10]:
        refuse(
            f"its id {statement.predicate['id']} does not start with the day of {statement.predicate['createdAt']}",
            fix="Register it again.",
        )
    _check_resolution(statement)
    _check_start(statement)
    _check_people(statement)


def require_sound_forecast(statement: Statement) -> None:
    """Raise `StatementError` unless the quantiles are the 23 fixed levels, rise, lie in the support, and match the point."""
    forecast, metric = statement.predicate["forecast"], statement.predicate["metric"]
    if {key: metric[key] for key in ("unit", "direction", "support")} != METRICS[metric["name"]]:
        refuse(f"unit, direction or support of {metric['name']} are not {METRICS[metric['name']]}", fix="Register it again.")
    quantiles = statement.quantiles
    if len(forecast["quantiles"]) != len(LEVELS) or tuple(quantiles) != LEVELS:
        refuse(f"its quantile levels are {[*quantiles]}, not the {len(LEVELS)} fixed ones", fix="State exactly those levels.")
    for (low, value), (high, next_value) in pairwise(quantiles.items()):
        if value >= next_value:
            refuse(f"quantile {high:g} is {next_value}, not above {value} at {low:g}", fix="A forecast needs an interval.")
    lower, upper = metric["support"]
    if not lower < quantiles[LEVELS[0]] <= quantiles[LEVELS[-1]] < upper:
        refuse(
            f"its quantiles reach outside {lower:g} to {upper:g} {metric['unit']}", fix="Look at the fit: it cannot be right."
        )
    if forecast["point"] != quantiles[0.5]:
        refuse(
            f"its point {forecast['point']} is not its median {quantiles[0.5]}",
            fix="The point is the median. Restore the file from version control if it was edited.",
        )


def _check_people(statement: Statement) -> None:
    reviewers = [compared_name(each) for each in statement.predicate["reviewers"]]
    if len(set(reviewers)) < len(reviewers):
        refuse(
            f"one of its reviewers is asked twice: {', '.join(reviewers)}", fix="Name each reviewer once: promise.reviewers."
        )
    if compared_name(statement.predicate["registrant"]) in reviewers:
        refuse(
            f"its registrant {statement.predicate['registrant']} is one of its reviewers", fix="Ask someone else to review it."
        )


def _require_term(statement: Statement) -> None:
    """Refuse a new statement with a deadline too far away; `check` refuses a signed one."""
    if statement.due - statement.created_at > LONGEST_TERM:
        refuse(
            f"it is due at {moment_text(statement.due)}, more than {LONGEST_TERM.days} days after it is made",
            fix="Give an earlier day, within four years: promise.due.",
        )


def _check_start(statement: Statement) -> None:
    """Refuse the forecast of an outside run that was to begin on an earlier day."""
    planned = statement.predicate["recipe"].get("described", {}).get("planned_start")
    if statement.is_outside and not (planned and planned >= f"{statement.created_at:%Y-%m-%d}"):
        refuse(
            f"its run was planned to begin on {planned}, and it was made at {moment_text(statement.created_at)}",
            fix="Forecast a run before it begins.",
        )


def _check_resolution(statement: Statement) -> None:
    due = parse_moment(statement.predicate["resolution"]["due"])
    if due <= statement.created_at:
        refuse(
            f"it is due at {due:%Y-%m-%dT%H:%M:%SZ}, before it was made",
            fix="Give the run the time that it takes: a later promise.due.",
        )
    ids = [assumption["id"] for assumption in statement.predicate["assumptions"]]
    if len(set(ids)) < len(ids):
        refuse(f"two of its assumptions have one id: {', '.join(ids)}", fix="Number them A1, A2 and so on.")


def order_seed(statement: bytes) -> int:
    """Return the seed of the data order: the first 8 bytes of the statement's SHA-256, as an unsigned integer.

    >>> order_seed(b"") == 0xE3B0C44298FC1C14
    True
    """
    return int(sha256_hex(statement)[:16], 16)


def bound_digest(target: Mapping[str, Any], *, statement: bytes) -> str:
    """Return the digest of the bound spec from the content of `target.json`: the name of its run."""
    return digest_of({**target, **binding(statement)})


def binding(statement: bytes) -> dict[str, Any]:
    """Return the fields of a spec that bind its run to these bytes."""
    return {"statement_sha256": sha256_hex(statement), "data_order_seed": order_seed(statement)}


def thinned(losses: Sequence[float]) -> list[float]:
    """Return `SAMPLE_COUNT` rising values that represent all draws: quantiles at the middles of equal shares.

    They are interpolated like the forecast's own quantiles, so that few draws give both the same tails.

    >>> thinned([float(draw) for draw in range(8001)])[:2]
    [4.0, 12.0]
    """
    ordered = sorted(losses)
    places = [(number + 0.5) / SAMPLE_COUNT * (len(ordered) - 1) for number in range(SAMPLE_COUNT)]
    return [_between(ordered, place) for place in places]


def _between(ordered: Sequence[float], place: float) -> float:
    """Return the value at a place between two of rising ones."""
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return float(ordered[low] + (place - low) * (ordered[high] - ordered[low]))
