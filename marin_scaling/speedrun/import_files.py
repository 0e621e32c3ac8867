"""Import a speedrun file of Marin's: results of one run, or the table of its old board."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from marin_scaling.canonical_json import load_strict
from marin_scaling.files import read_bytes
from marin_scaling.speedrun.import_marin import author_of, import_marin_results, moment, refusal
from marin_scaling.speedrun.submission import Compute, Data, Evaluation, Model, SeedResult, Submission


@dataclass(frozen=True, kw_only=True)
class Imported:
    """Submissions of a file, and a line for each skipped entry."""

    submissions: tuple[Submission, ...]
    problems: tuple[str, ...] = ()


_NOT_ON_IT = "the old board's table does not contain it"
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


def import_marin_board(document: Any, *, source: str) -> Imported:
    """Return the entries of the old board in order; `DocumentError` if the file is not a table."""
    if not isinstance(document, list):
        raise refusal(source, ["the file is not a list of entries"])
    made, problems = [], []
    for number, entry in enumerate(document, start=1):
        try:
            made.append(_board_submission(entry, source=f"{Path(source).name}, entry {number}"))
        except KeyError as error:
            problems.append(f"{source}: entry {number}: missing key {error}")
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            key = _BOARD_KEY_OF.get(str(first["loc"][-1]), ".".join(map(str, first["loc"])))
            problems.append(f"{source}: entry {number}: {key}: {first['msg']}")
        except (TypeError, ValueError, AttributeError) as error:
            problems.append(f"{source}: entry {number}: a value has the wrong type ({error})")
    return Imported(submissions=tuple(made), problems=tuple(problems))


_BOARD_KEY_OF = {
    "bits_per_byte": "eval_paloma_c4_en_bpb",
    "hardware_flops": "training_hardware_flops",
    "log": "wandb_link",
    "params_total": "model_size",
    "training_seconds": "training_time",
}


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


_ROOT, _RESULTS = "speedrun", "speedrun_results"


def import_file(path: Path) -> Imported:
    """Return the submissions in one of Marin's files; `DocumentError` names every wrong key."""
    raw = read_bytes(path)
    if found := _NO_NUMBER.search(raw):
        raise refusal(str(path), [f"{found[1].decode(errors='replace')}: {found[2].decode()}, so the run has no result"])
    document = load_strict(raw, name=str(path))
    if isinstance(document, list):
        return import_marin_board(document, source=str(path))
    made = import_marin_results(document, name=submission_name(path), source=str(path))
    return Imported(submissions=tuple(made))


_NO_NUMBER = re.compile(rb'"([^"\\\\]{1,100})"\s*:\s*(NaN|-?Infinity)')


def submission_name(path: Path) -> str:
    """Return the name of a results file: its folders below `speedrun`, or its own name with `__` for `/`.

    >>> submission_name(Path("experiments/speedrun/muon_llama_scaling/130m/speedrun_results.json"))
    'muon_llama_scaling/130m'
    >>> submission_name(Path("experiments/speedrun/llama_1_4b/speedrun_results_v5p64.json"))
    'llama_1_4b_v5p64'
    >>> submission_name(Path("muon_llama_scaling__130m.json"))
    'muon_llama_scaling/130m'
    """
    if not path.name.startswith(_RESULTS):
        return path.stem.replace("__", "/")
    folders, variant = path.resolve().parts[:-1], path.stem.removeprefix(_RESULTS)
    below = [position for position, name in enumerate(folders) if name == _ROOT]
    return ("/".join(folders[below[-1] + 1 :]) if below and folders[below[-1] + 1 :] else folders[-1]) + variant
