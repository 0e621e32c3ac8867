"""Page of one preregistration."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from marin_scaling.errors import MarinScalingError
from marin_scaling.files import read_bytes
from marin_scaling.fitting.fit import FitResult, FitStatus, fit
from marin_scaling.forecast.forecast import choices_outside
from marin_scaling.forecast.loss_curve import marks_of_steps
from marin_scaling.forecast.tracking import EarlierForecast, finished_curves, track_losses, tracked_text
from marin_scaling.markdown import Markdown, cell, escape, link, listed, page_name, without_root
from marin_scaling.preregistration.events.amendment import scored_amendments
from marin_scaling.preregistration.events.notice import deviations, ended_by, restarts_of
from marin_scaling.preregistration.events.observation import ended_at, marks_text, read_observation
from marin_scaling.preregistration.format import ASSURANCE
from marin_scaling.preregistration.ladder_records import ladder_table
from marin_scaling.preregistration.log import Receipts, read_log
from marin_scaling.preregistration.outcome import State, Verdict, VerifiedStep
from marin_scaling.preregistration.register import answering_spec, is_outside_run
from marin_scaling.preregistration.registry import Forecaster, forecaster, signers_path
from marin_scaling.preregistration.review.report import doubts_section, promise_section
from marin_scaling.preregistration.statement import Statement, parse_moment, prediction_at
from marin_scaling.preregistration.verdict import reservations, tracked_reservations
from marin_scaling.preregistration.verify.authenticity import Verified, VerifiedSeal, sealed_verdict, verify_folder
from marin_scaling.preregistration.verify.rules import log_step, policy_steps
from marin_scaling.printable import RUNS_DRAWN
from marin_scaling.publish.charts import axis_title, band_chart, forecast_chart
from marin_scaling.publish.figures import figure_files, picture_files, render, sentence, show_live, show_wide, state_chip
from marin_scaling.publish.ladder_page import PromisedRun, PublishedPage, ladder_names, signed_forecast, stability_section
from marin_scaling.run.curves import rows_so_far
from marin_scaling.run.stability import stability_of_rows
from marin_scaling.run.store import StoredRun, Workplace, is_finished, read_run, read_runs, run_folder
from marin_scaling.units import counted, format_count, format_flops, format_number
from marin_scaling.untrusted_files import WORK_FOLDER, is_present

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

    run: StoredRun | None = None
    """The target's recorded run; None of an outside run, or while there is none here."""

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


def forecast_page(
    root: Path, folder: Path, *, receipts: Receipts | None = None, explanations: Sequence[Markdown] = ()
) -> ForecastPage:
    """Verify a preregistration and return its page; the page of a refused one shows the reason.

    `receipts` hold the history of the branch; without them only the log gives the time of receipt.
    `explanations` are links to the experiments about the forecast.
    """
    stem = f"preregistrations/{page_name(folder.name)}"
    try:
        found = verify_folder(folder, allowed_signers=signers_path(folder), runs_dir=root / "runs")
        if isinstance(found, VerifiedSeal):
            return _sealed_page(root, folder, found, stem=stem)
        authentic = _read(root, found, receipts=receipts or found.trust.receipts)
    except MarinScalingError as error:
        return _refused_page(folder.name, error, root=root, stem=stem)
    promised, law = _promised(folder, authentic), _law_again(found)
    figure, files = _figure(folder, authentic.statement, promised, law=law, stem=stem)
    curve, drawn = _curve_figure(found, stem=stem)
    stability, norms = stability_section([authentic.run] if authentic.run else [], stem=stem)
    page = render(
        "forecast.md.j2",
        title=f"{promised.ladder} at {format_flops(promised.forecast.flops)} FLOPs",
        name=folder.name,
        chip=state_chip(authentic.verdict.state),
        figure=figure,
        curve=curve,
        drawn_law="runs of the statement, fitted again for this page"
        if law
        else "runs of the statement; it could not be drawn",
        ladder=_ladder_link(root, promised.ladder),
        run_rows=_run_rows(found, ladder=_ladder_link(root, promised.ladder)),
        state=authentic.verdict.state,
        against=[without_root(each, root) for each in _against(authentic)],
        explanations=explanations,
        so_far="" if authentic.outcome or authentic.ended else _so_far(root, folder, signed=authentic.statement.quantiles),
        steps=_steps(authentic.steps, root),
        assurance=ASSURANCE["tracked"] if found.statement.is_outside else "",
        other_choices=_without_heading(doubts_section(authentic.statement)),
        in_words=_without_heading(promise_section(authentic.statement)),
        amended_rows=_amended_rows(authentic),
        scores=_scores(authentic.outcome),
        stability=stability,
        **_forecast_values(authentic),
    )
    return ForecastPage(
        files={f"{stem}.md": page.encode(), **files, **drawn, **norms},
        index_row=_index_row(authentic, folder.name, stem),
        verdict=authentic.verdict,
        promised=promised,
    )


def _without_heading(section: str) -> Markdown:
    return Markdown(section.partition("\n\n")[2])


def _against(authentic: _Authentic) -> Iterator[str]:
    """Yield everything that `marin-scale check`, the fit and the verification say against a forecast."""
    quantiles, outcome = authentic.statement.quantiles, authentic.outcome
    if outcome and outcome["scores"] is None:
        yield "Its run diverged, so it lies in no interval."
    elif outcome and authentic.verdict.state is State.MISSED:
        side = "below" if outcome["value"] < quantiles[0.05] else "above"
        beyond = max(quantiles[0.05] - outcome["value"], outcome["value"] - quantiles[0.95])
        yield f"The observed loss lies {beyond:.4f} {side} the 90 % interval."
    skill = ((outcome or {}).get("baseline") or {}).get("skill")
    if skill is not None and skill < 0:
        yield f"A line through the best run of each budget was closer (skill {skill:+.2f})."
    if outside := choices_outside(authentic.statement.predicate["forecast"]["sensitivity"], quantiles):
        yield outside
    if authentic.claimed:
        yield "The outcome is claimed: the record of its run is not in this repository."
    yield from (f"{sentence(each)}." for each in authentic.reserved)
    if authentic.deviated:
        yield f"{sentence(authentic.deviated.removeprefix('; '))}."
    if authentic.amended:
        yield f"Its registrant gave {counted(len(authentic.amended), 'later forecast')} of the same run."
    yield from (sentence(each) for each in authentic.said if each != FitStatus.USABLE.value)
    seen = authentic.statement.predicate["knowledge"]["relatedRunsSeen"]
    yield from (f"Related run known before: {each}" for each in seen if each != "none")
    unchecked = [step for step in authentic.steps if not step.compared]
    yield from (f"Not compared: {step.what}: {step.evidence.removeprefix('tracked: ')}" for step in unchecked)


def _run_rows(found: Verified, *, ladder: str) -> list[list[str]]:
    """Return kind, size and metric of the forecast run; of an outside run, also the description."""
    run, predicate, target = found.statement.predicate["targetRun"], found.statement.predicate, found.subjects["target.json"]
    active = "" if run["paramsActive"] == run["paramsTotal"] else f" ({format_count(run['paramsActive'])} active)"
    rows = [
        ["training FLOPs", f"{format_flops(run['flops'])} ({run['flopsConvention']})"],
        ["beyond the largest budget", f"{predicate['forecast']['extrapolation']:.4g}x"],
        ["parameters", f"{format_count(run['paramsTotal'])}{active}"],
        ["trained tokens", format_count(run["tokens"])],
        ["metric", predicate["metric"]["name"]],
    ]
    if not found.statement.is_outside:
        return [["ladder", ladder], ["recipe", run["recipe"]], *rows]
    outcome, described = target["outcome"], predicate["recipe"]["described"]
    source = f"{outcome['key']} of the run {outcome['run']} in {outcome['project']} ({outcome['tracker']})"
    return [
        *rows,
        ["evaluation", target["evaluation"]["described"]],
        ["data", target["data"]["source"]],
        *([name.replace("_", " "), words] for name, words in sorted(described.items())),
        ["outcome read from", source],
        *(["restarted", each.sentence] for each in restarts_of(found.notices)),
    ]


def _forecast_values(authentic: _Authentic) -> dict[str, Any]:
    """Return the template's values for the statement, its outcome and its notices."""
    quantiles, fit = authentic.statement.quantiles, authentic.statement.predicate["fit"]
    bands = sorted(authentic.statement.predicate["forecast"]["bands"].items())
    intervals = [[f"{width} % interval", f"{quantiles[low]:.4f} to {quantiles[high]:.4f}"] for width, low, high in _INTERVALS]
    halves = [[f"half-width from {name}", "not estimated" if value is None else f"{value:.4f}"] for name, value in bands]
    named = [f"{cell(name)} = {format_number(value)}" for name, value in sorted(fit["parameters"].items())]
    basis = [["law", fit["law"]], ["fitted", listed(named, most=_PARAMETERS)], ["runs taken", fit["ladderRule"]]]
    return {
        **{name: getattr(authentic, name) for name in ("statement", "outcome", "ended", "amended")},
        "intervals": [["median", f"{quantiles[0.5]:.4f}"], *intervals, *halves],
        "basis": [*basis, *(["said of itself", sentence] for sentence in authentic.said)],
        "left_out": [[cell(each["run"]), cell(each["why"])] for each in fit["excluded"]],
    }


def _read(root: Path, found: Verified, *, receipts: Receipts) -> _Authentic:
    folder, runs_dir = found.folder, root / "runs"
    steps = [*found.steps, *policy_steps(found), log_step(folder, log=read_log(folder.parent))]
    document, spec = found.subjects["forecast.json"], None if found.statement.is_outside else answering_spec(folder)
    run = read_run(run_folder(runs_dir, spec)) if spec is not None and is_finished(runs_dir, spec) else None
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
        claimed=found.outcome is not None and run is None and spec is not None,
        reserved=_reserved(found, run=run, receipts=receipts),
        amended=_amended(found, runs_dir=root / "runs"),
        deviated=deviations(found.notices, folder=folder, outcome=found.outcome, receipts=found.trust.receipts),
        run=run,
    )


def _reserved(found: Verified, *, run: StoredRun | None, receipts: Receipts) -> tuple[str, ...]:
    if run is not None:
        return tuple(reservations(found.folder, run=run, receipts=receipts))
    is_read = found.statement.is_outside and found.outcome is not None
    return tuple(tracked_reservations(found.folder, receipts=receipts)) if is_read else ()


def _law_again(found: Verified) -> FitResult | None:
    """Fit the law of the statement's own runs again, to be drawn; None where that cannot be, or would take long."""
    rows, fit_of = found.subjects["ladder.json"]["rows"], found.statement.predicate["fit"]
    if len(rows) > RUNS_DRAWN:
        return None
    try:
        table = ladder_table(found.subjects["ladder.json"])
        result = fit(table, law=str(fit_of["law"]).partition(":")[0], seed=fit_of["seed"] or 0, swept="all")
    except (MarinScalingError, ArithmeticError, LookupError, TypeError, ValueError):  # numbers that no ladder has
        return None
    return result if result.status.may_be_used else None


def _amended(found: Verified, *, runs_dir: Path) -> list[dict[str, Any]]:
    outcome = found.outcome
    run = runs_dir / found.statement.predicate["targetRun"]["ladder"] / (outcome or {"run": ""})["run"][:16] / "record.json"
    finished = (
        parse_moment(json.loads(read_bytes(run))["finished_at"]) if outcome and is_present(run) else ended_at(found.folder)
    )
    value, receipts = outcome["value"] if outcome else None, found.trust.receipts
    return scored_amendments(found.later_forecasts, folder=found.folder, value=value, finished_at=finished, receipts=receipts)


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
    if is_outside_run(folder):
        return ""
    spec = answering_spec(folder)
    rows = [] if is_finished(place.runs_dir, spec) else rows_so_far(spec, place)
    if not rows:
        return ""
    losses = [row.train_loss_nats_per_token for row in rows]
    try:
        curves = finished_curves(read_runs(place.runs_dir / spec.ladder), without=spec.digest)
        earlier = EarlierForecast(quantiles=dict(signed), by=f"signed: {folder.name}")
        return tracked_text(track_losses(losses, spec, curves, forecast=earlier, stability=stability_of_rows(rows)))
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
    reason = escape(without_root(error.what, root))
    return ForecastPage(
        files={f"{stem}.md": page.encode()},
        index_row=(link(name, f"{stem}.md"), *[""] * 6, Markdown(f"{state_chip(State.REFUSED)} {reason}")),
        verdict=Verdict(id=name, state=State.REFUSED, sentence=f"refused: {reason}", outcome=None),
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
        Markdown(
            state_chip(authentic.verdict.state)
            + f" later forecasts: {len(authentic.amended)}" * bool(authentic.amended)
            + " its run left the recipe" * bool(authentic.deviated)
            + " claimed: its run is not here" * authentic.claimed
            + " tracked" * authentic.statement.is_outside
        ),
    )


def _figure(
    folder: Path, statement: Statement, promised: PromisedRun, *, law: FitResult | None, stem: str
) -> tuple[Markdown, dict[str, bytes]]:
    """Return the figure's Markdown and files: the law, the signed forecast and the outcome."""
    metric, runs = statement.predicate["metric"], json.loads(read_bytes(folder / "ladder.json"))["rows"]
    known: dict[str, Any] = {
        "observed": promised.observed,
        "metric": axis_title(metric["name"], unit=metric["unit"]),
        "law": law,
    }
    wide, narrow = (forecast_chart(runs, promised.forecast, is_narrow=is_narrow, **known) for is_narrow in (False, True))
    page, charts = page_name(folder.name), {"forecast": wide, "forecast-narrow": narrow}
    caption = f"The runs behind {folder.name}, their law, the forecast with its 50 and 90 % intervals, and the observed loss"
    files = figure_files(charts, wide, page_stem=stem, page=page, title=f"{folder.name}: runs, law, forecast and outcome")
    shown = f"{show_wide(f'{page}.figures', 'forecast', caption)}\n\n{show_live(page)}"
    return Markdown(shown), files


def _curve_figure(found: Verified, *, stem: str) -> tuple[Markdown, dict[str, bytes]]:
    """Return the figure of a forecast curve with the observed losses, and a sentence about these; empty without a curve."""
    target, metric = found.statement.predicate["targetRun"], found.statement.predicate["metric"]
    rows = prediction_at(found.subjects["forecast.json"], flops=target["flops"]).get("curve", [])
    if not rows:
        return Markdown(""), {}
    if found.statement.is_outside:
        observed = read_observation(found.folder) if found.outcome else {}
        title = axis_title(metric["name"], unit=metric["unit"])
    else:
        observed = {"curve": _training_marks(found.folder)}
        title = "training loss (nats/token)"
    seen, marks = observed.get("curve") or [None] * len(rows), marks_text(observed, rows)
    panels = {
        f"curve{'-narrow' * is_narrow}": band_chart(rows, seen, metric=title, is_narrow=is_narrow)
        for is_narrow in (False, True)
    }
    caption = "Signed 50 and 90 % bands of the whole curve, and the losses of the run where they are known"
    shown = show_wide(f"{page_name(found.folder.name)}.figures", "curve", caption)
    return Markdown(f"{shown}\n\n{marks}{'.' * bool(marks)}".strip()), picture_files(panels, page_stem=stem)


def _training_marks(folder: Path) -> Sequence[float | None]:
    """Return the training losses of the run of a forecast at its marks so far; none if it is not on this machine."""
    spec, root = answering_spec(folder), folder.parent.parent
    rows = rows_so_far(spec, Workplace(runs_dir=root / "runs", work_root=root / WORK_FOLDER, storage=None))
    return marks_of_steps([row.train_loss_nats_per_token for row in rows], train_steps=spec.train_steps)


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
    row = (link(folder.name, f"{stem}.md"), "", "", "sealed", "", "", "", state_chip(verdict.state))
    return ForecastPage(files={f"{stem}.md": page.encode()}, index_row=row, verdict=verdict)
