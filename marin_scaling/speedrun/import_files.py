"""Read entries of other boards: a file of Marin's, or a public record of figures in CSV."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from marin_scaling.canonical_json import load_strict
from marin_scaling.errors import DocumentError
from marin_scaling.files import read_bytes
from marin_scaling.speedrun.import_marin import author_of, foreign_file, import_marin_results, moment, refusal
from marin_scaling.speedrun.submission import (
    Author,
    Compute,
    Data,
    Evaluation,
    Model,
    SeedResult,
    Submission,
    missing_keys,
)
from marin_scaling.strict_model import Part, fault_text
from marin_scaling.untrusted_text import Link


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
    if not isinstance(document, list) or not any(isinstance(each, Mapping) and "run_name" in each for each in document):
        raise foreign_file(source, "it is no list of entries with a run_name")
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
    try:
        document = load_strict(raw, name=str(path))
    except DocumentError as error:
        raise foreign_file(str(path), error.what.removeprefix(f"{path} is not a valid document: ").rstrip(".")) from error
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


_MOST_ENTRIES = 2000
_NUMBERS = ("params", "tokens", "model_flops", "hardware_flops", "bits_per_byte", "training_seconds")
COLUMNS = ("run", "authors", *_NUMBERS, "finished_at", "log", "source")
"""Columns of a public record."""


class _Source(Part):
    source: Link


def read_public_record(path: Path) -> tuple[list[Submission], str]:
    """Return the entries of a public record of another board, and the address of its figures.

    `DocumentError` names line and key of what cannot stand there.
    """
    rows = list(_rows(path))
    found = [_public_submission(row, track=path.stem, where=f"{path}, line {line}") for line, row in rows]
    names = Counter(each.name for each in found)
    (name, count), *_ = names.most_common(1)
    if count > 1:
        raise _refused(f"{path}: the run {name!r} has {count} rows")
    return found, rows[0][1]["source"]


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        reader = csv.DictReader(io.StringIO(read_bytes(path).decode("utf-8"), newline=""), strict=True)
        rows = [(reader.line_num, row) for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise _refused(f"{path} is not CSV in UTF-8: {error}") from error
    if tuple(reader.fieldnames or ()) != COLUMNS or any(None in row or None in row.values() for _, row in rows):
        raise _refused(f"{path} has other columns than {','.join(COLUMNS)}")
    if not 0 < len(rows) <= _MOST_ENTRIES:
        raise _refused(f"{path} has {len(rows)} entries, not 1 to {_MOST_ENTRIES}")
    yield from rows


def _public_submission(row: Mapping[str, str], *, track: str, where: str) -> Submission:
    """Return an entry as a submission, in which all that the record does not have is absent."""
    try:
        numbers: dict[str, Any] = {name: float(row[name]) if row[name] else None for name in _NUMBERS}
        source = _Source(source=row["source"])
        seed = SeedResult(
            bits_per_byte=numbers["bits_per_byte"],
            training_seconds=numbers["training_seconds"],
            hardware_flops=numbers["hardware_flops"],
            finished_at=datetime.fromisoformat(row["finished_at"]) if row["finished_at"] else None,
            log=row["log"] or source.source,
        )
        parts: dict[str, Any] = {
            "name": row["run"],
            "track": track,
            "authors": tuple(Author(name=name) for name in row["authors"].split("; ")),
            "data": Data(name=track, trained_tokens=None if numbers["tokens"] is None else int(numbers["tokens"])),
            "model": Model(params_total=int(numbers["params"])),
            "compute": Compute(model_flops=numbers["model_flops"]),
            "evaluation": Evaluation(name=track),
            "seeds": (seed,),
        }
        missing = missing_keys(Submission.model_construct(**parts))
        return Submission(**parts, absent=dict.fromkeys(missing, "not in the public record"))
    except ValidationError as error:
        raise _refused(f"{where}: {fault_text(error)}") from error
    except (ValueError, TypeError, OverflowError) as error:
        raise _refused(f"{where}: {error}") from error


def _refused(what: str) -> DocumentError:
    return DocumentError(
        f"{what}.",
        why="A public record has one entry a line, with the figures of its source.",
        fix=f"Correct the file. Its first line is {','.join(COLUMNS)}; a cell may be empty.",
    )
