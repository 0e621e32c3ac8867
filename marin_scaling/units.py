"""Metrics and their units; print and parse FLOPs, counts of parameters and tokens, durations, bytes."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from marin_scaling.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric of loss. `aliases` are names of loss columns that imply the metric, in addition to its own.

    `support` has the smallest and largest value. `direction` is "min" or "max".
    """

    name: str
    unit: str
    direction: str = "min"
    support: tuple[float, float]
    aliases: tuple[str, ...] = ()


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(name="bits_per_byte", unit="bits/byte", support=(0.0, 8.0), aliases=("bpb", "eval/bpb")),
        Metric(
            name="paloma_macro_loss_nats",
            unit="nats/token",
            support=(0.0, 20.0),
            aliases=("paloma_macro_loss", "eval/paloma/macro_loss"),
        ),
        Metric(name="nats_per_token", unit="nats/token", support=(0.0, 20.0)),
    )
}
TrainedMetric = Literal["bits_per_byte"]
"""Metrics that training with this tool measures."""


_BITS_PER_BYTE = re.compile(r"(?<![a-z])(bpb|bits[-_ ]?per[-_ ]?byte)(?![a-z])")


def metric_of_column(column: str) -> str | None:
    """Return the metric that the name of a loss column implies, None for a name such as `loss`.

    >>> metric_of_column("eval/bpb"), metric_of_column("Val BPB"), metric_of_column("loss")
    ('bits_per_byte', 'bits_per_byte', None)
    """
    name = column.lower()
    if _BITS_PER_BYTE.search(name):
        return "bits_per_byte"
    return next((metric.name for metric in METRICS.values() if name in (metric.name, *metric.aliases)), None)


def says_perplexity(name: str) -> bool:
    """Return True for the name of a column or key of perplexities.

    >>> says_perplexity("eval/ppl"), says_perplexity("apple/loss")
    (True, False)
    """
    return bool(re.search(r"perplex|(^|[^a-z])ppl([^a-z]|$)", name, re.IGNORECASE))


def unit_of(metric: str) -> str:
    """Return the unit of a metric's values, "" for an unknown metric.

    >>> unit_of("bits_per_byte")
    'bits/byte'
    """
    return METRICS[metric].unit if metric in METRICS else ""


_SUFFIXES = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))


def format_flops(flops: float) -> str:
    """Format FLOPs in the field's notation, with at most three significant digits.

    >>> format_flops(3e18), format_flops(1.00000551e21), format_flops(2.346e12)
    ('3e18', '1e21', '2.35e12')
    """
    mantissa, exponent = f"{flops:.2e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def format_number(number: float, digits: int = 6) -> str:
    """Format a number with this many significant digits, and exponents as in `format_flops`.

    >>> format_number(1e21), format_number(2.34567e12, 3), format_number(5e-7), format_number(12.5)
    ('1e21', '2.35e12', '5e-7', '12.5')
    """
    return re.sub(r"e\+?(-?)0*", r"e\1", f"{number:.{digits}g}")


def format_count(count: float) -> str:
    """Format a number of parameters or tokens with three significant digits and a suffix.

    >>> format_count(24_963_098_112), format_count(139_584), format_count(512)
    ('25.0B', '140k', '512')
    """
    for size, suffix in _SUFFIXES:
        if abs(count) >= size * 0.9995:
            digits = max(0, 2 - math.floor(math.log10(abs(count) / size) + 2e-4))
            return f"{count / size:.{digits}f}{suffix}"
    return f"{count:.0f}"


def format_duration(seconds: float) -> str:
    """Format seconds in days, hours, minutes and seconds.

    >>> format_duration(7.4), format_duration(192), format_duration(7_500), format_duration(1e6)
    ('7 s', '3 min 12 s', '2 h 5 min', '11 d 14 h')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < _DAYS_FROM:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"


_DAYS_FROM = 48 * 3600
"""Seconds from which a duration is given in days."""


def format_bytes(count: float) -> str:
    """Format bytes in decimal units with two or three digits.

    >>> format_bytes(69_200_000), format_bytes(4.06e11)
    ('69 MB', '406 GB')
    """
    for size, suffix in ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= size * 0.9995:
            return f"{count / size:.1f} {suffix}" if count < 9.95 * size else f"{count / size:.0f} {suffix}"
    return f"{count:.0f} B"


_SECONDS = {"s": 1, "m": 60, "h": 3600}
_LONGEST_SECONDS = 365 * 24 * 3600


def parse_duration(text: str) -> float:
    """Parse a duration into seconds.

    >>> parse_duration("90s"), parse_duration("1.5h")
    (90.0, 5400.0)
    """
    number, unit = text.strip()[:-1], text.strip()[-1:]
    try:
        seconds = float(number) * _SECONDS[unit]
    except (ValueError, KeyError):
        seconds = math.nan
    if not 0 < seconds <= _LONGEST_SECONDS:
        raise UsageError(
            f"{text!r} is not a positive duration of at most a year.",
            fix="Write it like 90s, 30m or 2h.",
        )
    return seconds


def parse_flops(text: str) -> float:
    """Parse a positive, finite number of FLOPs.

    >>> parse_flops("1e23"), parse_flops("3.5E18 FLOPs")
    (1e+23, 3.5e+18)
    """
    number = re.sub(r"\s*flops?$", "", text.strip(), flags=re.IGNORECASE)
    try:
        flops = float(number)
    except ValueError:
        flops = math.nan
    if not math.isfinite(flops) or flops <= 0:
        raise UsageError(
            f"{text!r} is not a positive, finite number of FLOPs.",
            fix="Write it like 1e23 or 3.5e18; for several, repeat the option.",
        )
    return flops


def parse_count(text: str) -> float:
    """Parse a positive number of tokens or parameters, also with K, M, B or T.

    >>> parse_count("10T"), parse_count("5e11")
    (10000000000000.0, 500000000000.0)
    """
    factors = {suffix.upper(): size for size, suffix in _SUFFIXES}
    number = text.strip().upper()
    try:
        count = float(number[:-1]) * factors[number[-1]] if number[-1:] in factors else float(number)
    except ValueError:
        count = math.nan
    if not math.isfinite(count) or count <= 0:
        raise UsageError(f"{text!r} is not a positive, finite number.", fix="Write it like 5e11, 500B or 10T.")
    return count


def counted(number: int, what: str) -> str:
    """Return a number with its noun, singular or plural.

    >>> counted(1, "reviewer"), counted(0, "stamp")
    ('1 reviewer', '0 stamps')
    """
    return f"{number} {what}{'s' * (number != 1)}"
