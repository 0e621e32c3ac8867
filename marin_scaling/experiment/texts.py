"""New experiments, and what their records say: a summary, and the texts of an issue and a pull request."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from marin_scaling.canonical_json import load_strict
from marin_scaling.data.filter import REPORT_NAME
from marin_scaling.errors import DocumentError, UsageError
from marin_scaling.experiment.checks import OwnRecords, figures, own_records
from marin_scaling.experiment.experiment import (
    EXPERIMENT_NAME,
    EXPERIMENTS_DIR,
    Experiment,
    Links,
    Outcome,
    read_experiment,
)
from marin_scaling.files import publish_folder, read_bytes, replace_file
from marin_scaling.forecast.data_comparison import LEAST_SEEDS
from marin_scaling.ladder.config import Data
from marin_scaling.ladder.plan import LAW_BUDGETS, Ladder, ladder_table
from marin_scaling.markdown import Markdown, cell, escape, preformatted, prose, table
from marin_scaling.printable import joined
from marin_scaling.run.plan import load_ladder
from marin_scaling.strict_model import fault_text
from marin_scaling.units import counted, format_count, format_flops, format_number
from marin_scaling.untrusted_files import is_present, program

ISSUE_NAME, PULL_REQUEST_NAME = "issue.md", "pull-request.md"
"""Files next to an experiment's with the texts to publish."""
_LONGEST_WAIT = 120.0  # seconds, for an answer of the forge


def new_experiment(
    name: str,
    *,
    title: str,
    hypothesis: str,
    ladders: Sequence[Path | str] = (),
    filters: Sequence[Path | str] = (),
    root: Path | str = ".",
) -> Path:
    """Write `experiments/NAME/` with the experiment, in progress, and the texts of its issue and pull request.

    `ladders` are files of ladders that the experiment trains, `filters` folders that `filter_corpus` wrote, which become steps.
    Return the folder. `DocumentError` for a name or text that an experiment cannot have, or a folder without a filter;
    `StorageError` if the folder exists.
    """
    planned = [load_ladder(path).plan() for path in ladders]
    command = "; ".join(f"marin-scale ladder {path}" for path in ladders)
    document: dict[str, Any] = {
        "name": name,
        "title": title,
        "outcome": Outcome.IN_PROGRESS.value,
        "hypothesis": hypothesis,
        **({"ladders": [ladder.file.name for ladder in planned], "code": {"command": command}} if planned else {}),
        **({"steps": [step for folder in filters for step in _filter_steps(Path(folder))]} if filters else {}),
    }
    raw = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120).encode()
    folder = Path(root) / EXPERIMENTS_DIR / name
    one = _checked(document, folder / EXPERIMENT_NAME)
    texts = {ISSUE_NAME: issue_text(one, planned), PULL_REQUEST_NAME: pull_request_text(one, OwnRecords())}
    publish_folder(folder, {EXPERIMENT_NAME: raw, **{each: text.encode() for each, text in texts.items()}})
    return folder


def _filter_steps(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield a step for each corpus that a filter wrote, with its digest."""
    path = folder / REPORT_NAME
    if not is_present(path):
        raise DocumentError(f"{path} does not exist.", fix="Give the folder that data filter wrote: --out FOLDER")
    found = load_strict(read_bytes(path), name=str(path))
    try:
        for part in (each for each in found["parts"] if each["file"]):
            yield {
                "name": f"{folder.name}/{part['name']}",
                "what": f"{part['documents']} documents, at most {found['keep']:.0%} of the text, by {found['labels']} labels",
                "data": list(found["corpus"]),
                "status": "succeeded",
                "output": str(folder / part["file"]),
                "output_sha256": part["sha256"],
            }
    except (KeyError, TypeError, ValueError) as error:
        raise DocumentError(f"{path} is not the report of a filter.", fix="Run the filter again.") from error


def _checked(document: dict[str, Any], path: Path) -> Experiment:
    if "/" in document["name"]:
        raise DocumentError(f"{document['name']!r} has a /, and names a folder.", fix="Use letters, digits and hyphens.")
    try:
        return Experiment.model_validate(document)
    except ValidationError as error:
        raise DocumentError(f"{path}: {fault_text(error, document)}.", fix="Change the named option.") from error


def write_pull_request(folder: Path | str) -> Path:
    """Write the text of an experiment's pull request again, from its file and the records of its runs; return its path.

    The issue stays as it was before the runs. `DocumentError` if the experiment is malformed, `UsageError` if there is none.
    """
    folder = Path(folder)
    path = folder / EXPERIMENT_NAME
    if not is_present(path):
        raise UsageError(f"{path} does not exist.", fix="Give the folder of an experiment, such as experiments/deeper.")
    one, root = read_experiment(path), folder.absolute().parents[1]
    place = folder / PULL_REQUEST_NAME
    replace_file(place, pull_request_text(one, own_records(one, root=root)).encode())
    return place


def issue_text(one: Experiment, ladders: Sequence[Ladder]) -> str:
    """Return the text of the issue that proposes an experiment: hypothesis, planned runs, data, and how it is judged."""
    parts = ["## Hypothesis", prose(one.hypothesis or "not stated"), "## Plan"]
    for ladder in ladders:
        parts += [_plan(ladder), preformatted(ladder_table(ladder))]
    parts += [] if ladders else ["No ladder is planned yet."]
    parts += ["## How it is judged", "\n".join(_judged(ladders)), "## Results", "None yet."]
    return "\n\n".join(parts) + "\n"


def pull_request_text(one: Experiment, records: OwnRecords) -> str:
    """Return the text of the pull request that reports an experiment: hypothesis, outcome, figures, and how to repeat it."""
    outcome = one.outcome or Outcome.NOT_EVALUATED
    parts = [f"**{outcome.value}**: {outcome.meaning}.", "## Hypothesis", prose(one.hypothesis or "not stated"), "## Results"]
    parts += ["\n".join(f"* {escape(line)}" for line in summary(one, records)) or "No run is recorded yet."]
    parts += [_figures(records)] if records.runs else []
    parts += ["## Conclusion", prose(one.conclusion or "open")]
    if one.code and one.code.command:
        parts += ["## Again", preformatted("\n".join(one.code.command.split("; ")))]
    return "\n\n".join(parts) + "\n"


def summary(one: Experiment, records: OwnRecords) -> list[str]:
    """Return what the records say in a line each: the runs of each ladder with the lowest loss, and the forecast's outcome."""
    lines = [_of_ladder(name, records) for name in one.ladders if any(run.spec.ladder == name for run in records.runs)]
    outcomes = [(step.what or "").rpartition(": ")[2] for step in records.steps if step.name == "outcome"]
    lines += [f"The forecast {one.preregistration}: {verdict}." for verdict in outcomes]
    return lines


def _of_ladder(name: str, records: OwnRecords) -> str:
    found = [each for each in figures(records.runs) if each.ladder == name]
    budgets = sorted({each.budget_flops for each in found})
    runs, diverged = sum(each.seeds for each in found), sum(each.diverged for each in found)
    of = f"{format_flops(budgets[0])} to {format_flops(budgets[-1])}" if len(budgets) > 1 else format_flops(budgets[0])
    told = f"{name}: {counted(runs, 'run')} of {of} FLOPs{f', {diverged} diverged' if diverged else ''}"
    measured = [each for each in found if each.mean_loss is not None]
    if not measured:
        return f"{told}."
    best = min(measured, key=lambda each: each.mean_loss or 0.0)
    error = f" +- {format_number(best.standard_error, 2)}" if best.standard_error else ""
    unit = best.metric.replace("_", " ")
    return (
        f"{told}; the lowest loss is {format_number(best.mean_loss or 0.0, 5)}{error} {unit}, of "
        f"{format_count(best.params)} parameters and {format_count(best.trained_tokens)} tokens."
    )


def _figures(records: OwnRecords) -> Markdown:
    rows = [
        [
            cell(each.ladder),
            format_flops(each.budget_flops),
            format_count(each.params),
            str(each.seeds),
            "diverged" if each.mean_loss is None else format_number(each.mean_loss, 5),
        ]
        for each in figures(records.runs)
    ]
    return table(["ladder", "FLOPs", "parameters", "seeds", "mean loss"], rows, right=[1, 2, 3, 4])


def _plan(ladder: Ladder) -> Markdown:
    file = ladder.file
    return Markdown(f"Ladder {cell(file.name)} of recipe {cell(file.recipe)}, on {escape(_described(file.data))}:")


def _described(data: Data) -> str:
    """Return the name of the training text, with the weights of a mix."""
    mixes = [joined(f"{name} {weight:.4g}" for name, weight in phase.mix.items()) for phase in data.mixes]
    return f"{data.source} ({', then '.join(mixes)})" if mixes else data.source


def _judged(ladders: Sequence[Ladder]) -> Iterator[str]:
    """Yield the commands that judge the experiment: of a forecast, and of a comparison of recipes or texts."""
    files = [ladder.file for ladder in ladders]
    for file in files:
        if len({rung.budget_flops for rung in file.rungs}) >= LAW_BUDGETS:
            command = f"`marin-scale preregister ladders/{file.name}.yaml`"
            yield f"* Before the target is trained, its loss is forecast and signed: {command}"
    if len(files) > 1:
        are_texts = all(file.recipe == files[0].recipe and file.rungs == files[0].rungs for file in files)
        command = "data compare" if are_texts and min(len(file.seeds) for file in files) >= LEAST_SEEDS else "speedup"
        yield f"* The ladders are compared: `marin-scale {command} {' '.join(f'runs/{file.name}' for file in files)}`"
    if not files:
        yield "Write here which measurement would show that the hypothesis is wrong."


def open_issue(folder: Path | str) -> str:
    """Open an experiment's issue with GitHub's `gh`, write its address into the experiment, and return it.

    `UsageError` if `gh` is missing or fails, or if the experiment has links already.
    """
    folder = Path(folder)
    path = folder / EXPERIMENT_NAME
    one, arguments = read_experiment(path), ["issue", "create", "--title"]
    if one.links != Links():
        raise UsageError(f"{path} has links already.", fix="Open the issue by hand, and add its address to them.")
    try:
        done = subprocess.run(
            ["gh", *arguments, one.title, "--body-file", str(folder / ISSUE_NAME)],
            executable=program("gh"),
            capture_output=True,
            text=True,
            check=False,
            timeout=_LONGEST_WAIT,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = f"gh did not answer: {error}"
    else:
        reason = done.stderr.strip() if done.returncode else ""
    if reason:
        raise UsageError(f"The issue was not opened: {reason}.", fix=f"Paste {folder / ISSUE_NAME} into a new issue.")
    address = done.stdout.strip()
    replace_file(path, read_bytes(path).rstrip() + f"\nlinks: {{issue: {address}}}\n".encode())
    return address
