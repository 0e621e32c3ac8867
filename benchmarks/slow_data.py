"""Steps of a run whose data are slow to read: does the device wait? By the run's own counter, `idle_seconds`."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from report import parser, publish
from step_time import STEPS, spec_of

from marin_scaling.data.documents import standard_library_corpus
from marin_scaling.train.train import train

WIDTH = 64
SHARES = (0.0, 0.5, 0.8, 1.5)
"""Duration of reading a batch over that of a step."""


class SlowTokens:
    """Tokens, each read of which takes `seconds` longer."""

    def __init__(self, tokens: Any, seconds: float) -> None:
        self._tokens, self._seconds = tokens, seconds

    def __len__(self) -> int:
        return len(self._tokens)

    def __getitem__(self, index: Any) -> Any:
        time.sleep(self._seconds)
        return self._tokens[index]


def main() -> None:
    options = parser(__doc__ or "").parse_args()
    corpus = standard_library_corpus()
    spec = spec_of(WIDTH, corpus)
    rows, quick = [], 0.0
    for share in SHARES:
        slow = replace(corpus, train=SlowTokens(corpus.train, share * quick)) if share else corpus
        with tempfile.TemporaryDirectory() as folder:
            result = train(spec, corpus=slow, work_dir=Path(folder), on_step=lambda _step, _loss: None)
        step = result.step_seconds / (STEPS - 1)
        quick = quick or step
        rows.append(
            [
                f"{1000 * share * quick:.0f}",
                f"{1000 * step:.1f}",
                f"{step / quick:.2f}x",
                f"{result.idle_seconds:.2f}",
                f"{result.idle_seconds / result.step_seconds:.1%}",
            ]
        )
    publish(
        "Steps of a run with slow data",
        columns=("added ms a read", "ms a step", "over the first row", "idle seconds", "share of the steps' time"),
        rows=rows,
        packages=("jax", "marin-levanter"),
        notes=[
            f"The quickstart recipe at width {WIDTH}, {STEPS} steps. Batches are read in a thread, up to eight ahead. "
            "Idle is the time from the end of a step to the arrival of the next batch."
        ],
        write=options.write,
    )


if __name__ == "__main__":
    main()
