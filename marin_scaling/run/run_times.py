"""When a run began and ended, by the clock of the machine: a clock that was set back makes no run end before it began."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from marin_scaling.limits import FIRST_YEAR, LAST_YEAR


def end_of_run(started_at: str, *, wall_seconds: float, now: datetime) -> str:
    """Return `now`, or as many seconds after the beginning as the last process took, if that is later.

    >>> end_of_run("2026-11-21T10:00:00+00:00", wall_seconds=90.0, now=datetime(2026, 11, 1, tzinfo=UTC))
    '2026-11-21T10:01:30+00:00'
    """
    earliest = as_moment(started_at) + timedelta(seconds=wall_seconds)
    return max(now, earliest).isoformat(timespec="seconds")


def is_moment(written: bytes) -> bool:
    """Return True if these bytes are a time as it is written here.

    >>> is_moment(b"2026-11-21T10:00:00+00:00"), is_moment(b""), is_moment(b"2026-11-21T10:0\\0")
    (True, False, False)
    """
    try:
        return bool(as_moment(written.decode()))
    except ValueError:  # no UTF-8, too
        return False


def as_moment(text: str) -> datetime:
    """Return the time in a record, in UTC where it names no zone; `ValueError` if it is none."""
    moment = datetime.fromisoformat(text)
    if not FIRST_YEAR <= moment.year <= LAST_YEAR:
        raise ValueError(f"{text} is no time from {FIRST_YEAR} to {LAST_YEAR}")
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
