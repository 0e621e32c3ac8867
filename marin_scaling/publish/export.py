"""Export a trained model in Hugging Face's format, with a model card from the run's own files.

The card comes from the run's spec and record, and of a target from its statement and outcome.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from marin_scaling.canonical_json import sha256_hex
from marin_scaling.data.corpus import HELD_OUT
from marin_scaling.data.tokenizer import load_tokenizer
from marin_scaling.errors import UsageError, missing_extra
from marin_scaling.files import new_folder, read_bytes
from marin_scaling.markdown import document, escape, table, web_link
from marin_scaling.preregistration.layout import OUTCOME_NAME
from marin_scaling.preregistration.outcome import read_outcome
from marin_scaling.preregistration.registry import REGISTRY, find_statement, read_registration, signers_path
from marin_scaling.preregistration.statement import Statement
from marin_scaling.preregistration.tracked_run import named_spec
from marin_scaling.preregistration.verify.authenticity import verify_folder
from marin_scaling.publish.new_repository import address_on_the_web
from marin_scaling.run.paths import RUNS_DIR, Workplace, workplace
from marin_scaling.run.plan import hardware_of
from marin_scaling.run.spec import ModelSpec, RunSpec, TokenizerSpec
from marin_scaling.run.store import StoredRun, is_finished, read_run, run_folder
from marin_scaling.units import format_count, format_flops
from marin_scaling.untrusted_files import is_present

CARD_NAME = "README.md"
_PROJECT = "marin-scaling"
_SHOWN_BYTES = "né"


@dataclass(frozen=True, kw_only=True)
class CarriedTokenizer:
    """A run's tokenizer (`spec` is None where bytes are the tokens), and the folder of its files where they are exported."""

    spec: TokenizerSpec | None
    folder: Path | None


@dataclass(frozen=True, kw_only=True)
class SignedForecast:
    """What was signed of a target before it was trained, and what came of it; None where that is not checked yet."""

    place: str
    statement: Statement
    outcome: Mapping[str, Any] | None


def read_forecast(folder: Path, spec: RunSpec) -> SignedForecast:
    """What a preregistration's folder says of the run of `spec`; `VerificationError` for an outcome that does not follow."""
    statement, path = read_registration(folder), folder / OUTCOME_NAME
    outcome = read_outcome(read_bytes(path), statement=statement, run=spec.digest, name=str(path)) if is_present(path) else None
    return SignedForecast(place=f"{folder.parent.name}/{folder.name}", statement=statement, outcome=outcome)


@dataclass(frozen=True, kw_only=True)
class CardSource:
    """The repository that a model is exported from: its address on the web, None where it has none, and the SHA-256 of the
    ladder's file as it is there now, None where there is no such file."""

    address: str | None = None
    ladder_sha256: str | None = None

    def place(self, path: str) -> str:
        """A path in it, linked where that is possible."""
        return web_link(path, f"{self.address}/tree/HEAD/{path}") if self.address else f"`{path}`"


def model_card(
    run: StoredRun, *, tokenizer: CarriedTokenizer, forecast: SignedForecast | None, source: CardSource | None = None
) -> str:
    """The card of a finished run: front matter and Markdown."""
    source = source or CardSource()
    text = document(
        _name(run.spec),
        _headline(run),
        _section("The run", _run_rows(run)),
        _section("Its data", _data_rows(run.spec)),
        _tokens_section(tokenizer),
        _section("Measured", _measured_rows(run)),
        _forecast_section(run, forecast, source),
        _section("Where it comes from", _origin_rows(run, source)),
    )
    return f"---\n{_front_matter(run)}---\n\n{text}"


def _name(spec: RunSpec) -> str:
    return f"{spec.ladder}-{spec.directory_name}"


def _front_matter(run: StoredRun) -> str:
    """For the hub; a license is for the one who publishes to add."""
    spec, record = run.spec, run.record
    metric = {"type": record.metric, "name": f"{record.metric}, {spec.evaluation.protocol}", "value": record.loss}
    result = {
        "task": {"type": "text-generation"},
        "dataset": {"type": spec.data.source, "name": f"{spec.data.source}, held out"},
        "metrics": [metric],
    }
    tags = [_PROJECT, "levanter", "scaling-laws", *(["preregistered"] if spec.statement_sha256 else [])]
    matter = {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": tags,
        "model-index": [{"name": _name(spec), "results": [result]}],
    }
    return yaml.safe_dump(matter, sort_keys=False, allow_unicode=True)


def _headline(run: StoredRun) -> str:
    place = "the target" if run.spec.role == "target" else "a rung"
    return (
        f"A language model of {format_count(run.record.params_total)} parameters, trained from nothing with Levanter by "
        f"{_PROJECT} as {place} of the ladder {escape(run.spec.ladder)}: to measure its loss, not to be of use. "
        "Its architecture is Qwen3's."
    )


def _section(title: str, rows: Mapping[str, str]) -> str:
    return f"## {title}\n\n" + table(["", ""], [[words, cell] for words, cell in rows.items()])


def _run_rows(run: StoredRun) -> dict[str, str]:
    spec, record, model = run.spec, run.record, run.spec.model
    return {
        "recipe": escape(spec.recipe),
        "ladder": f"{escape(spec.ladder)}, {spec.role}",
        "budget": f"{format_flops(spec.budget_flops)} FLOPs",
        "trained with": f"{record.flops:.6g} FLOPs ({escape(record.flops_convention)})",
        "parameters": f"{record.params_total:,}, {record.params_non_embedding:,} without embedding and head",
        "shape": f"width {model.hidden_dim}, {model.num_layers} layers, {model.num_heads} heads ({model.num_kv_heads} of keys "
        f"and values), MLP {model.intermediate_dim}, {model.vocab_size} kinds of tokens",
        "trained tokens": f"{record.trained_tokens:,}: {spec.train_steps:,} steps of {spec.batch_size} sequences of "
        f"{model.seq_len} tokens",
        "seed": str(spec.seed),
    }


def _data_rows(spec: RunSpec) -> dict[str, str]:
    return {
        "source": escape(spec.data.source),
        "digest": f"`{spec.data.digest}`",
        "to train on": f"{spec.data.train_bytes:,} bytes of text, each seen {spec.times_seen:.3g} times on average",
        "held out": f"{spec.data.validation_bytes:,} bytes",
    }


def _tokens_section(tokenizer: CarriedTokenizer) -> str:
    return f"## From text to tokens\n\n{_tokens_words(tokenizer)}\n\n{_example(tokenizer)}".rstrip()


def _tokens_words(tokenizer: CarriedTokenizer) -> str:
    known = tokenizer.spec
    if known is None:
        tokens = list(_SHOWN_BYTES.encode())
        return (
            "There is no tokenizer: each byte of a text in UTF-8 is a token, and the byte's value is the token's number. "
            f'"{_SHOWN_BYTES}" is {tokens}; `bytes(tokens).decode()` is the way back.'
        )
    said = f"The tokenizer is {escape(known.name)} ({known.size:,} kinds, digest `{known.digest}`)"
    return f"{said}; its files are here." if tokenizer.folder else f"{said}. Its files are not here."


def _example(tokenizer: CarriedTokenizer) -> str:
    if tokenizer.spec is not None:
        return ""
    return """```python
import torch
from transformers import Qwen3ForCausalLM

model = Qwen3ForCausalLM.from_pretrained("THIS-FOLDER")
tokens = torch.tensor([list("def ".encode())])
longer = model.generate(tokens, max_new_tokens=60, do_sample=False)
print(bytes(longer[0].tolist()).decode(errors="replace"))
```"""


def _measured_rows(run: StoredRun) -> dict[str, str]:
    evaluation, record = run.spec.evaluation, run.record
    each = {escape(name): f"{loss:.4f}" for name, loss in sorted(record.losses.items())}
    return {
        escape(record.metric): f"**{record.loss:.4f}**",
        **each,
        "protocol": f"{escape(evaluation.protocol)}, {_windows_words(run.spec)} of {evaluation.seq_len} tokens",
        "evaluation": f"`{run.spec.measured_on}` (runs with the same were measured on the same text in the same way)",
    }


def _windows_words(spec: RunSpec) -> str:
    counts = spec.evaluated_windows
    if list(counts) == [HELD_OUT]:
        return f"{counts[HELD_OUT]} windows"
    return " and ".join(f"{count} windows of {escape(name)}" for name, count in counts.items()) + ", each"


def _forecast_section(run: StoredRun, forecast: SignedForecast | None, source: CardSource) -> str:
    if run.spec.statement_sha256 is None:
        return ""
    digest = f"`{run.spec.statement_sha256}`"
    if forecast is None:
        rows = {"statement": f"{digest}, whose preregistration was not in the repository that this was exported from"}
        return _section("Its forecast", rows)
    predicate, quantiles = forecast.statement.predicate, forecast.statement.quantiles
    return _section(
        "Its forecast, signed before it was trained",
        {
            "preregistration": f"{escape(predicate['id'])}, in {source.place(forecast.place)}",
            "statement": digest,
            "signed": f"{escape(predicate['createdAt'])} by {escape(predicate['registrant'])}, by their word",
            "forecast": f"{quantiles[0.5]:.4f} {escape(predicate['metric']['unit'])}",
            "90 % interval": f"{quantiles[0.05]:.4f} to {quantiles[0.95]:.4f}",
            "outcome": _outcome_words(forecast),
        },
    )


def _outcome_words(forecast: SignedForecast) -> str:
    outcome = forecast.outcome
    if outcome is None:
        return "not checked yet"
    return f"**{outcome['verdict']}**: {outcome['value']:.4f} was observed, error {outcome['scores']['signed_error']:+.4f}"


def _origin_rows(run: StoredRun, source: CardSource) -> dict[str, str]:
    spec, record = run.spec, run.record
    ladder_file = f"{source.place(f'ladders/{spec.ladder}.yaml')}, SHA-256 `{source.ladder_sha256}`"
    return {
        "record": source.place(f"runs/{spec.ladder}/{spec.directory_name}"),
        **({"ladder file": ladder_file} if source.ladder_sha256 else {}),
        "digest of the spec": f"`{spec.digest}`",
        "digest of the loss curve": f"`{record.history_sha256}`",
        "git commit": f"`{record.git_commit}`" if record.git_commit else "none: no git repository, or none with a commit",
        "trained": f"{escape(record.started_at)} to {escape(record.finished_at)}",
        "on": f"{escape(record.hardware.platform)}, {record.hardware.device_count} x {escape(record.hardware.device_kind)}",
        "versions": escape(", ".join(f"{name} {version}" for name, version in sorted(record.versions.items()))),
    }


def export_model(run: str, folder: Path, *, registry: Path = REGISTRY) -> None:
    """Write a trained dense model into a new `folder`: weights, configuration, tokenizer and model card.

    `run` is a preregistration (its target) or the first digits of a run's digest. `UsageError` for a run that is not finished,
    diverged, or is a mixture of experts; `StorageError` where its weights were not kept or `folder` exists.
    """
    stored = _exportable(named_spec(run, registry=registry))
    if importlib.util.find_spec("levanter") is None:
        raise missing_extra("train", needed_for="writing a model")
    from marin_scaling.train.weights import kept_weights, write_hugging_face

    weights = kept_weights(stored, _with_weights(stored))
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_NO_ADVISORY_WARNINGS="1")  # all that is needed is here
    tokenizer, forecast = _tokenizer_of(stored.spec), _exported_forecast(stored.spec, registry=registry)
    card = model_card(stored, tokenizer=tokenizer, forecast=forecast, source=_source_of(stored.spec))
    with new_folder(folder.absolute()) as made:
        write_hugging_face(stored.spec, weights=weights, folder=made, tokenizer=tokenizer.folder)
        (made / CARD_NAME).write_text(card, encoding="utf-8")


def _with_weights(stored: StoredRun) -> Workplace:
    """Where the weights lie, once they were brought from where machines share runs, if they do."""
    from marin_scaling.train.shared_storage import Exchange

    place = workplace(storage=hardware_of(stored.spec.ladder).storage)
    if place.storage is not None:
        Exchange(place).bring_weights(stored)
    return place


def _exportable(spec: RunSpec) -> StoredRun:
    """The recorded run of a spec; `UsageError` where it is not finished, diverged, or is no dense model."""
    folder = run_folder(workplace().runs_dir, spec)
    if not isinstance(spec.model, ModelSpec):
        raise UsageError(
            f"{spec.directory_name} is a mixture of experts ({spec.model.family}): Hugging Face's format has no such model.",
            why="Its routers, gates and shared expert would be lost, or would need code of ours to be loaded.",
            fix=f"Export a dense run. The weights of this one, if kept, lie in .marin-scaling/weights/{spec.directory_name}.",
        )
    if not is_finished(workplace().runs_dir, spec):
        raise UsageError(
            f"{spec.directory_name} is not finished: {folder} has no record.",
            why="Exported is what was trained to its end and measured.",
            fix=f"Train it: {'marin-scale run' if spec.role == 'target' else 'marin-scale ladder --keep-weights'}.",
        )
    stored = read_run(folder)
    if stored.record.loss is None:
        raise UsageError(
            f"{spec.directory_name} diverged: it ended without a loss, and its weights say nothing.",
            why="No weights of such a run are kept.",
            fix="Export another run.",
        )
    return stored


def _source_of(spec: RunSpec) -> CardSource:
    ladder = Path("ladders") / f"{spec.ladder}.yaml"
    digest = sha256_hex(read_bytes(ladder)) if is_present(ladder) else None
    return CardSource(address=address_on_the_web(Path()), ladder_sha256=digest)


def _tokenizer_of(spec: RunSpec) -> CarriedTokenizer:
    """The run's tokenizer, with its folder where that is here and still has what the run was trained with."""
    tokenizer = spec.data.tokenizer
    if tokenizer is None or not Path(tokenizer.name).is_dir():
        return CarriedTokenizer(spec=tokenizer, folder=None)
    is_the_same = load_tokenizer(tokenizer.name).identity.digest == tokenizer.digest
    return CarriedTokenizer(spec=tokenizer, folder=Path(tokenizer.name) if is_the_same else None)


def _exported_forecast(spec: RunSpec, *, registry: Path) -> SignedForecast | None:
    """The verified preregistration that the run carries, and its outcome; None where it carries none, or it is not here."""
    folder = find_statement(registry, sha256=spec.statement_sha256) if spec.statement_sha256 else None
    if folder is None:
        return None
    verify_folder(folder, allowed_signers=signers_path(folder), runs_dir=RUNS_DIR)
    return read_forecast(folder, spec)
