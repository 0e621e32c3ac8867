"""Export a trained model as a Hugging Face folder, with a model card from the run's own files."""

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
from marin_scaling.errors import MarinScalingError, UsageError, missing_extra
from marin_scaling.files import new_folder, read_bytes
from marin_scaling.git import address_on_the_web
from marin_scaling.ladder.config import Data, read_ladder_file
from marin_scaling.markdown import Markdown, code, escape, web_link
from marin_scaling.preregistration.layout import OUTCOME_NAME
from marin_scaling.preregistration.outcome import read_outcome
from marin_scaling.preregistration.registry import REGISTRY, find_statement, read_registration, signers_path
from marin_scaling.preregistration.statement import Statement
from marin_scaling.preregistration.tracked_run import named_spec
from marin_scaling.preregistration.verify.authenticity import verify_folder
from marin_scaling.publish.figures import render
from marin_scaling.run.plan import hardware_of
from marin_scaling.run.spec import MoeModelSpec, RunSpec, TokenizerSpec
from marin_scaling.run.store import RUNS_DIR, StoredRun, Workplace, is_finished, read_run, run_folder, workplace
from marin_scaling.units import format_flops, format_number
from marin_scaling.untrusted_files import is_present

CARD_NAME = "README.md"
_PROJECT = "marin-scaling"


@dataclass(frozen=True, kw_only=True)
class CarriedTokenizer:
    """Tokenizer of a run (`spec` is None for byte tokens), and the folder of its files if they are exported.

    `end_token` ended each document of the training text; it is empty for a cache with its own special tokens, and if both
    the tokenizer and the ladder file are missing.
    """

    spec: TokenizerSpec | None
    folder: Path | None
    end_token: str = ""


@dataclass(frozen=True, kw_only=True)
class SignedForecast:
    """Statement of a target, signed before training, and its outcome; None if not checked yet."""

    place: str
    statement: Statement
    outcome: Mapping[str, Any] | None


def read_forecast(folder: Path, spec: RunSpec) -> SignedForecast:
    """Read the forecast and outcome of the run of `spec`; `VerificationError` for an outcome that does not follow."""
    statement, path = read_registration(folder), folder / OUTCOME_NAME
    outcome = read_outcome(read_bytes(path), statement=statement, run=spec.digest, name=str(path)) if is_present(path) else None
    return SignedForecast(place=f"{folder.parent.name}/{folder.name}", statement=statement, outcome=outcome)


@dataclass(frozen=True, kw_only=True)
class CardSource:
    """Repository that a model is exported from: its web address, and the SHA-256 of the ladder file.

    Either is None if it does not exist.
    """

    address: str | None = None
    ladder_sha256: str | None = None

    def place(self, path: str) -> Markdown:
        """Return a path in the repository, linked if the repository has a web address."""
        return web_link(path, f"{self.address}/tree/HEAD/{path}") if self.address else code(path)


def model_card(
    run: StoredRun, *, tokenizer: CarriedTokenizer, forecast: SignedForecast | None, source: CardSource | None = None
) -> str:
    """Return the card of a finished run: front matter and Markdown."""
    source = source or CardSource()
    return render(
        "model_card.md.j2",
        title=_name(run.spec),
        front_matter=Markdown(_front_matter(run).rstrip()),
        spec=run.spec,
        record=run.record,
        is_mixture=isinstance(run.spec.model, MoeModelSpec),
        run_rows=_run_rows(run),
        data_rows=_data_rows(run.spec),
        tokenizer=tokenizer,
        measured_rows=_measured_rows(run),
        forecast_title="Its forecast, signed before it was trained" if forecast else "Its forecast",
        forecast_rows=_forecast_rows(run, forecast, source),
        origin_rows=_origin_rows(run, source),
    )


def _name(spec: RunSpec) -> str:
    return f"{spec.ladder}-{spec.directory_name}"


def _front_matter(run: StoredRun) -> str:
    """Return the hub's front matter without a license, which the publisher adds."""
    spec, record = run.spec, run.record
    metric = {"type": record.metric, "name": f"{record.metric}, {spec.evaluation.protocol}", "value": record.loss}
    result = {
        "task": {"type": "text-generation"},
        "dataset": {"type": spec.data.source, "name": f"{spec.data.source}, held out"},
        "metrics": [metric],
    }
    tags = [_PROJECT, "levanter", "scaling-laws", *(["preregistered"] if spec.statement_sha256 else [])]
    matter = {
        "library_name": _PROJECT if isinstance(spec.model, MoeModelSpec) else "transformers",
        "pipeline_tag": "text-generation",
        "tags": tags,
        "model-index": [{"name": _name(spec), "results": [result]}],
    }
    return yaml.safe_dump(matter, sort_keys=False, allow_unicode=True)


def _run_rows(run: StoredRun) -> dict[str, str]:
    spec, record, model = run.spec, run.record, run.spec.recipe_model
    return {
        "recipe": spec.recipe,
        "ladder": f"{spec.ladder}, {spec.role}",
        "budget": f"{format_flops(spec.budget_flops)} FLOPs",
        "trained with": f"{format_number(record.flops)} FLOPs ({record.flops_convention})",
        "parameters": f"{record.params_total:,}, {record.params_non_embedding:,} without embedding and head",
        "shape": f"width {model.hidden_dim}, {model.num_layers} layers, {model.num_heads} heads ({model.num_kv_heads} of keys "
        f"and values), MLP {model.intermediate_dim}, {model.vocab_size} kinds of tokens",
        **_expert_rows(run),
        "trained tokens": f"{record.trained_tokens:,}: {spec.train_steps:,} steps of {spec.batch_size} sequences of "
        f"{model.seq_len} tokens",
        **_trunk_rows(run),
        "seed": str(spec.seed),
    }


def _trunk_rows(run: StoredRun) -> dict[str, str]:
    trunk = run.record.trunk
    return {"trunk": Markdown(f"the first {trunk.steps:,} steps are those of run {code(trunk.spec_digest)}")} if trunk else {}


def _expert_rows(run: StoredRun) -> dict[str, str]:
    model = run.spec.model
    if not isinstance(model, MoeModelSpec):
        return {}
    widths = f"{model.num_experts} of width {model.intermediate_dim}, and a shared one of width {model.shared_intermediate_dim}"
    each = f"each token passes through {model.experts_per_token} and the shared one"
    return {"experts": f"{widths}; {each}", "active parameters": f"{run.record.params_active:,} per token"}


def _data_rows(spec: RunSpec) -> dict[str, str]:
    return {
        "source": spec.data.source,
        "digest": code(spec.data.digest),
        "to train on": f"{spec.data.train_bytes:,} bytes of text, each seen {spec.times_seen:.3g} times on average",
        **{
            f"part {each.name}": f"{each.share:.3g} of the tokens; {each.read * spec.model.seq_len:,} of its "
            f"{spec.data.parts[each.name].tokens:,}, seen {each.passes:.3g} times"
            for each in spec.exposures
        },
        "held out": f"{spec.data.validation_bytes:,} bytes",
    }


def _measured_rows(run: StoredRun) -> dict[str, str]:
    evaluation, record = run.spec.evaluation, run.record
    each = {name: f"{loss:.4f}" for name, loss in sorted(record.losses.items())}
    return {
        record.metric: Markdown(f"**{record.loss:.4f}**"),
        **each,
        "protocol": f"{evaluation.protocol}, {_windows_words(run.spec)} of {evaluation.seq_len} tokens",
        "evaluation": f"{run.spec.measured_on} (runs with the same were measured on the same text in the same way)",
    }


def _windows_words(spec: RunSpec) -> str:
    counts = spec.evaluated_windows
    if list(counts) == [HELD_OUT]:
        return f"{counts[HELD_OUT]} windows"
    return " and ".join(f"{count} windows of {name}" for name, count in counts.items()) + ", each"


def _forecast_rows(run: StoredRun, forecast: SignedForecast | None, source: CardSource) -> dict[str, str]:
    if run.spec.statement_sha256 is None:
        return {}
    digest = code(run.spec.statement_sha256)
    if forecast is None:
        unknown = "whose preregistration was not in the repository that this was exported from"
        return {"statement": Markdown(f"{digest}, {unknown}")}
    predicate, quantiles = forecast.statement.predicate, forecast.statement.quantiles
    return {
        "preregistration": Markdown(f"{escape(predicate['id'])}, in {source.place(forecast.place)}"),
        "statement": digest,
        "signed": f"{predicate['createdAt']} by {predicate['registrant']}, by their word",
        "forecast": f"{quantiles[0.5]:.4f} {predicate['metric']['unit']}",
        "90 % interval": f"{quantiles[0.05]:.4f} to {quantiles[0.95]:.4f}",
        "outcome": _outcome_words(forecast),
    }


def _outcome_words(forecast: SignedForecast) -> str:
    outcome = forecast.outcome
    if outcome is None:
        return "not checked yet"
    found = f"{outcome['value']:.4f} was observed, error {outcome['scores']['signed_error']:+.4f}"
    return Markdown(f"**{escape(outcome['verdict'])}**: {found}")


def _origin_rows(run: StoredRun, source: CardSource) -> dict[str, str]:
    spec, record = run.spec, run.record
    ladder_file = Markdown(f"{source.place(f'ladders/{spec.ladder}.yaml')}, SHA-256 `{source.ladder_sha256}`")
    return {
        "record": source.place(f"runs/{spec.ladder}/{spec.directory_name}"),
        **({"ladder file": ladder_file} if source.ladder_sha256 else {}),
        "digest of the spec": code(spec.digest),
        "digest of the loss curve": code(record.history_sha256),
        "git commit": code(record.git_commit) if record.git_commit else "none: no git repository, or none with a commit",
        "trained": f"{record.started_at} to {record.finished_at}",
        "on": f"{record.hardware.platform}, {record.hardware.device_count} x {record.hardware.device_kind}",
        "versions": ", ".join(f"{name} {version}" for name, version in sorted(record.versions.items())),
    }


def export_model(run: str, folder: Path, *, registry: Path = REGISTRY) -> None:
    """Write a trained model into a new `folder`: weights, configuration, tokenizer and model card.

    `run` is a preregistration (its target) or the first digits of a run's digest. `UsageError` for a run that is not finished,
    diverged, or whose weights were not kept; `StorageError` where they are damaged or `folder` exists.
    """
    stored = _exportable(named_spec(run, registry=registry))
    if importlib.util.find_spec("levanter") is None:
        raise missing_extra("train", needed_for="writing a model")
    from marin_scaling.train.weights import kept_weights, write_hugging_face

    weights = kept_weights(stored, _with_weights(stored))
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_NO_ADVISORY_WARNINGS="1")  # all files are local
    tokenizer, forecast = _tokenizer_of(stored.spec), _exported_forecast(stored.spec, registry=registry)
    card = model_card(stored, tokenizer=tokenizer, forecast=forecast, source=_source_of(stored.spec))
    with new_folder(folder.absolute()) as made:
        write_hugging_face(stored.spec, weights=weights, folder=made, tokenizer=tokenizer.folder, end_token=tokenizer.end_token)
        (made / CARD_NAME).write_text(card, encoding="utf-8")


def _with_weights(stored: StoredRun) -> Workplace:
    """Return the place of the weights, after fetching them from shared storage if there is one."""
    from marin_scaling.train.shared_storage import Exchange

    place = workplace(storage=hardware_of(stored.spec.ladder).storage)
    if place.storage is not None:
        Exchange(place).bring_weights(stored)
    return place


def _exportable(spec: RunSpec) -> StoredRun:
    """Return the recorded run of a spec; `UsageError` if it is unfinished or diverged."""
    folder = run_folder(workplace().runs_dir, spec)
    if not is_finished(workplace().runs_dir, spec):
        raise UsageError(
            f"{spec.directory_name} is not finished: {folder} has no record.",
            why="Only finished and measured runs are exported.",
            fix=f"Finish the run: {'marin-scale run' if spec.role == 'target' else 'marin-scale ladder --keep-weights'}",
        )
    stored = read_run(folder)
    if stored.record.loss is None:
        raise UsageError(
            f"{spec.directory_name} diverged and has no loss.",
            why="Weights of diverged runs are not kept.",
            fix="Export another run.",
        )
    return stored


def _source_of(spec: RunSpec) -> CardSource:
    ladder = Path("ladders") / f"{spec.ladder}.yaml"
    digest = sha256_hex(read_bytes(ladder)) if is_present(ladder) else None
    return CardSource(address=address_on_the_web(Path()), ladder_sha256=digest)


def _tokenizer_of(spec: RunSpec) -> CarriedTokenizer:
    """Return the run's tokenizer, with its folder if that exists and is unchanged since training."""
    tokenizer, data = spec.data.tokenizer, _data_of(spec)
    if tokenizer is None or not Path(tokenizer.name).is_dir():
        return CarriedTokenizer(spec=tokenizer, folder=None)
    found = load_tokenizer(tokenizer.name, end_token=data.end_token if data else None)
    if found.identity.digest != tokenizer.digest:
        return CarriedTokenizer(spec=tokenizer, folder=None)
    is_cache = data is not None and any(texts.cache is not None for texts in data.texts.values())
    return CarriedTokenizer(spec=tokenizer, folder=Path(tokenizer.name), end_token="" if is_cache else found.end_word)


def _data_of(spec: RunSpec) -> Data | None:
    """Return the data part of the run's ladder file, None if the file is not here or holds no ladder any more."""
    path = Path("ladders") / f"{spec.ladder}.yaml"
    try:
        return read_ladder_file(path).data if is_present(path) else None
    except MarinScalingError:
        return None


def _exported_forecast(spec: RunSpec, *, registry: Path) -> SignedForecast | None:
    """Return the verified preregistration and outcome of the run; None without a preregistration in `registry`."""
    folder = find_statement(registry, sha256=spec.statement_sha256) if spec.statement_sha256 else None
    if folder is None:
        return None
    verify_folder(folder, allowed_signers=signers_path(folder), runs_dir=RUNS_DIR)
    return read_forecast(folder, spec)
