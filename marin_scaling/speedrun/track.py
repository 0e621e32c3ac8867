"""Tracks: rules of each board, one file each in `speedruns/tracks/`, checked against what submissions state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from marin_scaling.errors import DocumentError
from marin_scaling.findings import Finding, error, warning
from marin_scaling.printable import joined, quoted
from marin_scaling.speedrun.submission import Submission
from marin_scaling.untrusted_text import SHA256, Line, Name, Words
from marin_scaling.yaml_config import Part, read_yaml

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
"""Cost axes by name; None where the cost is unknown."""


def axis_key(axis: str) -> str:
    """Return the name of an axis in files, filters and addresses.

    >>> axis_key("US dollars")
    'us_dollars'
    """
    return axis.replace(" ", "_").replace("-", "_").lower()


_AXIS_OF = {axis_key(axis): axis for axis in AXES}


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
    retrained_by_ci: bool = False
    """True if every entry is retrained before it is merged (marin-scale speedrun confirm)."""
    projected_to_flops: float | None = Field(default=None, gt=0)
    """Budget in model FLOPs at which a scaling track ranks groups by the forecasts of their laws."""

    @model_validator(mode="after")
    def _axes_are_known(self) -> Track:
        if unknown := sorted(set(self.limits) - set(_AXIS_OF)):
            raise ValueError(f"limits: unknown axis {quoted(unknown[0])!r}; axes: {', '.join(_AXIS_OF)}")
        if self.retrained_by_ci and self.seeds_at_least < 2:
            raise ValueError(f"retrained_by_ci needs seeds_at_least 2 or more, not {self.seeds_at_least}, to measure noise")
        return self

    def rules(self) -> list[str]:
        """Return the rules, one sentence each."""
        asked = {
            **{f"at most {most:.6g} {_AXIS_OF[key]}": True for key, most in self.limits.items()},
            f"hardware {joined(self.hardware, separator=' or ')}": self.hardware,
            f"at most {self.chips_at_most} chips": self.chips_at_most,
            f"data set {self.data_name}": self.data_name,
            f"data digest {self.data_sha256}": self.data_sha256,
            f"at most {self.unique_tokens_at_most or 0:,} unique tokens": self.unique_tokens_at_most,
            f"evaluation {self.evaluation_name}": self.evaluation_name,
            f"evaluation digest {self.evaluation_sha256}": self.evaluation_sha256,
            f"at least {self.seeds_at_least} seeds": self.seeds_at_least > 1,
            "every entry is retrained before merging": self.retrained_by_ci,
        }
        return [sentence for sentence, holds in asked.items() if holds]


def tracks_folder(place: Path) -> Path:
    """Return the folder of tracks for the submissions at `place`: inside it, or in the folder `speedruns` above."""
    above = [parent for parent in place.parents if parent.name == "speedruns"]
    return next((each / TRACKS_DIR for each in (place, *above) if (each / TRACKS_DIR).is_dir()), place / TRACKS_DIR)


def read_tracks(folder: Path) -> dict[str, Track]:
    """Read the tracks in a folder, by name; empty if the folder does not exist. `DocumentError` names file, line and key."""
    files = sorted(folder.glob("*.yaml")) if folder.is_dir() else []
    return {path.stem: read_yaml(path, Track, noun="a track", refused=_refused) for path in files}


def track_findings(submission: Submission, tracks: Mapping[str, Track]) -> Iterator[Finding]:
    """Yield broken rules of the submission's track; nothing if no tracks are defined."""
    if not tracks:
        return
    track = tracks.get(submission.track)
    if track is None:
        yield warning("track", "track", f"unknown track {submission.track!r}; tracks: {joined(tracks)}")
        return
    yield from _over_limits(submission, track)
    yield from _other_machine(submission, track)
    yield from _other_text(submission, track)
    if len(submission.seeds) < track.seeds_at_least:
        yield _against("seeds", f"{len(submission.seeds)} seeds; the track requires {track.seeds_at_least} or more")
    if submission.verification.level == "reproduced-by-ci" and not track.retrained_by_ci:
        yield _against("verification.level", "reproduced-by-ci is claimed, but this track's entries are not retrained")


def _over_limits(submission: Submission, track: Track) -> Iterator[Finding]:
    for key, most in track.limits.items():
        cost = AXES[_AXIS_OF[key]](submission)
        if cost is None:
            yield _against(key, f"{_AXIS_OF[key]} are unknown; the track allows {most:.6g}")
        elif cost > most:
            yield _against(key, f"{cost:.6g} {_AXIS_OF[key]}; the track allows {most:.6g}")


def _other_machine(submission: Submission, track: Track) -> Iterator[Finding]:
    hardware = submission.compute.hardware
    if track.hardware and (hardware is None or hardware.kind not in track.hardware):
        said = "unknown" if hardware is None else hardware.kind
        yield _against("compute.hardware.kind", f"the hardware is {said}; the track requires {joined(track.hardware)}")
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
            yield _against(key, f"{found or 'unknown'}; the track requires {asked}")
    tokens, most = submission.data.unique_tokens, track.unique_tokens_at_most
    if most is not None and (tokens is None or tokens > most):
        yield _against("data.unique_tokens", f"{tokens or 'an unknown number of'} unique tokens; the track allows {most}")


def _against(key: str, said: str) -> Finding:
    return error("track", key, said)


def _refused(what: str | tuple[str, ...]) -> DocumentError:
    return DocumentError(
        what,
        why="Track files are checked before submissions are compared.",
        fix="Fix the named keys; site/reference/submission-files.md lists all keys.",
    )
