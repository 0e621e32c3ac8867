"""The format of a preregistration, version 0.1: fixed words, quantile levels, metrics, and the shape of each file.

A value here is part of what old signatures cover: it changes only with a new predicate type. What the fields must mean
together is checked in `statement`.
"""

from __future__ import annotations

from dataclasses import fields

from marin_scaling.preregistration.document_shape import (
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
    Nullable,
    Number,
    Shape,
    Text,
)
from marin_scaling.recipe.model_family import FAMILIES

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:marin-scaling:preregistration:v0.1"
SUBJECT_NAMES = ("forecast.json", "ladder.json", "target.json")

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

METRICS = {"bits_per_byte": {"unit": "bits/byte", "direction": "min", "support": [0.0, 8.0]}}
"""Metrics that can be promised. Bits per byte lie between 0 and 8, the cost of a uniform code over 256 bytes."""

_PREDICATE: dict[str, Shape] = {
    "id": Text(pattern=r"\d{4}-\d\d-\d\d-[a-z0-9][a-z0-9-]{0,63}"),
    "kind": Choice(of=("register",)),
    "registrant": Text(pattern=r"[A-Za-z0-9._+-]+@[A-Za-z0-9._-]+"),
    "createdAt": MOMENT,
    "tool": {"name": Choice(of=("marin-scaling",)), "version": Text()},
    "targetRun": {
        "ladder": FILE_NAME,
        "recipe": Text(),
        "budgetFlops": Number(above=0),
        "flops": Number(above=0),
        "flopsConvention": Text(),
        "paramsTotal": Number(whole=True, above=0),
        "paramsActive": Number(whole=True, above=0),
        "tokens": Number(whole=True, above=0),
        "shape": MapOf(value=Anything()),
    },
    "metric": {
        "name": Choice(of=tuple(METRICS)),
        "unit": Text(),
        "direction": Choice(of=("min",)),
        "support": ListOf(item=Number()),
        "protocol": MapOf(value=Anything()),
    },
    "forecast": {
        "point": Number(),
        "pointIs": Choice(of=("median",)),
        "quantiles": MapOf(value=Number()),
        "bands": MapOf(value=Nullable(value=Number())),
        "extrapolation": Number(above=1),
    },
    "fit": {
        "law": Text(),
        "parameters": MapOf(value=Number()),
        "fixed": MapOf(value=Anything()),
        "seed": Nullable(value=Number(whole=True)),
        "excluded": ListOf(item={"run": Text(), "why": Text()}),
        "ladderRule": Text(),
    },
    "scoring": {
        "primary": Choice(of=("crps",)),
        "crpsRule": Choice(of=(CRPS_RULE,)),
        "secondary": ListOf(item=Choice(of=SCORES)),
        "hit": Choice(of=(HIT_RULE,)),
        "reducibleE": Nullable(value=Number()),
    },
    "knowledge": {"targetRunStepsSeen": Choice(of=(0,)), "declaration": Choice(of=(DECLARATION,))},
}

STATEMENT_SHAPE: dict[str, Shape] = {
    "_type": Choice(of=(STATEMENT_TYPE,)),
    "subject": ListOf(item={"name": Choice(of=SUBJECT_NAMES), "digest": {"sha256": SHA256}}),
    "predicateType": Choice(of=(PREDICATE_TYPE,)),
    "predicate": _PREDICATE,
}


LADDER_SHAPE: dict[str, Shape] = {
    "format_version": Choice(of=(1,)),
    "ladder": FILE_NAME,
    "metric": Text(),
    "rows": ListOf(
        item={
            "run": Text(pattern=r"[^\x00-\x1f\x7f-\x9f]{1,200}"),
            "flops": Number(above=0),
            "params": Number(above=0),
            "active_params": MayLack(value=Number(above=0)),
            "tokens": Number(above=0),
            "loss": Number(above=0),
        }
    ),
}


FORECAST_SHAPE: Shape = AtLeast(
    keys={
        "law": Text(),
        "parameters": MapOf(value=Number()),
        "seed": Nullable(value=Number(whole=True)),
        "metric": Text(),
        "excluded": ListOf(item={"run": Text(), "why": Text()}),
        "status": MayLack(value=Text()),
        "warnings": MayLack(value=ListOf(item=Text())),
        "predictions": ListOf(
            item=AtLeast(
                keys={
                    "flops": Number(above=0),
                    "median": Number(),
                    "quantiles": MapOf(value=Number()),
                    "bands": MapOf(value=Nullable(value=Number())),
                }
            )
        ),
    }
)

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

SUBJECT_SHAPES: dict[str, Shape] = {"forecast.json": FORECAST_SHAPE, "ladder.json": LADDER_SHAPE, "target.json": TARGET_SHAPE}
