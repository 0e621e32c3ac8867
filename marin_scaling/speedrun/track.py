"""Tracks: rules of each board, one file each in `speedruns/tracks/`, checked against what submissions state."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated

from pydantic import Field, field_validator, model_validator

from marin_scaling.accelerators import accelerator
from marin_scaling.errors import DocumentError, Finding, error, note, warning
from marin_scaling.printable import joined, quoted
from marin_scaling.speedrun.submission import Submission
from marin_scaling.strict_model import SHA256, Part
from marin_scaling.units import counted, format_flops, format_number
from marin_scaling.untrusted_text import Line, Name, Words
from marin_scaling.yaml_config import read_yaml

SPEEDRUNS_DIR, TRACKS_DIR = "speedruns", "tracks"

AXES: Mapping[str, Callable[[Submission], float | None]] = {
    "model FLOPs": lambda each: each.comparable_flops,
    "hardware FLOPs": lambda each: each.hardware_flops,
    "chip-seconds": lambda each: each.chip_seconds,
    "seconds": lambda each: each.training_seconds,
    "US dollars": lambda each: each.compute.cost_usd,
    "parameters": lambda each: float(each.model.params_total),
    "trained tokens": lambda each: None if each.data.trained_tokens is None else float(each.data.trained_tokens),
}
"""Cost axes by name; None where the cost is unknown."""


def axis_key(axis: str) -> str:
    """Return the name of an axis in files, filters and addresses.

    >>> axis_key("US dollars")
    'us_dollars'
    """
    return axis.replace(" ", "_").replace("-", "_").lower()


_AXIS_OF = {axis_key(axis): axis for axis in AXES}


RETRAINING_TOLERANCE = 0.0133
"""Default tolerance of one seed in bits per byte: 3.69 times the root mean square, 0.0036, of 27 measured differences.

Nine runs of the track cpu-5e11 were retrained on another machine with AVX-512, AVX2 and SSE4.2. Student's t with 27 degrees of
freedom exceeds 3.69, with either sign, in one case of a thousand.
"""


class Gate(Part):
    """Budgets at which a scaling group must be faster than the track's baseline."""

    flops: tuple[Annotated[float, Field(gt=0)], ...] = Field(min_length=1)
    """Model FLOPs of the compared runs, each within 10 %."""
    projected_to_flops: tuple[Annotated[float, Field(gt=0)], ...] = ()
    """Model FLOPs at which the forecast loss must be lower than the baseline's."""

    def rule(self, baseline: str | None) -> str:
        """Return the gate in words."""
        forecast = (
            f", lower forecast at {joined(map(format_flops, self.projected_to_flops))}" if self.projected_to_flops else ""
        )
        return f"faster than {baseline} at {joined(map(format_flops, self.flops))} model FLOPs{forecast}"


class Track(Part):
    """Rules of a track. An absent rule allows everything."""

    name: Name
    """Name in submissions; the file is `speedruns/tracks/NAME.yaml`."""
    title: Line
    """Title for readers."""
    description: Words = ""
    """Purpose of the track."""
    limits: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Largest allowed cost of one run, by axis: model_flops, hardware_flops, chip_seconds, seconds, us_dollars, parameters,
    trained_tokens.
    """
    hardware: tuple[Line, ...] = ()
    """Allowed kinds of chips."""
    chips_at_most: int | None = Field(default=None, gt=0)
    """Largest allowed number of chips."""
    data_name: Line | None = None
    """Name of the required data set."""
    data_sha256: SHA256 | None = None
    """SHA-256 of the required data set."""
    unique_tokens_at_most: int | None = Field(default=None, gt=0)
    """Largest allowed size of the data set, for tracks with little text."""
    evaluation_name: Line | None = None
    """Name of the required held-out text."""
    evaluation_sha256: SHA256 | None = None
    """SHA-256 of the required held-out text."""
    seeds_at_least: int = Field(default=1, gt=0)
    """Smallest allowed number of seeds."""
    target_bits_per_byte: float | None = Field(default=None, gt=0)
    """Loss to reach: the mean over seeds must lie below it by more than chance explains (a one-sided t-test)."""
    significance: float = Field(default=0.05, gt=0, lt=0.5)
    """Largest p-value of that test."""
    retrained_by_ci: bool = False
    """True if every entry is retrained before it is merged (marin-scale speedrun confirm)."""
    retraining_tolerance: float = Field(default=RETRAINING_TOLERANCE, gt=0)
    """Largest difference in bits per byte between a seed's submitted and retrained loss; default: measured on a CPU."""
    projected_to_flops: float | None = Field(default=None, gt=0)
    """Budget in model FLOPs at which a scaling track ranks groups by the forecasts of their laws."""
    baseline: Name | None = None
    """Scaling group that the others are compared with at the gates."""
    gates: tuple[Gate, ...] = ()
    """Gates of scaling groups, one after the other."""

    @field_validator("limits")
    @classmethod
    def _axes_are_known(cls, limits: dict[str, float]) -> dict[str, float]:
        if unknown := sorted(set(limits) - set(_AXIS_OF)):
            hint = "; the key of a target loss is target_bits_per_byte" if unknown[0] == "bits_per_byte" else ""
            raise ValueError(f"unknown axis {quoted(unknown[0])!r}; axes: {', '.join(_AXIS_OF)}{hint}")
        return limits

    @model_validator(mode="after")
    def _chance_can_be_measured(self) -> Track:
        for key in ("retrained_by_ci", "target_bits_per_byte"):
            if getattr(self, key) and self.seeds_at_least < 2:
                raise ValueError(f"{key}: noise needs several seeds; set seeds_at_least to 2 or more")
        if (self.baseline is None) != (not self.gates):
            raise ValueError("baseline and gates belong together; one of them is missing")
        return self

    def rules(self) -> list[str]:
        """Return the rules, one sentence each."""
        asked = {
            **{f"at most {format_number(most)} {_AXIS_OF[key]}": True for key, most in self.limits.items()},
            f"hardware {joined(self.hardware, separator=' or ')}": self.hardware,
            f"at most {self.chips_at_most} chips": self.chips_at_most,
            f"data set {self.data_name}": self.data_name,
            f"data digest {self.data_sha256}": self.data_sha256,
            f"at most {self.unique_tokens_at_most or 0:,} unique tokens": self.unique_tokens_at_most,
            f"evaluation {self.evaluation_name}": self.evaluation_name,
            f"evaluation digest {self.evaluation_sha256}": self.evaluation_sha256,
            f"at least {self.seeds_at_least} seeds": self.seeds_at_least > 1,
            f"at most {self.target_bits_per_byte} bits per byte (one-sided t-test, p < {self.significance:g})": (
                self.target_bits_per_byte
            ),
            "every entry is retrained before merging": self.retrained_by_ci,
            **{f"gate {number}: {gate.rule(self.baseline)}": True for number, gate in enumerate(self.gates, start=1)},
        }
        return [sentence for sentence, holds in asked.items() if holds]


def tracks_folder(place: Path) -> Path:
    """Return the folder of tracks for submissions or an entry at `place`: inside it, or in a `speedruns` above or here."""
    above = [each for each in (place, *place.parents) if each.name == SPEEDRUNS_DIR] or [Path(SPEEDRUNS_DIR)]
    places = [each / TRACKS_DIR for each in (place, *above)]
    return next((each for each in places if each.is_dir()), places[-1])


def read_tracks(folder: Path) -> dict[str, Track]:
    """Read the tracks in a folder, by name; empty if the folder does not exist. `DocumentError` names file, line and key."""
    files = sorted(folder.glob("*.yaml")) if folder.is_dir() else []
    return {path.stem: read_yaml(path, Track, noun="a track", refused=_refused) for path in files}


def _refused(what: str | tuple[str, ...]) -> DocumentError:
    return DocumentError(
        what,
        why="Track files are checked before submissions are compared.",
        fix="Fix the named keys; site/reference/submission-files.md lists all keys.",
    )


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Facts that rules compare. None means unknown; in a plan (`is_plan`) it means known after training."""

    track: str
    costs: Mapping[str, float | None]
    """Cost of one run by the key of its axis."""
    hardware: str | None
    chips: int | None
    data_name: str | None
    data_digest: str | None
    unique_tokens: int | None
    evaluation_name: str | None
    evaluation_digest: str | None
    seeds: int
    losses: tuple[float, ...] = ()
    """Bits per byte of each seed."""
    is_plan: bool = False
    is_imported: bool = False
    """True for a submission from another board, whose track may have no file here."""


def claim_of(submission: Submission) -> Claim:
    """Return the facts that a submission states."""
    hardware = submission.compute.hardware
    return Claim(
        track=submission.track,
        costs={axis_key(axis): cost(submission) for axis, cost in AXES.items()},
        hardware=hardware.kind if hardware else None,
        chips=hardware.chips if hardware else None,
        data_name=submission.data.name,
        data_digest=submission.data.digest,
        unique_tokens=submission.data.unique_tokens,
        evaluation_name=submission.evaluation.name,
        evaluation_digest=submission.evaluation.digest,
        seeds=len(submission.seeds),
        losses=tuple(each.bits_per_byte for each in submission.seeds),
        is_imported=submission.imported_from is not None,
    )


def track_findings(submission: Submission, tracks: Mapping[str, Track]) -> Iterator[Finding]:
    """Yield broken rules of the submission's track, and a finding if the track has no file."""
    yield from claim_findings(claim_of(submission), tracks)


def claim_findings(claim: Claim, tracks: Mapping[str, Track]) -> Iterator[Finding]:
    """Yield broken rules of the claim's track.

    A track without a file is an error; a warning if the repository has no tracks at all, or the claim is imported.
    """
    track = tracks.get(claim.track)
    if track is None:
        near = difflib.get_close_matches(claim.track, tracks, n=2, cutoff=0.5)
        listed = f"did you mean {joined(near, separator=' or ')}?" if near else f"tracks: {joined(tracks) or 'none'}"
        said = f"speedruns/tracks/{claim.track}.yaml does not exist; {listed}"
        is_error = tracks and not claim.is_imported
        yield error("track", "track", said) if is_error else warning("track", "track", f"unchecked: {said}")
        return
    yield from _over_limits(claim, track)
    yield from _other_machine(claim, track)
    yield from _other_text(claim, track)
    if claim.seeds < track.seeds_at_least:
        yield _against("seeds", f"{counted(claim.seeds, 'seed')}; the track requires {track.seeds_at_least} or more")
    if track.target_bits_per_byte is not None and not claim.is_plan:
        yield from _short_of_target(claim.losses, track)


def _over_limits(claim: Claim, track: Track) -> Iterator[Finding]:
    names = {axis_key(axis): axis for axis in AXES}
    for key, most in track.limits.items():
        cost = claim.costs.get(key)
        if cost is None:
            if not claim.is_plan:
                yield _against(key, f"{names[key]} are unknown; the track allows {format_number(most)}")
        elif cost > most:
            yield _against(key, f"{_apart(cost, most)} {names[key]}; the track allows {format_number(most)}")


def _apart(value: float, other: float) -> str:
    """Return a value with enough digits to differ from another one."""
    return next(
        (text for digits in (6, 9, 12) if (text := format_number(value, digits)) != format_number(other, digits)), repr(value)
    )


def _other_machine(claim: Claim, track: Track) -> Iterator[Finding]:
    if claim.is_plan and claim.hardware is None:
        return
    if track.hardware and (claim.hardware is None or _kind(claim.hardware) not in set(map(_kind, track.hardware))):
        said = claim.hardware or "unknown"
        yield _against("compute.hardware.kind", f"the hardware is {said}; the track requires {joined(track.hardware)}")
    if track.chips_at_most is not None and (claim.chips is None or claim.chips > track.chips_at_most):
        said = "an unknown number of" if claim.chips is None else str(claim.chips)
        yield _against("compute.hardware.chips", f"{said} chips; the track allows {track.chips_at_most}")


def _kind(name: str) -> str:
    known = accelerator(name)
    return known.kind if known else name.strip().lower()


def _other_text(claim: Claim, track: Track) -> Iterator[Finding]:
    for key, found, asked, same in (
        ("data.name", claim.data_name, track.data_name, same_data),
        ("evaluation.name", claim.evaluation_name, track.evaluation_name, same_held_out),
    ):
        if asked is not None and (found is None or not same(found, asked)):
            yield _against(key, f"{found or 'unknown'}; the track requires {asked}")
        elif asked is not None and found != asked:
            yield note("track", key, f"{found} is accepted as {asked} by name; the track has no digest of it")
    for key, found, asked in (
        ("data.digest", claim.data_digest, track.data_sha256),
        ("evaluation.digest", claim.evaluation_digest, track.evaluation_sha256),
    ):
        if asked is not None and found != asked and not (claim.is_plan and found is None):
            yield _against(key, f"{found or 'unknown'}; the track requires {asked}")
    tokens, most = claim.unique_tokens, track.unique_tokens_at_most
    if most is not None and (tokens is None or tokens > most) and not (claim.is_plan and tokens is None):
        yield _against("data.unique_tokens", f"{tokens or 'an unknown number of'} unique tokens; the track allows {most}")


def _short_of_target(losses: Sequence[float], track: Track) -> Iterator[Finding]:
    """Require that a one-sided t-test over seeds rejects a mean above the target."""
    from scipy.stats import t

    target = track.target_bits_per_byte or math.nan
    if len(losses) < 2 or stdev(losses) == 0:
        yield _against("seeds.bits_per_byte", "the noise is unknown without two seeds of different loss")
        return
    mean, error_of_mean = fmean(losses), stdev(losses) / math.sqrt(len(losses))
    p = float(t.cdf((mean - target) / error_of_mean, df=len(losses) - 1))
    if p >= track.significance:
        found = f"the mean of {len(losses)} seeds is {mean:.6g}, standard error {error_of_mean:.2g}, p {p:.2g}"
        yield _against("seeds.bits_per_byte", f"{found}; the track requires {target:g}, p < {track.significance:g}")


def _against(key: str, said: str) -> Finding:
    return error("track", key, said)


_OF_A_CACHE = re.compile(r"\d+(\.\d+)?[bmt]t?|(?=.*\d)[0-9a-f]{6,16}|subcache|sub|cache|subset|sample|tokenized|train")
"""Words for a part or copy of a data set: 10B, a hash, sample."""
_OF_A_METRIC = {"eval", "validation", "val", "bpb", "loss", "bits", "per", "byte"}


def same_data(name: str, asked: str) -> bool:
    """Return True if a data set has the required name, apart from a bucket, an owner, a subset size or a cache's hash.

    >>> same_data("gs://bucket/tokenized/fineweb-edu-10B-6fbcbb", "fineweb-edu"), same_data("fineweb-edu-dedup", "fineweb-edu")
    (True, False)
    """
    return name == asked or _plain_data(name) == _plain_data(asked)


def same_held_out(name: str, asked: str) -> bool:
    """Return True if held-out text has the required name, with or without its collection.

    >>> same_held_out("c4_en, a protocol", "paloma/c4_en"), same_held_out("eval/paloma/c4_en/bpb", "paloma/c4_en")
    (True, True)
    >>> same_held_out("wikitext/c4_en", "paloma/c4_en"), same_held_out("en", "paloma/c4_en")
    (False, False)
    """
    if name == asked:
        return True
    words, wanted = _held_out_words(name), _held_out_words(asked)
    own = _words(asked.rpartition("/")[2])
    collection = wanted[: len(wanted) - len(own)]
    above = words[: len(words) - len(own)]
    return words[len(above) :] == own and above in ([], collection)


def _plain_data(name: str) -> list[str]:
    """Return the words of the last part of a path, without a part or copy at the end."""
    words = _words(name.rstrip("/").rpartition("/")[2])
    while len(words) > 1 and _OF_A_CACHE.fullmatch(words[-1]):
        words.pop()
    return words


def _held_out_words(name: str) -> list[str]:
    words = _words(name.partition(",")[0])
    while len(words) > 1 and words[0] in _OF_A_METRIC:
        words.pop(0)
    while len(words) > 1 and words[-1] in _OF_A_METRIC:
        words.pop()
    return words


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z0-9.]+", name.lower())
