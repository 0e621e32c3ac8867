"""Version 0.1 of the statement: the first one, and what signatures of November 2026 cover. Nothing here may change."""

from __future__ import annotations

from marin_scaling.preregistration.document_shape import (
    FILE_NAME,
    MOMENT,
    Anything,
    Choice,
    ListOf,
    MapOf,
    Nullable,
    Number,
    Shape,
    Text,
)
from marin_scaling.preregistration.statement_format import (
    CRPS_RULE,
    DECLARATION,
    FORECAST_SHAPE,
    HIT_RULE,
    LADDER_SHAPE,
    METRICS,
    PRINCIPAL,
    REGISTRATION_ID,
    SCORES,
    TARGET_SHAPE,
)

PREDICATE_SHAPE: dict[str, Shape] = {
    "id": REGISTRATION_ID,
    "kind": Choice(of=("register",)),
    "registrant": PRINCIPAL,
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

SUBJECT_SHAPES: dict[str, Shape] = {"forecast.json": FORECAST_SHAPE, "ladder.json": LADDER_SHAPE, "target.json": TARGET_SHAPE}
