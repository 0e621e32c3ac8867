"""The pages of experiments: an index of all of them with what came of each, failures too, and a page for each.

From `experiments/`, audited again. What is malformed is listed with its reason and breaks nothing else; an experiment that
names what is not there has a page that says so. What stands on the page of one is in `experiment_page`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from importlib import resources
from pathlib import Path

from marin_scaling.experiment.audit import audit, known_in
from marin_scaling.experiment.experiment import Experiment, Metric, Outcome
from marin_scaling.experiment.experiment_file import EXPERIMENTS_DIR, Found, read_experiments, to_line
from marin_scaling.experiment.own_runs import figures, own_records, record_findings
from marin_scaling.limits import FAULTS_NAMED
from marin_scaling.printable import joined
from marin_scaling.publish.experiment_page import FOLDER, Reported, experiment_page, metric_value, page_stem
from marin_scaling.publish.markdown import escape, link, malformed_section, page, table, whole
from marin_scaling.speedrun.finding import Weight
from marin_scaling.units import counted

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
