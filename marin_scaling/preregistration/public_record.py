"""Forecasts from elsewhere or in old formats: `public-record.csv`.

Rows are read strictly and scored as points. They are not verified, and no track record counts them.
"""

from __future__ import annotations

import csv
import io
import operator
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from itertools import zip_longest
from pathlib import Path
from statistics import mean
from typing import NoReturn

from marin_scaling.errors import RunTableError, VerificationError
from marin_scaling.files import read_bytes
from marin_scaling.printable import quoted
from marin_scaling.run.table_io import finite_number, positive_number
from marin_scaling.scoring import PointScores, score_point

COLUMNS = {
    "run": "the run, in the source's words",
    "registered_date": "day of the post, `2026-03-03`; `2026-03` where only the month is known, `2026-04-10/2026-04-13` of two "
    "posts",
    "registered_where": "address of the post, or `COMMIT:FOLDER` of this repository; of two, with a blank between them",
    "run_began_date": "day on which the run began, or `before 2026-03-03`",
    "target_flops": "training FLOPs, by the source's own count",
    "forecast_loss_nats": "the forecast, in nats per token; empty where none was stated",
    "metric": "what was forecast, and how it is evaluated",
    "asymptote_nats": "asymptote of the law behind it, chosen or fitted, in nats per token",
    "interval": "the 90 % interval in nats per token, as `1.32 to 1.44`; `none` where it was stated without one",
    "observed_loss_nats": "what was measured, in nats per token",
    "observed_date": "day of the measurement, or of its post",
    "caveat": "what else is to be known; where sources differ, how",
    "source": "where these figures stand",
}
_WHY = "The record holds forecasts made in public, ours from before format 1 included. A figure is as in its source, or empty."
_MEND = "Write the source's number, without a unit, or leave the cell empty."
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_POSTED = re.compile(rf"\d{{4}}-\d\d|{_DAY.pattern}|{_DAY.pattern}/{_DAY.pattern}")
_BEFORE = "before "
_BEGAN = re.compile(rf"({_BEFORE})?{_DAY.pattern}")
_ADDRESS = re.compile(r"https://[A-Za-z0-9./_~#=%+-]+|[0-9a-f]{7,40}:[A-Za-z0-9._/-]+")
_INTERVAL = re.compile(r"([0-9.]+) to ([0-9.]+)")


class PublicState(StrEnum):
    """State of a public forecast; its caveat tells whether the run stayed the same."""

    SCORED = "scored"
    OPEN = "open"
    EMPTY = "empty"


class Late(StrEnum):
    """Part of a forecast that was posted after its run began."""

    WHOLE = "after its run began"
    PART = "in part after its run began"


@dataclass(frozen=True, kw_only=True)
class PublicForecast:
    """Row of the record: losses in nats per token, dates as ISO 8601 text; None or empty text if the source has nothing."""

    run: str
    registered_date: str
    registered_where: tuple[str, ...]
    run_began_date: str
    target_flops: float | None
    forecast: float | None
    metric: str
    asymptote: float | None
    interval: tuple[float, float] | None
    observed: float | None
    observed_date: str
    caveat: str
    source: str

    @property
    def state(self) -> PublicState:
        """State: scored, open (no value yet), or empty (no number)."""
        if self.forecast is None:
            return PublicState.EMPTY
        return PublicState.OPEN if self.observed is None else PublicState.SCORED

    @property
    def scores(self) -> PointScores | None:
        """Scores; None without a number or a value."""
        if self.forecast is None or self.observed is None:
            return None
        return score_point(self.forecast, observed=self.observed, asymptote=self.asymptote)

    @property
    def held(self) -> bool | None:
        """True if the observed loss lies in the 90 % interval; None without one of them."""
        if self.interval is None or self.observed is None:
            return None
        return self.interval[0] <= self.observed <= self.interval[1]

    @property
    def late(self) -> Late | None:
        """Part that was posted after the run began; None if unknown or in time."""
        first, last = self.registered_date.split("/")[0], self.registered_date.split("/")[-1]
        began = self.run_began_date.removeprefix(_BEFORE)
        is_late = operator.gt if began == self.run_began_date else operator.ge
        if not began or not is_late(last, began):
            return None
        return Late.WHOLE if is_late(first, began) else Late.PART


@dataclass(frozen=True, kw_only=True)
class PublicTotals:
    """Counts by state and of late posts, and mean absolute errors in nats per token."""

    registered: int
    states: Mapping[PublicState, int]
    late: Mapping[Late, int]
    mean_absolute_error: float | None
    mean_absolute_error_late: float | None
    mean_absolute_error_of_others: float | None


def read_public_record(path: Path) -> list[PublicForecast]:
    """Return every forecast of a public record, in order.

    `RunTableError` names line and column of a fault, `StorageError` an unreadable file.
    """
    return _forecasts(read_bytes(path), name=str(path))


def public_totals(forecasts: Sequence[PublicForecast]) -> PublicTotals:
    """Return the counts by state, and the mean absolute errors in total and by lateness."""
    errors = [(each.scores.crps, each.late is not None) for each in forecasts if each.scores]
    return PublicTotals(
        registered=len(forecasts),
        states=Counter(each.state for each in forecasts),
        late=Counter(each.late for each in forecasts if each.late),
        mean_absolute_error=_mean([error for error, _ in errors]),
        mean_absolute_error_late=_mean([error for error, is_late in errors if is_late]),
        mean_absolute_error_of_others=_mean([error for error, is_late in errors if not is_late]),
    )


def require_only_added(before: bytes | None, now: bytes, *, name: str, base: str) -> None:
    """Raise `VerificationError` unless a record only grew: new rows, filled cells, longer caveats.

    Outcomes can be added, but no value can be replaced. `RunTableError` if a record cannot be read.
    """
    _forecasts(now, name=name)
    grown = _rows(now, name=name)
    standing = [] if before is None else _rows(before, name=f"{name} of {base}")
    for number, (_, old) in enumerate(standing):
        where, new = grown[number] if number < len(grown) else (f"{name}, after its last line", dict.fromkeys(COLUMNS, ""))
        for column, cell in old.items():
            if cell and new[column] != cell and not (column == "caveat" and new[column].startswith(cell)):
                raise VerificationError(
                    f"{where}, column {column!r} has {quoted(new[column])!r}, and {base} has {quoted(cell)!r}.",
                    why="What was forecast is not written again after its outcome is known.",
                    fix=f"Merge {base} if it is newer. Else leave what stands there: what is to be said of it goes to the end "
                    "of its caveat, a further forecast to the end of the file.",
                )


def _forecasts(raw: bytes, *, name: str) -> list[PublicForecast]:
    return [_forecast(cells, where=where) for where, cells in _rows(raw, name=name)]


def _rows(raw: bytes, *, name: str) -> list[tuple[str, dict[str, str]]]:
    """Return the cells of each row below the header, with their place."""
    try:
        reader = csv.reader(io.StringIO(raw.decode("utf-8"), newline=""), strict=True)
        lines = [(f"{name}, line {reader.line_num}", cells) for cells in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        _refuse(f"{name} is not CSV in UTF-8: {error}.", fix="Save it as CSV in UTF-8, or restore it from version control.")
    (top, columns), *rest = lines or [(f"{name}, line 1", [])]
    _require_columns(columns, where=top)
    for where, cells in rest:
        if len(cells) != len(COLUMNS):
            _refuse(f"{where} has {len(cells)} cells.", fix=f"Give it {len(COLUMNS)}, one a column; empty ones count.")
    return [(where, dict(zip(COLUMNS, cells, strict=True))) for where, cells in rest]


def _require_columns(cells: Sequence[str], *, where: str) -> None:
    for column, found in zip_longest(COLUMNS, cells):
        if column != found:
            said = f"column {column!r} is missing" if column else f"there is no column {quoted(found)!r}"
            _refuse(f"{where}: {said}.", fix=f"Let the first line be: {','.join(COLUMNS)}")


def _forecast(cells: Mapping[str, str], *, where: str) -> PublicForecast:
    places = {column: f"{where}, column {column!r}" for column in COLUMNS}
    for column in ("run", "registered_where", "source"):
        if not cells[column].strip():
            _refuse(f"{places[column]} is empty.", fix="Say which run it is about, and where it can be read.")
    return PublicForecast(
        run=cells["run"],
        registered_date=_dates(cells["registered_date"], _POSTED, where=places["registered_date"]),
        registered_where=_addresses(cells["registered_where"], where=places["registered_where"]),
        run_began_date=_dates(cells["run_began_date"], _BEGAN, where=places["run_began_date"]),
        target_flops=_positive(cells["target_flops"], where=places["target_flops"]),
        forecast=_positive(cells["forecast_loss_nats"], where=places["forecast_loss_nats"]),
        metric=cells["metric"],
        asymptote=_number(cells["asymptote_nats"], where=places["asymptote_nats"]),
        interval=_interval(cells["interval"], where=places["interval"]),
        observed=_positive(cells["observed_loss_nats"], where=places["observed_loss_nats"]),
        observed_date=_dates(cells["observed_date"], _DAY, where=places["observed_date"]),
        caveat=cells["caveat"],
        source=cells["source"],
    )


def _number(cell: str, *, where: str) -> float | None:
    return finite_number(cell, where=where, why=_WHY, fix=_MEND) if cell else None


def _positive(cell: str, *, where: str) -> float | None:
    return positive_number(cell, where=where, why=_WHY, fix=_MEND) if cell else None


def _interval(cell: str, *, where: str) -> tuple[float, float] | None:
    """Return the two ends of the cell's interval, the lower one first."""
    if cell in ("", "none"):
        return None
    match = _INTERVAL.fullmatch(cell)
    ends = tuple(positive_number(end, where=where, why=_WHY, fix=_MEND) for end in match.groups()) if match else (1.0, 0.0)
    if not ends[0] < ends[1]:
        _refuse(f"{where} holds {quoted(cell)!r}.", fix="Write none, or the interval in nats per token, like 1.32 to 1.44.")
    return ends[0], ends[1]


def _dates(cell: str, form: re.Pattern[str], *, where: str) -> str:
    """Return the cell if it is empty or has valid dates."""
    try:
        if cell and not form.fullmatch(cell):
            raise ValueError(cell)
        for day in cell.removeprefix(_BEFORE).split("/") if cell else ():
            date.fromisoformat(day if len(day) == len("2026-03-03") else f"{day}-01")
    except ValueError:
        _refuse(f"{where} holds {quoted(cell)!r}, which is no date.", fix="Write 2026-03-03, or what the column allows.")
    return cell


def _addresses(cell: str, *, where: str) -> tuple[str, ...]:
    for address in cell.split():
        if not _ADDRESS.fullmatch(address):
            _refuse(f"{where} holds {quoted(address)!r}.", fix="Write an address from https:// on, or COMMIT:FOLDER.")
    return tuple(cell.split())


def _mean(values: Sequence[float]) -> float | None:
    return mean(values) if values else None


def _refuse(what: str, *, fix: str) -> NoReturn:
    raise RunTableError(what, why=_WHY, fix=fix)
