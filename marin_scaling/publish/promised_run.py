"""A registered forecast as figures and the page of its ladder show it: as it was signed, with what was observed if it was."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from marin_scaling.durable_files import read_bytes
from marin_scaling.forecast.forecast import Forecast


@dataclass(frozen=True, kw_only=True)
class PromisedRun:
    """Name and state of a preregistration, the ladder that it rests on, its forecast, and the observed value if any."""

    name: str
    ladder: str
    forecast: Forecast
    observed: float | None
    state: str


def signed_forecast(folder: Path, *, flops: float) -> Forecast:
    """The forecast of the target as it was signed, not as it would be made today: of several, that at the target's FLOPs."""
    predictions = json.loads(read_bytes(folder / "forecast.json"))["predictions"]
    prediction = min(predictions, key=lambda each: abs(each["flops"] - flops))
    names = ("flops", "params", "tokens", "median", "bands", "extrapolation")
    return Forecast(
        quantiles={float(level): value for level, value in prediction["quantiles"].items()},
        active_params=prediction.get("active_params", prediction["params"]),
        band_notes=prediction.get("band_notes", {}),
        optimal=prediction.get("optimal", True),
        params_interval=None,
        mis_sizing=None,
        **{name: prediction[name] for name in names},
    )
