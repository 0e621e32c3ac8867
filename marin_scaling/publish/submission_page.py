"""The page of one speedrun submission: its figures, what was found when they were counted again, how to run and cite it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from marin_scaling.publish.markdown import escape, link, page, page_name, preformatted, table
from marin_scaling.speedrun.board import Entry, finished_at
from marin_scaling.speedrun.submission import Submission
from marin_scaling.speedrun.submission_file import to_bytes
from marin_scaling.speedrun.validate import Validated
from marin_scaling.units import format_count, format_flops


def pages_of(validated: Sequence[Validated]) -> dict[str, str]:
    """The page of each submission, by its name: all in one folder, parts of a name apart by a sign that no name has."""
    return {each.submission.name: f"{page_name(each.submission.name.replace('/', '~'))}.md" for each in validated}


def submission_page(validated: Validated, *, entry: Entry | None, names: Mapping[str, str], folder: str) -> dict[str, bytes]:
    """The page and the submission's own file, by path; `entry` is None of one that was refused."""
    each = validated.submission
    path = f"{folder}/{names[each.name]}"
    text = page(
        each.name,
        _headline(each, entry, names),
        escape(each.description),
        _figures(each),
        _seeds(each),
        _findings(validated),
        _changes(each, names),
        _configuration(each),
        _absent(each),
        _again(each),
        _cite(each),
        link("The submission itself", f"{_stem(each, names)}.submission.json"),
    )
    return {path: text.encode(), f"{folder}/{_stem(each, names)}.submission.json": to_bytes(each)}


def _stem(each: Submission, names: Mapping[str, str]) -> str:
    return names[each.name].removesuffix(".md")


def _headline(each: Submission, entry: Entry | None, names: Mapping[str, str]) -> str:
    by = escape(", ".join(author.name for author in each.authors))
    said = f"{each.bits_per_byte:.4f} bits per byte for {format_flops(each.compute.model_flops)} model FLOPs, by {by}"
    if entry is None:
        return f"**Refused.** {said}; something in it cannot be so."
    if entry.on_front:
        return f"**On the front** of {escape(', '.join(entry.on_front))}: {said}."
    beaten = f"; {link(entry.beaten_by, names[entry.beaten_by])} is as cheap and better" if entry.beaten_by else ""
    return f"{said[0].upper()}{said[1:]}{beaten}."


def _figures(each: Submission) -> str:
    hardware, trained = each.compute.hardware, each.data.trained_tokens
    machine = None if hardware is None else f"{hardware.chips} x {hardware.kind}"
    rows = [
        ["track", each.track],
        ["parameters", format_count(each.model.params_total)],
        ["active parameters", _known(each.model.params_active, format_count)],
        ["trained tokens", _known(trained, format_count)],
        ["epochs", _known(each.epochs, lambda value: f"{value:.3g}")],
        ["model FLOPs", f"{format_flops(each.compute.model_flops)} ({each.compute.model_flops_formula})"],
        ["machine", machine or "not known"],
        ["hardware FLOPs", _known(each.hardware_flops, format_flops)],
        ["MFU", _known(each.mfu, lambda value: f"{value:.3f}")],
        ["seconds of training", _known(each.training_seconds, lambda value: f"{value:.6g}")],
        ["cost in US dollars", _known(each.compute.cost_usd, lambda value: f"{value:.2f}")],
        ["measured on", each.evaluation.name],
        ["verification", each.verification.level],
    ]
    return f"## What it cost\n\n{table(['what', 'value'], [[what, escape(value)] for what, value in rows])}"


def _known(value: Any, said: Any) -> str:
    return "not known" if value is None else str(said(value))


def _seeds(each: Submission) -> str:
    rows = [
        [
            "not recorded" if seed.seed is None else str(seed.seed),
            f"{seed.bits_per_byte:.6g}",
            _known(seed.training_seconds, lambda value: f"{value:.6g}"),
            _known(seed.finished_at, lambda moment: f"{moment:%Y-%m-%d %H:%M}"),
            f"[log](<{seed.log}>)" if seed.log else "",
        ]
        for seed in each.seeds
    ]
    return f"## Seeds\n\n{table(['seed', 'bits per byte', 'seconds', 'ended', 'log'], rows, right=[1, 2])}"


def _findings(validated: Validated) -> str:
    if not validated.findings:
        return "## What was found\n\nEvery figure was counted again, and nothing was found."
    rows = [[each.weight, escape(each.rule), escape(each.key), escape(each.said)] for each in validated.findings]
    return f"## What was found\n\nEvery figure was counted again.\n\n{table(['weight', 'rule', 'key', 'what was found'], rows)}"


def _changes(each: Submission, names: Mapping[str, str]) -> str:
    if each.lineage is None:
        return ""
    parent = each.lineage.parent
    shown = link(parent, names[parent]) if parent in names else escape(parent)
    return f"## Made from {shown}\n\n" + "\n".join(f"- {escape(change)}" for change in each.lineage.changes)


def _configuration(each: Submission) -> str:
    training = each.training.model_dump(mode="json") if each.training else {}
    shown = {"model": each.model.config or (each.model.shape.model_dump() if each.model.shape else {}), "training": training}
    return f"## Configuration\n\n{preformatted(json.dumps(shown, indent=1))}" if any(shown.values()) else ""


def _absent(each: Submission) -> str:
    rows = [[escape(key), escape(why)] for key, why in sorted(each.absent.items())]
    return f"## What is not known\n\n{table(['key', 'why'], rows)}" if rows else ""


def _again(each: Submission) -> str:
    code = each.code
    if code is None or (code.command is None and code.commit is None):
        return ""
    lines = [f"git checkout {code.commit}"] if code.commit else []
    return f"## Run it again\n\n{preformatted(chr(10).join([*lines, *([code.command] if code.command else [])]))}"


def _cite(each: Submission) -> str:
    moment = finished_at(each)
    fields = {
        "title": f"{each.name}, a speedrun submission",
        "author": " and ".join(author.name for author in each.authors),
        "year": f"{moment:%Y}" if moment else None,
        "note": f"{each.bits_per_byte:.4f} bits per byte, {each.compute.model_flops:.4g} model FLOPs",
    }
    body = "".join(f"  {key} = {{{_bibtex(value)}}},\n" for key, value in fields.items() if value)
    return f"## Cite it\n\n{preformatted(f'@misc{{{each.name.replace(chr(47), chr(45))},{chr(10)}{body}}}')}"


def _bibtex(text: str) -> str:
    """Without the signs by which a field would end."""
    return "".join(sign for sign in text if sign not in "{}\\%$#&~^")
