"""What all versions of the format have in common: fixed words, quantile levels, metrics, and the shapes of the oldest subjects.

A value here is part of what old signatures cover: it changes only with a new predicate type (`format_versions`). What the
fields must mean together is checked in `statement`.
"""

from __future__ import annotations

from dataclasses import fields

from marin_scaling import units
from marin_scaling.preregistration.format_schema import (
    FILE_NAME,
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
from marin_scaling.recipe.model_shape import FAMILIES

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"

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
"""Metrics that can be promised. Bits per byte lie between 0 and 8, the cost of a uniform code over 256 bytes."""

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


PREDICTION_KEYS: dict[str, Shape] = {
    "flops": Number(above=0),
    "median": Number(),
    "quantiles": MapOf(value=Number()),
    "bands": MapOf(value=Nullable(value=Number())),
}
FORECAST_KEYS: dict[str, Shape] = {
    "law": Text(),
    "parameters": MapOf(value=Number()),
    "seed": Nullable(value=Number(whole=True)),
    "metric": Text(),
    "excluded": ListOf(item={"run": Text(), "why": Text()}),
    "status": MayLack(value=Text()),
    "warnings": MayLack(value=ListOf(item=Text())),
    "predictions": ListOf(item=AtLeast(keys=PREDICTION_KEYS)),
}
FORECAST_SHAPE: Shape = AtLeast(keys=FORECAST_KEYS)

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
