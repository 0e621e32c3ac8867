"""Pages of experiments and their index."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

from marin_scaling.canonical_json import leaves
from marin_scaling.experiment.checks import (
    Figure,
    OwnRecords,
    addresses,
    audit,
    figures,
    known_in,
    own_records,
    record_findings,
)
from marin_scaling.experiment.experiment import (
    EXPERIMENTS_DIR,
    Experiment,
    Found,
    Metric,
    Outcome,
    Step,
    read_experiments,
    to_line,
)
from marin_scaling.findings import Finding, Weight
from marin_scaling.limits import FAULTS_NAMED, JOINED, LISTED
from marin_scaling.markdown import (
    bullets,
    cell,
    escape,
    link,
    listed,
    malformed_section,
    page,
    page_name,
    preformatted,
    prose,
    table,
    web_link,
    whole,
)
from marin_scaling.printable import joined
from marin_scaling.publish.drawings import duration, steps_drawing
from marin_scaling.publish.submission_page import again_section
from marin_scaling.speedrun.submission import Author
from marin_scaling.units import counted, format_count, format_flops

FOLDER = "experiments"
"""Of these pages, below the generated ones."""


@dataclass(frozen=True, kw_only=True)
class Reported:
    """An experiment with what was found of it, and what its own runs say."""

    experiment: Experiment
    findings: Sequence[Finding]
    records: OwnRecords

    replaced_by: Sequence[Experiment] = ()
    """Experiments that say they supersede it."""

    @property
    def steps(self) -> list[Step]:
        """Those of its records, then those that were written down."""
        return [*self.records.steps, *self.experiment.steps]

    @property
    def document_name(self) -> str:
        """The name of the file that has all of it, beside its page."""
        return f"{page_stem(self.experiment)}.experiment.json"

    @cached_property
    def settings(self) -> dict[str, Any]:
        """By dotted key; what its records say is believed."""
        stated = leaves(self.experiment.configuration) if self.experiment.configuration else ()
        return dict(stated) | dict(self.records.shared)


def page_stem(each: Experiment) -> str:
    """The name of its page, without an ending."""
    return page_name(each.name.replace("/", "~"))


def experiment_page(each: Reported, reported: Mapping[str, Reported], *, linked: Collection[str]) -> dict[str, bytes]:
    """Its page, drawing and document by path; `reported` are all of them by name, `linked` other generated pages by path."""
    one, stem = each.experiment, page_stem(each.experiment)
    drawing = steps_drawing(each.steps)
    text = page(
        one.title,
        _headline(each, reported),
        _quoted("Expected", one.hypothesis),
        _quoted("Learnt", one.conclusion),
        preformatted(each.records.fault) if each.records.fault else "",
        _figures(each, linked),
        _metrics(each),
        _steps(each, f"{stem}.steps.svg" if drawing else ""),
        _settings(each, reported.get(one.baseline or "")),
        again_section(one.code),
        _links(each, linked),
        _findings(each.findings),
        f"{link('The experiment itself', each.document_name)}, as it was read.",
    )
    files = {f"{FOLDER}/{stem}.md": text.encode(), f"{FOLDER}/{each.document_name}": _document(one)}
    return files | ({f"{FOLDER}/{stem}.steps.svg": drawing} if drawing else {})


def _document(one: Experiment) -> bytes:
    return json.dumps(one.model_dump(mode="json", exclude_defaults=True), indent=1, sort_keys=True).encode() + b"\n"


def _headline(each: Reported, reported: Mapping[str, Reported]) -> str:
    one = each.experiment
    outcome = (
        f"**{escape(one.outcome)}**: {escape(one.outcome.meaning)}"
        if one.outcome
        else "**Its outcome is not said** by its source"
    )
    by = f" By {listed(list(map(_author, one.authors)), separator='; ', most=JOINED)}." if one.authors else ""
    when = f" {one.date}." if one.date else ""
    source = f" Imported from {escape(one.source)}; nothing of it was measured here." if one.source else ""
    replaced = f" **Replaced** by {_titles(each.replaced_by)}." if each.replaced_by else ""
    named = [reported[name].experiment for name in one.supersedes if name in reported]
    replaces = f" It replaces {_titles(named)}." if named else ""
    compared = reported.get(one.baseline or "")
    beside = f" Beside {link(compared.experiment.title, f'{page_stem(compared.experiment)}.md')}." if compared else ""
    topics = f" About: {escape(joined(one.topics, separator=' · '))}." if one.topics else ""
    return f"{outcome}.{by}{when}{source}{replaces}{replaced}{beside}{topics}"


def _titles(named: Sequence[Experiment]) -> str:
    return listed([link(each.title, f"{page_stem(each)}.md") for each in named], most=JOINED)


def _author(author: Author) -> str:
    named = web_link(author.name, author.url) if author.url else escape(author.name)
    return f"{named}, {escape(author.affiliation)}" if author.affiliation else named


def _quoted(heading: str, words: str | None) -> str:
    shown = prose(words or "")
    return f"## {heading}\n\n{shown}" if shown else ""


def _figures(each: Reported, linked: Collection[str]) -> str:
    found = figures(each.records.runs)
    if not found:
        return ""
    rows = [_figure_row(figure) for figure in found]
    metrics = sorted({figure.metric.replace("_", " ") for figure in found})
    header = ["runs of", "FLOPs", "parameters", "tokens", "seeds", escape(f"loss ({' or '.join(metrics)})"), "standard error"]
    if all(figure.standard_error is None for figure in found):
        header, rows = header[:-1], [row[:-1] for row in rows]
    named = [_if_there(name, f"ladders/{page_name(name)}.md", linked) for name in each.experiment.ladders]
    ladders = listed(named, most=JOINED)
    shown = table(header, rows, right=range(1, len(header)), most=LISTED, rest_in="the records of its runs")
    return f"## Its runs\n\nOf {ladders}; losses are means over seeds.\n\n{shown}"


def _figure_row(figure: Figure) -> list[str]:
    diverged = f", {figure.diverged} diverged" if figure.diverged else ""
    return [
        escape(figure.ladder if figure.role == "rung" else f"{figure.ladder}, {figure.role}"),
        format_flops(figure.budget_flops),
        format_count(figure.params),
        format_count(figure.trained_tokens),
        f"{figure.seeds}{diverged}",
        "" if figure.mean_loss is None else f"{figure.mean_loss:.4f}",
        "" if figure.standard_error is None else f"{figure.standard_error:.4f}",
    ]


def metric_value(metric: Metric) -> str:
    """Its value for a reader, in the words of its source where there are any."""
    if metric.said:
        return metric.said
    unit = f" {metric.unit}" if metric.unit else ""
    if metric.low is not None and metric.high is not None:
        span = f"{metric.low:.12g} to {metric.high:.12g}"
        return f"{span}{unit}" if metric.value is None else f"{metric.value:.12g}{unit} ({span})"
    return f"{metric.value:.12g}{unit}"


def _metrics(each: Reported) -> str:
    rows = [[escape(metric.name), escape(metric_value(metric))] for metric in each.experiment.metrics]
    shown = table(["what", "value"], rows, most=LISTED, rest_in=each.document_name)
    return f"## Figures\n\n{shown}" if rows else ""


def _steps(each: Reported, drawing: str) -> str:
    if not each.steps:
        return ""
    shown = f"[![Steps from left to right, each after what it took]({drawing})]({drawing})\n\n" if drawing else ""
    rows = list(map(_step_row, each.steps))
    header = ["step", "what", "from", "status", "began (UTC)", "ended (UTC)", "took", "output", "digest"]
    return f"## How it was made\n\n{shown}{table(header, rows, most=LISTED, rest_in=each.document_name)}"


def _step_row(step: Step) -> list[str]:
    return [
        escape(step.name),
        escape(step.what or ""),
        escape(joined([*step.inputs, *step.data])),
        escape(step.status or ""),
        _moment(step.started_at),
        _moment(step.finished_at),
        duration(step.seconds),
        escape(step.output or ""),
        f"`{step.output_sha256[:16]}…`" if step.output_sha256 else "",
    ]


def _moment(moment: datetime | None) -> str:
    return whole(f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}") if moment else ""


def _settings(each: Reported, baseline: Reported | None) -> str:
    if baseline is None:
        return f"## Settings\n\n{_all_settings(each)}" if each.settings else ""
    name = link(baseline.experiment.title, f"{page_stem(baseline.experiment)}.md")
    keys = sorted({*baseline.settings, *baseline.records.varying, *each.settings, *each.records.varying})
    said = [(key, _said(baseline, key), _said(each, key)) for key in keys]
    rows = [[cell(key), cell(before), cell(now)] for key, before, now in said if before != now] if baseline.settings else []
    header = ["setting", escape(baseline.experiment.name), escape(each.experiment.name)]
    nothing = "No setting differs." if baseline.settings else "Of that one no settings are known."
    shown = table(header, rows, most=LISTED, rest_in=each.document_name) if rows else nothing
    everything = f"<details><summary>All settings</summary>\n{_all_settings(each)}\n</details>"
    return f"## What differs from {name}\n\n{shown}\n\n{everything}"


def _said(each: Reported, key: str) -> str:
    if key in each.records.varying:
        return "differs among its runs"
    return json.dumps(each.settings[key]) if key in each.settings else "not stated"


def _all_settings(each: Reported) -> str:
    keys = sorted({*each.settings, *each.records.varying})
    lines = "\n".join(f"{json.dumps(key)[1:-1]}: {_said(each, key)}" for key in keys)
    return preformatted(lines, rest_in=each.document_name)


def _if_there(name: str, path: str, linked: Collection[str]) -> str:
    return link(name, f"../{path}") if path in linked else escape(name)


def _links(each: Reported, linked: Collection[str]) -> str:
    one = each.experiment
    lines = [
        f"{escape(key.removeprefix('links.').replace('_', ' '))}: {web_link(address, address)}"
        for key, address in addresses(one)
    ]
    if one.preregistration:
        path = f"preregistrations/{page_name(one.preregistration)}.md"
        lines.insert(0, f"preregistration: {_if_there(one.preregistration, path, linked)}")
    if one.code and one.code.repository:
        where = "/".join(filter(None, [one.code.commit and f"at {one.code.commit[:12]}", one.code.path]))
        lines.append(f"code: {web_link(one.code.repository, one.code.repository)} {escape(where)}")
    return f"## Where it can be seen\n\n{bullets(lines, rest_in=each.document_name)}" if lines else ""


def _findings(findings: Sequence[Finding]) -> str:
    rows = [[finding.weight, escape(finding.key), escape(finding.said)] for finding in findings]
    shown = table(["weight", "key", "what was found"], rows, most=LISTED, rest_in="marin-scale experiment validate")
    return f"## What was found in it\n\n{shown}" if rows else ""


_PROGRAM = ("table.js", "table.css")
_LIVE = '<link rel="stylesheet" href="table.css"><script src="table.js"></script>'
_NONE = (
    "There is no experiment yet: write `experiments/NAME/experiment.yaml`, or import Marin's: `marin-scale experiment import`."
)
_WORDS = (
    "Every experiment that was written down, those that did not work as well as those that did. Rows with a source were "
    "imported from there, figures and all; nothing of them was measured here."
)


def experiment_pages(root: Path, *, linked: Collection[str]) -> dict[str, bytes]:
    """All of them by path below the generated pages: `experiments/index.md`, a page for each, drawings, data.

    `linked` are the other generated pages, by path; what has none is named without a link.
    """
    place = root / EXPERIMENTS_DIR
    found = read_experiments(place) if place.is_dir() else []
    experiments = [each.experiment for each in found if each.experiment]
    findings, records = audit(experiments, known=known_in(root)), [own_records(each, root=root) for each in experiments]
    replaced_by: dict[str, list[Experiment]] = defaultdict(list)
    for each in experiments:
        for name in each.supersedes:
            replaced_by[name].append(each)
    reported = {
        each.name: Reported(
            experiment=each,
            findings=[*findings[each.name], *record_findings(each, own)],
            records=own,
            replaced_by=replaced_by[each.name],
        )
        for each, own in zip(experiments, records, strict=True)
    }
    files = {f"{FOLDER}/index.md": _index(list(reported.values()), found, root=root)}
    if experiments:
        files |= _program()
        files[f"{FOLDER}/experiments.jsonl"] = b"".join(map(to_line, experiments))
    for one in reported.values():
        files |= experiment_page(one, reported, linked=linked)
    return files


def _program() -> dict[str, bytes]:
    templates = resources.files("marin_scaling.publish").joinpath("templates", "experiments")
    return {f"{FOLDER}/{name}": templates.joinpath(name).read_bytes() for name in _PROGRAM}


def _index(reported: Sequence[Reported], found: Sequence[Found], *, root: Path) -> bytes:
    malformed = [(each.place, each.refusal) for each in found if each.experiment is None]
    if not found:
        return page("Experiments", _NONE).encode()
    body = [
        _WORDS,
        _counts(reported),
        _listed(reported),
        _found_of(reported),
        malformed_section("experiments", malformed, root),
    ]
    data = f"All of them as {link('JSON, a line each', 'experiments.jsonl')}." if reported else ""
    return page("Experiments", *body, data, _LIVE if reported else "").encode()


def _counts(reported: Sequence[Reported]) -> str:
    if not reported:
        return ""
    own, imported = (
        Counter(each.experiment.outcome for each in reported if (each.experiment.source is None) is mine)
        for mine in (True, False)
    )
    rows = [
        [escape(outcome), escape(outcome.meaning), str(own[outcome]), str(imported[outcome])]
        for outcome in Outcome
        if own[outcome] or imported[outcome]
    ]
    if imported[None]:
        rows.append(["not said", "its source does not say", "0", str(imported[None])])
    return table(["outcome", "meaning", "own", "imported"], rows, right=[2, 3])


def _listed(reported: Sequence[Reported]) -> str:
    ordered = sorted(reported, key=lambda each: (each.experiment.source is not None, -_age(each), each.experiment.name))
    header = ["experiment", "outcome", "figures", "topics", "date", "by", "source"]
    rows = list(map(_row, ordered))
    marker = '<div data-table="experiments" data-facets="outcome topics source"></div>'
    return f"## All of them\n\n{marker}\n\n{table(header, rows)}"


def _title(one: Experiment) -> str:
    return link(one.title, f"{page_stem(one)}.md")


def _age(each: Reported) -> int:
    return each.experiment.date.toordinal() if each.experiment.date else 0


def _row(each: Reported) -> list[str]:
    one = each.experiment
    weights = Counter(finding.weight for finding in each.findings)
    refused, doubts = weights[Weight.REFUSED], weights[Weight.DOUBT]
    said = [f"**{refused} refused**" if refused else "", counted(doubts, "doubt") if doubts else ""]
    said = [*filter(None, said), *(["replaced"] if each.replaced_by else [])]
    return [
        _title(one) + (f" ({', '.join(said)})" if said else ""),
        whole(one.outcome or "not said"),
        escape(joined([_metric_said(metric) for metric in one.metrics] or _runs_said(each), separator="; ")),
        escape(joined(one.topics, separator=" · ")),
        whole(str(one.date or "")),
        escape(joined(author.name for author in one.authors)),
        escape(one.source or ""),
    ]


def _runs_said(each: Reported) -> list[str]:
    runs = each.records.runs
    losses = [(figure.mean_loss, figure.metric) for figure in figures(runs) if figure.mean_loss is not None]
    lowest = f": lowest {min(losses)[0]:.4f} {min(losses)[1].replace('_', ' ')}" if losses else ""
    return [f"{counted(len(runs), 'run')} of {joined(each.experiment.ladders)}{lowest}"] if runs else []


def _metric_said(metric: Metric) -> str:
    return f"{metric.name} {metric_value(metric)}"


def _found_of(reported: Sequence[Reported]) -> str:
    rows = [
        [_title(each.experiment), finding.weight, escape(finding.key), escape(finding.said)]
        for each in reported
        for finding in each.findings[:FAULTS_NAMED]
    ]
    if not rows:
        return ""
    refused = "What is named and not there, or contradicted by records, is refused"
    words = (
        f"{refused}; what may be a slip is a doubt. No link was followed. The first {FAULTS_NAMED} of each; its page has all."
    )
    return f"## What was found in them\n\n{words}\n\n{table(['experiment', 'weight', 'key', 'what was found'], rows)}"
