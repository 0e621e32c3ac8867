"""Pages of compared runs: speedup chains (`experiments/chains/NAME/chain.yaml`), with recipes, published figures or both, and
training texts (`experiments/comparisons/NAME/comparison.yaml`)."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import altair as alt
import pandas as pd
from pydantic import Field, StringConstraints, model_validator

from marin_scaling.canonical_json import dump_canonical
from marin_scaling.errors import DocumentError, Finding, MarinScalingError, error
from marin_scaling.experiment.experiment import CHAINS_DIR, COMPARISONS_DIR, EXPERIMENTS_DIR
from marin_scaling.forecast.data_comparison import MARGIN, DataComparison, compare_data
from marin_scaling.forecast.speedup_chain import UNITS, ChainStage, SpeedupChain, chain_document, chain_of_tables
from marin_scaling.forecast.speedup_conventions import Speedup
from marin_scaling.markdown import Markdown, link, page_name, prose, without_root
from marin_scaling.publish.figures import LAW_COLOUR, OUTCOME_COLOUR, POINT_COLOUR, figure, picture_files, render, show_pictures
from marin_scaling.run.table import RunTable, read_run_table
from marin_scaling.strict_model import Part, Positive, in_words
from marin_scaling.units import format_count, format_flops
from marin_scaling.untrusted_files import is_present
from marin_scaling.untrusted_text import Line, Name, Words
from marin_scaling.yaml_config import read_part

OneFile = TypeVar("OneFile", bound="ChainFile | ComparisonFile")
_TABLE = in_words(r"^(runs/)?[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", "a file in this folder, or a folder in runs/, like runs/delphi")
TablePath = Annotated[str, StringConstraints(pattern=_TABLE)]


class ChainTable(Part):
    """Recipe of a chain, or training text, with its runs."""

    name: Line
    """Name of the recipe or text."""
    table: TablePath
    """Ladder in `runs/`, as in runs/delphi, or a table of runs next to this file."""
    about: Line | None = None
    """Description of the recipe or text, with the source of its table."""


class PublishedSpeedup(Part):
    """Speedup that somebody published, and that nothing here measured."""

    name: Line
    """Stage, or claim."""
    model_flops: Positive | None = None
    """Speedup in model FLOPs."""
    wall_clock: Positive | None = None
    """Speedup in wall-clock time."""
    about: Line | None = None
    """Measurement behind the number."""
    source: Line
    """Source, with an address where it has one."""


class RecomputedSpeedup(Part):
    """Published speedup in model FLOPs, computed again from published runs by the published method."""

    name: Line
    """Stage, with its budget or loss."""
    published: Positive
    """Published speedup."""
    recomputed: Positive
    """Speedup by the same method."""
    method: Line
    """Laws, constants and runs behind the recomputed number."""
    source: Line
    """Source of the published number and of the runs."""

    @property
    def agrees(self) -> bool:
        """Return True if both numbers agree to two digits."""
        return f"{self.published:.2g}" == f"{self.recomputed:.2g}"


class ChainFile(Part):
    """Content of `chain.yaml`."""

    folder: ClassVar = CHAINS_DIR
    file_name: ClassVar = "chain.yaml"
    noun: ClassVar = "a speedup chain"
    name: Name
    """Name of the folder."""
    title: Line
    """Title of the page."""
    about: Words = ""
    """Text below the title: what is compared, what agrees, and what does not."""
    recipes: tuple[ChainTable, ...] = Field(default=(), max_length=20)
    """Recipes to compare, the baseline first."""
    convention: Literal["own", "marin"] = "own"
    """Convention of `marin-scale speedup`."""
    at_flops: Positive | None = None
    """Budget of the baseline whose loss all recipes are compared at; default: the lowest loss that every law reaches."""
    also_at_flops: tuple[Positive, ...] = Field(default=(), max_length=5)
    """Further budgets, for a table of speedups by scale."""
    published: tuple[PublishedSpeedup, ...] = Field(default=(), max_length=40)
    """Published stages, in order. Their product is computed."""
    claims: tuple[PublishedSpeedup, ...] = Field(default=(), max_length=40)
    """Published or computed cumulative speedups, to compare with the product."""
    recomputed: tuple[RecomputedSpeedup, ...] = Field(default=(), max_length=40)
    """Published speedups with what their own method gives."""

    @model_validator(mode="after")
    def _has_stages(self) -> ChainFile:
        if len(self.recipes) < 2 and not self.published:
            raise ValueError("a chain has two or more recipes, or published stages")
        names = [each.name for each in self.recipes]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two recipes are named {twice[0]}")
        return self


class ComparisonFile(Part):
    """Content of `comparison.yaml`."""

    folder: ClassVar = COMPARISONS_DIR
    file_name: ClassVar = "comparison.yaml"
    noun: ClassVar = "a comparison of texts"
    name: Name
    """Name of the folder."""
    title: Line
    """Title of the page."""
    about: Words = ""
    """Text below the title: what is compared, and how the texts were made."""
    base: ChainTable
    """Text to compare with."""
    texts: tuple[ChainTable, ...] = Field(min_length=1, max_length=10)
    """Texts that may be better."""
    controls: tuple[ChainTable, ...] = Field(default=(), max_length=10)
    """Texts that must not be better, such as random documents."""
    margin: Annotated[float, Field(gt=0, lt=1)] = MARGIN
    """Relative loss up to which a text is not worse."""

    @model_validator(mode="after")
    def _has_own_names(self) -> ComparisonFile:
        names = [each.name for each in self.tables]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two texts are named {twice[0]}")
        return self

    @property
    def tables(self) -> tuple[ChainTable, ...]:
        """All tables, the base first."""
        return (self.base, *self.texts, *self.controls)


def read_compared(path: Path, model: type[OneFile]) -> OneFile:
    """Read a chain or comparison, named after its folder; `DocumentError` names file, line and key."""
    found = read_part(path, model, noun=model.noun, refused=_refused)
    if found.name != path.parent.name:
        raise _refused(f"{path}: name: {found.name!r} differs from its folder's name, {path.parent.name!r}.")
    return found


def _refused(what: str | tuple[str, ...]) -> DocumentError:
    return DocumentError(
        what, fix="Fix the named keys; compare-two-recipes.md and filter-a-corpus.md in site/how-to show such files."
    )


@dataclass(frozen=True, kw_only=True)
class ChainPages:
    """Pages of all chains and comparisons by path, links to both, and malformed files with the reasons."""

    files: dict[str, bytes]
    links: list[Markdown]
    comparisons: list[Markdown]
    malformed: list[tuple[str, str]]


def chain_pages(root: Path) -> ChainPages:
    """Return a page with figures for each chain and comparison of a repository, below the generated pages."""
    (chains, malformed), (comparisons, more) = all_compared(root, ChainFile), all_compared(root, ComparisonFile)
    pages = [*(chain_page(each, root=root) for each in chains), *(comparison_page(each, root=root) for each in comparisons)]
    return ChainPages(
        files={path: content for page in pages for path, content in page.items()},
        links=list(map(_link, chains)),
        comparisons=list(map(_link, comparisons)),
        malformed=malformed + more,
    )


def _link(found: ChainFile | ComparisonFile) -> Markdown:
    return link(found.title, f"{found.folder}/{page_name(found.name)}.md")


def all_compared(root: Path, model: type[OneFile]) -> tuple[list[OneFile], list[tuple[str, str]]]:
    """Return the chains or comparisons of a repository, and the malformed files of them with the reasons."""
    found, malformed = list[OneFile](), list[tuple[str, str]]()
    for path in sorted((root / EXPERIMENTS_DIR / model.folder).glob(f"*/{model.file_name}")):
        try:
            found.append(read_compared(path, model))
        except MarinScalingError as fault:
            malformed.append((str(path), fault.what))
    return found, malformed


def missing_tables(found: ChainFile | ComparisonFile, *, root: Path) -> list[Finding]:
    """Return an error for each table of a chain or comparison that is not there."""
    tables = found.recipes if isinstance(found, ChainFile) else found.tables
    places = {each.name: _place(folder_of(found), each) for each in tables}
    return [
        error("not-there", name, f"{place} does not exist") for name, place in places.items() if not is_present(root / place)
    ]


def chain_page(chain: ChainFile, *, root: Path) -> dict[str, bytes]:
    """Return the page of a chain, its figures and its document, by path; an error of its tables is on the page."""
    stem, fault = page_name(chain.name), ""
    measured: list[SpeedupChain] = []
    try:
        measured = _measured(chain, root)
    except MarinScalingError as refusal:
        fault = without_root(str(refusal), root)
    first = measured[0] if measured else None
    panels = {
        **({f"measured-{unit}": each for unit in UNITS if (each := _measured_chart(first, unit))} if first else {}),
        **{f"published-{unit}": each for unit in UNITS if (each := _published_chart(chain, unit))},
    }
    text = render(
        "chain.md.j2",
        title=chain.title,
        chain=chain,
        fault=fault,
        first=first,
        figures=show_pictures(stem, {name: _CAPTIONS[name.partition("-")[0]] for name in panels}),
        speedups=[row for unit in UNITS for row in _measured_rows(first, unit)] if first else [],
        notes=[f"{UNITS[unit]}: {note}" for unit, note in first.notes.items() if note] if first else [],
        report=str(first) if first else "",
        scale_header=[
            "baseline FLOPs",
            "unit",
            *([each.name for each in (*first.stages, first.cumulative[-1])] if first else []),
        ],
        by_scale=[row for each in sorted(measured, key=_baseline_flops) for row in _scale_rows(each)]
        if len(measured) > 1
        else [],
        tables=[[each.name, each.table, prose(each.about or "")] for each in chain.recipes],
        published=_published_rows(chain),
        claims=list(map(_published_row, chain.claims)),
        recomputed=list(map(_recomputed_row, chain.recomputed)),
        command=_command(chain),
        document=f"{stem}.speedup.json",
    )
    place = f"{EXPERIMENTS_DIR}/{CHAINS_DIR}"
    documents = {f"{place}/{stem}.speedup.json": dump_canonical(chain_document(first))} if first else {}
    return {f"{place}/{stem}.md": text.encode(), **documents, **picture_files(panels, page_stem=f"{place}/{stem}")}


_CAPTIONS = {
    "measured": "Cumulative speedup by recipe, with the 90 % interval",
    "published": "Cumulative product of published speedups",
}


def _measured(chain: ChainFile, root: Path) -> list[SpeedupChain]:
    """Return the chain at its own budget, then at the further ones."""
    if not chain.recipes:
        return []
    tables = [(each.name, _table(folder_of(chain), each, root)) for each in chain.recipes]
    budgets = [chain.at_flops, *chain.also_at_flops]
    return [chain_of_tables(tables, convention=chain.convention, at_flops=each) for each in budgets]


def _table(folder: Path, each: ChainTable, root: Path) -> RunTable:
    return replace(read_run_table(root / _place(folder, each)), source=str(_place(folder, each)))


def _place(folder: Path, each: ChainTable) -> Path:
    return Path(each.table) if each.table.startswith("runs/") else folder / each.table


def folder_of(found: ChainFile | ComparisonFile) -> Path:
    """Return the folder of a chain or comparison, relative to the root of the repository."""
    return Path(EXPERIMENTS_DIR) / found.folder / found.name


def _command(chain: ChainFile) -> str:
    if not chain.recipes:
        return ""
    tables = [f"{each.name}={_place(folder_of(chain), each)}" for each in chain.recipes]
    more = [] if chain.at_flops is None else ["--at", f"{chain.at_flops:g}"]
    return shlex.join(
        ["marin-scale", "speedup", *tables, *(["--convention", "marin"] if chain.convention == "marin" else []), *more]
    )


def _measured_rows(chain: SpeedupChain, unit: str) -> Iterator[list[str]]:
    for kind, family in (("stage", chain.stages), ("cumulative", chain.cumulative[1:])):
        for stage in family:
            each: Speedup | None = getattr(stage, unit)
            if each is not None:
                yield [stage.name, kind, UNITS[unit], *_speedup_cells(each), each.verdict_after_holm.value]


def _speedup_cells(each: Speedup) -> list[str]:
    low, high = each.interval
    value = "none" if each.value is None else f"{each.value:.2f}"
    return [value, f"{low:.2f} to {'no end' if high is None else format(high, '.2f')}"]


def _baseline_flops(chain: SpeedupChain) -> float:
    return chain.recipes[0].flops or math.inf


def _scale_rows(chain: SpeedupChain) -> Iterator[list[str]]:
    """Yield a row per unit: the baseline's FLOPs, and each stage and the whole with its interval."""
    for unit, words in UNITS.items():
        family: list[ChainStage] = [*chain.stages, chain.cumulative[-1]]
        found: list[Speedup | None] = [getattr(each, unit) for each in family]
        if all(found):
            flops = chain.recipes[0].flops
            cells = ["{} ({})".format(*_speedup_cells(each)) for each in found if each]
            yield ["" if flops is None else format_flops(flops), words, *cells]


def _published_rows(chain: ChainFile) -> list[list[Any]]:
    """Return the published stages, then their product in each unit in which all are published."""
    rows = list(map(_published_row, chain.published))
    products = {unit: _products(chain, unit) for unit in UNITS}
    if len(rows) > 1 and any(products.values()):
        cells = [f"{found[-1]:.2f}" if found else "" for found in products.values()]
        rows.append([Markdown("**product**"), *cells, "our arithmetic", ""])
    return rows


def _published_row(each: PublishedSpeedup) -> list[Any]:
    values = [getattr(each, unit) for unit in UNITS]
    return [each.name, *("" if value is None else f"{value:g}" for value in values), each.about or "", prose(each.source)]


def _recomputed_row(each: RecomputedSpeedup) -> list[Any]:
    agrees = "yes" if each.agrees else "no"
    return [each.name, f"{each.published:g}", f"{each.recomputed:g}", agrees, each.method, prose(each.source)]


def _products(chain: ChainFile, unit: str) -> list[float]:
    return cumulative_products([getattr(each, unit) for each in chain.published])


def cumulative_products(values: Sequence[float | None]) -> list[float]:
    """Return the product up to each stage; empty if a stage is unknown.

    >>> cumulative_products([3.6, 1.25]), cumulative_products([3.6, None])
    ([3.6, 4.5], [])
    """
    known = [value for value in values if value is not None]
    return [math.prod(known[: n + 1]) for n in range(len(known))] if len(known) == len(values) else []


_LOWEST_DRAWN = 1e-3  # an interval down to 0 has no place on a log axis


def _measured_chart(chain: SpeedupChain, unit: str) -> Any | None:
    found: list[Speedup | None] = [getattr(each, unit) for each in chain.cumulative]
    ends = [(each.value, *each.interval) for each in found if each is not None and each.value is not None]
    if len(ends) < len(chain.cumulative) or not all(low > _LOWEST_DRAWN and high is not None for _, low, high in ends):
        return None
    values = [1.0, *(value for value, _, _ in ends)]
    bars = [_bar(stage.variant, before, *end) for stage, before, end in zip(chain.stages, values, ends, strict=False)]
    return steps_of(bars, baseline=chain.recipes[0].name, unit=UNITS[unit], title="Measured here", colour=LAW_COLOUR)


def _published_chart(chain: ChainFile, unit: str) -> Any | None:
    products = _products(chain, unit)
    if not products:
        return None
    bars = [
        _bar(each.name, before, after, after, after)
        for each, before, after in zip(chain.published, [1.0, *products], products, strict=False)
    ]
    claims = {each.name: value for each in chain.claims if (value := getattr(each, unit)) is not None}
    return steps_of(bars, baseline="", unit=UNITS[unit], title="Published values", colour=OUTCOME_COLOUR, claims=claims)


def steps_of(
    bars: Sequence[dict[str, Any]], *, baseline: str, unit: str, title: str, colour: str, claims: dict[str, float] | None = None
) -> Any:
    """Return a bar per stage from the cumulative speedup before it to that after it, on a log axis, with intervals.

    `claims` are drawn as dashed lines. The number above a bar is the speedup of its stage.
    """
    rows, claimed = pd.DataFrame(bars), pd.DataFrame([{"top": value, "claim": name} for name, value in (claims or {}).items()])
    values = [*rows["before"], *rows["after"], *rows["low"], *rows["top"], *(claims or {}).values()]
    scale = alt.Scale(type="log", domain=[min(values) / 1.1, max(values) * 1.2], nice=False)
    order = [*([baseline] if baseline else []), *rows["stage"]]
    axis = alt.Axis(labelAngle=-25, labelLimit=180, labelOverlap=False)
    x = alt.X("stage:N", sort=order, title=None, scale=alt.Scale(domain=order), axis=axis)

    def y(column: str) -> Any:
        ticks = alt.Axis(format="~g", tickCount=6)
        return alt.Y(f"{column}:Q", title=f"cumulative speedup, {unit}", scale=scale, axis=ticks)

    base = alt.Chart(rows)
    layers = [
        alt.Chart(pd.DataFrame({"top": [1.0]})).mark_rule(color=POINT_COLOUR, strokeWidth=1).encode(y=y("top")),
        base.mark_bar(color=colour, opacity=0.55, size=34).encode(
            x=x, y=y("after"), y2="before:Q", tooltip=["stage", "factor", "after"]
        ),
        base.mark_rule(color=POINT_COLOUR, strokeWidth=1.6).encode(x=x, y=y("low"), y2="top:Q"),
        base.mark_text(baseline="bottom", dy=-4, color=POINT_COLOUR).encode(x=x, y=y("top"), text="factor:N"),
    ]
    if claims:
        lines = alt.Chart(claimed)
        words = lines.mark_text(align="left", baseline="bottom", dx=4, color="#595959", fontStyle="italic")
        layers += [
            lines.mark_rule(color="#767676", strokeDash=[4, 4]).encode(y=y("top"), tooltip=["claim", "top"]),
            words.encode(x=alt.value(0), y=y("top"), text="claim:N"),
        ]
    drawn = alt.layer(*layers).properties(title=title, width=max(240, 90 * len(order)), height=300)
    return figure(drawn, f"{title}: cumulative speedup in {unit}, stage by stage")


def _bar(stage: str, before: float, after: float, low: float, top: float | None) -> dict[str, Any]:
    """Return the row of a stage: cumulative speedup before and after it, and the interval of the latter."""
    return {"stage": stage, "before": before, "after": after, "low": low, "top": top, "factor": f"{after / before:.3g}x"}


def comparison_page(comparison: ComparisonFile, *, root: Path) -> dict[str, bytes]:
    """Return the page of compared texts, its figure and its document, by path; an error of its tables is on the page."""
    stem, fault, found = page_name(comparison.name), "", None
    try:
        found = _compared(comparison, root)
    except MarinScalingError as refusal:
        fault = without_root(str(refusal), root)
    panels = {"differences": _differences_chart(found)} if found else {}
    text = render(
        "comparison.md.j2",
        title=comparison.title,
        comparison=comparison,
        fault=fault,
        figures=show_pictures(stem, dict.fromkeys(panels, "Relative difference in loss, with the 90 % interval")),
        status=found.status.value if found else "",
        base=comparison.base.name,
        margin=f"{comparison.margin:.2%}",
        rows=_comparison_rows(found) if found else [],
        warnings=list(found.warnings) if found else [],
        header=["FLOPs", "params", *(each.name for each in comparison.tables[1:])],
        by_rung=_by_rung(found) if found else [],
        tables=[[each.name, each.table, prose(each.about or "")] for each in comparison.tables],
        command=_compare_command(comparison),
        report=str(found) if found else "",
        document=f"{stem}.comparison.json",
    )
    place = f"{EXPERIMENTS_DIR}/{COMPARISONS_DIR}"
    documents = {f"{place}/{stem}.comparison.json": dump_canonical(found.document())} if found else {}
    return {f"{place}/{stem}.md": text.encode(), **documents, **picture_files(panels, page_stem=f"{place}/{stem}")}


def _compared(comparison: ComparisonFile, root: Path) -> DataComparison:
    """Return the comparison of a file, with the names in it."""
    base, *others = (_table(folder_of(comparison), each, root) for each in comparison.tables)
    count = len(comparison.texts)
    found = compare_data(base, *others[:count], controls=others[count:], margin=comparison.margin)
    names = (each.name for each in comparison.tables[1:])
    texts = tuple(replace(each, name=name) for each, name in zip(found.texts, names, strict=True))
    return replace(found, base_name=comparison.base.name, texts=texts)


def _compare_command(comparison: ComparisonFile) -> str:
    folder = folder_of(comparison)
    plain = [str(_place(folder, each)) for each in (comparison.base, *comparison.texts)]
    controls = [word for each in comparison.controls for word in ("--control", str(_place(folder, each)))]
    return shlex.join(["marin-scale", "data", "compare", *plain, *controls, "--margin", f"{comparison.margin:g}"])


def _comparison_rows(found: DataComparison) -> list[list[Any]]:
    return [
        [
            each.name,
            "yes" if each.is_control else "",
            len(each.rungs) * len(each.seeds),
            f"{each.difference:+.2%}",
            f"{each.low:+.2%} to {each.high:+.2%}",
            each.verdict.value,
            each.verdict_after_holm.value,
        ]
        for each in found.texts
    ]


def _by_rung(found: DataComparison) -> list[list[str]]:
    """Return a row for each rung: FLOPs, params, and the difference of each text that has it."""
    rows = dict[tuple[str, str], dict[str, str]]()
    for each in found.texts:
        for rung in each.rungs:
            place = (format_flops(rung.flops), format_count(rung.params))
            rows.setdefault(place, {})[each.name] = f"{rung.difference:+.2%}"
    return [[*place, *(cells.get(each.name, "") for each in found.texts)] for place, cells in rows.items()]


def _differences_chart(found: DataComparison) -> Any:
    """Return an interval for each text, with lines at no difference and, dashed, at the margin."""
    rows = pd.DataFrame(
        [
            {"text": each.name, "low": each.low, "high": each.high, "difference": each.difference, "control": each.is_control}
            for each in found.texts
        ]
    )
    lines = alt.Chart(pd.DataFrame({"at": [0.0]})), alt.Chart(pd.DataFrame({"at": [found.margin]}))
    axis = alt.Axis(format="+.1%")
    y = alt.Y("text:N", sort=list(rows["text"]), title=None, axis=alt.Axis(labelLimit=200))
    colour = alt.condition("datum.control", alt.value(OUTCOME_COLOUR), alt.value(LAW_COLOUR))
    layers = [
        lines[0].mark_rule(color=POINT_COLOUR, strokeWidth=1).encode(x="at:Q"),
        lines[1].mark_rule(color="#767676", strokeDash=[4, 4]).encode(x="at:Q"),
        alt.Chart(rows)
        .mark_rule(strokeWidth=3)
        .encode(x=alt.X("low:Q", title=f"loss relative to {found.base_name}", axis=axis), x2="high:Q", y=y, color=colour),
        alt.Chart(rows).mark_point(filled=True, size=70, opacity=1).encode(x="difference:Q", y=y, color=colour),
    ]
    drawn = alt.layer(*layers).properties(width=420, height=max(60, 36 * len(rows)))
    return figure(drawn, "Relative difference in loss of each text; controls in another color")
