"""Tracks: the rules that all submissions of one board keep, a file for each in `speedruns/tracks/`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator, model_validator

from marin_scaling.errors import DocumentError
from marin_scaling.printable import joined, quoted
from marin_scaling.speedrun.submission import Submission
from marin_scaling.untrusted_text import SHA256, Line, Name, Words
from marin_scaling.yaml_config import Part, read_yaml

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
