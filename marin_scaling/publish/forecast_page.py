"""The page of one preregistration."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from marin_scaling.errors import MarinScalingError, refuse
from marin_scaling.files import read_bytes
from marin_scaling.forecast.tracking import EarlierForecast, finished_curves, track_losses, tracked_text
from marin_scaling.limits import LISTED
from marin_scaling.markdown import cell, escape, link, listed, page, page_name, preformatted, table, without_root
from marin_scaling.preregistration.events.amendment import scored_amendments
from marin_scaling.preregistration.events.notice import deviations, ended_by
from marin_scaling.preregistration.families import Forecaster, forecaster
from marin_scaling.preregistration.history import log_step
from marin_scaling.preregistration.log import read_log
from marin_scaling.preregistration.register import answering_spec
from marin_scaling.preregistration.registry import signers_path
from marin_scaling.preregistration.review.report import doubts_section, promise_section
from marin_scaling.preregistration.state import State, Verdict, VerifiedStep
from marin_scaling.preregistration.statement import parse_moment
from marin_scaling.preregistration.verify.authenticity import Verified, VerifiedSeal, sealed_verdict, verify_folder
from marin_scaling.preregistration.verify.policy import policy_steps
from marin_scaling.publish.ladder_page import PromisedRun, PublishedPage, ladder_names, signed_forecast
from marin_scaling.run.curves import losses_so_far, shares_so_far
from marin_scaling.run.paths import Workplace
from marin_scaling.run.store import is_finished, read_runs
from marin_scaling.units import format_count, format_flops
from marin_scaling.untrusted_files import WORK_FOLDER, is_present

if TYPE_CHECKING:
    from marin_scaling.preregistration.statement import Statement

_WORDS = (
    "Later forecasts of the same run, by the same registrant. The first one is the promise: it has the verdict, and alone it "
    "counts in any record. A later one counts as given when it came into the log; how many steps of the run had been seen then "
    "is its registrant's word."
)


def amendments_section(scored: Sequence[Mapping[str, Any]], *, first: Statement, scores: Mapping[str, Any] | None) -> str:
    """A row for the first forecast with its scores, and one for each later one; empty where there is none."""
    if not scored:
        return ""
    low, high = (first.quantiles[level] for level in (0.05, 0.95))
    promised = {"point": first.quantiles[0.5], "interval_90": [low, high], "scores": scores}
    rows = [["the first", escape(first.predicate["createdAt"]), "0", *_numbers(promised)]]
    rows += [[escape(each["name"]), escape(each["given_at"]), str(each["steps_seen"]), *_numbers(each)] for each in scored]
    header = ["forecast", "given", "steps seen", "median", "90 % interval", "error", "CRPS", "in its interval"]
    said = "\n".join(f"* {_said(each)}" for each in scored)
    return f"## Forecast again\n\n{_WORDS}\n\n{table(header, rows, right=[2, 3, 4, 5, 6])}\n\n{said}"


def _numbers(scored: Mapping[str, Any]) -> list[str]:
    low, high = scored["interval_90"]
    told = [f"{scored['point']:.4f}", f"{low:.4f} to {high:.4f}"]
    if scored["scores"] is None:
        return [*told, "", "", ""]
    scores = scored["scores"]
    return [*told, f"{scores['signed_error']:+.4f}", f"{scores['crps']:.4f}", "yes" if scores["hit"] else "no"]


def _said(scored: Mapping[str, Any]) -> str:
    why_not = f" Not scored: {escape(scored['why_not_scored'])}." if scored["why_not_scored"] else ""
    return f"{escape(scored['name'])}: {escape(scored['reason'])}.{why_not}"


_IN_PROGRESS_WORDS = (
    "As it stood when this page was made, on the machine that made it; what is said of its end is no forecast that was signed."
)


def standing_section(root: Path, folder: Path, *, signed: Mapping[float, float]) -> str:
    """The section of the forecast in `folder`, whose quantiles are `signed`; empty where its run is not under way here."""
    place = Workplace(runs_dir=root / "runs", work_root=root / WORK_FOLDER, storage=None)
    spec = answering_spec(folder)
    losses = [] if is_finished(place.runs_dir, spec) else losses_so_far(spec, place)
    if not losses:
        return ""
    try:
        curves = finished_curves(read_runs(place.runs_dir / spec.ladder), without=spec.digest)
        found = track_losses(
            losses,
            spec,
            curves,
            forecast=EarlierForecast(quantiles=dict(signed), by=f"signed: {folder.name}"),
            expert_shares=shares_so_far(spec, place),
        )
        said = tracked_text(found)
    except MarinScalingError as error:
        said = without_root(str(error), root)
    return f"## The run so far\n\n{_IN_PROGRESS_WORDS}\n\n{preformatted(said)}"


_PARAMETERS = 40  # more than any law has

_SCORES = {
    "signed_error": "forecast minus observed, in the metric's unit",
    "per_cent_of_loss": "the same in per cent of the observed loss",
    "per_cent_of_reducible_loss": "the same in per cent of what lies above the law's asymptote",
    "crps": "continuous ranked probability score, in the metric's unit; lower is better",
    "weighted_interval_score": "weighted interval score over the 23 levels; lower is better",
    "interval_score_90": "score of the 90 % interval: its width, plus a penalty outside of it",
    "pit": "where the observation lies in the forecast distribution, 0 to 1",
}


@dataclass(frozen=True, kw_only=True)
class ForecastPage(PublishedPage):
    """The page of a preregistration, and what became of that."""

    verdict: Verdict
    promised: PromisedRun | None = None
    """For the page of its ladder; None of one that is sealed or refused."""


@dataclass(frozen=True, kw_only=True)
class _Authentic:
    statement: Statement
    steps: Sequence[VerifiedStep]
    outcome: dict[str, Any] | None
    said: tuple[str, ...]
    """What the fit said of itself when it was signed: its status and warnings."""

    made_by: Forecaster
    ended: Verdict | None = None
    """Where it was taken back or found void."""

    deviated: str = ""
    """Where it is said that the run left its recipe, from which step on and why."""

    amended: Sequence[Mapping[str, Any]] = ()
    """Later forecasts of the same run, scored where it is checked."""

    @property
    def verdict(self) -> Verdict:
        """What its files say became of it; unlike `marin-scale check`, without looking for a run that is not checked yet."""
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


def forecast_page(root: Path, folder: Path) -> ForecastPage:
    """The page of one preregistration."""
    try:
        authentic = _read(root, folder)
    except MarinScalingError as error:
        return refused_page(folder.name, error, root=root)
    stem = f"preregistrations/{page_name(folder.name)}"
    metric, promised = authentic.statement.predicate["metric"], _promised(folder, authentic)
    ladder = _ladder_link(root, promised.ladder)
    figure, files = _figure(
        folder, promised, axis=f"{metric['name'].replace('_', ' ')} ({metric['unit']})", ladder=ladder, stem=stem
    )
    text = page(
        folder.name,
        _headline(authentic),
        figure,
        "" if authentic.outcome or authentic.ended else standing_section(root, folder, signed=authentic.statement.quantiles),
        _forecast_section(authentic),
        _target_section(authentic, ladder=ladder),
        _basis_section(authentic),
        doubts_section(authentic.statement),
        promise_section(authentic.statement),
        _outcome_section(authentic),
        amendments_section(authentic.amended, first=authentic.statement, scores=(authentic.outcome or {}).get("scores")),
        _authenticity_section(authentic, folder.name, root=root),
    )
    return ForecastPage(
        files={f"{stem}.md": text.encode(), **files},
        index_row=_index_row(authentic, folder.name),
        verdict=authentic.verdict,
        promised=promised,
    )


def _read(root: Path, folder: Path) -> _Authentic:
    found = verify_folder(folder, allowed_signers=signers_path(folder), runs_dir=root / "runs")
    if isinstance(found, VerifiedSeal):
        refuse(f"{folder} is sealed", fix="Reveal it first.")
    steps = [*found.steps, *policy_steps(found), log_step(folder, log=read_log(folder.parent))]
    document, spec, receipts = found.subjects["forecast.json"], answering_spec(folder), found.trust.receipts
    said = (document.get("status", ""), *document["warnings"])
    ended = ended_by(
        found.notices, folder=folder, statement=found.statement, spec=spec, runs_dir=root / "runs", receipts=receipts
    )
    return _Authentic(
        statement=found.statement,
        steps=steps,
        outcome=None if found.outcome is None else dict(found.outcome),
        said=tuple(filter(None, said)),
        made_by=forecaster(folder, found.statement),
        ended=ended,
        amended=_amended(found, runs_dir=root / "runs"),
        deviated=deviations(found.notices),
    )


def _amended(found: Verified, *, runs_dir: Path) -> list[dict[str, Any]]:
    outcome = found.outcome
    run = runs_dir / found.statement.predicate["targetRun"]["ladder"] / (outcome or {"run": ""})["run"][:16] / "record.json"
    finished = parse_moment(json.loads(read_bytes(run))["finished_at"]) if outcome and is_present(run) else None
    value, receipts = outcome["value"] if outcome else None, found.trust.receipts
    return scored_amendments(found.amendments, folder=found.folder, value=value, finished_at=finished, receipts=receipts)


def refused_page(name: str, error: MarinScalingError, *, root: Path) -> ForecastPage:
    """The page of a preregistration that is not authentic: the reason."""
    reason = without_root(str(error), root)
    text = page(
        name, "**Refused.** This preregistration is not what it claims to be, so nothing of it is shown.", preformatted(reason)
    )
    what = escape(without_root(error.what, root))
    row = (link(name, f"preregistrations/{page_name(name)}.md"), "", "", "", "", "", "", f"refused: {what}")
    refused = Verdict(id=name, state=State.REFUSED, sentence=f"refused: {what}", outcome=None)
    return ForecastPage(files={f"preregistrations/{page_name(name)}.md": text.encode()}, index_row=row, verdict=refused)


def _index_row(authentic: _Authentic, name: str) -> tuple[str, ...]:
    predicate, quantiles = authentic.statement.predicate, authentic.statement.quantiles
    outcome = authentic.outcome or {"value": None, "scores": None}
    scores = outcome["scores"]
    observed = "not run yet" if authentic.outcome is None else "diverged" if scores is None else f"{outcome['value']:.4f}"
    return (
        link(name, f"preregistrations/{page_name(name)}.md"),
        format_flops(predicate["targetRun"]["flops"]),
        f"{predicate['forecast']['extrapolation']:.4g}x",
        f"{quantiles[0.5]:.4f}",
        f"{quantiles[0.05]:.4f} to {quantiles[0.95]:.4f}",
        observed,
        f"{scores['per_cent_of_loss']:+.2f}&nbsp;%" if scores else "",
        authentic.verdict.state
        + f" (later forecasts: {len(authentic.amended)})" * bool(authentic.amended)
        + " (its run left the recipe)" * bool(authentic.deviated),
    )


def _headline(authentic: _Authentic) -> str:
    quantiles, unit = authentic.statement.quantiles, escape(authentic.statement.predicate["metric"]["unit"])
    promised = f"{quantiles[0.5]:.4f} {unit} was forecast, 90 % interval {quantiles[0.05]:.4f} to {quantiles[0.95]:.4f}"
    if authentic.ended is not None:
        return f"**{authentic.verdict.state.capitalize()}.** {promised}; {escape(authentic.ended.sentence)}."
    if authentic.outcome is None:
        late, said = authentic.verdict.state is State.OVERDUE, escape(authentic.deviated)
        return (
            f"**{'Overdue' if late else 'Pending'}.** {promised}; the target is not trained yet{', and was due' * late}{said}."
        )
    if authentic.outcome["value"] is None:
        return f"**Missed.** {promised}; the target diverged."
    scores = authentic.outcome["scores"]
    return (
        f"**{authentic.verdict.state.capitalize()}.** {promised}; {authentic.outcome['value']:.4f} was observed, "
        f"an error of {scores['signed_error']:+.4f} ({scores['per_cent_of_loss']:+.2f} %){escape(authentic.deviated)}."
    )


def _forecast_section(authentic: _Authentic) -> str:
    quantiles, forecast = authentic.statement.quantiles, authentic.statement.predicate["forecast"]
    rows = [["median", f"{quantiles[0.5]:.4f}"]]
    rows += [
        [f"{width} % interval", f"{quantiles[low]:.4f} to {quantiles[high]:.4f}"]
        for width, low, high in ((50, 0.25, 0.75), (80, 0.1, 0.9), (90, 0.05, 0.95), (98, 0.01, 0.99))
    ]
    rows += [[f"half-width from {escape(name)}", _band(value)] for name, value in sorted(forecast["bands"].items())]
    header = ["forecast", escape(authentic.statement.predicate["metric"]["unit"])]
    return f"## The forecast\n\n{table(header, rows, right=[1])}"


def _band(value: Any) -> str:
    return "not estimated" if value is None else f"{value:.4f}"


def _target_section(authentic: _Authentic, *, ladder: str) -> str:
    target = authentic.statement.predicate["targetRun"]
    rows = [
        ["ladder", ladder],
        ["recipe", escape(target["recipe"])],
        ["training FLOPs", f"{format_flops(target['flops'])} ({escape(target['flopsConvention'])})"],
        ["beyond the largest budget", f"{authentic.statement.predicate['forecast']['extrapolation']:.4g}x"],
        ["parameters", format_count(target["paramsTotal"])],
        ["trained tokens", format_count(target["tokens"])],
        ["metric", escape(authentic.statement.predicate["metric"]["name"])],
    ]
    return f"## The run it is about\n\n{table(['what', 'value'], rows)}"


def _basis_section(authentic: _Authentic) -> str:
    fit = authentic.statement.predicate["fit"]
    named = [f"{cell(name)} = {value:.6g}" for name, value in sorted(fit["parameters"].items())]
    parameters = listed(named, most=_PARAMETERS)
    rows = [["law", escape(fit["law"])], ["fitted", parameters], ["runs taken", escape(fit["ladderRule"])]]
    rows += [["said of itself", escape(sentence)] for sentence in authentic.said]
    basis = table(["what", "value"], rows, most=LISTED, rest_in="forecast.json")
    left_out = [[cell(each["run"]), cell(each["why"])] for each in fit["excluded"]]
    shown = table(["run", "why"], left_out, most=LISTED, rest_in="forecast.json") if left_out else "No run was left out."
    return f"## What it rests on\n\n{basis}\n\nLeft out of the fit:\n\n{shown}"


def _outcome_section(authentic: _Authentic) -> str:
    if authentic.outcome is None or authentic.outcome["scores"] is None:
        return ""
    scores = authentic.outcome["scores"]
    rows = [[escape(name), _score(scores[name]), words] for name, words in _SCORES.items()]
    if baseline := authentic.outcome["baseline"]:
        rows.append(
            ["skill", _score(baseline["skill"]), f"1 is perfect, 0 no better than the baseline's CRPS {baseline['crps']:.4f}"]
        )
    first = ["observed", f"{authentic.outcome['value']:.4f}", f"checked at {escape(authentic.outcome['checked_at'])}"]
    return f"## The outcome\n\n{table(['score', 'value', 'what it is'], [first, *rows], right=[1])}"


def _score(value: Any) -> str:
    return "unknown" if value is None else f"{value:.4f}"


def _authenticity_section(authentic: _Authentic, name: str, *, root: Path) -> str:
    predicate = authentic.statement.predicate
    rows = [[escape(step.what), escape(without_root(step.evidence, root))] for step in authentic.steps]
    words = (
        f"Signed by {escape(predicate['registrant'])}, who says that it was made at {escape(predicate['createdAt'])}. "
        "Each line was checked when this page was made. The ladder was not fitted again for it; `verify` does that, and "
        "compares every quantile:"
    )
    commands = preformatted(f"marin-scale verify {name}\nmarin-scale check {name}")
    steps = table(["step", "evidence"], rows)
    return f"## Is it authentic?\n\n{words}\n\n{steps}\n\nCheck it yourself:\n\n{commands}"


def _figure(folder: Path, promised: PromisedRun, *, axis: str, ladder: str, stem: str) -> tuple[str, dict[str, bytes]]:
    """The figure's Markdown and its file: what was signed, and what was observed."""
    from marin_scaling.publish.drawings import Promised, promise_drawing

    runs = json.loads(read_bytes(folder / "ladder.json"))["rows"]
    picture = promise_drawing(Promised(runs=runs, forecast=promised.forecast, observed=promised.observed, axis=axis))
    caption = (
        f"The runs behind {escape(folder.name)}, the forecast with its 50 and 90 % intervals, and what was observed if it was"
    )
    words = f"The law, and a figure to move about in: {ladder}."
    return f"![{caption}]({quote(page_name(folder.name))}.svg)\n\n{words}", {f"{stem}.svg": picture}


def _ladder_link(root: Path, ladder: str) -> str:
    """A link to the page of the ladder; its name where neither its runs nor its file are here, so that it has none."""
    has_page = ladder in ladder_names(root)
    return link(ladder, f"../ladders/{page_name(ladder)}.md") if has_page else f"{escape(ladder)} (not in this repository)"


def _promised(folder: Path, authentic: _Authentic) -> PromisedRun:
    target = authentic.statement.predicate["targetRun"]
    return PromisedRun(
        name=folder.name,
        ladder=target["ladder"],
        forecast=signed_forecast(folder, flops=target["flops"]),
        observed=None if authentic.outcome is None else authentic.outcome["value"],
        state=authentic.verdict.state,
    )


def sealed_page(root: Path, folder: Path) -> ForecastPage:
    """The page of one sealed preregistration, verified again; of one that is refused it shows the reason."""
    signers, path = signers_path(folder), f"preregistrations/{page_name(folder.name)}.md"
    try:
        found = verify_folder(folder, allowed_signers=signers)
        if not isinstance(found, VerifiedSeal):
            refuse(f"{folder} is not sealed", fix="Build the site again.")
        steps = [*found.steps, log_step(folder, log=read_log(folder.parent))]
        verdict = sealed_verdict(found, at=datetime.now(UTC))
    except MarinScalingError as error:
        return refused_page(folder.name, error, root=root)
    rows = [[escape(step.what), escape(without_root(step.evidence, root))] for step in steps]
    text = page(
        folder.name,
        f"**{verdict.state.capitalize()}**{escape(verdict.sentence.removeprefix(verdict.state))}.",
        "Whoever sealed it has signed a salted digest of a forecast. When it is revealed, its numbers stand here, with what "
        "shows that they are those that were sealed; if it is not revealed in time, it counts as missed.",
        f"## Is it authentic?\n\n{table(['step', 'evidence'], rows)}\n\nCheck it yourself:",
        preformatted(f"marin-scale verify {folder.name}"),
    )
    row = (link(folder.name, path), "", "", "sealed", "", "", "", verdict.state)
    return ForecastPage(files={path: text.encode()}, index_row=row, verdict=verdict)
