"""Import Marin's speedrun results."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from marin_scaling.canonical_json import load_strict
from marin_scaling.errors import DocumentError
from marin_scaling.files import read_bytes
from marin_scaling.speedrun.hardware import Accelerator, Machine, machine
from marin_scaling.speedrun.submission import (
    Author,
    Compute,
    Data,
    Evaluation,
    Hardware,
    Model,
    SeedResult,
    Shape,
    Submission,
    Training,
)
from marin_scaling.untrusted_text import LINK_PATTERN

_VOCABULARY = 128_256
"""Vocabulary of Llama 3, which Marin's speedrun used for FLOPs of every data set."""
_SUBSET_TOKENS = 10_000_000_000
_EVALUATION, _BPB = "paloma/c4_en", "eval/paloma/c4_en/bpb"
_NEVER_SAID = {
    "code": "Marin's results contain no commit",
    "environment": "Marin's results contain no software versions",
    "data.digest": "Marin's results contain only a bucket's address",
    "tuning": "Marin's results do not contain the number of tried settings",
    "compute.cost_usd": "Marin's results contain no cost",
    "evaluation.digest": "Marin's results contain only the evaluation's name",
    "evaluation.bytes": "Marin's results contain only the evaluation's name",
    "evaluation.tokenizer_sha256": "Marin's results contain no digest of the tokenizer",
    "seeds.seed": "data_seed is null in the file; Marin's code trained with 42",
    "seeds.nats": "Marin's results contain only bits per byte",
    "seeds.started_at": "Marin's results contain only the end",
    "seeds.log_sha256": "the log is on W&B",
    "seeds.curve": "Marin's results contain only the last value",
    "model.params_non_embedding": "Marin's results contain only all parameters",
}


def marin_shape(run: Mapping[str, Any]) -> str:
    """Return the format of one entry of `runs`: V0, V1, V1b, V2, V3 or V4."""
    if "run_related_info" in run:
        return "V0"
    info = run.get("run_info") or {}
    if "device" in (info.get("resources") or {}):
        return "V4"
    if "model_flops_per_token" in info:
        return "V3"
    if "num_chips" in info:
        return "V2"
    return "V1" if "use_flash_attention" in (info.get("model_config") or {}) else "V1b"


def import_marin_results(document: Any, *, name: str, source: str) -> Submission:
    """Return the submission in a `speedrun_results.json`; `name` is its folder below `experiments/speedrun`.

    `DocumentError` names the key that is missing or has a wrong value.
    """
    try:
        (run,) = document["runs"]
        shape = marin_shape(run)
        fields = _v0_fields(run) if shape == "V0" else _fields(run["run_info"])
        return _submission(fields, name=name, source=f"{source} (Marin's shape {shape})")
    except KeyError as error:
        raise _refusal(source, f"the key {error} is missing") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _refusal(source, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise _refusal(source, f"a value has the wrong type ({error})") from error


def moment(text: str) -> datetime:
    """Parse a time in Marin's format.

    >>> moment("2025-12-20 16:05:57 UTC").isoformat()
    '2025-12-20T16:05:57+00:00'
    """
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC)


def author_of(author: Mapping[str, Any]) -> Author:
    """Return the author in Marin's format; an invalid web address is left out."""
    url = str(author.get("url") or "")
    return Author(
        name=author["name"],
        affiliation=author.get("affiliation") or None,
        url=url if re.fullmatch(LINK_PATTERN, url) else None,
    )


def hardware_of(name: str, found: Machine | None, *, chips: int | None = None, peak: float | None = None) -> Hardware:
    """Return the machine of that name with the stated chips and peak, or those of the hardware table."""
    known: Accelerator | None = found.accelerator if found else None
    return Hardware(
        kind=known.kind if known else name.lower(),
        name=name,
        chips=chips or (found.chips if found else 1),
        peak_flops_per_second=peak or (known.peak_flops_per_second if known else None),
    )


def _fields(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of V1 to V4."""
    hardware = _hardware(info["resources"], chips=info.get("num_chips"), peak=info.get("device_flops"))
    return {
        "info": info,
        "authors": (author_of(info["author"]),),
        "description": info.get("description") or "",
        "params_total": info["model_size"],
        "compute": Compute(model_flops=info["model_flops"], hardware=hardware),
        "bits_per_byte": info[_BPB],
        "seconds": info["training_time"],
        "hardware_flops": info["training_hardware_flops"],
    }


def _v0_fields(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of V0; its time is in minutes, as its key says."""
    info, stats = run["run_related_info"], run["run_stats"]
    stated = info["hardware_config"]
    name = stated["device_type"]
    hardware = hardware_of(name, machine(name), chips=stated["num_devices"], peak=stated["device_flops"])
    formula = "6 N D, as Marin estimated before a run in April 2025"
    return {
        "info": info,
        "authors": (Author(name="not named in this format"),),
        "description": "",
        "params_total": info["num_parameters"],
        "compute": Compute(model_flops=stats["pre_run_flops_estimate"], model_flops_formula=formula, hardware=hardware),
        "bits_per_byte": stats[_BPB],
        "seconds": stats["training_time_in_minutes"] * 60,
        "hardware_flops": stats["total_training_flops"],
    }


def _hardware(resources: Mapping[str, Any], *, chips: int | None, peak: float | None) -> Hardware:
    device = resources.get("device") or {}
    name = device.get("variant") or device.get("type") or resources.get("tpu_type") or resources.get("accelerator_type")
    if name is None:
        raise KeyError("resources.device.variant")
    count = device.get("count") or resources.get("gpu_count") or resources.get("slice_count") or resources.get("replicas") or 1
    return hardware_of(str(name), machine(str(name), count=int(count)), chips=chips, peak=peak)


def _submission(fields: Mapping[str, Any], *, name: str, source: str) -> Submission:
    info, absent = fields["info"], dict(_NEVER_SAID)
    config, settings = info["model_config"], info["train_config"]
    shape = _shape(config)
    dataset = str(info["tokenized_dataset"]).rstrip("/").rpartition("/")[2]
    unique = _SUBSET_TOKENS if "10B" in dataset else None
    if unique is None:
        absent["data.unique_tokens"] = "the file does not contain the size of its data set"
    dense = not config.get("n_routed_experts")
    if not dense:
        absent["model.params_active"] = "Marin's results contain only all parameters"
    if fields["compute"].hardware.peak_flops_per_second is None:
        absent["compute.hardware.peak_flops_per_second"] = "the hardware table does not list this chip"
    seed = SeedResult(
        bits_per_byte=fields["bits_per_byte"],
        training_seconds=fields["seconds"],
        hardware_flops=fields["hardware_flops"],
        finished_at=moment(info["run_completion_timestamp"]),
        log=info["wandb_run_link"],
    )
    return Submission(
        name=name,
        track="fineweb-edu",
        description=fields["description"],
        authors=fields["authors"],
        data=Data(name=dataset, tokenizer="llama3 (as counted)", unique_tokens=unique, trained_tokens=info["total_tokens"]),
        model=Model(
            params_total=fields["params_total"],
            params_active=fields["params_total"] if dense else None,
            shape=shape,
            config=dict(config),
        ),
        training=Training(
            batch_size=settings["train_batch_size"],
            seq_len=settings.get("train_seq_len") or shape.seq_len,
            steps=settings["num_train_steps"],
            config=dict(settings),
        ),
        compute=fields["compute"],
        evaluation=Evaluation(name=_EVALUATION),
        seeds=(seed,),
        absent=absent,
        imported_from=source,
    )


def _shape(config: Mapping[str, Any]) -> Shape:
    return Shape(
        hidden_dim=config["hidden_dim"],
        intermediate_dim=config["intermediate_dim"],
        num_layers=config["num_layers"],
        num_heads=config["num_heads"],
        num_kv_heads=config["num_kv_heads"],
        vocab_size=_VOCABULARY,
        seq_len=config.get("max_seq_len") or config["seq_len"],
        num_experts=config.get("n_routed_experts") or 0,
        experts_per_token=config.get("num_experts_per_tok") or 0,
        shared_intermediate_dim=(config.get("n_shared_experts") or 0) * config["intermediate_dim"],
    )


def _refusal(source: str, reason: str) -> DocumentError:
    return DocumentError(
        f"{source} is not a speedrun_results.json of Marin: {reason}.",
        why="The importer reads six known formats and does not guess.",
        fix="Use a file of one of the formats in site/reference/submission-files.md.",
    )


_NOT_ON_IT = "missing in the board's table"
_ABSENT = (
    "code",
    "environment",
    "data.tokenizer",
    "data.digest",
    "data.unique_tokens",
    "data.trained_tokens",
    "model.params_active",
    "model.params_non_embedding",
    "model.shape",
    "training",
    "tuning",
    "compute.cost_usd",
    "compute.hardware",
    "evaluation.digest",
    "evaluation.bytes",
    "evaluation.tokenizer_sha256",
    "seeds.seed",
    "seeds.nats",
    "seeds.started_at",
    "seeds.log_sha256",
    "seeds.curve",
)


def import_marin_board(document: Any, *, source: str) -> list[Submission]:
    """Return each entry of the board's table, in order; `DocumentError` names the first malformed one."""
    if not isinstance(document, list):
        raise _board_refusal(source, "the file is not a list")
    return [_entry(entry, number=number, source=source) for number, entry in enumerate(document, start=1)]


def _entry(entry: Mapping[str, Any], *, number: int, source: str) -> Submission:
    try:
        return _board_submission(entry, source=f"{source}, entry {number}")
    except KeyError as error:
        raise _board_refusal(source, f"entry {number} has no key {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _board_refusal(source, f"entry {number}, {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    except (TypeError, ValueError) as error:
        raise _board_refusal(source, f"entry {number} has a value of the wrong type ({error})") from error


def _board_submission(entry: Mapping[str, Any], *, source: str) -> Submission:
    seed = SeedResult(
        bits_per_byte=entry["eval_paloma_c4_en_bpb"],
        training_seconds=entry["training_time"],
        hardware_flops=entry["training_hardware_flops"],
        finished_at=moment(entry["run_completion_timestamp"]),
        log=entry["wandb_link"],
    )
    return Submission(
        name=entry["run_name"],
        track="fineweb-edu",
        description=entry["description"],
        authors=(author_of(entry["author"]),),
        data=Data(name="fineweb-edu"),
        model=Model(params_total=entry["model_size"]),
        compute=Compute(model_flops=entry["model_flops"]),
        evaluation=Evaluation(name="paloma/c4_en"),
        seeds=(seed,),
        absent=dict.fromkeys(_ABSENT, _NOT_ON_IT),
        imported_from=source,
    )


def _board_refusal(source: str, reason: str) -> DocumentError:
    return DocumentError(
        f"{source} is not a table of Marin's board: {reason}.",
        why="The importer reads the board's format and does not guess.",
        fix="Use the file runs.json of marin-community/speedrun.",
    )


_ROOT, _RESULTS = "speedrun", "speedrun_results.json"


def import_file(path: Path) -> list[Submission]:
    """Return the submissions in one of Marin's files; `DocumentError` names the fault."""
    document = load_strict(read_bytes(path), name=str(path))
    if isinstance(document, list):
        return import_marin_board(document, source=path.name)
    return [import_marin_results(document, name=submission_name(path), source=path.name)]


def submission_name(path: Path) -> str:
    """Return the name of a results file: its folders below `speedrun`, or its stem with `__` for `/`.

    >>> submission_name(Path("experiments/speedrun/muon_llama_scaling/130m/speedrun_results.json"))
    'muon_llama_scaling/130m'
    >>> submission_name(Path("muon_llama_scaling__130m.json"))
    'muon_llama_scaling/130m'
    """
    if path.name != _RESULTS:
        return path.stem.replace("__", "/")
    folders = path.resolve().parts[:-1]
    below = [position for position, name in enumerate(folders) if name == _ROOT]
    return "/".join(folders[below[-1] + 1 :]) if below and folders[below[-1] + 1 :] else folders[-1]
