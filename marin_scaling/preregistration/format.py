"""Statement format: fixed texts, quantile levels, metrics, and schemas of the statement and its subjects.

Signatures cover these values: they change only with a new predicate type. `statement` checks relations between fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from marin_scaling import units
from marin_scaling.preregistration.format_schema import (
    FILE_NAME,
    MOMENT,
    SHA256,
    Anything,
    AtLeast,
    ByKind,
    Choice,
    ListOf,
    MapOf,
    MayLack,
    Means,
    Nullable,
    Number,
    Shape,
    Text,
)
from marin_scaling.recipe.model_shape import FAMILIES

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:marin-scaling:preregistration:v1"

LEVELS = (0.01, 0.025, *(n / 20 for n in range(1, 20)), 0.975, 0.99)
"""The 23 quantile levels of the COVID-19 and FluSight forecast hubs (Bracher et al. 2021)."""

HIT_RULE = "observed in the central 90 % interval"
CRPS_RULE = "2 * sum of weight * pinball loss over the levels; a level's weight is the length of [0, 1] nearest to it"
SCORES = (
    "weighted_interval_score",
    "interval_score_90",
    "pit",
    "signed_error",
    "per_cent_of_loss",
    "per_cent_of_reducible_loss",
)
DECLARATION = "No loss of the target run has been seen."
REGISTRATION_ID = Text(pattern=r"\d{4}-\d\d-\d\d-[a-z0-9][a-z0-9-]{0,63}")
PRINCIPAL = Text(pattern=r"[A-Za-z0-9._+-]+@[A-Za-z0-9._-]+")

METRICS = {
    each.name: {"unit": each.unit, "direction": each.direction, "support": list(each.support)}
    for each in units.METRICS.values()
    if each.support is not None
}
"""Metrics that a forecast can promise. Bits per byte lie between 0 and 8, the cost of a uniform code over 256 bytes."""

TARGET_SHAPE: Shape = {
    "format_version": Choice(of=(1,)),
    "ladder": FILE_NAME,
    "role": Choice(of=("target",)),
    "recipe": Text(),
    "budget_flops": Number(above=0),
    "model": ByKind(
        key="family",
        shapes={
            family: {"family": Text(), **{field.name: Number(whole=True, above=0) for field in fields(shape)}}
            for family, shape in FAMILIES.items()
        },
    ),
    "optimizer": MapOf(value=Anything()),
    "batch_size": Number(whole=True, above=0),
    "train_steps": Number(whole=True, above=0),
    "seed": Number(whole=True),
    "data_order_seed": Choice(of=(0,)),
    "data": MapOf(value=Anything()),
    "evaluation": AtLeast(keys={"metric": Text()}),
    "statement_sha256": Choice(of=(None,)),
}

LINEAGE_RULE = (
    "The run whose spec is target.json with this statement's SHA-256 and the data order that follows from it, from step 0; "
    "it may be resumed as often as need be with the same spec."
)
CHECKPOINT_RULE = "the weights after the last step, not averaged"
BASELINE_RULE = (
    "log loss = a + b log FLOPs by least squares through the best run of each budget, errors normal with the residual variance "
    "(n - 2 degrees of freedom) and the uncertainty of the line; of two budgets the line alone"
)
IF_OVERDUE = "It counts as missed."
SAMPLE_COUNT = 1000

_WORDS = ListOf(item=Text())
_TESTED: dict[str, Shape] = {
    "nearest": Number(above=0),
    "farthest": Nullable(value=Number(above=0)),
    "count": Number(whole=True, above=0),
    "median_absolute_error": Number(),
    "bias": Number(),
    "inside_50": Number(),
    "inside_90": Number(),
    "crps": Number(),
}
_CHOICE: dict[str, Shape] = {"choice": Text(), "median": Nullable(value=Number()), "why_none": Text()}


def as_in_statement(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of `forecast.json` with the statement's key names.

    >>> as_in_statement({"inside_90": 0.75, "median_absolute_error": 0.01})
    {'inside90': 0.75, 'medianAbsoluteError': 0.01}
    """
    words = {name: name.split("_") for name in row}
    return {first + "".join(map(str.capitalize, rest)): row[name] for name, (first, *rest) in words.items()}


PREDICATE_SHAPE: dict[str, Shape] = {
    "id": Means(value=REGISTRATION_ID, what="folder name: the day (UTC) and a slug"),
    "kind": Means(value=Choice(of=("register",)), what="kind of statement: the forecast of a run that has not started"),
    "registrant": Means(value=PRINCIPAL, what="signer, as in `allowed_signers`"),
    "reviewers": Means(value=ListOf(item=PRINCIPAL), what="people asked to sign as reviewers"),
    "createdAt": Means(value=MOMENT, what="time of the statement by the registrant's clock (UTC)"),
    "tool": {
        "name": Choice(of=("marin-scaling",)),
        "version": Means(value=Text(), what="version of marin-scaling that fitted the law"),
        "versions": Means(value=MapOf(value=Text()), what="versions of Python and the libraries of the fit"),
    },
    "targetRun": {
        "uid": Means(value=Text(pattern="[0-9a-f]{32}"), what="128 random bits that identify the promise"),
        "lineageRule": Means(value=Choice(of=(LINEAGE_RULE,)), what="rule that identifies the run, with restarts"),
        "ladder": Means(value=FILE_NAME, what="folder in `runs/` for the run"),
        "recipe": Means(value=Text(), what="recipe that makes a run of a budget and a width"),
        "budgetFlops": Means(value=Number(above=0), what="nominal training FLOPs"),
        "flops": Means(value=Number(above=0), what="training FLOPs of exactly this shape and these tokens"),
        "flopsConvention": Means(value=Text(), what="convention by which FLOPs are counted"),
        "paramsTotal": Means(value=Number(whole=True, above=0), what="all parameters"),
        "paramsActive": Means(value=Number(whole=True, above=0), what="parameters used per token"),
        "tokens": Means(value=Number(whole=True, above=0), what="trained tokens"),
        "shape": Means(value=MapOf(value=Anything()), what="sizes of the model"),
        "tolerance": {
            "flops": Means(value=Number(least=0), what="largest relative difference of the run's FLOPs; 0 means exact"),
            "tokens": Means(value=Number(least=0), what="largest relative difference of the run's tokens; 0 means exact"),
        },
    },
    "recipe": {
        "data": Means(value=MapOf(value=Anything()), what="source and digest of the training data"),
        "optimizer": Means(value=MapOf(value=Anything()), what="every constant of the optimizer"),
        "batchSize": Means(value=Number(whole=True, above=0), what="sequences per step"),
        "trainSteps": Means(value=Number(whole=True, above=0), what="steps"),
        "beyondLadder": Means(
            value=MapOf(value=Number(above=0)),
            what="`flops`, `params`, `tokens` of the target over the largest of the ladder's runs",
        ),
        "knownDifferencesFromLadder": Means(value=_WORDS, what="other differences between the ladder's runs and the target"),
    },
    "metric": {
        "name": Choice(of=tuple(METRICS)),
        "unit": Text(),
        "direction": Choice(of=("min",)),
        "support": Means(value=ListOf(item=Number()), what="range of possible values"),
        "protocol": Means(value=MapOf(value=Anything()), what="evaluation protocol, as in `evaluation.json`"),
        "checkpointRule": Means(value=Choice(of=(CHECKPOINT_RULE,)), what="rule that selects the evaluated weights"),
    },
    "forecast": {
        "point": Means(value=Number(), what="the median"),
        "pointIs": Choice(of=("median",)),
        "quantiles": Means(value=MapOf(value=Number()), what="23 quantiles, by level"),
        "bands": Means(value=MapOf(value=Nullable(value=Number())), what="half-widths of 90 % intervals by cause"),
        "extrapolation": Means(value=Number(above=1), what="FLOPs of the target over those of the largest fitted run"),
        "samples": Means(value=Choice(of=("samples.json",)), what="file of equally likely losses"),
        "sensitivity": Means(
            value=ListOf(item=as_in_statement(_CHOICE)),
            what="medians of alternative fits",
        ),
    },
    "fit": {
        "law": Means(value=Text(), what="name and formula of the law"),
        "parameters": Means(value=MapOf(value=Number()), what="fitted parameters of the law"),
        "fixed": Means(value=MapOf(value=Anything()), what="values set by hand"),
        "seed": Means(value=Nullable(value=Number(whole=True)), what="random seed of the draws"),
        "ladderRule": Means(value=Text(), what="rule that selects the fitted runs"),
        "excluded": Means(value=ListOf(item={"run": Text(), "why": Text()}), what="excluded runs, with reasons"),
        "backtest": Means(
            value=ListOf(item=as_in_statement(_TESTED)),
            what="backtest: each budget forecast from the smaller ones, by distance; as shares of the loss",
        ),
        "warnings": Means(value=_WORDS, what="warnings of the fit"),
    },
    "assumptions": Means(
        value=ListOf(item={"id": Text(pattern=r"A\d{1,3}"), "text": Text(), "ifFalse": Text()}),
        what="assumptions of the forecast, and the consequence if one is false",
    ),
    "scoring": {
        "primary": Choice(of=("crps",)),
        "crpsRule": Choice(of=(CRPS_RULE,)),
        "secondary": ListOf(item=Choice(of=SCORES)),
        "hit": Choice(of=(HIT_RULE,)),
        "reducibleE": Means(value=Nullable(value=Number()), what="the fitted asymptote, for the error of the reducible loss"),
        "baseline": {
            "rule": Means(value=Choice(of=(BASELINE_RULE,)), what="simple forecast that skill is measured against"),
            "point": Number(),
            "quantiles": MapOf(value=Number()),
        },
    },
    "knowledge": {
        "targetRunStepsSeen": Choice(of=(0,)),
        "relatedRunsSeen": Means(value=_WORDS, what="similar runs whose losses the registrant knew"),
        "declaration": Choice(of=(DECLARATION,)),
    },
    "resolution": {
        "resolver": Means(value=PRINCIPAL, what="person who resolves unclear outcomes"),
        "due": Means(value=MOMENT, what="deadline of the run"),
        "ifOverdue": Choice(of=(IF_OVERDUE,)),
        "voidIf": Means(value=_WORDS, what="conditions that void the forecast, so that it is neither held nor missed"),
    },
}

_FORECAST: Shape = AtLeast(
    keys={
        "law": Text(),
        "parameters": MapOf(value=Number()),
        "seed": Nullable(value=Number(whole=True)),
        "metric": Text(),
        "excluded": ListOf(item={"run": Text(), "why": Text()}),
        "status": MayLack(value=Text()),
        "warnings": ListOf(item=Text()),
        "backtest": ListOf(item=_TESTED),
        "predictions": ListOf(
            item=AtLeast(
                keys={
                    "flops": Number(above=0),
                    "median": Number(),
                    "quantiles": MapOf(value=Number()),
                    "bands": MapOf(value=Nullable(value=Number())),
                    "sensitivity": ListOf(item=_CHOICE),
                }
            )
        ),
    }
)
_LADDER: dict[str, Shape] = {
    "format_version": Choice(of=(1,)),
    "ladder": FILE_NAME,
    "metric": Text(),
    "rows": ListOf(
        item={
            "run": Text(pattern=r"[^\x00-\x1f\x7f-\x9f]{1,200}"),
            "budget_flops": Number(above=0),
            "flops": Number(above=0),
            "params": Number(above=0),
            "active_params": MayLack(value=Number(above=0)),
            "tokens": Number(above=0),
            "epochs": MayLack(value=Number(above=0)),
            "loss": Number(above=0),
        }
    ),
}

SUBJECT_SHAPES: dict[str, Shape] = {
    "evaluation.json": {
        "format_version": Choice(of=(1,)),
        "evaluation": AtLeast(keys={"metric": Text()}),
        "data": MapOf(value=Anything()),
    },
    "forecast.json": _FORECAST,
    "ladder.json": _LADDER,
    "recipe.json": AtLeast(
        keys={
            "recipe": Text(),
            "numbers": ListOf(item={"name": Text(), "value": Anything(), "formula": Text(), "source": Text()}),
            "constants": ListOf(item=MapOf(value=Anything())),
        }
    ),
    "samples.json": {
        "format_version": Choice(of=(1,)),
        "metric": Text(),
        "flops": Number(above=0),
        "losses": ListOf(item=Number()),
    },
    "target.json": TARGET_SHAPE,
}
SUBJECT_FILES = tuple(sorted(SUBJECT_SHAPES))
"""Files beside the statement, by name."""

STATEMENT_SHAPE: dict[str, Shape] = {
    "_type": Choice(of=(STATEMENT_TYPE,)),
    "subject": ListOf(item={"name": Choice(of=SUBJECT_FILES), "digest": {"sha256": SHA256}}),
    "predicateType": Choice(of=(PREDICATE_TYPE,)),
    "predicate": PREDICATE_SHAPE,
}
