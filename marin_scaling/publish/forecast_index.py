"""The index of all preregistrations, the failures first, and how each registrant has done; public forecasts below, apart.

What became of each is known already. Nothing is verified or scored here, and nothing is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from marin_scaling.check.state import State
from marin_scaling.check.track_record import TrackRecord, exact_interval, track_records
from marin_scaling.publish.forecast_pages import ForecastPage
from marin_scaling.publish.markdown import escape, page, table
from marin_scaling.publish.public_forecasts import public_section

_ALWAYS_COUNTED = (State.REFUSED, State.OVERDUE, State.MISSED, State.HELD, State.PENDING)
_ORDER = (*_ALWAYS_COUNTED, State.SEALED, State.WITHDRAWN_LATE, State.VOID, State.WITHDRAWN)
_RECORD_WORDS = (
    "A forecast is settled when it is held, missed, overdue or taken back too late; the last two, and a run that diverged, lie "
    "in no interval. Forecasts by one person of nearly the same run (parameters and tokens within 10 %) are a family. A family "
    "counts once, as its worst member: it is settled when one of them lies outside, or when all are settled. In brackets: the "
    "exact 95 % interval of the share; with few forecasts it is wide. Of calibrated forecasts "
    "90 % lie in their 90 % intervals and half in their 50 % intervals, and about as many observed values lie in each fifth of "
    "the forecast distribution, from the lowest to the highest. Skill is 1 for a perfect forecast, 0 for one no better than "
    "the registered baseline; statements of the first format had none."
)

_LISTED_SHARES = (0.5, 0.8, 0.9, 0.98)
_CALIBRATION_WORDS = (
    "All registrants together. Points on the dashed line would be calibrated: below it intervals are too narrow, above it too "
    "wide. A forecast whose run diverged or never came lies in no interval."
)
_FEED = "New forecasts, outcomes and records as an [Atom feed](feed.xml)."


def forecasts_index(pages: Sequence[ForecastPage], *, root: Path) -> dict[str, bytes]:
    """All preregistrations, the records of those who made them, and the public record beside them: `index.md`, its figures."""
    none = "Nothing is preregistered yet: `marin-scale preregister ladders/NAME.yaml` makes the first."
    drawn, files = _calibration(pages)
    own = [_counted(pages), _listed(pages), _records(pages), drawn] if pages else [none]
    return {"index.md": page("Forecasts against outcomes", *own, _FEED, public_section(root)).encode(), **files}


def _counted(pages: Sequence[ForecastPage]) -> str:
    counts = Counter(each.verdict.state for each in pages)
    said = ", ".join(f"{counts[state]} {state}" for state in _ORDER if counts[state] or state in _ALWAYS_COUNTED)
    return f"{len(pages)} preregistered: {said}. None is left out; those that failed come first."


def _listed(pages: Sequence[ForecastPage]) -> str:
    header = ["preregistration", "target FLOPs", "beyond the ladder", "forecast", "90 % interval", "observed", "error", "state"]
    ordered = sorted(pages, key=lambda each: (_ORDER.index(each.verdict.state), each.verdict.id))
    return table(header, [each.index_row for each in ordered], right=[1, 2, 3, 4, 5, 6])


def _records(pages: Sequence[ForecastPage]) -> str:
    header = [
        "registrant",
        "registered",
        "of these",
        "families",
        "settled",
        "in their 90 % intervals",
        "in their 50 % intervals",
        "observed values by fifths",
        "mean skill",
    ]
    rows = [_record_row(record) for record in track_records([each.verdict for each in pages])]
    return f"## The record of each registrant\n\n{table(header, rows, right=[1, 3, 4])}\n\n{_RECORD_WORDS}"


def _calibration(pages: Sequence[ForecastPage]) -> tuple[str, dict[str, bytes]]:
    """The figure of all settled forecasts and its files; nothing where none is settled."""
    records = track_records([each.verdict for each in pages])
    levels, settled = [level for record in records for level in record.pit], sum(record.settled for record in records)
    if not settled:
        return "", {}
    from marin_scaling.publish.calibration_chart import calibration_charts, held_shares
    from marin_scaling.publish.charts import chart_bytes

    names = {
        "held": "How often intervals held what came, by the share that they promise",
        "levels": "Where observed values fell in their forecasts",
    }
    charts = calibration_charts(levels, settled=settled)
    files = {f"index.figures/{name}.svg": chart_bytes(chart, suffix=".svg") for name, chart in charts.items()}
    shown = [row for row in held_shares(levels, settled=settled) if row[0] in _LISTED_SHARES]
    rows = [[f"{promised:.0%}", f"{held:.0%}", f"{low:.0%} to {high:.0%}"] for promised, held, low, high in shown]
    pictures = "\n".join(f"![{caption}](index.figures/{name}.svg)" for name, caption in names.items())
    listed = table(["central interval", "held", "exact 95 % interval of the share"], rows, right=[0, 1])
    return f"## Calibration\n\n{pictures}\n\n{listed}\n\n{_CALIBRATION_WORDS}", files


def _record_row(record: TrackRecord) -> list[str]:
    return [
        escape(record.registrant),
        str(sum(record.counts.values())),
        record.states,
        str(record.families),
        str(record.settled),
        _coverage(record.inside_90, record.settled),
        _coverage(record.inside_50, record.settled),
        " ".join(map(str, record.pit_histogram)) if record.pit else "",
        f"{mean(record.skills):+.2f} (of {len(record.skills)})" if record.skills else "no baseline",
    ]


def _coverage(inside: int, settled: int) -> str:
    if not settled:
        return ""
    low, high = exact_interval(inside, settled)
    return f"{inside} of {settled}: {inside / settled:.0%} ({low:.0%} to {high:.0%})"
