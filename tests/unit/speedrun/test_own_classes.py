"""Entries with a model and an optimizer by Levanter's names, or of classes in their own Python file."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from command_line import assert_refused, marin_scale
from submission_factory import seed_document, submission, submission_document

import marin_scaling as ms
from marin_scaling.canonical_json import dump_canonical, sha256_hex
from marin_scaling.errors import DocumentError, Severity, StorageError
from marin_scaling.recipe.model_shape import ModelShape, training_flops
from marin_scaling.run.spec import BatchStage, windows_before
from marin_scaling.speedrun.checks import accounting_findings
from marin_scaling.speedrun.entry import Entry, entry_files, entry_plan, read_entry, write_starter
from marin_scaling.speedrun.from_runs import differing_keys
from marin_scaling.speedrun.judge import entry_findings
from marin_scaling.speedrun.submission import Submission, compared_flops, write_submission
from marin_scaling.speedrun.train_entry import CodeNotRun, RulesBroken

SIZES = {"hidden_dim": 16, "intermediate_dim": 48, "num_layers": 2, "num_heads": 2, "num_kv_heads": 2}
LLAMA: dict[str, Any] = {
    "name": "ada/llama",
    "track": "tiny",
    "author": {"name": "Ada"},
    "model": {"type": "llama", "max_seq_len": 64, **SIZES},
    "optimizer": {"type": "muon", "learning_rate": 0.02},
    "batch_size": 4,
    "steps": 20,
    "trials": 3,
}
LEAVES_A_FILE = 'from pathlib import Path\nPath("ran").write_text("ran")\n'
FREE = """\
from dataclasses import dataclass
from levanter.models.llama import LlamaConfig
from levanter.models.lm_model import LmConfig


@LmConfig.register_subclass("{}")
@dataclass(frozen=True)
class Free(LlamaConfig):
    def flops_per_token(self, vocab_size, context_length):
        return {}
"""
levanter = pytest.mark.train


def written(folder: Path, source: str | None = None, **changes: Any) -> Path:
    """An entry file with these keys instead of the usual ones, beside its code."""
    path = folder / "entry.yaml"
    path.write_text(yaml.safe_dump({**LLAMA, **changes, **({"code": "own.py"} if source is not None else {})}))
    if source is not None:
        (folder / "own.py").write_text(source)
    return path


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"optimizer": None}, "optimizer"),
        ({"recipe": "quickstart"}, "recipe"),
        ({"steps": None}, "steps"),
        ({"model": {"hidden_dim": 16}}, "type"),
        ({"batch_size": [{"start": 1, "value": 4}]}, "batch_size"),
        ({"batch_size": [{"start": 0, "value": 4}, {"start": 20, "value": 8}]}, "batch_size"),
        ({"batch_size": [{"start": 0, "value": 4}, {"start": 9, "value": 8}, {"start": 5, "value": 4}]}, "batch_size"),
        ({"code": "../own.py"}, "code"),
        ({"code": "/etc/passwd"}, "code"),
    ],
)
def test_an_entry_that_contradicts_itself_is_refused(changes: dict[str, Any], named: str, tmp_path: Path) -> None:
    with pytest.raises(DocumentError) as refused:
        read_entry(written(tmp_path, **changes))
    assert named in str(refused.value)


def test_an_entry_of_a_recipe_has_one_batch_size() -> None:
    of_recipe = {"recipe": "quickstart", "budget_flops": 5e9, "hidden_dim": 12}
    about = {key: LLAMA[key] for key in ("name", "track", "author", "trials")}
    assert Entry(**about, **of_recipe, batch_size=8).batch_stages == (BatchStage(start=0, value=8),)
    with pytest.raises(ValueError, match="batch_size"):
        Entry(**about, **of_recipe, batch_size=(BatchStage(start=0, value=8),))


def test_windows_of_a_schedule_are_those_of_its_steps() -> None:
    """Counted one step after the other."""
    stages = [BatchStage(start=0, value=3), BatchStage(start=4, value=5), BatchStage(start=6, value=2)]
    sizes = [3, 3, 3, 3, 5, 5, 2, 2, 2]
    for step in range(len(sizes) + 1):
        assert windows_before(step, stages, batch_size=5) == sum(sizes[:step])
    assert windows_before(9, (), batch_size=5) == 45


@levanter
def test_counts_of_a_llama_are_those_of_the_formula(tmp_path: Path) -> None:
    """A Llama has Qwen3's arrays without the two norms of queries and keys; XLA also counts norms and the softmax.

    Code of the entry may print.
    """
    path = written(tmp_path, "print('{')\n", batch_size=[{"start": 0, "value": 4}, {"start": 5, "value": 8}])
    plan = entry_plan(read_entry(path), path=path)
    shape = ModelShape(vocab_size=256, seq_len=64, **SIZES)
    assert plan.shape.params_total == shape.params_total - 2 * 2 * shape.head_dim
    assert plan.shape.params_non_embedding == plan.shape.params_total - 2 * 256 * 16
    tokens = 64 * (5 * 4 + 15 * 8)
    assert plan.trained_tokens == tokens
    assert plan.budget_flops == training_flops(shape, tokens=tokens)
    assert 1.0 < plan.xla_gradient_flops / plan.budget_flops < 1.15
    assert plan.xla_flops > plan.xla_gradient_flops


@levanter
@pytest.mark.filterwarnings("ignore")  # of Levanter, in this process
@pytest.mark.parametrize(
    ("changes", "code", "named"),
    [
        ({"model": {**LLAMA["model"], "type": "lama"}}, None, ("model.type", "'lama'", "llama")),
        (
            {"model": {**LLAMA["model"], "hiden_dim": 3}, "optimizer": {"type": "muon", "learning_rat": 1.0}},
            None,
            ("model.hiden_dim", "hidden_dim?", "optimizer.learning_rat", "learning_rate?"),
        ),
        ({"model": {**LLAMA["model"], "num_heads": 3}}, None, ("num_heads", "3")),
        ({"optimizer": {"type": "muon", "learning_rate": "fast"}}, None, ("optimizer", "learning_rate", "fast")),
        ({"optimizer": {"type": "muon", "learning_rate": -0.5}}, None, ("optimizer.learning_rate", "-0.5")),
        ({"model": {**LLAMA["model"], "type": "below"}}, FREE.format("below", "-5.0"), ("flops_per_token", "-5.0")),
        ({"model": {**LLAMA["model"], "type": "nan"}}, FREE.format("nan", "float('nan')"), ("flops_per_token", "nan")),
        ({}, "import os\n\nraise ValueError('no luck')\n", ("own.py: line 3", "no luck")),
        ({}, "def broken(:\n", ("own.py: line 1",)),
        ({}, "import sys\nsys.exit(3)\n", ("own.py: line 2",)),
        ({"model": {**LLAMA["model"], "type": "mine"}}, "x = 1\n", ("model.type", "'mine'")),
    ],
)
def test_a_class_that_cannot_be_made_is_named_with_its_place(
    changes: dict[str, Any], code: str | None, named: tuple[str, ...]
) -> None:
    from marin_scaling.train.type_counts import Question, answer

    asked = {key: LLAMA[key] for key in ("model", "optimizer")} | changes
    counted = {"vocab_size": 256, "batch_sizes": (4,), "train_steps": 20, "z_loss_weight": 0.0}
    found = answer(Question(**asked, **counted, code=code, code_name="own.py" if code else ""))
    assert all(part in str(found["fault"]) for part in named)


@levanter
@pytest.mark.parametrize(
    ("code", "named"), [("import os\nos._exit(7)\n", "status 7"), ("raise ValueError('no luck')\n", "own.py: line 1")]
)
def test_code_that_fails_or_ends_its_process_is_refused_by_command(code: str, named: str, tmp_path: Path) -> None:
    path = written(tmp_path, code)
    (tmp_path / "speedruns" / "tracks").mkdir(parents=True)
    assert_refused(marin_scale("speedrun", "info", path, cwd=tmp_path), "entry.yaml", named)


@levanter
def test_python_plans_and_refuses_what_breaks_a_rule(tmp_path: Path) -> None:
    """Before anything is trained, with all findings."""
    path = written(tmp_path)
    tracks = tmp_path / "speedruns" / "tracks"
    tracks.mkdir(parents=True)
    (tracks / "tiny.yaml").write_text("name: tiny\ntitle: Tiny\nlimits: {model_flops: 1.0}\nseeds_at_least: 9\n")
    found = ms.plan_entry(path)
    assert found["xla_flops"] > found["xla_gradient_flops"] > 0
    with pytest.raises(RulesBroken) as broken:
        ms.train_entry(path, to=tmp_path / "speedruns")
    assert {each.where for each in broken.value.findings} == {"model_flops", "seeds"}
    assert not (tmp_path / "runs").exists()


@levanter
def test_missing_code_is_named(tmp_path: Path) -> None:
    pytest.importorskip("levanter")
    path = written(tmp_path, "")
    (tmp_path / "own.py").unlink()
    assert_refused(marin_scale("speedrun", "info", path, cwd=tmp_path), "own.py")


def test_a_starter_is_an_entry_and_is_never_overwritten(tmp_path: Path) -> None:
    path = write_starter(tmp_path, name="ada/new", track="tiny", author='Ada "L": x')
    entry = read_entry(path)
    assert (entry.name, entry.author.name) == ("ada/new", 'Ada "L": x')
    assert entry_files(entry, path, root=tmp_path) == [path.parent / "model.py"]
    with pytest.raises(StorageError):
        write_starter(tmp_path, name="ada/new", track="tiny", author="Ada")
    for name, track in (("../x", "tiny"), ("x", "a: b")):
        with pytest.raises(DocumentError):
            write_starter(tmp_path, name=name, track=track, author="Ada")
    assert sorted(each.name for each in (tmp_path / "entries").iterdir()) == ["ada"]
    (tmp_path / "tracks").mkdir()
    (tmp_path / "tracks" / "tiny.yaml").write_text("name: tiny\ntitle: Tiny\n")
    with pytest.raises(DocumentError):
        write_starter(tmp_path, name="ada/other", track="tinny", author="Ada")


def with_code(folder: Path, *, stated: str | None = None) -> Submission:
    """A submission below `folder/speedruns` whose entry has code that leaves a file when it runs."""
    at = folder / "speedruns" / "entries"
    at.mkdir(parents=True)
    path = written(at, LEAVES_A_FILE)
    relative = path.relative_to(folder).as_posix()
    digest = stated or sha256_hex(LEAVES_A_FILE.encode())
    code = {"commit": "0" * 40, "path": relative, "command": f"marin-scale speedrun run {relative}", "tree_sha256": digest}
    made = submission(name="ada/llama", code=code, absent={"code.repository": "the same"})
    write_submission(folder / "speedruns", made)
    return made


def test_validation_runs_no_code_and_compares_its_digest(tmp_path: Path) -> None:
    """The digest of the code that ran, against that of the file."""
    with_code(tmp_path)
    assert "code.tree_sha256" not in marin_scale("speedrun", "validate", "speedruns", cwd=tmp_path).stdout
    (tmp_path / "speedruns" / "entries" / "own.py").write_text("x = 1\n")
    told = json.loads(marin_scale("speedrun", "validate", "speedruns", "--json", cwd=tmp_path).stdout)
    (found,) = (each for each in told["submissions"][0]["findings"] if each["where"] == "code.tree_sha256")
    assert (found["severity"], found["code"]) == ("error", "entry")
    assert not (tmp_path / "ran").exists()


def test_code_of_others_runs_only_if_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by `confirm` as a workflow calls it."""
    with_code(tmp_path)
    (tmp_path / "speedruns" / "tracks").mkdir()
    (tmp_path / "speedruns" / "tracks" / "t.yaml").write_text("name: t\ntitle: T\nretrained_by_ci: true\nseeds_at_least: 2\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CodeNotRun):
        ms.confirm_entry("speedruns/ada/llama/submission.json")
    done = marin_scale("speedrun", "confirm", "speedruns/ada/llama/submission.json", cwd=tmp_path)
    assert done.returncode == 1
    assert "own.py" in done.stdout
    assert "--run-code" in done.stdout
    assert not (tmp_path / "ran").exists()


def test_an_entry_that_was_changed_after_training_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By each setting that differs, before anything is trained again."""
    at = tmp_path / "speedruns" / "entries"
    at.mkdir(parents=True)
    path = written(at, seeds=[0, 1], trials=3, data={"source": "web", "train": "x.jsonl"})
    relative = path.relative_to(tmp_path).as_posix()
    model, optimizer = (
        {
            "z_loss_weight": 0.0,
            "type": LLAMA[key]["type"],
            "settings": {name: value for name, value in LLAMA[key].items() if name != "type"},
        }
        for key in ("model", "optimizer")
    )
    document = submission_document(name="ada/llama", track="tiny")
    document["code"] = {"commit": "0" * 40, "path": relative, "command": f"marin-scale speedrun run {relative}"}
    document.setdefault("absent", {}).update({"code.repository": "the same", "code.tree_sha256": "no code"})
    document["model"]["config"] = model
    document["training"] = {"batch_size": 4, "seq_len": 64, "steps": 20, "config": optimizer}
    document["seeds"] = [seed_document(seed=seed, log_sha256=f"{seed}" * 64) for seed in (0, 1)]
    made = Submission.model_validate(document)
    assert [each for each in entry_findings(made, root=tmp_path) if each.severity is Severity.ERROR] == []
    written(
        at,
        seeds=[0, 2],
        steps=21,
        z_loss_weight=0.1,
        trials=9,
        name="ada/other",
        compute={"precision": "bfloat16"},
        track="other",
        model={**LLAMA["model"], "num_layers": 3},
        batch_size=[{"start": 0, "value": 8}],
    )
    wrong = {"model.config.num_layers", "seeds.seed", "track", "training.batch_size", "training.steps"}
    wrong |= {"training.config.z_loss_weight", "training.config.compute", "data.name", "tuning.trials", "name"}
    assert {each.where for each in entry_findings(made, root=tmp_path)} == wrong
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RulesBroken) as broken:
        ms.confirm_entry(made)
    assert {each.where for each in broken.value.findings} == wrong


def counted(*, own: float, xla: float, stated: float, has_code: bool) -> Submission:
    """A submission of a model whose class counts its FLOPs, of Levanter or of the entry's own code."""
    made = submission()
    document = json.loads(dump_canonical(made.model_dump(mode="json", exclude_none=True)))
    tokens = document["data"]["trained_tokens"]
    del document["model"]["shape"]
    document["model"]["flops_per_token"] = own / tokens
    document.setdefault("absent", {})["model.shape"] = "the class counts"
    if not has_code:
        document["code"].pop("tree_sha256", None)
        document["absent"]["code.tree_sha256"] = "no code"
    formula = "levanter-count-of-the-model-class" if stated <= own else "xla-count-of-the-gradients"
    document["compute"] |= {"model_flops": stated, "model_flops_formula": formula, "xla_gradient_flops": xla}
    return Submission.model_validate(document)


@pytest.mark.parametrize(
    ("own", "xla", "stated", "has_code", "compared", "findings"),
    [
        (1e12, 1.1e12, 1e12, False, 1e12, set()),
        (1e12, 1.2e12, 1.2e12, True, 1.2e12, {"own-count"}),
        (1e12, 1.03e12, 1e12, True, 1e12, set()),
        (1e12, 2e12, 2e12, False, 2e12, {"own-count"}),
        (1e12, 2e12, 1e12, False, 2e12, {"own-count", "formula"}),
        (1e12, 1.1e12, 9e11, False, 1e12, {"model-flops"}),
    ],
)
def test_a_class_that_counts_too_little_is_compared_by_xlas_count(
    own: float, xla: float, stated: float, has_code: bool, compared: float, findings: set[str]
) -> None:
    """Code of an entry is trusted less than Levanter's classes."""
    made = counted(own=own, xla=xla, stated=stated, has_code=has_code)
    assert made.has_code == has_code
    assert compared_flops(own, xla, has_code=has_code) == compared
    assert made.comparable_flops == pytest.approx(compared)
    found = {each.code for each in accounting_findings(made) if each.where == "compute.model_flops"}
    assert found == findings


@levanter
def test_batches_of_a_schedule_read_each_window_once() -> None:
    """In the order of the windows, without a gap."""
    pytest.importorskip("levanter")
    from run_factory import rung_spec

    from marin_scaling.train.train import training_batches

    stages = (BatchStage(start=0, value=2), BatchStage(start=3, value=5))
    spec = rung_spec().model_copy(update={"batch_size": 5, "batch_schedule": stages, "train_steps": 6})
    tokens = np.arange(spec.data.tokens) % 251
    batches = list(training_batches(spec, tokens, first_step=0))
    assert [len(batch) for batch in batches] == [2, 2, 2, 5, 5, 5]
    starts = spec.window_starts()[: spec.windows]
    expected = tokens[starts[:, None] + np.arange(spec.model.seq_len)]
    assert np.array_equal(np.concatenate(batches), expected)
    assert np.array_equal(next(training_batches(spec, tokens, first_step=4)), batches[4])


def test_a_count_that_nothing_is_compared_with_is_unchecked() -> None:
    """As in a submission from a log."""
    document = json.loads(
        dump_canonical(counted(own=1e12, xla=1e12, stated=1e12, has_code=True).model_dump(mode="json", exclude_none=True))
    )
    del document["compute"]["xla_gradient_flops"]
    found = list(accounting_findings(Submission.model_validate(document)))
    assert [each.code for each in found if each.where == "compute.xla_gradient_flops"] == ["unchecked"]


def test_a_retrained_entry_is_compared_by_its_counts_too() -> None:
    """A count that was changed in the submission is not confirmed, also if it changes nothing on the board."""
    true, false = (counted(own=1e12, xla=xla, stated=1e12, has_code=True) for xla in (1.05e12, 1.01e12))
    assert set(differing_keys(false, true)) == {"compute.xla_gradient_flops"}
    assert differing_keys(true, true) == {}
