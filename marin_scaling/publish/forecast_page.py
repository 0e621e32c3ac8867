"""Page of one preregistration."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marin_scaling.errors import MarinScalingError
from marin_scaling.files import read_bytes
from marin_scaling.forecast.tracking import EarlierForecast, finished_curves, track_losses, tracked_text
from marin_scaling.markdown import Markdown, cell, escape, link, listed, page_name, without_root
from marin_scaling.preregistration.events.amendment import scored_amendments
from marin_scaling.preregistration.events.notice import deviations, ended_by
from marin_scaling.preregistration.families import Forecaster, forecaster
from marin_scaling.preregistration.history import log_step
from marin_scaling.preregistration.log import read_log
from marin_scaling.preregistration.receipts import Receipts
from marin_scaling.preregistration.register import answering_spec
from marin_scaling.preregistration.registry import signers_path
from marin_scaling.preregistration.review.report import doubts_section, promise_section
from marin_scaling.preregistration.state import State, Verdict, VerifiedStep
from marin_scaling.preregistration.statement import parse_moment
from marin_scaling.preregistration.verdict import reservations
from marin_scaling.preregistration.verify.authenticity import Verified, VerifiedSeal, sealed_verdict, verify_folder
from marin_scaling.preregistration.verify.policy import policy_steps
from marin_scaling.publish.ladder_page import PromisedRun, PublishedPage, ladder_names, signed_forecast
from marin_scaling.publish.render import render
from marin_scaling.run.curves import losses_so_far, shares_so_far
from marin_scaling.run.paths import Workplace
from marin_scaling.run.store import is_finished, read_run, read_runs, run_folder
from marin_scaling.units import format_flops
from marin_scaling.untrusted_files import WORK_FOLDER, is_present

if TYPE_CHECKING:
    from marin_scaling.preregistration.statement import Statement

_SCORES = {
    "signed_error": "forecast minus observed, in the metric's unit",
    "per_cent_of_loss": "the same in per cent of the observed loss",
    "per_cent_of_reducible_loss": "the same in per cent of what lies above the law's asymptote",
    "crps": "continuous ranked probability score, in the metric's unit; lower is better",
    "weighted_interval_score": "weighted interval score over the 23 levels; lower is better",
    "interval_score_90": "score of the 90 % interval: its width, plus a penalty outside of it",
    "pit": "where the observation lies in the forecast distribution, 0 to 1",
}
_INTERVALS = ((50, 0.25, 0.75), (80, 0.1, 0.9), (90, 0.05, 0.95), (98, 0.01, 0.99))
_PARAMETERS = 40  # above the number of any law


@dataclass(frozen=True, kw_only=True)
class ForecastPage(PublishedPage):
    """Page of a preregistration, with its verdict."""

    verdict: Verdict
    promised: PromisedRun | None = None
    """Forecast for the ladder's page; None if sealed or refused."""


@dataclass(frozen=True, kw_only=True)
class _Authentic:
    statement: Statement
    steps: Sequence[VerifiedStep]
    outcome: dict[str, Any] | None
    said: tuple[str, ...]
    """Status and warnings of the fit when it was signed."""

    made_by: Forecaster
    ended: Verdict | None = None
    """Verdict of a forecast that was withdrawn or void."""

    reserved: tuple[str, ...] = ()
    """Warnings that its run, or the record of it, came before the forecast."""

    claimed: bool = False
    """True if the outcome's run is missing from this repository."""

    deviated: str = ""
    """First deviating step and reason, if the run left its recipe."""

    amended: Sequence[Mapping[str, Any]] = ()
    """Later forecasts of the same run, scored once the run is checked."""

    @property
    def verdict(self) -> Verdict:
        """Verdict from the files alone; unlike `marin-scale check`, it does not look for unchecked runs."""
        if self.ended is not None:
            return replace(self.ended, forecaster=self.made_by)
        predicate = self.statement.predicate
        return Verdict(
            id=predicate["id"],
            state=self._state(),
            sentence="",
            outcome=self.outcome,
            registrant=predicate["registrant"],
            forecaster=self.made_by,
        )

    def _state(self) -> State:
        if self.outcome is None:
            return State.OVERDUE if self.statement.is_overdue(at=datetime.now(UTC)) else State.PENDING
        return State(self.outcome["verdict"])


def forecast_page(root: Path, folder: Path, *, receipts: Receipts | None = None) -> ForecastPage:
    """Verify a preregistration and return its page; the page of a refused one shows the reason.

    `receipts` hold the history of the branch; without them only the log gives the time of receipt.
    """
    stem = f"preregistrations/{page_name(folder.name)}"
    try:
        found = verify_folder(folder, allowed_signers=signers_path(folder), runs_dir=root / "runs")
        if isinstance(found, VerifiedSeal):
            return _sealed_page(root, folder, found, stem=stem)
        authentic = _read(root, found, receipts=receipts or found.trust.receipts)
    except MarinScalingError as error:
        return _refused_page(folder.name, error, root=root, stem=stem)
    promised = _promised(folder, authentic)
    figure, files = _figure(folder, authentic.statement, promised, stem=stem)
    page = render(
        "forecast.md.j2",
        title=folder.name,
        figure=figure,
        ladder=_ladder_link(root, promised.ladder),
        state=authentic.verdict.state,
        so_far="" if authentic.outcome or authentic.ended else _so_far(root, folder, signed=authentic.statement.quantiles),
        steps=_steps(authentic.steps, root),
        hangs_on=Markdown(doubts_section(authentic.statement)),
        in_words=Markdown(promise_section(authentic.statement)),
        amended_rows=_amended_rows(authentic),
        scores=_scores(authentic.outcome),
        **_forecast_values(authentic),
    )
    return ForecastPage(
        files={f"{stem}.md": page.encode(), **files},
        index_row=_index_row(authentic, folder.name, stem),
        verdict=authentic.verdict,
        promised=promised,
    )


_SHOWN = ("statement", "outcome", "ended", "claimed", "reserved", "deviated", "amended")


def _forecast_values(authentic: _Authentic) -> dict[str, Any]:
    """Return the template's values for the statement, its outcome and its notices."""
    quantiles, fit = authentic.statement.quantiles, authentic.statement.predicate["fit"]
    bands = sorted(authentic.statement.predicate["forecast"]["bands"].items())
    intervals = [[f"{width} % interval", f"{quantiles[low]:.4f} to {quantiles[high]:.4f}"] for width, low, high in _INTERVALS]
    halves = [[f"half-width from {name}", "not estimated" if value is None else f"{value:.4f}"] for name, value in bands]
    named = [f"{cell(name)} = {value:.6g}" for name, value in sorted(fit["parameters"].items())]
    basis = [["law", fit["law"]], ["fitted", listed(named, most=_PARAMETERS)], ["runs taken", fit["ladderRule"]]]
    return {
        **{name: getattr(authentic, name) for name in _SHOWN},
        "intervals": [["median", f"{quantiles[0.5]:.4f}"], *intervals, *halves],
        "basis": [*basis, *(["said of itself", sentence] for sentence in authentic.said)],
        "left_out": [[cell(each["run"]), cell(each["why"])] for each in fit["excluded"]],
    }


def _read(root: Path, found: Verified, *, receipts: Receipts) -> _Authentic:
    folder, runs_dir = found.folder, root / "runs"
    steps = [*found.steps, *policy_steps(found), log_step(folder, log=read_log(folder.parent))]
    document, spec = found.subjects["forecast.json"], answering_spec(folder)
    run = read_run(run_folder(runs_dir, spec)) if is_finished(runs_dir, spec) else None
    said = (document.get("status", ""), *document["warnings"])
    ended = ended_by(
        found.notices, folder=folder, statement=found.statement, spec=spec, runs_dir=runs_dir, receipts=found.trust.receipts
    )
    return _Authentic(
        statement=found.statement,
        steps=steps,
        outcome=None if found.outcome is None else dict(found.outcome),
        said=tuple(filter(None, said)),
        made_by=forecaster(folder, found.statement),
        ended=ended,
        claimed=found.outcome is not None and run is None,
        reserved=tuple(reservations(folder, run=run, receipts=receipts)) if run else (),
        amended=_amended(found, runs_dir=root / "runs"),
        deviated=deviations(found.notices),
    )


def _amended(found: Verified, *, runs_dir: Path) -> list[dict[str, Any]]:
    outcome = found.outcome
    run = runs_dir / found.statement.predicate["targetRun"]["ladder"] / (outcome or {"run": ""})["run"][:16] / "record.json"
    finished = parse_moment(json.loads(read_bytes(run))["finished_at"]) if outcome and is_present(run) else None
    value, receipts = outcome["value"] if outcome else None, found.trust.receipts
    return scored_amendments(found.amendments, folder=found.folder, value=value, finished_at=finished, receipts=receipts)


def _amended_rows(authentic: _Authentic) -> list[list[str]]:
    """Return a row for the first forecast with its scores, and one for each later forecast."""
    quantiles, scores = authentic.statement.quantiles, (authentic.outcome or {}).get("scores")
    promised = {"point": quantiles[0.5], "interval_90": [quantiles[0.05], quantiles[0.95]], "scores": scores}
    rows = [["the first", authentic.statement.predicate["createdAt"], "0", *_numbers(promised)]]
    return rows + [[each["name"], each["given_at"], str(each["steps_seen"]), *_numbers(each)] for each in authentic.amended]


def _numbers(scored: Mapping[str, Any]) -> list[str]:
    low, high = scored["interval_90"]
    shown, scores = [f"{scored['point']:.4f}", f"{low:.4f} to {high:.4f}"], scored["scores"]
    if scores is None:
        return [*shown, "", "", ""]
    return [*shown, f"{scores['signed_error']:+.4f}", f"{scores['crps']:.4f}", "yes" if scores["hit"] else "no"]


def _so_far(root: Path, folder: Path, *, signed: Mapping[float, float]) -> str:
    """Return the report on the unfinished run of the forecast in `folder`; empty if it is not trained on this machine."""
    place = Workplace(runs_dir=root / "runs", work_root=root / WORK_FOLDER, storage=None)
    spec = answering_spec(folder)
    losses = [] if is_finished(place.runs_dir, spec) else losses_so_far(spec, place)
    if not losses:
        return ""
    try:
        curves = finished_curves(read_runs(place.runs_dir / spec.ladder), without=spec.digest)
        earlier = EarlierForecast(quantiles=dict(signed), by=f"signed: {folder.name}")
        return tracked_text(track_losses(losses, spec, curves, forecast=earlier, expert_shares=shares_so_far(spec, place)))
    except MarinScalingError as error:
        return without_root(str(error), root)


def _scores(outcome: Mapping[str, Any] | None) -> list[list[str]]:
    if outcome is None or outcome["scores"] is None:
        return []
    rows = [["observed", f"{outcome['value']:.4f}", f"checked at {outcome['checked_at']}"]]
    rows += [[name, _score(outcome["scores"][name]), words] for name, words in _SCORES.items()]
    if baseline := outcome["baseline"]:
        words = f"1 is perfect, 0 no better than the baseline's CRPS {baseline['crps']:.4f}"
        rows.append(["skill", _score(baseline["skill"]), words])
    return rows


def _score(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4f}"


def _steps(steps: Sequence[VerifiedStep], root: Path) -> list[list[str]]:
    return [[step.what, "ok" if step.compared else "--", without_root(step.evidence, root)] for step in steps]


def _refused_page(name: str, error: MarinScalingError, *, root: Path, stem: str) -> ForecastPage:
    page = render("refused.md.j2", title=name, reason=without_root(str(error), root))
    sentence = f"refused: {escape(without_root(error.what, root))}"
    return ForecastPage(
        files={f"{stem}.md": page.encode()},
        index_row=(link(name, f"{stem}.md"), *[""] * 6, Markdown(sentence)),
        verdict=Verdict(id=name, state=State.REFUSED, sentence=sentence, outcome=None),
    )


def _index_row(authentic: _Authentic, name: str, stem: str) -> tuple[str, ...]:
    predicate, quantiles = authentic.statement.predicate, authentic.statement.quantiles
    outcome = authentic.outcome or {"value": None, "scores": None}
    scores = outcome["scores"]
    observed = "not run yet" if authentic.outcome is None else "diverged" if scores is None else f"{outcome['value']:.4f}"
    return (
        link(name, f"{stem}.md"),
        format_flops(predicate["targetRun"]["flops"]),
        f"{predicate['forecast']['extrapolation']:.4g}x",
        f"{quantiles[0.5]:.4f}",
        f"{quantiles[0.05]:.4f} to {quantiles[0.95]:.4f}",
        observed,
        Markdown(f"{scores['per_cent_of_loss']:+.2f}&nbsp;%" if scores else ""),
        authentic.verdict.state
        + f" (later forecasts: {len(authentic.amended)})" * bool(authentic.amended)
        + " (its run left the recipe)" * bool(authentic.deviated)
        + " (claimed: its run is not here)" * authentic.claimed,
    )


def _figure(folder: Path, statement: Statement, promised: PromisedRun, *, stem: str) -> tuple[Markdown, dict[str, bytes]]:
    """Return the figure's Markdown and file: the signed forecast and the outcome."""
    from marin_scaling.publish.charts import forecast_chart
    from marin_scaling.publish.figures import picture_files, show_pictures

    metric, runs = statement.predicate["metric"], json.loads(read_bytes(folder / "ladder.json"))["rows"]
    title = f"{metric['name'].replace('_', ' ')} ({metric['unit']})"
    chart = forecast_chart(runs, promised.forecast, observed=promised.observed, metric=title)
    caption = f"The fitted runs of {folder.name}, the forecast with its 50 and 90 % intervals, and the outcome if known"
    shown = show_pictures(page_name(folder.name), {"forecast": caption})
    return shown, picture_files({"forecast": chart}, page_stem=stem)


def _ladder_link(root: Path, ladder: str) -> str:
    """Return a link to the ladder's page, or its name if neither its runs nor its file are here."""
    has_page = ladder in ladder_names(root)
    return link(ladder, f"../ladders/{page_name(ladder)}.md") if has_page else f"{ladder} (not in this repository)"


def _promised(folder: Path, authentic: _Authentic) -> PromisedRun:
    target = authentic.statement.predicate["targetRun"]
    return PromisedRun(
        name=folder.name,
        ladder=target["ladder"],
        forecast=signed_forecast(folder, flops=target["flops"]),
        observed=None if authentic.outcome is None else authentic.outcome["value"],
        state=authentic.verdict.state,
    )


def _sealed_page(root: Path, folder: Path, found: VerifiedSeal, *, stem: str) -> ForecastPage:
    steps = [*found.steps, log_step(folder, log=read_log(folder.parent))]
    verdict = sealed_verdict(found, at=datetime.now(UTC))
    page = render("sealed.md.j2", title=folder.name, verdict=verdict, steps=_steps(steps, root))
    row = (link(folder.name, f"{stem}.md"), "", "", "sealed", "", "", "", verdict.state)
    return ForecastPage(files={f"{stem}.md": page.encode()}, index_row=row, verdict=verdict)
