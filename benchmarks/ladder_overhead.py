"""What a ladder of 20 tiny rungs spends outside of training steps: start-up, compilation, data, evaluation, records.

The quickstart's ladder in an empty folder, nothing compiled before; as many runs at a time as there are cores.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from report import parser, publish

from marin_scaling.data.documents import standard_library_corpus
from marin_scaling.ladder.config import read_ladder_file
from marin_scaling.ladder.plan import plan_ladder
from marin_scaling.run.plan import rung_specs
from marin_scaling.run.store import Workplace, read_runs
from marin_scaling.train.launcher import local_pool, train_runs

LADDER = Path(__file__).parents[1] / "ladders" / "quickstart.yaml"


def main() -> None:
    options = parser(__doc__ or "").parse_args()
    corpus, file = standard_library_corpus(), read_ladder_file(LADDER)
    specs, workers = rung_specs(plan_ladder(file), corpus=corpus), len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        place = Workplace(runs_dir=Path(folder) / "runs", work_root=Path(folder) / "work")
        spent = train_runs(specs, corpus=corpus, workplace=place, pool=local_pool(workers), on_event=lambda _event: None)
        records = [stored.record for stored in read_runs(place.runs_dir / file.name)]
    in_steps = sum(record.step_seconds for record in records)
    rows = [
        ["wall time", f"{spent.wall_seconds:.0f} s", ""],
        ["share of it in which a run was in its steps", f"{spent.stepping_seconds / spent.wall_seconds:.0%}", "80%"],
        [f"step seconds of all runs over {workers} x wall time", f"{in_steps / (workers * spent.wall_seconds):.0%}", ""],
    ]
    publish(
        f"A ladder of {len(specs)} tiny rungs",
        columns=("what", "measured", "wanted"),
        rows=rows,
        packages=("jax", "marin-levanter"),
        notes=["Step seconds are those after a process's first step of a run, which compiles or loads the program."],
        write=options.write,
    )


if __name__ == "__main__":
    main()
