"""How long the speedrun's data and pages take by the number of submissions: validated, placed on a board, written as pages.

Generated submissions of one track, each with a run of its own. mkdocs, which comes after, is not in it.
Wanted: 10,000 within 60 s, in proportion to their number; one submission validated within 50 ms beyond start-up.
"""

from __future__ import annotations

import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from report import ROOT, parser, publish

sys.path.insert(0, str(ROOT / "tests"))

from submission_factory import seed_document, submission_document

from marin_scaling.publish.board_page import read_speedruns, speedrun_pages
from marin_scaling.recipe.model_shape import WITH_LM_HEAD, training_flops
from marin_scaling.speedrun.checks import validate
from marin_scaling.speedrun.leaderboard import boards
from marin_scaling.speedrun.submission import Shape, Submission, read_submissions, write_submission

COUNTS = (100, 1_000, 10_000)
AT = datetime(2026, 11, 23, tzinfo=UTC)


def generated(count: int) -> list[Submission]:
    """So many, in groups of a hundred, of other lengths and losses each."""
    random = Random(0)
    return [_one(number, random) for number in range(count)]


def _one(number: int, random: Random) -> Submission:
    seed = seed_document(seed=number, bits_per_byte=1 + 3 * random.random())
    document = submission_document(name=f"group-{number % 100}/run-{number}", seeds=[seed])
    training, shape = document["training"], Shape(**document["model"]["shape"])
    training["steps"] = random.randint(100, 100_000)
    tokens = training["batch_size"] * training["seq_len"] * training["steps"]
    document["data"]["trained_tokens"] = tokens
    document["compute"]["model_flops"] = training_flops(shape, tokens=tokens, convention=WITH_LM_HEAD)
    for key in ("training_seconds", "hardware_flops"):
        del seed[key]
    document["absent"] = {"seeds.training_seconds": "generated", "seeds.hardware_flops": "generated"}
    return Submission.model_validate(document)


def measured(count: int) -> list[str]:
    """A row of the table: seconds of each part."""
    with tempfile.TemporaryDirectory() as folder:
        for each in generated(count):
            write_submission(Path(folder) / "speedruns", each)
        began = time.perf_counter()
        submissions = [each.submission for each in read_submissions(Path(folder) / "speedruns") if each.submission]
        read = time.perf_counter()
        validated = validate(submissions, at=AT)
        judged = time.perf_counter()
        boards(validated)
        placed = time.perf_counter()
        speedrun_pages(read_speedruns(Path(folder)), root=Path(folder))
        written = time.perf_counter()
    parts = (read - began, judged - read, placed - judged, written - placed)
    return [f"{count:,}", *(f"{part:.2f}" for part in parts), f"{1000 * parts[-1] / count:.2f}"]


def main() -> None:
    options = parser(__doc__ or "").parse_args()
    publish(
        "The speedrun's data and pages",
        columns=("submissions", "read s", "validated s", "placed s", "all, with pages s", "ms a submission"),
        rows=[measured(count) for count in COUNTS],
        packages=("pydantic", "altair"),
        notes=["Wanted: 10,000 within 60 s, in proportion to their number. mkdocs, which comes after, is not in it."],
        write=options.write,
    )


if __name__ == "__main__":
    main()
