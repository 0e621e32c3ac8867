"""Whatever is changed in a registry, and by whomever it is signed again, nothing else is ever accepted in its place.

`benchmarks/fuzz_verifier.py` does the same a hundred thousand times.
"""

from pathlib import Path
from random import Random

import judged
import pytest
from allowed_changes import SAME, WORDS, why_allowed
from example_counts import examples
from hypothesis import assume, given
from hypothesis import strategies as st
from judged import judge
from mutated_registry import KINDS, Ground, draw, kinds_here, make_ground

from marin_scaling.preregistration.log import read_log
from marin_scaling.preregistration.registry import registration_folders, signers_path
from marin_scaling.preregistration.verify.authenticity import verify_folder
from marin_scaling.preregistration.verify.rules import log_step, require_whole

SLOW_SECONDS = 60.0
"""A guard against parsers that never end, no measurement: inputs are small, and take milliseconds."""


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    """Real registrations, with all that may lie beside them."""
    return make_ground(tmp_path_factory.mktemp("ground") / "ground")


@pytest.mark.parametrize("name", ["promised", "amended", "sealed", "opened", "settled"])
def test_unchanged_they_verify(ground: Ground, name: str) -> None:
    """The ground of what follows: every step holds."""
    folder = ground.folder(name)
    steps = verify_folder(folder, allowed_signers=signers_path(folder), runs_dir=ground.root / name / "runs").steps
    log = read_log(folder.parent)
    require_whole(folder.parent, log=log)
    steps += tuple(log_step(each, log=log) for each in registration_folders(folder.parent))
    assert [step.what for step in steps if not step.compared] == (["sealed"] if name == "sealed" else [])


@examples(1000, pull_request=300)
@given(data=st.data())
def test_no_mutated_file_is_accepted_in_the_place_of_another(ground: Ground, data: st.DataObject) -> None:
    """Bytes, documents, signatures, signers, logs, outcomes, notices, amendments, seals, stamps: refused, in words."""
    kind = data.draw(st.sampled_from(kinds_here(ground)))
    drawn = draw(ground, kind, Random(data.draw(st.integers(0, 2**64 - 1), label="seed")))
    assume(drawn is not None)
    assert drawn is not None
    verdict = judge(ground, drawn)
    assert not verdict.is_fault, (drawn.how, drawn.changed.name, verdict)
    assert verdict.seconds < SLOW_SECONDS


def test_a_blind_verifier_is_found_out(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge does not take the verifier's word: one that accepts everything is caught in each kind of input."""
    for name in ("verify_folder", "log_step", "require_whole", "read_log"):
        monkeypatch.setattr(judged, name, lambda *_, **__: None)
    for kind in {*kinds_here(ground)} - {"stamp"}:
        drawn = (draw(ground, kind, Random(seed)) for seed in range(60))
        assert any(judge(ground, each).is_fault for each in drawn if each), kind


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"assumptions": []}, WORDS),
        ({"createdAt": "2026-11-20T09:00:00Z"}, WORDS),
        ({"createdAt": "2026-11-20T09:00:00+00:00"}, None),
        ({"createdAt": "2026-11-21T09:00:00Z"}, None),
        ({"registrant": "carol@example.org"}, None),
        ({"targetRun": {"flops": 1.0 + 1e-12, "uid": "0" * 32}}, SAME),
        ({"targetRun": {"flops": 1.0 + 1e-6, "uid": "0" * 32}}, None),
        ({"targetRun": {"flops": 1.0, "uid": "1" * 32}}, WORDS),
    ],
)
def test_what_a_registrant_may_say_is_fixed_beforehand(change: dict[str, object], why: str | None) -> None:
    """Words, within reason, and nothing that follows from files."""
    predicate = {
        "assumptions": [{"id": "A1", "text": "a", "ifFalse": "b"}],
        "createdAt": "2026-11-20T08:30:00Z",
        "registrant": "ada@example.org",
        "resolution": {"due": "2027-01-01T00:00:00Z"},
        "targetRun": {"flops": 1.0, "uid": "0" * 32},
    }
    before = {"subject": [], "predicate": predicate}
    assert why_allowed("statement.json", before, {"subject": [], "predicate": predicate | change}) == why


def test_every_kind_of_input_is_drawn_and_changes_something(ground: Ground) -> None:
    """None is forgotten, and files are put back as they were."""
    before = {path: path.read_bytes() for path in Path(ground.root).rglob("*") if path.is_file()}
    for kind in kinds_here(ground):
        assert any(draw(ground, kind, Random(seed)) for seed in range(20)), kind
    judge(ground, next(each for seed in range(20) if (each := draw(ground, "outcome", Random(seed)))))
    assert {*kinds_here(ground)} <= KINDS.keys()
    assert before == {path: path.read_bytes() for path in Path(ground.root).rglob("*") if path.is_file()}
