"""Tracks: what the submissions of one board have in common, a file for each in `speedruns/tracks/`, and who breaks its rules.

A rule is checked on what a submission states; whether that is true is for `checks` to find out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from marin_scaling.errors import DocumentError
from marin_scaling.findings import Finding, error, warning
from marin_scaling.printable import joined, quoted
from marin_scaling.speedrun.submission import Submission
from marin_scaling.strict_model import Part
from marin_scaling.untrusted_text import SHA256, Line, Name, Words
from marin_scaling.yaml_config import read_yaml

TRACKS_DIR = "tracks"

AXES: Mapping[str, Callable[[Submission], float | None]] = {
    "model FLOPs": lambda each: each.compute.model_flops,
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
    retrained_by_ci: bool = False
    """Whether every entry is trained again before it is merged (marin-scale speedrun confirm)."""
    projected_to_flops: float | None = Field(default=None, gt=0)
    """A scaling track: groups of several sizes are ranked by what their law says of a run of so many model FLOPs."""

    @model_validator(mode="after")
    def _axes_are_known(self) -> Track:
        if unknown := sorted(set(self.limits) - set(_AXIS_OF)):
            raise ValueError(f"limits: there is no axis {quoted(unknown[0])!r}; there are {', '.join(_AXIS_OF)}")
        if self.retrained_by_ci and self.seeds_at_least < 2:
            raise ValueError(
                "retrained_by_ci: what may differ by chance is seen from several seeds; set seeds_at_least to 2 or more"
            )
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
            "trained again before it is merged": self.retrained_by_ci,
        }
        return [sentence for sentence, holds in asked.items() if holds]


def tracks_folder(place: Path) -> Path:
    """Where the tracks of the submissions at `place` lie: in it, or in the folder `speedruns` above it."""
    above = [parent for parent in place.parents if parent.name == "speedruns"]
    return next((each / TRACKS_DIR for each in (place, *above) if (each / TRACKS_DIR).is_dir()), place / TRACKS_DIR)


def read_tracks(folder: Path) -> dict[str, Track]:
    """The tracks in a folder by name; none where there is no such folder. `DocumentError` says file, line and key."""
    files = sorted(folder.glob("*.yaml")) if folder.is_dir() else []
    return {path.stem: read_yaml(path, Track, noun="a track", refused=_refused) for path in files}


def track_findings(submission: Submission, tracks: Mapping[str, Track]) -> Iterator[Finding]:
    """Where a submission does not keep to the rules of its track; nothing where no track is written down at all."""
    if not tracks:
        return
    track = tracks.get(submission.track)
    if track is None:
        yield warning("track", "track", f"there is no track {submission.track!r}; there are {joined(tracks)}")
        return
    yield from _over_limits(submission, track)
    yield from _other_machine(submission, track)
    yield from _other_text(submission, track)
    if len(submission.seeds) < track.seeds_at_least:
        yield _against("seeds", f"{len(submission.seeds)} seeds; the track asks for {track.seeds_at_least} or more")
    if submission.verification.level == "reproduced-by-ci" and not track.retrained_by_ci:
        yield _against("verification.level", "it says that CI made it again, and this track's entries are not trained again")


def _over_limits(submission: Submission, track: Track) -> Iterator[Finding]:
    for key, most in track.limits.items():
        cost = AXES[_AXIS_OF[key]](submission)
        if cost is None:
            yield _against(key, f"{_AXIS_OF[key]} are not known; the track allows {most:.6g}")
        elif cost > most:
            yield _against(key, f"{cost:.6g} {_AXIS_OF[key]}; the track allows {most:.6g}")


def _other_machine(submission: Submission, track: Track) -> Iterator[Finding]:
    hardware = submission.compute.hardware
    if track.hardware and (hardware is None or hardware.kind not in track.hardware):
        said = "a machine that is not known" if hardware is None else hardware.kind
        yield _against("compute.hardware.kind", f"trained on {said}; the track is for {joined(track.hardware)}")
    if track.chips_at_most is not None and (hardware is None or hardware.chips > track.chips_at_most):
        said = "an unknown number of" if hardware is None else str(hardware.chips)
        yield _against("compute.hardware.chips", f"{said} chips; the track allows {track.chips_at_most}")


def _other_text(submission: Submission, track: Track) -> Iterator[Finding]:
    wanted = (
        ("data.name", submission.data.name, track.data_name),
        ("data.digest", submission.data.digest, track.data_sha256),
        ("evaluation.name", submission.evaluation.name, track.evaluation_name),
        ("evaluation.digest", submission.evaluation.digest, track.evaluation_sha256),
    )
    for key, found, asked in wanted:
        if asked is not None and found != asked:
            yield _against(key, f"{found or 'not known'}; the track is on {asked}")
    tokens, most = submission.data.unique_tokens, track.unique_tokens_at_most
    if most is not None and (tokens is None or tokens > most):
        yield _against("data.unique_tokens", f"{tokens or 'an unknown number of'} tokens of text; the track allows {most}")


def _against(key: str, said: str) -> Finding:
    return error("track", key, said)


def _refused(what: str | tuple[str, ...]) -> DocumentError:
    return DocumentError(
        what,
        why="What a board compares is what its track says.",
        fix="Correct the file: the keys are in the reference of submission files.",
    )
