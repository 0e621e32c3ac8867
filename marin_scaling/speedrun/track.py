"""Tracks: the rules of a board in `speedruns/tracks/NAME.yaml`, applied to submissions, and to plans before training."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated

from pydantic import Field, field_validator, model_validator

from marin_scaling.errors import DocumentError
from marin_scaling.findings import Finding, error, note, warning
from marin_scaling.printable import joined, quoted
from marin_scaling.speedrun.hardware import accelerator
from marin_scaling.speedrun.submission import Submission
from marin_scaling.strict_model import Part
from marin_scaling.untrusted_text import SHA256, Line, Name, Words
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
"""What a submission may cost, by name; None where that is not known of it."""


def axis_key(axis: str) -> str:
    """The name of an axis in files, filters and addresses.

    >>> axis_key("US dollars")
    'us_dollars'
    """
    return axis.replace(" ", "_").replace("-", "_").lower()


_AXIS_OF = {axis_key(axis): axis for axis in AXES}


class Track(Part):
    """What all submissions of a track have in common. A rule that is left out asks nothing."""

    name: Name
    """As submissions name it; the file is `speedruns/tracks/NAME.yaml`."""
    title: Line
    """For a reader."""
    description: Words = ""
    """What it is for."""
    limits: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """The most that one run may cost, by axis: model_flops, hardware_flops, chip_seconds, seconds, us_dollars, parameters,
    trained_tokens."""
    hardware: tuple[Line, ...] = ()
    """The kinds of chips that it may be trained on."""
    chips_at_most: int | None = Field(default=None, gt=0)
    """How many of them."""
    data_name: Line | None = None
    """Name of the data set to train on."""
    data_sha256: SHA256 | None = None
    """Its digest."""
    unique_tokens_at_most: int | None = Field(default=None, gt=0)
    """How many tokens it may have: for tracks that ask what can be made of little text."""
    evaluation_name: Line | None = None
    """Name of the held-out text."""
    evaluation_sha256: SHA256 | None = None
    """Its digest."""
    seeds_at_least: int = Field(default=1, gt=0)
    """How many runs a submission has."""
    target_bits_per_byte: float | None = Field(default=None, gt=0)
    """Loss to reach: the mean over seeds must lie below it by more than chance explains (a one-sided t-test)."""
    significance: float = Field(default=0.05, gt=0, lt=0.5)
    """Largest p-value of that test."""
    retrained_by_ci: bool = False
    """Whether every entry is trained again before it is merged (marin-scale speedrun confirm)."""
    projected_to_flops: float | None = Field(default=None, gt=0)
    """A scaling track: groups of several sizes are ranked by what their law says of a run of so many model FLOPs."""

    @field_validator("limits")
    @classmethod
    def _axes_are_known(cls, limits: dict[str, float]) -> dict[str, float]:
        if unknown := sorted(set(limits) - set(_AXIS_OF)):
            hint = "; a loss to reach is target_bits_per_byte" if unknown[0] == "bits_per_byte" else ""
            raise ValueError(f"there is no axis {quoted(unknown[0])!r}; there are {', '.join(_AXIS_OF)}{hint}")
        return limits

    @model_validator(mode="after")
    def _chance_can_be_measured(self) -> Track:
        for key in ("retrained_by_ci", "target_bits_per_byte"):
            if getattr(self, key) and self.seeds_at_least < 2:
                raise ValueError(f"{key}: chance is measured on several seeds; set seeds_at_least to 2 or more")
        return self

    def rules(self) -> list[str]:
        """What it asks, a sentence each."""
        asked = {
            **{f"at most {most:.6g} {_AXIS_OF[key]}": True for key, most in self.limits.items()},
            f"trained on {joined(self.hardware, separator=' or ')} chips": self.hardware,
            f"on {self.chips_at_most} chips at most": self.chips_at_most,
            f"trained on {self.data_name}": self.data_name,
            f"trained on the text with the digest {self.data_sha256}": self.data_sha256,
            f"of {self.unique_tokens_at_most or 0:,} tokens at most": self.unique_tokens_at_most,
            f"measured on {self.evaluation_name}": self.evaluation_name,
            f"measured on the text with the digest {self.evaluation_sha256}": self.evaluation_sha256,
            f"from {self.seeds_at_least} seeds or more": self.seeds_at_least > 1,
            f"to {self.target_bits_per_byte} bits per byte or less (one-sided t-test, p < {self.significance:g})": (
                self.target_bits_per_byte
            ),
            "trained again before it is merged": self.retrained_by_ci,
        }
        return [sentence for sentence, holds in asked.items() if holds]


def tracks_folder(place: Path) -> Path:
    """Return the folder of the tracks for submissions or an entry at `place`: there, or in a `speedruns` above or here."""
    above = [each for each in (place, *place.parents) if each.name == SPEEDRUNS_DIR] or [Path(SPEEDRUNS_DIR)]
    places = [each / TRACKS_DIR for each in (place, *above)]
    return next((each for each in places if each.is_dir()), places[-1])


def read_tracks(folder: Path) -> dict[str, Track]:
    """The tracks in a folder by name; none where there is no such folder. `DocumentError` says file, line and key."""
    files = sorted(folder.glob("*.yaml")) if folder.is_dir() else []
    return {path.stem: read_yaml(path, Track, noun="a track", refused=_refused) for path in files}


def _refused(what: str | tuple[str, ...]) -> DocumentError:
    return DocumentError(
        what,
        why="What a board compares is what its track says.",
        fix="Correct the file: the keys are in the reference of submission files.",
    )


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The facts that rules compare; None where one is not known. In a plan (`is_plan`) None means: known after training."""

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
    level: str = "self-reported"
    is_plan: bool = False


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
        level=submission.verification.level,
    )


def track_findings(submission: Submission, tracks: Mapping[str, Track]) -> Iterator[Finding]:
    """Return the rules of its track that a submission breaks, and those that nobody wrote down."""
    yield from claim_findings(claim_of(submission), tracks)


def claim_findings(claim: Claim, tracks: Mapping[str, Track]) -> Iterator[Finding]:
    """Return the rules of its track that a claim breaks; a warning if the track has no file."""
    track = tracks.get(claim.track)
    if track is None:
        written = f"; there are {joined(tracks)}" if tracks else ""
        said = f"no file speedruns/tracks/{claim.track}.yaml, so no rule of the track was checked{written}"
        yield warning("track", "track", said)
        return
    yield from _over_limits(claim, track)
    yield from _other_machine(claim, track)
    yield from _other_text(claim, track)
    if claim.seeds < track.seeds_at_least:
        yield _against("seeds", f"{claim.seeds} seeds; the track asks for {track.seeds_at_least} or more")
    if track.target_bits_per_byte is not None and not claim.is_plan:
        yield from _short_of_target(claim.losses, track)
    if claim.level == "reproduced-by-ci" and not track.retrained_by_ci:
        yield _against("verification.level", "it says that CI made it again, and this track's entries are not trained again")


def _over_limits(claim: Claim, track: Track) -> Iterator[Finding]:
    names = {axis_key(axis): axis for axis in AXES}
    for key, most in track.limits.items():
        cost = claim.costs.get(key)
        if cost is None:
            if not claim.is_plan:
                yield _against(key, f"{names[key]} are not known; the track allows {most:.6g}")
        elif cost > most:
            yield _against(key, f"{_apart(cost, most)} {names[key]}; the track allows {most:.6g}")


def _apart(value: float, other: float) -> str:
    """A value in as many digits as tell it from another one."""
    return next((text for digits in (6, 9, 12) if (text := f"{value:.{digits}g}") != f"{other:.{digits}g}"), repr(value))


def _other_machine(claim: Claim, track: Track) -> Iterator[Finding]:
    if claim.is_plan and claim.hardware is None:
        return
    if track.hardware and (claim.hardware is None or _kind(claim.hardware) not in set(map(_kind, track.hardware))):
        said = claim.hardware or "a machine that is not known"
        yield _against("compute.hardware.kind", f"trained on {said}; the track is for {joined(track.hardware)}")
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
            yield _against(key, f"{found or 'not known'}; the track is on {asked}")
        elif asked is not None and found != asked:
            yield note("track", key, f"{found} is taken for {asked}, by its name: the track has no digest of it")
    for key, found, asked in (
        ("data.digest", claim.data_digest, track.data_sha256),
        ("evaluation.digest", claim.evaluation_digest, track.evaluation_sha256),
    ):
        if asked is not None and found != asked and not (claim.is_plan and found is None):
            yield _against(key, f"{found or 'not known'}; the track is on {asked}")
    tokens, most = claim.unique_tokens, track.unique_tokens_at_most
    if most is not None and (tokens is None or tokens > most) and not (claim.is_plan and tokens is None):
        yield _against("data.unique_tokens", f"{tokens or 'an unknown number of'} tokens of text; the track allows {most}")


def _short_of_target(losses: Sequence[float], track: Track) -> Iterator[Finding]:
    """The loss to reach is reached if a one-sided t-test over seeds rejects that the mean lies above it."""
    from scipy.stats import t

    target = track.target_bits_per_byte or math.nan
    if len(losses) < 2 or stdev(losses) == 0:
        yield _against("seeds.bits_per_byte", "without two seeds of different loss nobody knows what chance does")
        return
    error_of_mean = stdev(losses) / math.sqrt(len(losses))
    p = float(t.cdf((fmean(losses) - target) / error_of_mean, df=len(losses) - 1))
    if p >= track.significance:
        said = f"the mean of {len(losses)} seeds is {fmean(losses):.6g} with a standard error of {error_of_mean:.2g}; the track"
        yield _against("seeds.bits_per_byte", f"{said} asks for {target:g}, p < {track.significance:g} (here {p:.2g})")


def _against(key: str, said: str) -> Finding:
    return error("track", key, said)


_OF_A_CACHE = re.compile(r"\d+(\.\d+)?[bmt]t?|(?=.*\d)[0-9a-f]{6,16}|subcache|sub|cache|subset|sample|tokenized|train")
"""Words that say which part or copy of a data set was read: 10B, a hash, sample."""
_OF_A_METRIC = {"eval", "validation", "val", "bpb", "loss", "bits", "per", "byte"}


def same_data(name: str, asked: str) -> bool:
    """Return True if a data set goes by the name that is asked for, beside a bucket, an owner, a subset size or a cache's hash.

    >>> same_data("gs://bucket/tokenized/fineweb-edu-10B-6fbcbb", "fineweb-edu"), same_data("fineweb-edu-dedup", "fineweb-edu")
    (True, False)
    """
    return name == asked or _plain_data(name) == _plain_data(asked)


def same_held_out(name: str, asked: str) -> bool:
    """Return True if held-out text goes by the name that is asked for, with or without the collection that it is part of.

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
    """The words of the last part of a path without those at its end that name a part or a copy."""
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
