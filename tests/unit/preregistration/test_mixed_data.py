"""Forecasts of runs on a mix of corpora: the statement holds the mix, and repeats that no rung simulates are refused."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from registration_factory import RUNGS, ladder_rows, make_registration, run_spec, store_run, target_spec

from marin_scaling.canonical_json import dump_canonical
from marin_scaling.errors import DataError, VerificationError
from marin_scaling.ladder.config import MixPhase
from marin_scaling.preregistration.preregister import require_horizon_of, require_simulated_repeats
from marin_scaling.preregistration.registry import signers_path
from marin_scaling.preregistration.verify.authenticity import verify_folder
from marin_scaling.run.spec import DataSpec, NamedTokens, RunSpec

SIZES = {"web": 1_000_000, "code": 10_000}


def mixed(spec: RunSpec, *, horizon: int | None) -> RunSpec:
    """The run on nine parts of web and one of code, of which there is little."""
    parts = {name: NamedTokens(tokens=tokens, bytes=tokens, digest="0" * 64) for name, tokens in SIZES.items()}
    data = DataSpec(source="mine", digest="0" * 64, train_bytes=1_010_000, validation_bytes=100, parts=parts)
    mix = (MixPhase(mix={"web": 0.9, "code": 0.1}),)
    return spec.model_copy(update={"data": data, "mix": mix, "horizon_tokens": horizon})


HORIZON = target_spec().trained_tokens


def registered(root: Path, **changes: object) -> Path:
    """A forecast of the target from four rungs of its mix; `changes` are those of the rungs."""
    for hidden_dim, steps in RUNGS:
        spec = mixed(run_spec(hidden_dim=hidden_dim, train_steps=100 * steps), horizon=HORIZON)
        spec = spec.model_copy(update=changes)
        store_run(root / "runs", spec=spec, loss=1.0 + 100 * spec.flops**-0.2)
    rows = ladder_rows(root / "runs")
    return make_registration(root, rows=rows, target=mixed(target_spec(), horizon=HORIZON)).folder


def test_a_statement_holds_the_mix_of_its_target_and_its_horizon(tmp_path: Path) -> None:
    """As the spec does; another weight in the target's file is found."""
    folder = registered(tmp_path)
    recipe = json.loads((folder / "statement.json").read_bytes())["predicate"]["recipe"]
    assert recipe["mix"] == [{"mix": {"web": 0.9, "code": 0.1}, "until": 1.0}]
    assert recipe["horizonTokens"] == HORIZON
    verify_folder(folder, allowed_signers=signers_path(folder), runs_dir=tmp_path / "runs")

    document = json.loads((folder / "target.json").read_bytes())
    document["mix"][0]["mix"] = {"web": 0.8, "code": 0.2}
    (folder / "target.json").write_bytes(dump_canonical(document))
    with pytest.raises(VerificationError):
        verify_folder(folder, allowed_signers=signers_path(folder), runs_dir=tmp_path / "runs")


@pytest.mark.parametrize(
    "changes", [{"mix": (MixPhase(mix={"web": 0.5, "code": 0.5}),)}, {"mix": ()}, {"horizon_tokens": 2 * HORIZON}]
)
def test_rungs_of_another_mix_or_horizon_are_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    """Of the same corpora: their digests are equal, the weights or repeats are not."""
    folder = registered(tmp_path, **changes)
    with pytest.raises(VerificationError) as error:
        verify_folder(folder, allowed_signers=signers_path(folder), runs_dir=tmp_path / "runs")
    assert next(iter(changes)) in str(error.value)


@pytest.mark.parametrize(("factor", "refused"), [(0.5, True), (0.9, False), (1.1, False), (4.0, True)])
def test_a_target_of_another_length_than_the_horizon_is_refused_with_its_own(factor: float, refused: bool) -> None:
    """If it repeats a part at all; the error has both numbers."""
    rung = mixed(run_spec(train_steps=400), horizon=1_000_000)
    tokens = round(1_000_000 * factor)
    assert _refused(lambda: require_horizon_of(tokens, [rung])) is refused
    plenty = {name: replace_tokens(part) for name, part in rung.data.parts.items()}
    without_repeats = rung.model_copy(update={"data": rung.data.model_copy(update={"parts": plenty})})
    assert not _refused(lambda: require_horizon_of(tokens, [without_repeats]))


def replace_tokens(part: NamedTokens) -> NamedTokens:
    return part.model_copy(update={"tokens": 10**9})


def test_runs_that_repeat_a_part_need_a_horizon() -> None:
    """Of a run that repeats none, or simulates its repeats, a forecast can be signed."""
    long = run_spec(train_steps=2000)
    assert _refused(lambda: require_simulated_repeats([mixed(long, horizon=None)]))
    assert not _refused(
        lambda: require_simulated_repeats([mixed(long, horizon=10**6), mixed(run_spec(train_steps=1), horizon=None)])
    )


def _refused(check: Callable[[], None]) -> bool:
    try:
        check()
    except DataError:
        return True
    return False
