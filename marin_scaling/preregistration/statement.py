"""The statement: what is promised about a run that has not been trained, as an in-toto Statement with our predicate.

Canonical JSON, so that the bytes are unique and a person can read them; the keys follow in-toto's lowerCamelCase. The exact
ladder, the whole fit and the target lie beside it and stand in it by digest. Signing and storing are done elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, NoReturn

from marin_scaling.canonical_json import dump_canonical, load_canonical, sha256_hex
from marin_scaling.errors import StatementError
from marin_scaling.preregistration.document_shape import check_shape
from marin_scaling.preregistration.statement_format import (
    CRPS_RULE,
    DECLARATION,
    HIT_RULE,
    LEVELS,
    METRICS,
    PREDICATE_TYPE,
    SCORES,
    STATEMENT_SHAPE,
    STATEMENT_TYPE,
    SUBJECT_NAMES,
    SUBJECT_SHAPES,
)
from marin_scaling.recipe.flop_counting import flops_convention, training_flops
from marin_scaling.recipe.model_family import shape_of


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A statement that was read: its exact bytes and what they say."""

    raw: bytes
    document: dict[str, Any]

    @property
    def predicate(self) -> dict[str, Any]:
        """The promise itself."""
        predicate: dict[str, Any] = self.document["predicate"]
        return predicate

    @property
    def sha256(self) -> str:
        """Digest of the exact bytes: what the run carries."""
        return sha256_hex(self.raw)

    @property
    def created_at(self) -> datetime:
        """When the registrant says it was made (UTC)."""
        return parse_moment(self.predicate["createdAt"])

    @property
    def quantiles(self) -> dict[float, float]:
        """Level to value, in the metric's unit, by level."""
        return sorted_quantiles(self.predicate["forecast"]["quantiles"])

    @property
    def subjects(self) -> dict[str, str]:
        """File name to SHA-256 digest."""
        return {subject["name"]: subject["digest"]["sha256"] for subject in self.document["subject"]}


def build_statement(
    files: Mapping[str, bytes],
    *,
    registration_id: str,
    registrant: str,
    created_at: datetime,
    tool_version: str,
    ladder_rule: str,
) -> Statement:
    """The statement about the subjects in `files` (canonical bytes of `ladder.json`, `forecast.json`, `target.json`).

    Everything but its own name, time and author is taken from those files. `StatementError` when they do not carry a promise:
    the target is not larger than the ladder, the metric differs, or there are no 23 increasing quantiles at the target's FLOPs.
    """
    documents = {name: read_subject(files[name], name=name, path=name) for name in SUBJECT_NAMES}
    predicate = {
        "id": registration_id,
        "kind": "register",
        "registrant": registrant,
        "createdAt": f"{created_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "tool": {"name": "marin-scaling", "version": tool_version},
        **derived_fields(documents, ladder_rule=ladder_rule),
        "knowledge": {"targetRunStepsSeen": 0, "declaration": DECLARATION},
    }
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": sha256_hex(files[name])}} for name in SUBJECT_NAMES],
        "predicateType": PREDICATE_TYPE,
        "predicate": predicate,
    }
    return read_statement(dump_canonical(statement), name="statement.json")


def derived_fields(documents: Mapping[str, Any], *, ladder_rule: str) -> dict[str, Any]:
    """The fields of the predicate that follow from the subjects; a verifier derives them again and compares."""
    ladder, fit, target = documents["ladder.json"], documents["forecast.json"], documents["target.json"]
    if ladder["ladder"] != target["ladder"]:
        _refuse(
            f"ladder.json is about the ladder {ladder['ladder']!r} and the target belongs to {target['ladder']!r}",
            fix="Forecast a target from the runs of its own ladder.",
        )
    metric = target["evaluation"]["metric"]
    for name, other in (("ladder.json", ladder["metric"]), ("forecast.json", fit["metric"])):
        if other != metric:
            _refuse(
                f"{name} is about {other!r} and the target is measured in {metric!r}", fix="Fit runs of the target's metric."
            )
    if metric not in METRICS:
        _refuse(f"the metric {metric!r} has no unit and support here", fix=f"Use one of: {', '.join(METRICS)}.")
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
            "ladderRule": ladder_rule,
        },
        "scoring": {
            "primary": "crps",
            "crpsRule": CRPS_RULE,
            "secondary": list(SCORES),
            "hit": HIT_RULE,
            "reducibleE": fit["parameters"].get("E"),
        },
    }


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
        _refuse(
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
        return dict(sorted((float(level), value) for level, value in quantiles.items()))
    except ValueError as error:
        _refuse(f"a quantile level is not a number ({error})", fix='Write levels like "0.05".')


def read_statement(raw: bytes, *, name: str) -> Statement:
    """The statement in the exact bytes of `statement.json`; `DocumentError` or `StatementError` when it is not sound."""
    document = load_canonical(raw, name=name)
    check_shape(document, STATEMENT_SHAPE, name=name)
    statement = Statement(raw=raw, document=document)
    _check_meaning(statement)
    return statement


def ladder_document(rows: Sequence[Mapping[str, Any]], *, ladder: str, metric: str) -> dict[str, Any]:
    """The content of `ladder.json`: the exact runs that were fitted, each with `run`, `flops`, `params`, `tokens`, `loss`."""
    return {"format_version": 1, "ladder": ladder, "metric": metric, "rows": [_ladder_row(row) for row in rows]}


def read_subject(raw: bytes, *, name: str, path: str) -> Any:
    """The document of one subject (`name` is one of `SUBJECT_NAMES`), canonical and of its shape; `path` is for errors."""
    document = load_canonical(raw, name=path)
    check_shape(document, SUBJECT_SHAPES[name], name=path)
    return document


def parse_moment(text: str) -> datetime:
    """A time in UTC as the files write it.

    >>> parse_moment("2026-11-20T08:00:00Z").isoformat()
    '2026-11-20T08:00:00+00:00'
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        _refuse(f"the time {text!r} is no moment ({error})", fix="Write it like 2026-11-20T08:00:00Z.")
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _ladder_row(row: Mapping[str, Any]) -> dict[str, Any]:
    names = [name for name in ("params", "active_params", "tokens") if name in row]
    counts = {name: int(row[name]) if float(row[name]).is_integer() else float(row[name]) for name in names}
    return {"run": str(row["run"]), "flops": float(row["flops"]), "loss": float(row["loss"]), **counts}


def _extrapolation(rows: Sequence[Mapping[str, Any]], *, target_flops: float) -> float:
    largest = max((row["flops"] for row in rows), default=0.0)
    if not 0 < largest < target_flops:
        _refuse(
            f"the target costs {target_flops:.3g} FLOPs and the largest of {len(rows)} fitted runs {largest:.3g}",
            fix="Register a target that costs more than every run it is forecast from.",
        )
    return float(target_flops / largest)


def _check_meaning(statement: Statement) -> None:
    forecast, metric = statement.predicate["forecast"], statement.predicate["metric"]
    if sorted(statement.subjects) != list(SUBJECT_NAMES) or len(statement.document["subject"]) != len(SUBJECT_NAMES):
        _refuse(f"its subjects are {sorted(statement.subjects)}, not {list(SUBJECT_NAMES)}", fix="Register it again.")
    if {key: metric[key] for key in ("unit", "direction", "support")} != METRICS[metric["name"]]:
        _refuse(f"unit, direction or support of {metric['name']} are not {METRICS[metric['name']]}", fix="Register it again.")
    quantiles = statement.quantiles
    if len(forecast["quantiles"]) != len(LEVELS) or tuple(quantiles) != LEVELS:
        _refuse(f"its quantile levels are {[*quantiles]}, not the {len(LEVELS)} fixed ones", fix="State exactly those levels.")
    for (low, value), (high, next_value) in pairwise(quantiles.items()):
        if value >= next_value:
            _refuse(f"quantile {high:g} is {next_value}, not above {value} at {low:g}", fix="A forecast needs an interval.")
    lower, upper = metric["support"]
    if not lower < quantiles[LEVELS[0]] <= quantiles[LEVELS[-1]] < upper:
        _refuse(
            f"its quantiles reach outside {lower:g} to {upper:g} {metric['unit']}", fix="Look at the fit: it cannot be right."
        )
    if forecast["point"] != quantiles[0.5]:
        _refuse(f"its point {forecast['point']} is not its median {quantiles[0.5]}", fix="The point is the median.")
    if f"{statement.created_at:%Y-%m-%d}" != statement.predicate["id"][:10]:
        _refuse(
            f"its id {statement.predicate['id']} does not start with the day of {statement.predicate['createdAt']}",
            fix="Register it again.",
        )


def _refuse(what: str, *, fix: str) -> NoReturn:
    raise StatementError(
        f"This is not a sound preregistration: {what}.",
        why="What is promised must be scored later by anyone, without asking what was meant.",
        fix=fix,
    )
