"""Follow a run during training: compare its curve with the ladder's, or with the signed forecast of its curve."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import t as student_t

from marin_scaling.errors import FitRefused
from marin_scaling.forecast.forecast import LEVELS
from marin_scaling.forecast.loss_curve import CURVE_LEVELS, FRACTIONS, CurveForecast, curve_rows
from marin_scaling.laws import Array
from marin_scaling.run.curves import curve_faults
from marin_scaling.run.spec import RunSpec
from marin_scaling.run.stability import Stability, stability_document, stability_findings, stability_lines
from marin_scaling.run.store import StoredRun
from marin_scaling.units import counted, unit_of

LEAST_CURVES = 6
_LEAST_STEPS, _LEAST_FRACTION = 20, 0.05
_WINDOW = 0.05  # of all steps: the current training loss is the mean over this window
_LEAST_COMPARED = 0.15  # of the steps; earlier losses of recorded targets are off the line through their rungs
_USUAL = np.array([0.0005, 0.9995])  # recorded runs are outside at 10 of 998 stages: three rungs, one target
_ENDED = 0.999  # share of a run after which nothing is predicted; the first of MaxText's steps is 0
_RISEN = 1.05  # times the lowest mark; a higher last loss predicts nothing
_TELLING_WIDTH = 2.0  # times the forecast's interval; a wider prediction adds nothing to the forecast


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Training losses of a run from step 0 on, its number of steps, and its FLOPs."""

    losses: Array
    train_steps: int
    flops: float

    @property
    def fraction(self) -> float:
        """Share of the steps done."""
        return len(self.losses) / self.train_steps


@dataclass(frozen=True, kw_only=True)
class FinishedCurve:
    """A whole curve, and the final metric."""

    curve: Curve
    loss: float


@dataclass(frozen=True, kw_only=True)
class Tracking:
    """Predicted end of a run: `quantiles` (level to metric), from a number of finished curves at this `fraction` done."""

    fraction: float
    curves: int
    quantiles: dict[float, float]
    train_loss: float
    """Training loss of the run in nats per token, over the last `_WINDOW` of all steps."""

    usual_train_loss: tuple[float, float]
    """Central 99.9 % of this loss for a run of its FLOPs, from the finished curves."""

    @property
    def is_early(self) -> bool:
        """Return True if it is too early to compare the run's curve with others."""
        return self.fraction < _LEAST_COMPARED

    @property
    def is_unlike(self) -> bool:
        """Return True if the run's curve differs from the finished ones, which then cannot predict its end."""
        low, high = self.usual_train_loss
        return not self.is_early and not low <= self.train_loss <= high

    @property
    def interval(self) -> tuple[float, float]:
        """Central 90 % interval."""
        return self.quantiles[0.05], self.quantiles[0.95]


def track(run: Curve, finished: Sequence[FinishedCurve]) -> Tracking:
    """Predict the end of `run`; `FitRefused` if it is too early, or if finished curves are too few.

    >>> rungs = [FinishedCurve(curve=_powers(steps), loss=2 * steps**-0.1) for steps in (100, 150, 200, 300, 400, 600)]
    >>> half = _powers(800, done=400)
    >>> round(track(half, rungs).quantiles[0.5] / (2 * 800**-0.1), 2)
    1.0
    """
    _require_enough(run, finished)
    rows = np.array([_regressors(each.curve, run.fraction) for each in finished])  # (run, regressor)
    ratios = np.log([each.loss for each in finished]) - rows[:, -1]
    place = _regressors(run, run.fraction)
    ends = np.exp(place[-1] + _predicted(rows, ratios, place=place, levels=np.array(LEVELS)))
    low, high = np.exp(_predicted(rows[:, :1], rows[:, -1], place=place[:1], levels=_USUAL)).tolist()
    return Tracking(
        fraction=run.fraction,
        curves=len(finished),
        quantiles=dict(zip(LEVELS, ends.tolist(), strict=True)),
        train_loss=float(np.exp(place[-1])),
        usual_train_loss=(low, high),
    )


def _predicted(rows: Array, values: Array, *, place: Array, levels: Array) -> Array:
    """Return quantiles of the value at `place`, by least squares of `values` on `rows`, of shape (run, regressor)."""
    centre = rows.mean(axis=0)  # regressors are centered, without the constant
    design = np.column_stack([np.ones(len(rows)), rows - centre])
    at = np.concatenate([[1.0], place - centre])
    solution, _, rank, _ = np.linalg.lstsq(design, values, rcond=None)
    freedom = len(rows) - int(rank)
    variance = float(np.sum((values - design @ solution) ** 2)) / freedom
    spread = np.sqrt(variance * (1 + at @ np.linalg.pinv(design.T @ design) @ at))
    return np.asarray(at @ solution + spread * student_t.ppf(levels, freedom))


def finished_curves(runs: Iterable[StoredRun], *, without: str) -> list[FinishedCurve]:
    """Return the curves of rungs with a loss, except the run of digest `without`."""
    return [
        FinishedCurve(curve=curve_of(_losses(stored), stored.spec), loss=stored.record.loss)
        for stored in runs
        if stored.record.loss is not None and stored.spec.role == "rung" and stored.spec.digest != without
    ]


def curve_of(losses: Sequence[float], spec: RunSpec) -> Curve:
    """Return the curve of a run so far."""
    return Curve(losses=np.array(losses, dtype=np.float64), train_steps=spec.train_steps, flops=spec.flops)


def _losses(stored: StoredRun) -> list[float]:
    rows = stored.history().rows
    return [row.train_loss_nats_per_token for row in rows if row.train_loss_nats_per_token is not None]


@dataclass(frozen=True, kw_only=True)
class EarlierForecast:
    """Earlier forecast of the run: quantiles of the metric and their source; or why there is none."""

    quantiles: Mapping[float, float] | None
    by: str


@dataclass(frozen=True, kw_only=True)
class Tracked:
    """State of a run: progress, actual or predicted end, earlier forecast, and faults."""

    run: str
    steps_done: int
    train_steps: int
    train_loss_nats_per_token: float | None
    metric: str
    ended_at: float | None
    """Final metric of a run that has ended; no prediction is made then."""

    tracking: Tracking | None
    why_not: str
    forecast: EarlierForecast
    faults: Sequence[str]
    stability: Stability | None = None
    followed: FollowedCurve | None = None
    """Training losses against the signed forecast of their curve, if there is one."""

    @property
    def verdict(self) -> str:
        """Verdict of prediction against forecast; empty if either is missing."""
        expected = self.tracking.quantiles if self.tracking else self._end()
        if not expected or not self.forecast.quantiles:
            return ""
        if self.tracking and self.tracking.is_unlike:
            return "unlike the ladder's curves: no prediction"
        found = verdict(expected, self.forecast.quantiles)
        return "too early to say" if found == "on forecast" and self.tracking and self.tracking.is_early else found

    def _end(self) -> Mapping[float, float]:
        """Return the final metric as quantiles, which are all equal; empty if the run has not ended."""
        return {} if self.ended_at is None else dict.fromkeys((0.05, 0.5, 0.95), self.ended_at)


def track_losses(
    losses: Sequence[float | None],
    spec: RunSpec,
    curves: Sequence[FinishedCurve],
    *,
    forecast: EarlierForecast,
    ended_at: float | None = None,
    stability: Stability | None = None,
) -> Tracked:
    """Describe the run of `spec` after these training losses (None: not finite).

    `ended_at` is the final metric of a run that has ended. `stability` is what was logged with the losses, if it is known.
    """
    finite = [loss for loss in losses if loss is not None]
    tracking, why_not = None, "its loss is not finite."
    if ended_at is not None:
        why_not = ""
    elif len(finite) == len(losses):
        tracking, why_not = _tracking(finite, spec, curves)
    faults = curve_faults(
        losses,
        train_steps=spec.train_steps,
        decay_steps=round(spec.optimizer.decay_fraction * spec.train_steps),
        vocab_size=spec.model.vocab_size,
    )
    return Tracked(
        run=spec.directory_name,
        steps_done=len(losses),
        train_steps=spec.train_steps,
        train_loss_nats_per_token=float(np.mean(finite[-max(1, len(finite) // 20) :])) if finite else None,
        metric=spec.evaluation.metric,
        ended_at=ended_at,
        tracking=tracking,
        why_not=why_not,
        forecast=forecast,
        faults=[*faults, *_unlikeness(tracking), *(stability_findings(stability) if stability else ())],
        stability=stability,
    )


def _tracking(losses: Sequence[float], spec: RunSpec, curves: Sequence[FinishedCurve]) -> tuple[Tracking | None, str]:
    try:
        return track(curve_of(losses, spec), curves), ""
    except FitRefused as refusal:
        return None, refusal.what


def _unlikeness(tracking: Tracking | None) -> list[str]:
    """Return a sentence with the numbers if the curve differs from the finished ones."""
    if tracking is None or not tracking.is_unlike:
        return []
    low, high = tracking.usual_train_loss
    return [
        f"the training loss is {tracking.train_loss:.4f} nats per token over the last {_WINDOW:.0%} of all steps; "
        f"the curves of {tracking.curves} finished runs have {low:.4f} to {high:.4f} there (99.9 %) at its FLOPs"
    ]


def verdict(expected: Mapping[float, float], forecast: Mapping[float, float]) -> str:
    """Compare the predicted end of a run with its forecast, by the two 90 % intervals and the run's median.

    A prediction with an interval of more than twice the forecast's width is too early.

    >>> verdict({0.05: 2.0, 0.5: 2.1, 0.95: 2.2}, {0.05: 2.05, 0.95: 2.3})
    'on forecast'
    >>> verdict({0.05: 2.2, 0.5: 2.4, 0.95: 2.5}, {0.05: 2.05, 0.95: 2.3})
    'may end above its forecast'
    >>> verdict({0.05: 1.8, 0.5: 1.9, 0.95: 2.0}, {0.05: 2.05, 0.95: 2.3})
    'off forecast: below'
    >>> verdict({0.05: 1.8, 0.5: 2.1, 0.95: 2.4}, {0.05: 2.05, 0.95: 2.3})
    'too early to say'
    """
    if forecast[0.05] <= expected[0.5] <= forecast[0.95]:
        is_telling = expected[0.95] - expected[0.05] <= _TELLING_WIDTH * (forecast[0.95] - forecast[0.05])
        return "on forecast" if is_telling else "too early to say"
    side = "above" if expected[0.5] > forecast[0.95] else "below"
    apart = expected[0.05] > forecast[0.95] or expected[0.95] < forecast[0.05]
    return f"off forecast: {side}" if apart else f"may end {side} its forecast"


def _regressors(curve: Curve, fraction: float) -> Array:
    """Return log FLOPs, and the log training loss at this fraction of the steps."""
    end = max(1, round(fraction * curve.train_steps))
    begin = max(0, min(end - 1, int((fraction - _WINDOW) * curve.train_steps)))
    return np.array([np.log(curve.flops), np.log(curve.losses[begin:end].mean())])


def _require_enough(run: Curve, finished: Sequence[FinishedCurve]) -> None:
    if len(run.losses) < _LEAST_STEPS or run.fraction < _LEAST_FRACTION:
        raise FitRefused(
            f"{len(run.losses)} of {run.train_steps} steps are done; a prediction needs {_LEAST_STEPS} steps and "
            f"{_LEAST_FRACTION:.0%} of them.",
            why="Curves differ more at their beginnings than at their ends.",
            fix="Try again later.",
        )
    if len(finished) < LEAST_CURVES:
        raise FitRefused(
            f"{len(finished)} finished runs have a loss curve; a prediction needs {LEAST_CURVES}.",
            fix="Train more rungs of the ladder, or name another ladder: --against.",
        )


def _powers(steps: int, *, done: int | None = None) -> Curve:
    """Return a curve that falls as a power of the step, for the example above."""
    return Curve(losses=3 * np.arange(1, (done or steps) + 1.0) ** -0.1, train_steps=steps, flops=float(steps))


def tracked_text(found: Tracked) -> str:
    """Format the state of a run in a few lines."""
    now = (
        ""
        if found.train_loss_nats_per_token is None
        else f", training loss {found.train_loss_nats_per_token:.4f} nats per token"
    )
    lines = [f"{found.run}: step {found.steps_done} of {found.train_steps} ({found.steps_done / found.train_steps:.0%}){now}"]
    if found.ended_at is not None:
        lines.append(f"it ended at {found.ended_at:.4f} {unit_of(found.metric)}")
    elif found.tracking is None:
        lines.append(f"no prediction: {found.why_not}")
    else:
        end = _quantiles(found.tracking.quantiles, found.metric)
        went = f"as the curves of {found.tracking.curves} finished runs went"
        lines.append(
            f"it would end at {end}, if it went {went}" if found.tracking.is_unlike else f"it will end at {end}, {went}"
        )
    quantiles = found.forecast.quantiles
    lines.append(
        f"no forecast to compare with: {found.forecast.by}"
        if quantiles is None
        else f"forecast {_quantiles(quantiles, found.metric)} ({found.forecast.by})"
    )
    lines += [found.verdict] if found.verdict else []
    if found.followed is not None:
        lines += ["training loss and its signed forecast, nats/token", *_mark_lines(found.followed)]
    lines += stability_lines(found.stability)
    lines += [f"warning: {fault}" for fault in found.faults]
    return "\n".join(lines)


def tracked_document(found: Tracked) -> dict[str, Any]:
    """Return the state of a run as a document."""
    return {
        "run": found.run,
        "steps_done": found.steps_done,
        "train_steps": found.train_steps,
        "train_loss_nats_per_token": found.train_loss_nats_per_token,
        "usual_train_loss_nats_per_token": None if found.tracking is None else list(found.tracking.usual_train_loss),
        "metric": found.metric,
        "ended_at": found.ended_at,
        "expected": None if found.tracking is None else _levels(found.tracking.quantiles),
        "curves": None if found.tracking is None else found.tracking.curves,
        "why_not": found.why_not or None,
        "forecast": None if found.forecast.quantiles is None else _levels(found.forecast.quantiles),
        "forecast_by": found.forecast.by,
        "verdict": found.verdict or None,
        "faults": list(found.faults),
        "curve": [] if found.followed is None else _marked_rows(found.followed),
        "stability": stability_document(found.stability),
    }


def _quantiles(quantiles: Mapping[float, float], metric: str) -> str:
    return f"{quantiles[0.5]:.4f} {unit_of(metric)}, 90 % interval {quantiles[0.05]:.4f} to {quantiles[0.95]:.4f}"


def _levels(quantiles: Mapping[float, float]) -> dict[str, float]:
    return {f"{level:g}": value for level, value in quantiles.items()}


_NO_CURVE = "its curve was not forecast: no prediction"
_OTHER_TOKENS = 0.05
"""Difference of tokens from which a run is not on its promised schedule; trainers that count from 0 are off by less."""


@dataclass(frozen=True, kw_only=True)
class FollowedCurve:
    """A run in training against the forecast of its curve.

    `signed` are the quantiles by fraction and level that were signed, empty if only the end was forecast. `seen` are its
    losses at `FRACTIONS`, NaN where unknown, and `now` is the forecast with these losses. `end` are the signed quantiles of
    the final loss.
    """

    run: str
    metric: str
    fraction: float
    """Share of the run that is done."""
    last_loss: float
    signed: Mapping[float, Mapping[float, float]]
    seen: Array
    now: CurveForecast
    end: Mapping[float, float]
    broken_at: float | None = None
    """Share of the run since which it has no loss that is a number; None if the latest one is."""
    tokens_share: float | None = None
    """Tokens so far as a share of those that are promised at this step; None if the log does not tell."""
    stability: Stability | None = None

    @property
    def other_tokens(self) -> str:
        """Warning that a step has other tokens than promised, as with another batch size; empty if it has not."""
        if self.tokens_share is None or abs(self.tokens_share - 1) <= _OTHER_TOKENS:
            return ""
        return f"at this step the run has {self.tokens_share:.0%} of the promised tokens: its batch or its steps differ"

    @property
    def has_ended(self) -> bool:
        """Return True if its last step is done, so that its outcome tells its end."""
        return self.fraction > _ENDED and self.why_not in ("", _NO_CURVE)

    @property
    def why_not(self) -> str:
        """Reason for which nothing can be predicted from the run's curve; empty if something can."""
        if self.broken_at is not None:
            return f"no loss that is a number since {self.broken_at:.1%} of the run: no prediction"
        lowest = min((loss for loss, _ in self.marks.values()), default=self.last_loss)
        if self.last_loss > _RISEN * lowest:
            return f"the loss has risen from {lowest:.4f} to {self.last_loss:.4f}: no prediction"
        if not self.signed:
            return _NO_CURVE
        return "unlike the curves of the smaller runs: no prediction" if self.now.is_unlike else ""

    @property
    def marks(self) -> dict[float, tuple[float, bool]]:
        """Loss at each fraction so far, and whether it lies inside the signed 90 % interval."""
        losses = {fraction: float(loss) for fraction, loss in zip(FRACTIONS, self.seen, strict=True) if fraction in self.signed}
        pairs = [(fraction, loss) for fraction, loss in losses.items() if np.isfinite(loss)]
        return {each: (loss, self.signed[each][0.05] <= loss <= self.signed[each][0.95]) for each, loss in pairs}

    @property
    def verdict(self) -> str:
        """Forecast of the end now against the signed one, with what differs; too early before the first mark."""
        found = self.why_not or (verdict(self.now.end, self.end) if self.marks else "too early to say")
        return f"{found}; {self.other_tokens}" if self.other_tokens else found


def followed_text(found: FollowedCurve) -> str:
    """Format a followed run: its marks, what is expected of the rest, the end, and the verdict."""
    unit = unit_of(found.metric)
    lines = [f"{found.run}: {found.fraction:.1%} done, loss {found.last_loss:.4f} {unit}", *_mark_lines(found)]
    signed, now = (f"{each[0.5]:.4f} [{each[0.05]:.4f}, {each[0.95]:.4f}]" for each in (found.end, found.now.end))
    later = "" if found.why_not or found.has_ended else f", now {now}"
    lines.append(f"end: signed {signed}{later} {unit}")
    lines.append("it has ended; record its outcome" if found.has_ended else found.verdict)
    warnings = stability_findings(found.stability) if found.stability else ()
    return "\n".join([*lines, *stability_lines(found.stability), *(f"warning: {each}" for each in warnings)])


def _mark_lines(found: FollowedCurve) -> list[str]:
    """Format each mark, and how many lie inside; nothing without a forecast of the curve."""
    inside = sum(is_inside for _, is_inside in found.marks.values())
    return [
        *(["  done  signed 90 % interval      loss"] if found.signed else []),
        *(_mark_line(found, fraction) for fraction in found.signed),
        *([f"{inside} of {counted(len(found.marks), 'mark')} inside the signed 90 % intervals"] if found.marks else []),
    ]


def _mark_line(found: FollowedCurve, fraction: float) -> str:
    """Format one share of the run: the signed interval, and the loss there, or what is expected."""
    signed, again, mark = found.signed[fraction], found.now.by_fraction[fraction], found.marks.get(fraction)
    line = f"{fraction:>6.0%}  [{signed[0.05]:.4f}, {signed[0.95]:.4f}]"
    if mark is not None:
        place = "inside" if mark[1] else "above" if mark[0] > signed[0.95] else "below"
        return f"{line}  {mark[0]:.4f}  {place}"
    expected = f"  expected {again[0.5]:.4f} [{again[0.05]:.4f}, {again[0.95]:.4f}]"
    return line if found.why_not else f"{line}{expected}"


def followed_document(found: FollowedCurve) -> dict[str, Any]:
    """Return a followed run as a document."""
    return {
        "run": found.run,
        "metric": found.metric,
        "fraction": found.fraction,
        "last_loss": found.last_loss,
        "curve": _marked_rows(found),
        "expected": None if found.why_not else {f"{level:g}": value for level, value in found.now.end.items()},
        "forecast": {f"{level:g}": found.end[level] for level in CURVE_LEVELS},
        "tokens_share": found.tokens_share,
        "verdict": found.verdict,
        "stability": stability_document(found.stability),
    }


def _marked_rows(found: FollowedCurve) -> list[dict[str, Any]]:
    """Return the forecast of a curve now, with the losses at its marks."""
    rows = curve_rows(found.now)
    for row in rows:
        mark = found.marks.get(row["fraction"])
        row |= {"loss": None if mark is None else mark[0], "inside_90": None if mark is None else mark[1]}
    return rows
