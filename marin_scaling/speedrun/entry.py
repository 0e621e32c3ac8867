"""An entry: a run that is to be submitted, as a person writes it down before it is trained, one recipe at one size.

The submission is made from the runs' records (`from_runs`); here is what the file says, and the runs that it means.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from marin_scaling.data.token_corpus import TokenCorpus
from marin_scaling.errors import DocumentError
from marin_scaling.ladder.compute import Compute
from marin_scaling.ladder.ladder_file import Data, Evaluation
from marin_scaling.recipe.catalogue import find_recipe
from marin_scaling.recipe.run_plan import RungPlan
from marin_scaling.run.plan_specs import run_spec
from marin_scaling.run.run_spec import RunSpec
from marin_scaling.run.run_store import StoredRun
from marin_scaling.speedrun.from_runs import submission_from_runs
from marin_scaling.speedrun.submission import Author, Lineage, Submission
from marin_scaling.speedrun.value_types import Line, Name, Words
from marin_scaling.yaml_documents import Part, read_part

RUNS_PREFIX = "speedrun-"
"""What the folders of entries' runs in the store begin with, which are no ladders."""


class Entry(Part):
    """What is to be trained and submitted."""

    name: Name
    """Unique on the board; the part before the last slash is its scaling group."""
    track: Name
    """For which it is submitted."""
    author: Author
    """Who made it."""
    description: Words = ""
    """What is new in it."""
    recipe: str
    """What turns the budget and the width into a run: a name, or a recipe file."""
    budget_flops: float = Field(gt=0)
    """Training FLOPs of each run, by the recipe's own formula; what the board counts has the output head in it."""
    hidden_dim: int = Field(gt=0)
    """Width; the recipe makes the rest of the shape."""
    batch_size: int | None = Field(default=None, gt=0)
    """Sequences a step; else the recipe's."""
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(default=(0, 1, 2), min_length=1)
    """A run for each."""
    trials: int = Field(gt=0)
    """How many runs were made to choose its settings, these among them."""
    parent: Name | None = None
    """The submission that it changes."""
    changes: tuple[Line, ...] = ()
    """What was changed, a line each."""
    data: Data = Data()
    """What is trained on, as in a ladder file."""
    evaluation: Evaluation = Evaluation()
    """What is measured, as in a ladder file."""
    compute: Compute = Compute()
    """How the steps are computed, as in a ladder file."""

    @field_validator("seeds")
    @classmethod
    def _no_seed_twice(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) < len(seeds):
            raise ValueError(f"a seed stands twice in {', '.join(map(str, seeds))}")
        return seeds

    @property
    def runs_folder(self) -> str:
        """Where its runs lie in the store: `speedrun-` and its name in small letters, digits and hyphens."""
        return RUNS_PREFIX + re.sub(r"[^a-z0-9]+", "-", self.name.lower())


def read_entry(path: Path) -> Entry:
    """The entry in a YAML file; `DocumentError` says file, line and key of what is wrong."""
    return read_part(path, Entry, noun="an entry", refused=_refused)


def entry_plan(entry: Entry) -> RungPlan:
    """What its recipe makes of it; `RecipeError` where it makes no such run."""
    recipe = find_recipe(entry.recipe)
    return recipe.plan(budget_flops=entry.budget_flops, hidden_dim=entry.hidden_dim, batch_size=entry.batch_size)


def entry_specs(entry: Entry, *, corpus: TokenCorpus) -> list[RunSpec]:
    """The spec of each seed; `DataError` where the text does not do for it."""
    plan = entry_plan(entry)
    return [run_spec(entry, plan, ladder=entry.runs_folder, seed=seed, corpus=corpus) for seed in entry.seeds]


def submission_of(entry: Entry, runs: Sequence[StoredRun], *, path: Path) -> Submission:
    """The submission of an entry's finished runs; `path` is the entry's file, from which anyone can train it again."""
    made = submission_from_runs(
        runs, name=entry.name, track=entry.track, author=entry.author, description=entry.description, trials=entry.trials
    )
    document = made.model_dump(exclude_none=True)
    document["code"] = {**document["code"], "path": path.as_posix(), "command": f"marin-scale speedrun run {path.as_posix()}"}
    document["absent"] = {key: why for key, why in made.absent.items() if key not in ("code.path", "code.command")}
    if entry.parent is not None:
        document["lineage"] = Lineage(parent=entry.parent, changes=entry.changes).model_dump()
    return Submission.model_validate(document)


def _refused(what: str | tuple[str, ...]) -> DocumentError:
    return DocumentError(
        what,
        why="Every choice of an entry is written down and checked before anything is trained.",
        fix="Correct the file: the keys are in the reference of submission files.",
    )
