"""Page of one speedrun submission: figures, findings, commands and citation."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from marin_scaling.canonical_json import leaves
from marin_scaling.errors import MarinScalingError
from marin_scaling.markdown import cell, page_name, web_link
from marin_scaling.printable import JOINED, joined
from marin_scaling.publish.charts import curve_chart
from marin_scaling.publish.figures import picture_files, render, show_pictures
from marin_scaling.run.store import read_run, records_by_log
from marin_scaling.speedrun.checks import Validated
from marin_scaling.speedrun.entry import entry_of
from marin_scaling.speedrun.leaderboard import BoardRow, finished_at
from marin_scaling.speedrun.submission import SUBMISSION_NAME, Code, SeedResult, Submission, to_bytes
from marin_scaling.speedrun.track import SPEEDRUNS_DIR
from marin_scaling.units import format_count, format_flops, format_number

_ENDS_OF_BIBTEX = str.maketrans("", "", "{}\\%$#&~^")
"""Removes the characters that could end a BibTeX field."""
_NORMAL_95 = 1.959964
_REPOSITORY = re.compile(r"https?://[\w.-]+/[\w.-]+/([A-Za-z0-9][\w.-]*?)(?:\.git)?/?")  # on a code forge


def pages_of(validated: Sequence[Validated]) -> dict[str, str]:
    """Return the page of each submission, by name; all lie in one folder, with `~` in place of `/`."""
    return {each.submission.name: f"{page_name(each.submission.name.replace('/', '~'))}.md" for each in validated}


def submission_page(
    validated: Validated,
    *,
    entry: BoardRow | None,
    parent: Submission | None,
    names: Mapping[str, str],
    folder: str,
    recorded: Mapping[str, Path],
) -> dict[str, bytes]:
    """Return the page, drawing and document of a submission, by path.

    `entry` is None for a refused one, `parent` if it has none. `names` are the pages of all submissions; `recorded` maps
    curve digests to run folders.
    """
    each = validated.submission
    stem = names[each.name].removesuffix(".md")
    document, (metric, curves) = f"{stem}.submission.json", curves_of(each, recorded)
    chart = curve_chart(curves, metric=metric)
    text = render(
        "submission.md.j2",
        title=each.name,
        each=each,
        entry=entry,
        parent=parent,
        names=names,
        document=document,
        authors=joined(author.name for author in each.authors),
        figures=[*_figures(each), ["verification", validated.verification]],
        recorded=validated.recorded,
        confirmation=validated.confirmation,
        seeds=list(map(_seed_row, each.seeds)),
        drawing=show_pictures(stem, {"curves": "Loss by step, a line for each seed"}) if chart else "",
        findings=[[found.severity, found.code, found.where, found.message] for found in validated.findings],
        differences=_differences(each, parent) if parent else [],
        gained=_gained(each, parent) if parent else "",
        configuration=_configuration(each),
        absent=[[cell(key), why] for key, why in sorted(each.absent.items())],
        commands=rerun_commands(each),
        commit=each.code.commit if each.code and entry_of(each) else None,
        citation=_citation(each),
    )
    pictures = picture_files({"curves": chart} if chart else {}, page_stem=f"{folder}/{stem}")
    return {f"{folder}/{stem}.md": text.encode(), f"{folder}/{document}": to_bytes(each), **pictures}


def _figures(each: Submission) -> list[list[str]]:
    hardware, compute = each.compute.hardware, each.compute
    return [
        ["track", each.track],
        ["parameters", format_count(each.model.params_total)],
        ["active parameters", _known(each.model.params_active, format_count)],
        ["trained tokens", _known(each.data.trained_tokens, format_count)],
        ["epochs", _known(each.epochs, "{:.3g}".format)],
        ["model FLOPs", f"{format_flops(compute.model_flops)} ({compute.model_flops_formula})"],
        *_counts_and_code(each),
        ["machine", "not known" if hardware is None else f"{hardware.chips} x {hardware.kind}"],
        ["hardware FLOPs", _known(each.hardware_flops, format_flops)],
        ["MFU", _known(each.mfu, "{:.3f}".format)],
        ["seconds of training", _known(each.training_seconds, "{:.6g}".format)],
        ["cost in US dollars", _known(compute.cost_usd, "{:.2f}".format)],
        ["measured on", each.evaluation.name],
        ["runs made to choose the settings", "not known" if each.tuning is None else str(each.tuning.trials)],
    ]


def _counts_and_code(each: Submission) -> list[list[str]]:
    """Return XLA's FLOPs and the digest of the code of an entry with a model of its own."""
    gradients, whole = each.compute.xla_gradient_flops, each.compute.xla_flops
    rows = []
    if gradients is not None and whole is not None:
        rows += [["FLOPs by XLA", f"{format_flops(gradients)} in gradients, {format_flops(whole)} with the optimizer"]]
    if each.has_code and each.code is not None:
        rows += [["Python code", f"next to {each.code.path}, SHA-256 {each.code.tree_sha256}; read it before you run it"]]
    return rows


def _known(value: Any, shown: Any) -> str:
    return "not known" if value is None else str(shown(value))


def _seed_row(seed: SeedResult) -> list[str]:
    return [
        "not recorded" if seed.seed is None else str(seed.seed),
        f"{seed.bits_per_byte:.6g}",
        _known(seed.training_seconds, "{:.6g}".format),
        _known(seed.finished_at, "{:%Y-%m-%d %H:%M}".format),
        web_link("log", seed.log) if seed.log else "",
    ]


def _differences(each: Submission, parent: Submission) -> list[list[str]]:
    """Return every setting in which the two differ, whether or not the author lists it."""
    before, after = (dict(_settings(one)) for one in (parent, each))
    keys = [key for key in sorted(before | after) if before.get(key) != after.get(key)]
    return [[cell(key), cell(before.get(key, "")), cell(after.get(key, ""))] for key in keys]


def _gained(each: Submission, parent: Submission) -> str:
    """Return the difference of the means, with a 95 % interval if both have several seeds."""
    difference = f"{each.bits_per_byte - parent.bits_per_byte:+.4f}"
    if each.standard_error is None or parent.standard_error is None:
        return f"{difference} bits per byte; the seed-to-seed noise is unknown"
    within = _NORMAL_95 * math.hypot(each.standard_error, parent.standard_error)
    return f"{difference} ± {within:.4f} bits per byte, 95 %"


def _settings(each: Submission) -> Iterator[tuple[str, str]]:
    """Yield settings by dotted key, without results and authors."""
    parts = each.model_dump(mode="json", include={"data", "model", "training", "evaluation"}, exclude_none=True)
    return ((key, json.dumps(value)) for key, value in leaves({**parts, "model_flops": each.compute.model_flops}))


def _configuration(each: Submission) -> str:
    training = each.training.model_dump(mode="json") if each.training else {}
    shown = {"model": each.model.config or (each.model.shape.model_dump() if each.model.shape else {}), "training": training}
    return json.dumps(shown, indent=1) if any(shown.values()) else ""


def commands_of(code: Code | None) -> str:
    """Return the commands that rerun the code; empty if unknown."""
    if code is None:
        return ""
    repository = _REPOSITORY.fullmatch(code.repository or "") if code.commit else None
    clone = f"git clone {repository[0]} && cd {repository[1]}" if repository else ""
    return "\n".join(filter(None, [clone, f"git checkout {code.commit}" if code.commit else "", code.command or ""]))


def rerun_commands(each: Submission) -> str:
    """Return the commands that rerun a submission: the comparison with its entry here, else those of its code."""
    if entry_of(each) is not None:
        runs_code = " --run-code" if each.has_code else ""
        return f"marin-scale speedrun confirm {SPEEDRUNS_DIR}/{each.name}/{SUBMISSION_NAME}{runs_code}"
    return commands_of(each.code)


def _citation(each: Submission) -> str:
    moment, authors = finished_at(each), [author.name for author in each.authors]
    fields = {
        "title": f"{each.name}, a speedrun submission",
        "author": " and ".join([*authors[:JOINED], *(["others"] if len(authors) > JOINED else [])]),
        "year": f"{moment:%Y}" if moment else None,
        "note": f"{each.bits_per_byte:.4f} bits per byte, {format_number(each.compute.model_flops, 4)} model FLOPs",
    }
    body = "".join(f"  {key} = {{{value.translate(_ENDS_OF_BIBTEX)}}},\n" for key, value in fields.items() if value)
    return f"@misc{{{each.name.replace('/', '-')},\n{body}}}"


Points = Sequence[tuple[float, float]]
"""Curve of (step, loss) pairs."""
_MOST_POINTS = 200
_HELD_OUT, _TRAINING = "bits per byte of the held-out text", "training loss, nats a token"


def recorded_curves(runs_dir: Path) -> dict[str, Path]:
    """Return the folders of the recorded runs, by the digest of their curve."""
    return {digest: records[-1].folder for digest, records in records_by_log(runs_dir).items()}


def curves_of(submission: Submission, recorded: Mapping[str, Path]) -> tuple[str, dict[str, Points]]:
    """Return the metric and the curve of each seed that has one, thinned to 200 points.

    Held-out losses if the submission states them, else recorded training losses.
    """
    stated = {
        _label(seed, number): [(float(at.step), at.bits_per_byte) for at in seed.curve]
        for number, seed in enumerate(submission.seeds, start=1)
    }
    metric = _HELD_OUT if any(stated.values()) else _TRAINING
    if metric is _TRAINING:
        stated = {_label(seed, number): _recorded(seed, recorded) for number, seed in enumerate(submission.seeds, start=1)}
    return metric, {label: thinned(points) for label, points in stated.items() if points}


def _label(seed: SeedResult, number: int) -> str:
    return f"run {number}" if seed.seed is None else f"seed {seed.seed}"


def _recorded(seed: SeedResult, recorded: Mapping[str, Path]) -> list[tuple[float, float]]:
    folder = recorded.get(seed.log_sha256 or "")
    if folder is None:
        return []
    try:
        rows = read_run(folder).history().rows
    except MarinScalingError:
        return []  # its ladder's page shows the reason
    return [(row.step, row.train_loss_nats_per_token) for row in rows if row.train_loss_nats_per_token is not None]


def thinned(points: Points) -> Points:
    """Return at most 200 means over neighbours.

    >>> thinned([(0, 3.0), (1, 2.0)])
    [(0, 3.0), (1, 2.0)]
    """
    if len(points) <= _MOST_POINTS:
        return points
    edges = [round(number * len(points) / _MOST_POINTS) for number in range(_MOST_POINTS + 1)]
    groups = [points[start:end] for start, end in pairwise(edges)]
    return [(fmean(step for step, _ in group), fmean(loss for _, loss in group)) for group in groups]
