"""Forecast large training runs from ladders of small ones: sign the forecast before the run, and check it afterwards.

    import marin_scaling as ms

    fit = ms.fit("runs/delphi")
    print(fit.forecast(1e23))

These functions are the Python interface; each is imported on first use. `ARCHITECTURE.md` describes the packages.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.5.0"

_HOME = {
    "load_runs": "fitted",
    "fit": "fitted",
    "backtest": "fitted",
    "speedup_chain": "fitted",
    "custom_law": "fitting.custom_law",
    "tune": "fitted",
    "mix": "forecast.mixture",
    "filter_corpus": "data.filter",
    "compare_data": "forecast.data_comparison",
    "load_ladder": "train.session",
    "load_exported": "train.weights",
    "preregister": "preregistration.preregister",
    "preregister_table": "preregistration.outside",
    "record_outcome": "preregistration.outside",
    "track": "preregistration.tracked_run",
    "track_outside": "preregistration.tracked_run",
    "verify": "preregistration.verification",
    "check": "preregistration.verdict",
    "import_registry": "preregistration.imported",
    "compare_forecasts": "preregistration.track_record",
    "plan_entry": "speedrun.train_entry",
    "train_entry": "speedrun.train_entry",
    "confirm_entry": "speedrun.train_entry",
    "submit_runs": "speedrun.submit",
    "new_experiment": "experiment.texts",
    "write_pull_request": "experiment.texts",
    "validate_experiments": "publish.experiment_pages",
}
__all__ = [*_HOME, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'marin_scaling' has no attribute {name!r}")
    return getattr(import_module(f"marin_scaling.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
