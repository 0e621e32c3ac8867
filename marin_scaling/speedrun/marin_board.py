"""Submissions from the table of Marin's old board (`data/runs.json`): 96, each with a few figures and no configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from marin_scaling.errors import DocumentError
from marin_scaling.speedrun.marin_results import author_of, moment
from marin_scaling.speedrun.submission import Compute, Data, Evaluation, Model, SeedResult, Submission

_NOT_ON_IT = "the board's table did not have it"
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
    """Each entry of the table, in its order; `DocumentError` names the first that is malformed."""
    if not isinstance(document, list):
        raise _refusal(source, "it is no list")
    return [_entry(entry, number=number, source=source) for number, entry in enumerate(document, start=1)]


def _entry(entry: Mapping[str, Any], *, number: int, source: str) -> Submission:
    try:
        return _submission(entry, source=f"{source}, entry {number}")
    except KeyError as error:
        raise _refusal(source, f"entry {number} has no key {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _refusal(source, f"entry {number}, {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    except (TypeError, ValueError) as error:
        raise _refusal(source, f"entry {number} has values of another kind ({error})") from error


def _submission(entry: Mapping[str, Any], *, source: str) -> Submission:
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


def _refusal(source: str, reason: str) -> DocumentError:
    return DocumentError(
        f"{source} is no table of Marin's board: {reason}.",
        why="It is imported as it stands, and nothing is guessed.",
        fix="Name the file runs.json of marin-community/speedrun.",
    )
