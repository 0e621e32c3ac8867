"""Loads of the experts of a tiny mixture, trained with quantile balancing and without it: the data of a figure.

The run is a rung of `ladders/bytes-moe.yaml`. Without balancing, the bias of every router stays 0, and all else is the same.
With `--write`, the measured steps of both runs replace `site/assets/quantile-balancing.json`, and the figure is drawn again.
"""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from report import ROOT, parser, publish

from marin_scaling.data.documents import standard_library_corpus
from marin_scaling.ladder.config import read_ladder_file
from marin_scaling.ladder.plan import plan_ladder
from marin_scaling.publish.charts import loads_chart
from marin_scaling.publish.figures import save_chart
from marin_scaling.run.plan import rung_specs
from marin_scaling.run.spec import RunSpec
from marin_scaling.run.stability import extreme_loads
from marin_scaling.run.store import History, read_history
from marin_scaling.train import moe, step
from marin_scaling.train.train import train

RUNG = "6e10/16"
DATA, FIGURE = (ROOT / "site" / "assets" / f"quantile-balancing.{suffix}" for suffix in ("json", "svg"))
RUNS = ("with quantile balancing", "without balancing")


def trained(spec: RunSpec, corpus: Any, *, is_balanced: bool) -> tuple[float, History]:
    """Return bits per byte and history of the run; without balancing, the next bias of each router is 0."""
    balancing = moe.balancing_bias
    step._PROGRAMS.clear()
    if not is_balanced:
        moe.balancing_bias = lambda logits, **_: jnp.zeros(logits.shape[-1])
    try:
        with tempfile.TemporaryDirectory() as folder:
            result = train(spec, corpus=corpus, work_dir=Path(folder), on_step=lambda _step, _loss: None)
    finally:
        moe.balancing_bias = balancing
    return result.bits_per_byte or math.nan, result.loss_curve.history(spec_digest=spec.digest)


def figure(histories: dict[str, History]) -> Any:
    """Return the figure: a panel for each run and layer."""
    return loads_chart({name: found.rows for name, found in histories.items()})


def read_data() -> dict[str, History]:
    """Return the committed histories by run."""
    runs = json.loads(DATA.read_bytes())["runs"]
    return {name: read_history(json.dumps(runs[name]["history"]).encode(), name=str(DATA)) for name in RUNS}


def rows_of(found: dict[str, tuple[float, History]]) -> list[list[object]]:
    """Return the loads and the entropy at the first steps and at the last measured one, and the held-out loss."""
    rows = list[list[object]]()
    for name, (loss, history) in found.items():
        measured = [row for row in history.rows if row.expert_shares]
        for row in (*measured[:2], measured[-1]):
            (low, *_), (high, *_) = extreme_loads(row.expert_shares)
            entropy = min(row.router_entropy_nats) / math.log(len(row.expert_shares[0]))
            rows.append([name, row.step, f"{low:.3f}", f"{high:.3f}", f"{entropy:.1%}", f"{loss:.4f}"])
    return rows


def main() -> None:
    options = parser(__doc__ or "").parse_args()
    corpus, plan = standard_library_corpus(), plan_ladder(read_ladder_file(ROOT / "ladders" / "bytes-moe.yaml"))
    (spec,) = (each for each in rung_specs(plan, corpus=corpus) if each.rung_name == RUNG)
    found = {name: trained(spec, corpus, is_balanced=name == RUNS[0]) for name in RUNS}
    if options.write:
        kept = {
            name: {"bits_per_byte": loss, "history": measured_steps(history).model_dump(mode="json")}
            for name, (loss, history) in found.items()
        }
        DATA.write_text(json.dumps({"ladder": spec.ladder, "rung": RUNG, "spec_digest": spec.digest, "runs": kept}) + "\n")
        save_chart(figure(read_data()), FIGURE)
    publish(
        "Quantile balancing of a tiny mixture",
        columns=("run", "step", "least load", "largest load", "lowest router entropy", "bits per byte at the end"),
        rows=rows_of(found),
        packages=("jax", "marin-levanter"),
        notes=[
            f"Loads are in even shares. Rung {RUNG} of bytes-moe: {spec.train_steps} steps, 2 of 8 experts a token, 2 layers."
        ],
        write=options.write,
    )


def measured_steps(history: History) -> History:
    """Return the rows with routing."""
    return history.model_copy(update={"rows": tuple(row for row in history.rows if row.expert_shares)})


if __name__ == "__main__":
    main()
