"""The section about forecasts that stood in public before they could be signed, as it follows the preregistered ones.

All rows of the record, in its order, with its caveats. What a row means and scores is in `check.public_record`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from marin_scaling.check.public_record import (
    RECORD_NAME,
    Late,
    PublicForecast,
    PublicState,
    public_totals,
    read_public_record,
)
from marin_scaling.errors import MarinScalingError
from marin_scaling.limits import JOINED, LISTED
from marin_scaling.publish.markdown import cell, escape, listed, preformatted, table, web_link, without_root
from marin_scaling.regular_files import is_present
from marin_scaling.units import format_flops

_TITLE = "## Before this project: forecasts in public issues"
_WORDS = (
    "**Imported, unsigned, without intervals.** Others posted these numbers; here they are as they stand in "
    "`preregistrations/public-record.csv`. They came without signature, data or script, so nothing but their posts can be "
    "looked at, and none counts in anyone's record. Without an "
    "interval there is no coverage, without a registered baseline no skill. What is left is the error, forecast minus "
    "observed: in nats per token, in per cent of the observed loss, and in per cent of what lies above the asymptote of the "
    "law behind the forecast."
)
_FIGURES = ["run and post", "posted", "FLOPs", "forecast", "observed", "error", "of the loss", "of the reducible loss"]
_CAVEATS = ["run", "metric", "caveat"]


def public_section(root: Path) -> str:
    """The forecasts of a repository's public record; empty where it has none, the reason where it cannot be read."""
    path = root / "preregistrations" / RECORD_NAME
    if not is_present(path):
        return ""
    try:
        forecasts = read_public_record(path)
    except MarinScalingError as error:
        return f"{_TITLE}\n\n{preformatted(without_root(str(error), root))}"
    first, rest_in = forecasts[:LISTED], f"preregistrations/{RECORD_NAME}"
    figures = table(_FIGURES, [_figures(each) for each in forecasts], right=[2, 3, 4, 5, 6, 7], most=LISTED, rest_in=rest_in)
    caveats = table(_CAVEATS, [[cell(each.run), cell(each.metric), cell(each.caveat)] for each in first])
    return "\n\n".join([_TITLE, _WORDS, _totals(forecasts), figures, "To be read with these caveats:", caveats])


def _totals(forecasts: Sequence[PublicForecast]) -> str:
    totals = public_totals(forecasts)
    scored, opened, empty = (totals.states.get(state, 0) for state in PublicState)
    late, part = sum(totals.late.values()), totals.late.get(Late.PART, 0)
    counted = (
        f"{totals.registered} registered: {scored + opened} with a number, of which {scored} scored and {opened} open; "
        f"{empty} empty. Known to be posted after their run began: {late}, of which {part} only in part."
    )
    errors = {
        f"over the {scored} scored": totals.mean_absolute_error,
        "over those known to be posted after their run began": totals.mean_absolute_error_late,
        "over the others": totals.mean_absolute_error_of_others,
    }
    means = [f"{value:.4f} {whose}" for whose, value in errors.items() if value is not None]
    return f"{counted} Mean absolute error in nats per token, which is the CRPS of a point: {', '.join(means) or 'none yet'}."


def _figures(forecast: PublicForecast) -> list[str]:
    scores = forecast.scores
    reducible = scores.per_cent_of_reducible_loss if scores else None
    return [
        _links(forecast),
        escape(_posted(forecast)),
        format_flops(forecast.target_flops) if forecast.target_flops else "",
        f"{forecast.forecast:g}" if forecast.forecast else "none",
        _observed(forecast),
        f"{scores.signed_error:+.4f}" if scores else "",
        f"{scores.per_cent_of_loss:+.2f}&nbsp;%" if scores else "",
        f"{reducible:+.2f}&nbsp;%" if reducible is not None else "",
    ]


def _links(forecast: PublicForecast) -> str:
    """The run's words lead to its post; a further post has a number."""
    first, *further = forecast.registered_where
    posts = [web_link(f"(post {number})", where) for number, where in enumerate(further, 2)]
    return f"{web_link(forecast.run, first)} {listed(posts, separator=' ', most=JOINED)}".rstrip()


def _posted(forecast: PublicForecast) -> str:
    when = forecast.registered_date.replace("/", " and ") or "no date"
    return f"{when}, {forecast.late}" if forecast.late else when


def _observed(forecast: PublicForecast) -> str:
    if forecast.state is PublicState.SCORED:
        return f"{forecast.observed:g}"
    return "no value yet" if forecast.state is PublicState.OPEN else ""
