"""The page of one speedrun submission: its figures, what was found when they were counted again, how to run and cite it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from marin_scaling.canonical_json import leaves
from marin_scaling.limits import JOINED, LISTED
from marin_scaling.markdown import bullets, cell, escape, link, page, page_name, preformatted, prose, table, web_link
from marin_scaling.printable import joined
from marin_scaling.publish.drawings import Curve, curve_drawing
from marin_scaling.speedrun.checks import Validated
from marin_scaling.speedrun.leaderboard import Entry, finished_at
from marin_scaling.speedrun.submission import Code, Submission, to_bytes
from marin_scaling.units import format_count, format_flops

_NORMAL_95 = 1.959964
_REPOSITORY = re.compile(r"https?://[\w.-]+/[\w.-]+/([A-Za-z0-9][\w.-]*?)(?:\.git)?/?")  # where a forge has it


def pages_of(validated: Sequence[Validated]) -> dict[str, str]:
    """The page of each submission, by its name: all in one folder, parts of a name apart by a sign that no name has."""
    return {each.submission.name: f"{page_name(each.submission.name.replace('/', '~'))}.md" for each in validated}


def submission_page(
    validated: Validated,
    *,
    entry: Entry | None,
    parent: Submission | None,
    names: Mapping[str, str],
    folder: str,
    curves: Sequence[Curve] = (),
) -> dict[str, bytes]:
    """The page, its drawing and the submission's own file, by path; `entry` is None of one that was refused, `parent` where it
    has none.
    """
    each, drawing = validated.submission, curve_drawing(curves)
    path, document = f"{folder}/{names[each.name]}", f"{_stem(each, names)}.submission.json"
    text = page(
        each.name,
        _headline(each, entry, names),
        prose(each.description),
        _figures(each),
        _seeds(each, document),
        f"![Loss by step, a line for each seed]({quote(_stem(each, names))}.curves.svg)" if drawing else "",
        _findings(validated),
        _changes(each, parent, names),
        _configuration(each, document),
        _absent(each, document),
        again_section(each.code),
        _cite(each),
        link("The submission itself", document),
    )
    files = {path: text.encode(), f"{folder}/{document}": to_bytes(each)}
    return files | ({f"{folder}/{_stem(each, names)}.curves.svg": drawing} if drawing else {})


def _stem(each: Submission, names: Mapping[str, str]) -> str:
    return names[each.name].removesuffix(".md")


def _headline(each: Submission, entry: Entry | None, names: Mapping[str, str]) -> str:
    by = escape(joined(author.name for author in each.authors))
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


def _seeds(each: Submission, document: str) -> str:
    rows = [
        [
            "not recorded" if seed.seed is None else str(seed.seed),
            f"{seed.bits_per_byte:.6g}",
            _known(seed.training_seconds, lambda value: f"{value:.6g}"),
            _known(seed.finished_at, lambda moment: f"{moment:%Y-%m-%d %H:%M}"),
            web_link("log", seed.log) if seed.log else "",
        ]
        for seed in each.seeds
    ]
    header = ["seed", "bits per byte", "seconds", "ended", "log"]
    return f"## Seeds\n\n{table(header, rows, right=[1, 2], most=LISTED, rest_in=document)}"


def _findings(validated: Validated) -> str:
    if not validated.findings:
        return "## What was found\n\nEvery figure was counted again, and nothing was found."
    rows = [[each.weight, escape(each.rule), escape(each.key), escape(each.said)] for each in validated.findings]
    header = ["weight", "rule", "key", "what was found"]
    shown = table(header, rows, most=LISTED, rest_in="marin-scale speedrun validate")
    return f"## What was found\n\nEvery figure was counted again.\n\n{shown}"


def _changes(each: Submission, parent: Submission | None, names: Mapping[str, str]) -> str:
    if each.lineage is None:
        return ""
    name = each.lineage.parent
    shown = link(name, names[name]) if name in names else escape(name)
    said = bullets(list(map(escape, each.lineage.changes)), rest_in=f"{_stem(each, names)}.submission.json")
    return "\n\n".join(filter(None, [f"## Made from {shown}", said, _differences(each, parent, names) if parent else ""]))


def _differences(each: Submission, parent: Submission, names: Mapping[str, str]) -> str:
    """Every setting in which the two differ, whatever their author says was changed."""
    before, after = (dict(_settings(one)) for one in (parent, each))
    rows = [
        [cell(key), cell(before.get(key, "")), cell(after.get(key, ""))]
        for key in sorted(before | after)
        if before.get(key) != after.get(key)
    ]
    gained = _gained(each, parent)
    header = ["setting", escape(parent.name), escape(each.name)]
    shown = table(header, rows, most=LISTED, rest_in=f"{_stem(each, names)}.submission.json")
    return f"What differs between the two ({gained}):\n\n{shown}" if rows else f"No setting differs ({gained})."


def _gained(each: Submission, parent: Submission) -> str:
    """The difference of the means, with what chance makes of it where both have several seeds."""
    difference = f"{each.bits_per_byte - parent.bits_per_byte:+.4f}"
    if each.standard_error is None or parent.standard_error is None:
        return f"{difference} bits per byte; what is chance in it is not known"
    within = _NORMAL_95 * math.hypot(each.standard_error, parent.standard_error)
    return f"{difference} ± {within:.4f} bits per byte, 95 %"


def _settings(each: Submission) -> Iterator[tuple[str, str]]:
    """Settings by dotted key; what was measured and who made it are none."""
    parts = each.model_dump(mode="json", include={"data", "model", "training", "evaluation"}, exclude_none=True)
    return ((key, json.dumps(value)) for key, value in leaves({**parts, "model_flops": each.compute.model_flops}))


def _configuration(each: Submission, document: str) -> str:
    training = each.training.model_dump(mode="json") if each.training else {}
    shown = {"model": each.model.config or (each.model.shape.model_dump() if each.model.shape else {}), "training": training}
    return f"## Configuration\n\n{preformatted(json.dumps(shown, indent=1), rest_in=document)}" if any(shown.values()) else ""


def _absent(each: Submission, document: str) -> str:
    rows = [[cell(key), escape(why)] for key, why in sorted(each.absent.items())]
    return f"## What is not known\n\n{table(['key', 'why'], rows, most=LISTED, rest_in=document)}" if rows else ""


def again_section(code: Code | None) -> str:
    """How to run it again: where to get which commit, and what to type; empty where neither is known."""
    if code is None:
        return ""
    repository = _REPOSITORY.fullmatch(code.repository or "") if code.commit else None
    clone = f"git clone {repository[0]} && cd {repository[1]}" if repository else ""
    shown = "\n".join(filter(None, [clone, f"git checkout {code.commit}" if code.commit else "", code.command or ""]))
    return f"## Run it again\n\n{preformatted(shown)}" if shown else ""


def _cite(each: Submission) -> str:
    moment, authors = finished_at(each), [author.name for author in each.authors]
    fields = {
        "title": f"{each.name}, a speedrun submission",
        "author": " and ".join([*authors[:JOINED], *(["others"] if len(authors) > JOINED else [])]),
        "year": f"{moment:%Y}" if moment else None,
        "note": f"{each.bits_per_byte:.4f} bits per byte, {each.compute.model_flops:.4g} model FLOPs",
    }
    body = "".join(f"  {key} = {{{_bibtex(value)}}},\n" for key, value in fields.items() if value)
    return f"## Cite it\n\n{preformatted(f'@misc{{{each.name.replace(chr(47), chr(45))},{chr(10)}{body}}}')}"


def _bibtex(text: str) -> str:
    """Without the signs by which a field would end."""
    return "".join(sign for sign in text if sign not in "{}\\%$#&~^")
