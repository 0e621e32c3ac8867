"""A training process takes its runs in turns with others, and tells them when it has compiled."""

import os
import subprocess
from pathlib import Path

import pytest
from compiling import another_compiles
from run_factory import corpus, rung_spec

from marin_scaling.data.corpus import data_folder, write_corpus
from marin_scaling.files import replace_file
from marin_scaling.run.spec import DataSpec
from marin_scaling.run.store import Workplace, compiled_dir, spec_path
from marin_scaling.train.compiled_programs import compiling_once
from marin_scaling.train.launcher import worker_command
from marin_scaling.train.progress import parse_event

pytest.importorskip("levanter", reason="the train extra is not installed")
pytestmark = pytest.mark.train


def test_a_process_begins_with_what_nobody_compiles_waits_for_the_rest_and_compiles_it_for_all(tmp_path: Path) -> None:
    """The other one dies while it is waited for; after the first step of ours, whoever comes neither waits nor compiles."""
    tokens = corpus()
    data = DataSpec(source="test", digest=tokens.digest, train_bytes=100_000, validation_bytes=10_000)
    wide, narrow = rung_spec(data=data, batch_size=8, train_steps=300), rung_spec(data=data)
    place = Workplace(runs_dir=tmp_path / "runs", work_root=tmp_path / "work")
    write_corpus(tokens, data_folder(tokens.digest, work_root=place.work_root))
    for spec in (wide, narrow):
        replace_file(spec_path(spec, place), spec.to_bytes())
    command = worker_command([wide, narrow], workplace=place, cores=sorted(os.sched_getaffinity(0))[:1])
    seen: list[tuple[str, str]] = []
    with (
        another_compiles(wide, compiled_dir(place)) as other,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as ours,
    ):
        assert ours.stdout is not None
        for event in filter(None, map(parse_event, ours.stdout)):
            seen.append((event.kind, event.run))
            if event.kind == "noted":
                other.kill()
            if event.kind == "stepped" and event.run == wide.directory_name:
                with compiling_once(wide, compiled_dir(place), wait=pytest.fail, on_note=pytest.fail):
                    break
        ours.kill()
    stages = [stage for stage in dict.fromkeys(seen) if stage[0] in ("started", "finished", "noted", "stepped")]
    assert stages[-3:] == [(kind, wide.directory_name) for kind in ("started", "noted", "stepped")]
    assert ("finished", narrow.directory_name) in stages[:-3]
