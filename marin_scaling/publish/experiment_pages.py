"""Pages of experiments and their index."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import altair as alt
import pandas as pd

from marin_scaling.canonical_json import leaves
from marin_scaling.errors import Finding, Severity, UsageError
from marin_scaling.experiment.checks import (
    Figure,
    OwnRecords,
    addresses,
    all_findings,
    audit,
    figures,
    known_in,
    own_records,
    record_findings,
)
from marin_scaling.experiment.experiment import (
    CHAINS_DIR,
    COMPARISONS_DIR,
    EXPERIMENTS_DIR,
    Experiment,
    Found,
    Metric,
    Outcome,
    Step,
    read_experiments,
    root_of,
    to_line,
)
from marin_scaling.experiment.texts import summary
from marin_scaling.markdown import Markdown, cell, chip, escape, link, malformed_section, page_name, web_link, whole
from marin_scaling.printable import EXPERIMENTS_NAMED, FAULTS_NAMED, joined, quoted
from marin_scaling.publish.chain_page import (
    ChainFile,
    ChainPages,
    ComparisonFile,
    all_compared,
    chain_pages,
    folder_of,
    missing_tables,
)
from marin_scaling.publish.charts import axis_title, log_axis, loss_axis, steps_chart
from marin_scaling.publish.figures import asset, figure, picture_files, render, show_pictures, tooltips
from marin_scaling.publish.submission_page import commands_of
from marin_scaling.speedrun.submission import Author
from marin_scaling.units import counted, format_count, format_duration, format_flops, unit_of
from marin_scaling.untrusted_files import is_present, require_regular_tree

_RUNS_CAPTION = "Mean losses of the runs by FLOPs, with two standard errors where several seeds were trained"
FOLDER = "experiments"
"""Folder of these pages, below the generated ones."""


@dataclass(frozen=True, kw_only=True)
class Reported:
    """Experiment with its findings and the records of its own runs."""

    experiment: Experiment
    findings: Sequence[Finding]
    records: OwnRecords

    replaced_by: Sequence[Experiment] = ()
    """Experiments that list this one under `supersedes`."""

    @property
    def steps(self) -> list[Step]:
        """Steps from the records, then those written in the file."""
        return [*self.records.steps, *self.experiment.steps]

    @property
    def document_name(self) -> str:
        """Name of the complete JSON file beside the page."""
        return f"{page_stem(self.experiment)}.experiment.json"

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Settings by dotted key; records override the file."""
        stated = leaves(self.experiment.configuration) if self.experiment.configuration else ()
        return dict(stated) | dict(self.records.shared)


@dataclass(frozen=True, kw_only=True)
class Validation:
    """Findings of a repository's experiments, speedup chains and comparisons of texts, by name; malformed files by place.

    `read` counts what was read of each kind.
    """

    findings: Mapping[str, Sequence[Finding]]
    malformed: Mapping[str, str]
    read: Mapping[str, int]

    @property
    def is_refused(self) -> bool:
        """True if a file is malformed or a finding is an error."""
        return bool(self.malformed) or any(map(_has_error, self.findings.values()))

    def document(self) -> dict[str, Any]:
        """Return the document of `marin-scale experiment validate --json`."""
        named = {name: [vars(finding) for finding in each] for name, each in self.findings.items()}
        return {"experiments": named, "malformed": dict(self.malformed)}

    def __str__(self) -> str:
        lines = [
            f"{quoted(where, 400)}  malformed\n  {reason.replace(f'{chr(10)}       ', f'{chr(10)}  ')}"
            for where, reason in self.malformed.items()
        ]
        found = {name: each for name, each in self.findings.items() if each}
        named = sorted(found, key=lambda name: not _has_error(found[name]))
        for name in named[:EXPERIMENTS_NAMED]:
            lines += [name, *(f"  {one.severity:<8} {one.where}: {one.message}" for one in found[name])]
        if (rest := len(named) - EXPERIMENTS_NAMED) > 0:
            lines.append(f"{rest} more experiments have findings; --json lists all")
        severities = Counter(finding.severity for each in self.findings.values() for finding in each)
        read = ", ".join(counted(number, kind) for kind, number in self.read.items() if number or kind == "experiment")
        errors, warnings = severities[Severity.ERROR], severities[Severity.WARNING]
        counts = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}, {len(self.malformed)} malformed"
        return "\n".join([*lines, f"{read}: {counts}"])


def _has_error(findings: Sequence[Finding]) -> bool:
    return any(finding.severity is Severity.ERROR for finding in findings)


def validate_experiments(place: Path | str = EXPERIMENTS_DIR) -> Validation:
    """Check the experiments, speedup chains and comparisons of texts in a folder or file.

    Format, names, links, records and tables are checked; no address is loaded. `UsageError` if the place does not exist.
    """
    place = Path(place)
    if not is_present(place):
        raise UsageError(
            f"{place} does not exist.",
            why="Experiments are read from this place.",
            fix="Begin one: marin-scale experiment new NAME; or change to the root of the repository.",
        )
    root = root_of(place)
    require_regular_tree([place, root / EXPERIMENTS_DIR, root / "preregistrations", root / "runs"])
    compared = [root / EXPERIMENTS_DIR / name for name in (CHAINS_DIR, COMPARISONS_DIR)]
    found = [] if any(place.absolute().is_relative_to(each.absolute()) for each in compared) else read_experiments(place)
    known = read_experiments(root / EXPERIMENTS_DIR) if (root / EXPERIMENTS_DIR).is_dir() else []
    experiments = {each.experiment.name: each.experiment for each in found if each.experiment}
    others = [each.experiment for each in known if each.experiment and each.experiment.name not in experiments]
    findings: dict[str, Sequence[Finding]] = dict(all_findings(list(experiments.values()), root=root, beside=others))
    malformed, read = {each.place: each.refusal for each in found if each.experiment is None}, {"experiment": len(found)}
    of_chains, of_comparisons = all_compared(root, ChainFile), all_compared(root, ComparisonFile)
    compared_files: list[ChainFile | ComparisonFile] = [*of_chains[0], *of_comparisons[0]]
    for each in compared_files:
        folder = folder_of(each)
        if _are_nested(place, root / folder):
            kind = "speedup chain" if isinstance(each, ChainFile) else "comparison"
            read[kind] = read.get(kind, 0) + 1
            findings[f"{folder.parent.name}/{each.name}"] = missing_tables(each, root=root)
    refused = dict(of_chains[1] + of_comparisons[1])
    malformed |= {where: reason for where, reason in refused.items() if _are_nested(place, Path(where).parent)}
    return Validation(findings=findings, malformed=malformed, read=read)


def _are_nested(place: Path, folder: Path) -> bool:
    """Return True if the folder is in the place, or the place in the folder."""
    one, other = place.absolute(), folder.absolute()
    return one.is_relative_to(other) or other.is_relative_to(one)


def page_stem(each: Experiment) -> str:
    """Return the name of the experiment's page, without suffix."""
    return page_name(each.name.replace("/", "~"))


def experiment_page(each: Reported, reported: Mapping[str, Reported], *, linked: Collection[str]) -> dict[str, bytes]:
    """Return the page, drawing and document of an experiment, by path.

    `reported` maps names to all experiments; `linked` holds the paths of other generated pages.
    """
    one, stem = each.experiment, page_stem(each.experiment)
    chart, runs_drawn = steps_chart(each.steps), runs_chart(figures(each.records.runs))
    text = render(
        "experiment.md.j2",
        title=one.title,
        one=one,
        summary=summary(one, each.records),
        chip=outcome_chip(one.outcome),
        forecast=_forecast_link(each, linked),
        records=each.records,
        document=each.document_name,
        authors=list(map(_author, one.authors)),
        replaces=[_title(reported[name].experiment) for name in one.supersedes if name in reported],
        replaced_by=list(map(_title, each.replaced_by)),
        **_run_values(each, linked),
        metrics=[[metric.name, metric_value(metric)] for metric in one.metrics],
        steps=list(map(_step_row, each.steps)),
        drawing=_drawing(stem) if chart else "",
        runs_drawing=show_pictures(stem, {"runs": _RUNS_CAPTION}) if runs_drawn else "",
        **_settings_values(each, reported.get(one.baseline or "")),
        commands=commands_of(one.code),
        links=_links(each),
        findings=[[found.severity, found.where, found.message] for found in each.findings],
    )
    charts = {"runs": runs_drawn, "steps": chart}
    pictures = picture_files({name: each for name, each in charts.items() if each}, page_stem=f"{FOLDER}/{stem}")
    return {f"{FOLDER}/{stem}.md": text.encode(), f"{FOLDER}/{each.document_name}": _document(one), **pictures}


def runs_chart(found: Sequence[Figure]) -> Any | None:
    """Return the mean losses of an experiment's runs by FLOPs, a colour for each ladder, with two standard errors.

    None if fewer than two runs have a loss, or if they have several metrics.
    """
    drawn = [each for each in found if each.mean_loss is not None]
    if len(drawn) < 2 or len({each.metric for each in drawn}) > 1:
        return None
    rows = pd.DataFrame(
        {
            "ladder": [each.ladder for each in drawn],
            "flops": [each.budget_flops for each in drawn],
            "loss": [each.mean_loss for each in drawn],
            "within": [2 * (each.standard_error or 0.0) for each in drawn],
            "parameters": [format_count(each.params) for each in drawn],
        }
    )
    rows["low"], rows["high"] = rows["loss"] - rows["within"], rows["loss"] + rows["within"]
    base = alt.Chart(rows).encode(
        x=log_axis("flops", "training FLOPs", values=rows["flops"].to_numpy()),
        color=alt.Color("ladder:N", title=None, legend=alt.Legend(orient="top")),
    )
    metric = axis_title(drawn[0].metric, unit=unit_of(drawn[0].metric))
    points = base.mark_circle(size=45).encode(y=loss_axis(metric), tooltip=tooltips("ladder", "flops", "parameters", "loss"))
    bars = base.mark_rule().encode(y=loss_axis(metric, column="low"), y2=alt.Y2("high:Q"))
    return figure(alt.layer(bars, points).properties(width=540, height=260), f"{metric} of the runs by FLOPs")


def _document(one: Experiment) -> bytes:
    return json.dumps(one.model_dump(mode="json", exclude_defaults=True), indent=1, sort_keys=True).encode() + b"\n"


def _drawing(stem: str) -> Markdown:
    """Return the picture of the steps, linked to its full size."""
    target = quote(f"{stem}.figures/steps.svg")
    return Markdown(f"[{show_pictures(stem, {'steps': 'Steps from left to right, each after what it took'})}]({target})")


def _author(author: Author) -> Markdown:
    named = web_link(author.name, author.url) if author.url else escape(author.name)
    return Markdown(f"{named}, {escape(author.affiliation)}") if author.affiliation else named


def _run_values(each: Reported, linked: Collection[str]) -> dict[str, Any]:
    """Return the template's values for the experiment's own runs."""
    found = figures(each.records.runs)
    rows, metrics = list(map(_figure_row, found)), sorted({one.metric.replace("_", " ") for one in found})
    header = ["runs of", "FLOPs", "parameters", "tokens", "seeds", f"loss ({' or '.join(metrics)})", "standard error"]
    if all(one.standard_error is None for one in found):
        header, rows = header[:-1], [row[:-1] for row in rows]
    ladders = [_if_there(name, f"ladders/{page_name(name)}.md", linked) for name in each.experiment.ladders]
    return {"runs": rows, "runs_header": header, "ladders": ladders}


def _figure_row(one: Figure) -> list[str]:
    diverged = f", {one.diverged} diverged" if one.diverged else ""
    return [
        one.ladder if one.role == "rung" else f"{one.ladder}, {one.role}",
        format_flops(one.budget_flops),
        format_count(one.params),
        format_count(one.trained_tokens),
        f"{one.seeds}{diverged}",
        "" if one.mean_loss is None else f"{one.mean_loss:.4f}",
        "" if one.standard_error is None else f"{one.standard_error:.4f}",
    ]


def metric_value(metric: Metric) -> str:
    """Return a metric's value for readers, in the words of its source if it has any."""
    if metric.said:
        return metric.said
    unit = f" {metric.unit}" if metric.unit else ""
    if metric.low is not None and metric.high is not None:
        span = f"{metric.low:.12g} to {metric.high:.12g}"
        return f"{span}{unit}" if metric.value is None else f"{metric.value:.12g}{unit} ({span})"
    return f"{metric.value:.12g}{unit}"


def _step_row(step: Step) -> list[str]:
    return [
        step.name,
        step.what or "",
        joined([*step.inputs, *step.data]),
        step.status or "",
        _moment(step.started_at),
        _moment(step.finished_at),
        "" if step.seconds is None else format_duration(step.seconds),
        step.output or "",
        Markdown(f"`{step.output_sha256[:16]}…`") if step.output_sha256 else "",
    ]


def _moment(moment: datetime | None) -> str:
    return whole(f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}") if moment else ""


def _settings_values(each: Reported, baseline: Reported | None) -> dict[str, Any]:
    """Return the template's values for the settings and their differences from the baseline."""
    keys = sorted({*each.settings, *each.records.varying})
    lines = "\n".join(f"{json.dumps(key)[1:-1]}: {_said(each, key)}" for key in keys)
    if baseline is None:
        return {"settings": lines, "baseline": ""}
    both = sorted({*baseline.settings, *baseline.records.varying, *keys})
    said = [(key, _said(baseline, key), _said(each, key)) for key in both] if baseline.settings else []
    return {
        "settings": lines,
        "baseline": _title(baseline.experiment),
        "baseline_name": baseline.experiment.name,
        "baseline_settings": baseline.settings,
        "differences": [[cell(key), cell(before), cell(now)] for key, before, now in said if before != now],
    }


def _said(each: Reported, key: str) -> str:
    if key in each.records.varying:
        return "differs among its runs"
    return json.dumps(each.settings[key]) if key in each.settings else "not stated"


def _if_there(name: str, path: str, linked: Collection[str]) -> str:
    return link(name, f"../{path}") if path in linked else name


def _forecast_link(each: Reported, linked: Collection[str]) -> str:
    name = each.experiment.preregistration
    return _if_there(name, f"preregistrations/{page_name(name)}.md", linked) if name else ""


def _links(each: Reported) -> list[str]:
    one = each.experiment
    lines: list[str] = [
        Markdown(f"{escape(key.removeprefix('links.').replace('_', ' '))}: {web_link(address, address)}")
        for key, address in addresses(one)
    ]
    if one.code and one.code.repository:
        where = "/".join(filter(None, [one.code.commit and f"at {one.code.commit[:12]}", one.code.path]))
        lines.append(Markdown(f"code: {web_link(one.code.repository, one.code.repository)} {escape(where)}"))
    return lines


def explanations(root: Path) -> dict[str, list[Markdown]]:
    """Return links to the experiments about each preregistration, by its name, from the page of that."""
    place, links = root / EXPERIMENTS_DIR, defaultdict[str, list[Markdown]](list)
    for each in read_experiments(place) if place.is_dir() else []:
        if each.experiment and each.experiment.preregistration:
            path = f"../{FOLDER}/{page_stem(each.experiment)}.md"
            links[each.experiment.preregistration].append(link(each.experiment.title, path))
    return links


_PROGRAM = ("table.js", "table.css")


def experiment_pages(root: Path, *, linked: Collection[str]) -> dict[str, bytes]:
    """Return `experiments/index.md`, a page for each experiment, drawings and data, by path below the generated pages.

    `linked` holds the paths of other generated pages; names without a page there get no link.
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
    chains = chain_pages(root)
    files = {f"{FOLDER}/index.md": _index(list(reported.values()), found, chains, root=root), **chains.files}
    if experiments:
        files |= {f"{FOLDER}/{name}": asset(f"experiments/{name}") for name in _PROGRAM}
        files[f"{FOLDER}/experiments.jsonl"] = b"".join(map(to_line, experiments))
    for one in reported.values():
        files |= experiment_page(one, reported, linked=linked)
    return files


def _index(reported: Sequence[Reported], found: Sequence[Found], chains: ChainPages, *, root: Path) -> bytes:
    malformed = [*((each.place, each.refusal) for each in found if each.experiment is None), *chains.malformed]
    ordered = sorted(reported, key=lambda each: (each.experiment.source is not None, -_age(each), each.experiment.name))
    return render(
        "experiments.md.j2",
        title="Experiments",
        found=found,
        chains=chains.links,
        comparisons=chains.comparisons,
        counts=_counts(reported),
        rows=list(map(_row, ordered)),
        findings=[
            [_title(each.experiment), finding.severity, finding.where, finding.message]
            for each in reported
            for finding in each.findings[:FAULTS_NAMED]
        ],
        most=FAULTS_NAMED,
        malformed=malformed_section("experiments", malformed, root),
    ).encode()


def _counts(reported: Sequence[Reported]) -> list[list[str]]:
    """Return a row for each outcome that occurs: own and imported experiments."""
    own, imported = (
        Counter(each.experiment.outcome for each in reported if (each.experiment.source is None) is mine)
        for mine in (True, False)
    )
    rows = [
        [outcome_chip(outcome), outcome.meaning, str(own[outcome]), str(imported[outcome])]
        for outcome in Outcome
        if own[outcome] or imported[outcome]
    ]
    return rows + [[outcome_chip(None), "its source does not say", "0", str(imported[None])]] * bool(imported[None])


_CHIPS = {
    Outcome.WORKED: "good",
    Outcome.PROMISING: "good",
    Outcome.MIXED: "warn",
    Outcome.DID_NOT_WORK: "bad",
    Outcome.NOT_EVALUATED: "",
    Outcome.IN_PROGRESS: "open",
}
"""Class of the chip that shows an outcome."""


def outcome_chip(outcome: Outcome | None) -> Markdown:
    """Return the outcome of an experiment as a word on a color."""
    return chip(outcome or "not said", _CHIPS[outcome] if outcome else "")


def _title(one: Experiment) -> Markdown:
    return link(one.title, f"{page_stem(one)}.md")


def _age(each: Reported) -> int:
    return each.experiment.date.toordinal() if each.experiment.date else 0


def _row(each: Reported) -> list[str]:
    one = each.experiment
    severities = Counter(finding.severity for finding in each.findings)
    errors, warnings = severities[Severity.ERROR], severities[Severity.WARNING]
    said = [f"**{counted(errors, 'error')}**" if errors else "", counted(warnings, "warning") if warnings else ""]
    said = [*filter(None, said), *(["replaced"] if each.replaced_by else [])]
    return [
        outcome_chip(one.outcome),
        Markdown(_title(one) + (f" ({', '.join(said)})" if said else "")),
        joined([f"{metric.name} {metric_value(metric)}" for metric in one.metrics] or _runs_said(each), separator="; "),
        joined(one.topics, separator=" · "),
        whole(str(one.date or "")),
        joined(author.name for author in one.authors),
        one.source or "",
    ]


def _runs_said(each: Reported) -> list[str]:
    runs = each.records.runs
    losses = [(one.mean_loss, one.metric) for one in figures(runs) if one.mean_loss is not None]
    lowest = f": lowest {min(losses)[0]:.4f} {min(losses)[1].replace('_', ' ')}" if losses else ""
    return [f"{counted(len(runs), 'run')} of {joined(each.experiment.ladders)}{lowest}"] if runs else []
