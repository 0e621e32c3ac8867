"""The quickstart's smallest rung trains on this Python, with the pinned Levanter, by the command that ladders use."""

from pathlib import Path

import pytest

pytest.importorskip("levanter", reason="the train extra is not installed")
pytestmark = pytest.mark.train

from marin_scaling.data.documents import standard_library_corpus  # noqa: E402
from marin_scaling.ladder.config import read_ladder_file  # noqa: E402
from marin_scaling.ladder.plan import plan_ladder  # noqa: E402
from marin_scaling.run.plan import rung_specs  # noqa: E402
from marin_scaling.run.store import (  # noqa: E402
    Workplace,
    read_run,
    run_folder,
)
from marin_scaling.train.launcher import local_pool, train_runs  # noqa: E402

QUICKSTART = Path(__file__).parents[2] / "ladders" / "quickstart.yaml"


def test_the_smallest_rung_learns_python(tmp_path: Path) -> None:
    """It ends far below the 8 bits of a byte that is guessed, with a record that matches its spec."""
    corpus = standard_library_corpus()
    spec = min(rung_specs(plan_ladder(read_ladder_file(QUICKSTART)), corpus=corpus), key=lambda spec: spec.flops)
    workplace = Workplace(runs_dir=tmp_path / "runs", work_root=tmp_path / "work")
    train_runs([spec], corpus=corpus, workplace=workplace, pool=local_pool(1), on_event=lambda event: None)
    run = read_run(run_folder(tmp_path / "runs", spec))
    assert run.record.status == "finished"
    assert run.record.loss is not None
    assert 2.0 < run.record.loss < 4.5
    assert len(run.history().rows) == spec.train_steps
