"""Models and optimizers by Levanter's registered names, and those that Python code of an entry registers."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
import linecache
import sys
import traceback
import types
from collections.abc import Mapping
from typing import Any

import draccus
import optax
from levanter.models.lm_model import LmConfig
from levanter.optim.config import OptimizerConfig

from marin_scaling.canonical_json import sha256_hex
from marin_scaling.errors import DocumentError, TrainingFailed
from marin_scaling.printable import joined, quoted
from marin_scaling.run.spec import OwnModelSpec, OwnOptimizerSpec, RunSpec

CODE_NAME = "entry_code"
"""Name of the module in which an entry's code runs."""


@functools.cache
def run_code(code: str, *, name: str = f"{CODE_NAME}.py") -> None:
    """Run Python code that registers models and optimizers, once in a process; `TrainingFailed` with the line if it raises."""
    module = types.ModuleType(f"{CODE_NAME}_{sha256_hex(code.encode())[:8]}")
    module.__file__ = name
    sys.modules[module.__name__] = module  # where dataclasses look for annotations
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    try:
        exec(compile(code, name, "exec", dont_inherit=True), vars(module))
    except BaseException as error:
        raise TrainingFailed(told(error, name), fix=f"Correct {name}.") from error


def told(error: BaseException, name: str) -> str:
    """Return the error of an entry's code with its line there."""
    if isinstance(error, SyntaxError):
        return f"{name}: line {error.lineno}: {error.msg}."
    lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == name]
    where = f"{name}: line {lines[-1]}:" if lines else "Levanter's classes fail with these settings:"
    return f"{where} {type(error).__name__}: {error}".rstrip(".") + "."


def model_of_type(spec: RunSpec, **defaults: Any) -> LmConfig:
    """Return the configuration of a spec's model; `defaults` hold for settings that the spec does not name."""
    assert isinstance(spec.model, OwnModelSpec)
    if spec.code:
        run_code(spec.code)
    config = decoded(LmConfig, "model", {"type": spec.model.type, **spec.model.settings})
    return with_fields(config, {key: value for key, value in defaults.items() if key not in spec.model.settings})


def optimizer_of_type(spec: RunSpec) -> Any:
    """Return the optimizer of a spec with its schedule; the same object for equal settings, so that runs share programs."""
    assert isinstance(spec.optimizer, OwnOptimizerSpec)
    if spec.code:
        run_code(spec.code)
    settings = json.dumps({"type": spec.optimizer.type, **spec.optimizer.settings}, sort_keys=True)
    return _built(settings, spec.train_steps)


@functools.cache
def _built(settings: str, train_steps: int) -> Any:
    config = decoded(OptimizerConfig, "optimizer", json.loads(settings))
    return optax.with_extra_args_support(config.build(train_steps))


def with_fields(config: Any, values: Mapping[str, Any]) -> Any:
    """Return a configuration with these values, as far as it has such fields."""
    known = {field.name for field in dataclasses.fields(config)}
    return dataclasses.replace(config, **{key: value for key, value in values.items() if key in known})


def decoded(kind: Any, key: str, settings: Mapping[str, Any]) -> Any:
    """Return Levanter's configuration; `DocumentError` with the fault of `settings`, the section `key`."""
    names = sorted(kind.get_known_choices())
    if (name := str(settings["type"])) not in names:
        near = joined(difflib.get_close_matches(name, names, n=3), separator=" or ")
        raise DocumentError(
            f"{key}.type: {name!r} is not registered{f'; did you mean {near}?' if near else '.'}",
            why=f"Levanter knows {', '.join(names)}.",
            fix="Name one of these, or register a class in the entry's code.",
        )
    fields = [field.name for field in dataclasses.fields(kind.get_choice_class(name))]
    why = f"The settings of {name} are {', '.join(fields)}."
    if unknown := [each for each in settings if each not in ("type", *fields)]:
        raise DocumentError(tuple(_unknown(key, each, fields) for each in unknown), why=why, fix=FIX_SECTION)
    try:
        return draccus.decode(kind, dict(settings))
    except Exception as error:  # whatever a class raises for its settings
        said = " ".join(str(error).split()) or type(error).__name__
        raise DocumentError(f"{key}: {said.rstrip('.')}.", why=why, fix=FIX_SECTION) from error


def _unknown(key: str, name: str, known: list[str]) -> str:
    near = joined(difflib.get_close_matches(name, known, n=1))
    return f"{key}.{quoted(name)}: unknown setting{f'; did you mean {near}?' if near else '.'}"


FIX_SECTION = "Change this section of the entry."
