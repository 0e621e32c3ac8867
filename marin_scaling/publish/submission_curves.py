"""The loss curves of a submission: those of its seeds as it states them, or as the records of the runs here have them.

A recorded curve is that of a submission's seed only where its digest is the one that the submission names. Draws nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from marin_scaling.canonical_json import load_strict
from marin_scaling.durable_files import read_bytes
from marin_scaling.errors import MarinScalingError
from marin_scaling.run.run_store import read_run, run_folders
from marin_scaling.speedrun.submission import SeedResult, Submission

_MOST_POINTS = 200
_HELD_OUT, _TRAINING = "bits per byte of the held-out text", "training loss, nats a token"


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One seed's: losses by step, thinned to at most 200 means."""

    label: str
    axis: str
    points: Sequence[tuple[float, float]]


def recorded_curves(runs_dir: Path) -> dict[str, Path]:
    """The folders of the runs that are recorded here, by the digest of their curve."""
    return dict(_digests(runs_dir))


def _digests(runs_dir: Path) -> Iterator[tuple[str, Path]]:
    for path in (folder / "record.json" for ladder in sorted(runs_dir.glob("*/")) for folder in run_folders(ladder)):
        try:
            record = load_strict(read_bytes(path), name=str(path))
        except MarinScalingError:
            continue  # the page of its ladder says so
        if isinstance(record, dict) and isinstance(record.get("history_sha256"), str):
            yield record["history_sha256"], path.parent


def curves_of(submission: Submission, recorded: Mapping[str, Path]) -> list[Curve]:
    """The curves of its seeds, all on one axis: held-out losses where it states them, else recorded training losses."""
    stated = [
        _curve(seed, _HELD_OUT, [(at.step, at.bits_per_byte) for at in seed.curve]) for seed in submission.seeds if seed.curve
    ]
    return stated or [curve for seed in submission.seeds if (curve := _recorded(seed, recorded))]


def _recorded(seed: SeedResult, recorded: Mapping[str, Path]) -> Curve | None:
    folder = recorded.get(seed.log_sha256 or "")
    if folder is None:
        return None
    try:
        rows = read_run(folder).history().rows
    except MarinScalingError:
        return None  # the page of its ladder says what is wrong with it
    known = [(row.step, row.train_loss_nats_per_token) for row in rows if row.train_loss_nats_per_token is not None]
    return _curve(seed, _TRAINING, known)


def _curve(seed: SeedResult, axis: str, points: Sequence[tuple[float, float]]) -> Curve:
    label = "a seed" if seed.seed is None else f"seed {seed.seed}"
    return Curve(label=label, axis=axis, points=thinned(points))


def thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most 200 means over neighbours.

    >>> thinned([(0, 3.0), (1, 2.0)])
    [(0, 3.0), (1, 2.0)]
    """
    if len(points) <= _MOST_POINTS:
        return list(points)
    edges = [round(number * len(points) / _MOST_POINTS) for number in range(_MOST_POINTS + 1)]
    groups = [points[start:end] for start, end in pairwise(edges)]
    return [(fmean(step for step, _ in group), fmean(loss for _, loss in group)) for group in groups]
