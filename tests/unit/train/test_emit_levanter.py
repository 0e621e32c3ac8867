"""What Levanter's own command makes of the files that are written for it: our model, rates, batches and held-out windows."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

pytest.importorskip("levanter", reason="the train extra is not installed")
pytestmark = [pytest.mark.train, pytest.mark.filterwarnings("ignore")]

from run_factory import corpus, rung_spec  # noqa: E402

from marin_scaling.data.corpus import RowFacts, TokenCorpus, TokenizerIdentity  # noqa: E402
from marin_scaling.errors import StorageError  # noqa: E402
from marin_scaling.ladder.config import ONE_AXIS, Compute, Mesh  # noqa: E402
from marin_scaling.run.plan import data_of  # noqa: E402
from marin_scaling.run.spec import RunSpec  # noqa: E402


def word_corpus() -> TokenCorpus:
    """Tokens of one to seven bytes, of which there are no more than 500 kinds, and two held-out sets, one a short one."""
    random = np.random.default_rng(1)
    rows = {name: random.integers(0, 500, size, np.uint16) for name, size in (("train", 4_000), ("wiki", 9_000), ("code", 700))}
    token_bytes = random.integers(1, 8, 500).astype(np.uint16)
    facts = {
        name: RowFacts(tokens=len(row), text_bytes=int(token_bytes[row].sum(dtype=np.int64)), sha256=name)
        for name, row in rows.items()
    }
    return TokenCorpus(
        source="words",
        tokenizer=TokenizerIdentity(name="words", digest="e" * 64, size=500),
        token_bytes=token_bytes,
        train=rows.pop("train"),
        validation=rows,
        facts=facts,
        digest="f" * 64,
    )


def word_spec(**changes: Any) -> RunSpec:
    """A run that goes through those tokens more than twice, of a model with more kinds than there are."""
    spec = rung_spec()
    return rung_spec(
        model=spec.model.model_copy(update={"vocab_size": 512}),
        data=data_of(word_corpus()),
        train_steps=70,
        epochs=3,
        evaluation=spec.evaluation.model_copy(update={"protocol": "disjoint-windows-first-token-given-mean-of-sets"}),
        **changes,
    )


MUON = rung_spec().optimizer.model_copy(
    update={"name": "muonH", "epsilon": 3.141592653589793e-09, "min_learning_rate_ratio": 0.05, "z_loss_weight": 0.0}
)
CASES = {
    "bytes": (rung_spec(), corpus),
    "bytes, longer, muonH": (rung_spec(train_steps=37, batch_size=6, optimizer=MUON, budget_flops=4.8e11), corpus),
    "bytes, half precision, in parts": (
        rung_spec(budget_flops=2e11, compute=Compute(precision="bfloat16", attention="flash", sequences_at_a_time=3)),
        corpus,
    ),
    "words, other seed": (word_spec(seed=3, data_order_seed=2**63 + 5), word_corpus),
}


@pytest.fixture(params=CASES, scope="module")
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunSpec, TokenCorpus, Path]:
    """A run, its corpus, and the folder that was written for all runs of that corpus."""
    from marin_scaling.train.levanter_yaml import emit_levanter

    spec, corpus_of = CASES[request.param]
    found, folder = corpus_of(), tmp_path_factory.mktemp("emitted") / "tiny"
    assert emit_levanter([each for each, of in CASES.values() if of is corpus_of], corpus=found, folder=folder)
    return spec, found, folder


def parsed(spec: RunSpec, folder: Path) -> Any:
    """The configuration that `python -m levanter.main.train_lm --config_path FILE` has."""
    import levanter.config
    from levanter.main.train_lm import TrainLmConfig

    from marin_scaling.train.levanter_yaml import file_name

    def given(config: TrainLmConfig) -> TrainLmConfig:
        return config

    return levanter.config.main(args=["--config_path", str(folder / file_name(spec))])(given)()


def test_levanter_reads_the_model_and_the_run_that_we_train(case: tuple[RunSpec, TokenCorpus, Path]) -> None:
    """The tokenizer that no model has is the only difference."""
    from marin_scaling.train.levanter_config import model_config, trainer_config

    spec, _, folder = case
    config = parsed(spec, folder)
    assert replace(config.model, tokenizer=None) == model_config(spec)
    assert len(config.data.the_tokenizer) == spec.model.vocab_size
    assert config.z_loss_weight == spec.optimizer.z_loss_weight
    theirs, ours = config.trainer, trainer_config(spec, work_dir=folder)
    for key in ("id", "seed", "train_batch_size", "num_train_steps", "mp"):
        assert getattr(theirs, key) == getattr(ours, key)
    whole_batch = theirs.per_device_parallelism == -1
    assert (spec.batch_size if whole_batch else theirs.per_device_parallelism) == ours.per_device_parallelism


def test_levanter_has_the_mesh_of_the_ladder_file(tmp_path: Path) -> None:
    """With `data` left out, on as many devices as there are."""
    from marin_scaling.train.levanter_config import mesh_config
    from marin_scaling.train.levanter_yaml import emit_levanter

    for mesh in (ONE_AXIS, Mesh(model=2), Mesh(data=4, model=2)):
        folder = tmp_path / str(mesh.devices)
        emit_levanter([rung_spec()], corpus=corpus(), folder=folder, mesh=mesh)
        theirs, ours = parsed(rung_spec(), folder).trainer.mesh, mesh_config(mesh)
        assert theirs.axis_shapes(8, 1) == ours.axis_shapes(8, 1)
        assert theirs.resolved_param_mapping == ours.resolved_param_mapping
        assert theirs.resolved_compute_mapping == ours.resolved_compute_mapping


def test_levanter_has_our_rates_at_every_step(case: tuple[RunSpec, TokenCorpus, Path]) -> None:
    """Both of them, to the last digit, and the same constants."""
    import jax

    from marin_scaling.train.optimizer import levanters_schedule, scheduled_rates

    spec, _, folder = case
    optimizer = parsed(spec, folder).optimizer
    assert optimizer == levanters_schedule(spec.optimizer)
    schedules = (optimizer.lr_scheduler(spec.train_steps), optimizer.lr_scheduler(spec.train_steps, optimizer.adam_lr))
    rates = np.stack([jax.vmap(schedule)(np.arange(spec.train_steps)) for schedule in schedules])
    np.testing.assert_array_equal(rates, scheduled_rates(spec.optimizer, train_steps=spec.train_steps))


@pytest.fixture
def in_folder(case: tuple[RunSpec, TokenCorpus, Path], monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """The parsed configuration, in the folder from which its addresses are meant."""
    spec, _, folder = case
    monkeypatch.chdir(folder)
    return lambda: parsed(spec, folder)


def test_levanter_reads_our_batches(
    case: tuple[RunSpec, TokenCorpus, Path], in_folder: Callable[[], Any], tmp_path: Path
) -> None:
    """Every batch of its loader, array for array; the last token of a window is not scored, documents are not told apart."""
    import jax
    from levanter.trainer import Trainer, initialize

    from marin_scaling.train.step import language_model_loss
    from marin_scaling.train.train import training_batches

    spec, found, _ = case
    config = in_folder()
    trainer_config = replace(config.trainer, log_dir=tmp_path)
    initialize(trainer_config)
    with Trainer(trainer_config, config.optimizer.build(spec.train_steps), language_model_loss(0.0)) as trainer:
        tokens = config.data.train_set(config.model.max_Pos, trainer.config.batch_schedule, key=jax.random.PRNGKey(11))
        loading = trainer.data_loader(tokens)
        loading.max_buffered_batches = 0  # no thread that reads ahead: it may outlive the interpreter and abort it
        loader = loading.iter_from_step(0)
        for ours in training_batches(spec, found.train, first_step=0):
            theirs = next(loader)
            np.testing.assert_array_equal(theirs.tokens.array, ours)
            np.testing.assert_array_equal(theirs.loss_weight.array[:, :-1], 1.0)
            np.testing.assert_array_equal(theirs.loss_weight.array[:, -1], 0.0)
            assert theirs.attn_mask.is_causal
            assert theirs.attn_mask.segment_ids is None


def test_levanter_evaluates_our_windows(case: tuple[RunSpec, TokenCorpus, Path], in_folder: Callable[[], Any]) -> None:
    """Of each held-out set, under its name."""
    from marin_scaling.train.train import evaluation_windows

    spec, found, _ = case
    config = in_folder()
    sets = {tags[-1]: data.as_sync_dataset() for data, tags in config.data.tagged_eval_sets(config.model.max_Pos)}
    ours = evaluation_windows(spec, found)
    assert sets.keys() == ours.keys()
    for name, windows in ours.items():
        theirs = sets[name].get_batch(range(len(sets[name])))
        np.testing.assert_array_equal(np.stack([each.tokens.array for each in theirs]), windows)


def test_the_comments_say_what_a_nat_is_in_bits_per_byte(case: tuple[RunSpec, TokenCorpus, Path]) -> None:
    """One number for bytes; for named sets one each, by the bytes of the tokens that are scored."""
    from marin_scaling.train.levanter_yaml import file_name
    from marin_scaling.train.train import evaluation_windows

    spec, found, folder = case
    text = " ".join((folder / file_name(spec)).read_text().replace("\n# ", " ").split())
    assert f"SHA-256 of its spec: {spec.digest}" in text
    for name, windows in evaluation_windows(spec, found).items():
        mean_bytes = found.token_bytes[windows[:, 1:]].mean()
        key = "eval/loss" if len(found.validation) == 1 else f"eval/{name}/loss"
        factor = text.partition(f"{key} times ")[2].split()[0].rstrip(".,")
        assert float(factor) == pytest.approx(1 / np.log(2) / mean_bytes)


def test_the_target_is_emitted_with_tokens_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its own order, which differs from that of a rung with the same seed, and at the size that the plan names."""
    from marin_scaling.ladder.plan import expected_target
    from marin_scaling.train.session import load_ladder

    monkeypatch.chdir(tmp_path)
    rungs = "rungs: [{budget_flops: 1e10, hidden_dims: [8, 12]}]\n"
    Path("tiny.yaml").write_text(f"name: tiny\nrecipe: quickstart\n{rungs}target: {{budget_flops: 4e10, seed: 0}}\n")
    ladder = load_ladder("tiny.yaml")
    made = ladder.emit(only=["target"])
    (written,) = made.folder.glob("*.yaml")
    document, plan = yaml.safe_load(written.read_text()), expected_target(ladder.ladder)
    assert made.folder == Path("emitted/tiny-target")
    assert (document["model"]["hidden_dim"], document["trainer"]["num_train_steps"]) == (
        plan.shape.hidden_dim,
        plan.train_steps,
    )
    tokens = made.folder / document["data"]["cache_dir"]
    assert tokens.name.startswith("target-")
    assert (tokens / "train").is_dir()


def test_a_folder_with_the_same_files_is_left_as_it_is(tmp_path: Path) -> None:
    """Also when fewer runs are asked for; one that lacks a run, or holds another file for it, is refused and not touched."""
    from marin_scaling.train.levanter_yaml import emit_levanter, file_name

    short, long = rung_spec(), rung_spec(train_steps=20, budget_flops=2e9)
    folder = tmp_path / "emitted" / "tiny"
    assert emit_levanter([short], corpus=corpus(), folder=folder)
    assert not emit_levanter([short], corpus=corpus(), folder=folder)
    with pytest.raises(StorageError, match=f"{file_name(long)} in it is missing"):
        emit_levanter([short, long], corpus=corpus(), folder=folder)
    (folder / file_name(short)).write_text("mine")
    with pytest.raises(StorageError, match=file_name(short)):
        emit_levanter([short], corpus=corpus(), folder=folder)
    assert (folder / file_name(short)).read_text() == "mine"
    assert [path.name for path in folder.parent.iterdir()] == ["tiny"]
