"""Entries with a model and an optimizer by Levanter's names, or of classes in a Python file next to the entry.

Parameters and FLOPs of such a model are counted in a process of its own, because its classes and the code of the entry have
to run for that.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from marin_scaling.canonical_json import dump_canonical
from marin_scaling.data.tokenizer import load_tokenizer
from marin_scaling.errors import DocumentError, missing_extra
from marin_scaling.files import read_bytes
from marin_scaling.run.plan import OwnPlan
from marin_scaling.run.spec import BatchStage, OwnModelSpec, OwnOptimizerSpec
from marin_scaling.untrusted_files import child_environment, python_module

MOST_CODE_BYTES = 256 * 1024
"""Largest Python file of an entry, which is stored in the record of each run."""
_QUOTED_LINES = 5
_LEVANTER_LINE = "I20"  # of a log line


@dataclass(frozen=True, kw_only=True)
class OwnClasses:
    """Model, optimizer and steps of an entry that names their classes; `code` is the name of its Python file."""

    model: Mapping[str, JsonValue]
    optimizer: Mapping[str, JsonValue]
    code: str | None
    batch_stages: tuple[BatchStage, ...]
    steps: int
    z_loss_weight: float
    tokenizer: str
    end_token: str | None


def own_plan(entry: OwnClasses, *, path: Path) -> OwnPlan:
    """Return the plan of an entry whose file is `path`; this runs the entry's code.

    `DocumentError` for an unknown name or setting, or if the code raises; `MissingExtra` without Levanter.
    """
    if importlib.util.find_spec("levanter") is None:
        raise missing_extra("train", needed_for="an entry that names its model")
    stages = entry.batch_stages
    code = _code(entry, path)
    sizes = sorted({stage.value for stage in stages})
    found = _counted(
        {
            "model": dict(entry.model),
            "optimizer": dict(entry.optimizer),
            "code": code,
            "code_name": entry.code or "",
            "vocab_size": load_tokenizer(entry.tokenizer, end_token=entry.end_token).identity.size,
            "batch_sizes": sizes,
            "train_steps": entry.steps,
            "z_loss_weight": entry.z_loss_weight,
        },
        path=path,
    )
    steps = {size: _steps_with(size, stages, entry.steps) for size in sizes}
    gradients, whole = (sum(count * found["xla_flops"][str(size)][which] for size, count in steps.items()) for which in (0, 1))
    return OwnPlan(
        model=OwnModelSpec.model_validate(found["model"]),
        optimizer=OwnOptimizerSpec.model_validate(found["optimizer"]),
        code=code,
        batch_size=sizes[-1],
        batch_schedule=stages if len(stages) > 1 else (),
        train_steps=entry.steps,
        xla_flops=whole,
        xla_gradient_flops=gradients,
        whole_settings=found["whole_settings"],
    )


def _steps_with(size: int, stages: tuple[BatchStage, ...], train_steps: int) -> int:
    """Return the number of steps with a batch size.

    >>> _steps_with(16, (BatchStage(start=0, value=8), BatchStage(start=10, value=16)), 30)
    20
    """
    ends = [*(stage.start for stage in stages[1:]), train_steps]
    return sum(
        max(0, min(end, train_steps) - stage.start) for stage, end in zip(stages, ends, strict=True) if stage.value == size
    )


def _code(entry: OwnClasses, path: Path) -> str | None:
    if entry.code is None:
        return None
    where = path.parent / entry.code
    raw = read_bytes(where)
    if len(raw) > MOST_CODE_BYTES:
        raise DocumentError(
            f"{where} has {len(raw)} bytes, more than {MOST_CODE_BYTES}.",
            why="The code is stored in the record of each run.",
            fix="Shorten it, or publish it as a package that the readers of the board can install.",
        )
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DocumentError(f"{where} is not UTF-8 text: byte {error.start}.", fix="Store it as UTF-8.") from error


def _counted(question: Mapping[str, Any], *, path: Path) -> dict[str, Any]:
    """Return the answer of `train.type_counts`; its faults are raised with the entry's path in front."""
    done = subprocess.run(
        python_module("marin_scaling.train.type_counts"),
        env=child_environment(os.environ | {"JAX_PLATFORMS": "cpu"}),
        input=dump_canonical(question),
        capture_output=True,
        check=False,
    )
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        lines = [line for line in done.stderr.decode(errors="replace").splitlines() if not line.startswith(_LEVANTER_LINE)]
        raise DocumentError(
            (f"{path}: counting its model ended with status {done.returncode}, without an answer.", *lines[-_QUOTED_LINES:]),
            fix="Correct the entry or its code; the code must not end the process.",
        ) from error
    if fault := answer.get("fault"):
        raise DocumentError(tuple(fault["what"]), why=fault["why"], fix=fault["fix"]).at(str(path))
    return answer
