"""The wording rules of the documentation that a program can check; code, commands and generated tables are not read."""

import re
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOP = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "ARCHITECTURE.md",
    "benchmarks/README.md",
    "runs/delphi/SOURCE.md",
]
PAGES = [
    *(ROOT / name for name in TOP),
    *sorted(page for page in (ROOT / "site").rglob("*.md") if "generated" not in page.parts),
]
MOST_WORDS = 30
MEDIAN_WORDS = 14

NOT_PROSE = re.compile(
    r"^```.*?^```$"  # fenced blocks
    r"|<!-- \[\[\[cog.*?\[\[\[end\]\]\] -->"  # generated parts
    r"|<!--.*?-->"
    r"|\A---\n.*?^---$",
    re.MULTILINE | re.DOTALL,
)
BANNED = {
    r"typed again|type it again": "rerun",
    r"\b(goes|going|went|go) on (where|from)\b": "resume",
    r"\bat hand\b": "here, or given",
    r"\bunder way\b": "unfinished, or running",
    r"\bhangs? on\b": "depend on",
    r"\bbeside\b": "next to, with, or compared with",
    r"\bstands?\b(?! for)": "is, is listed, or is written",
    r"\b(is|are|was|were) (said|told)\b|\b(says|tells|say|tell) (so|of)\b": "is reported, or states",
    r"\bone's own\b|\bof (mine|yours)\b": "your own",
    r"\bstrangers?'s?\b": "someone else's",
    r"\bmend(ed|s)?\b": "fix",
    r"\bdoubts?\b|\bdoubtful\b": "warning",
    r"\b(leaves|left) over\b": "residuals",
    r"\bmoved? about in\b": "interactive",
    r"\bwithout a word\b|\bno word\b": "without a warning",
    r"\banew\b": "again",
    r"\bwhat (becomes|became|came|comes) of\b": "what happens to, or the result of",
    r"\bcame of\b|\bcome of it\b": "resulted",
    r"\bhinders?\b": "prevent, or affect",
    r"\bsigns that\b": "characters that",
    r"\bnobody\b": "name who, or use the passive",
    r"\bsound\b": "valid",
    r"\bas (it|they) (is|are|was|were) asked\b": "as requested",
    r"\bof itself\b": "by itself",
    r"\bso many\b": "the number of",
    r"\bas ever\b": "as usual",
    r"\bwhoever\b": "anyone who",
    r"\bwherever\b|\bwhence\b|\bthereby\b|\bthereof\b": "where, from which, by it, of it",
    r"\bas far as it (goes|can be known)\b": "as far as known",
}
"""Phrases of the project's own dialect, and what to write instead."""

AMERICAN = {
    r"analyse\b|analysed": "analyze",
    "artefact": "artifact",
    "behaviour": "behavior",
    "cancelled": "canceled",
    "catalogue": "catalog",
    "centre": "center",
    "colour": "color",
    "defence": "defense",
    "favour": "favor",
    "fulfil": "fulfill",
    "grey": "gray",
    "honour": "honor",
    "initialis": "initializ",
    "judgement": "judgment",
    "labelled": "labeled",
    "licence": "license",
    "marginalis": "marginaliz",
    "minimis": "minimiz",
    "modelling": "modeling",
    "neighbour": "neighbor",
    "normalis": "normaliz",
    "optimis": "optimiz",
    "organis": "organiz",
    "parametris": "parametriz",
    "penalis": "penaliz",
    "realis": "realiz",
    "recognis": "recogniz",
    "regularis": "regulariz",
    "summaris": "summariz",
    "tokenis": "tokeniz",
    "travelled": "traveled",
}


def blocks(page: Path) -> Iterator[tuple[int, str]]:
    """Line number and text of each paragraph, list item and table cell, without links' addresses."""
    text = NOT_PROSE.sub(lambda found: "\n" * found[0].count("\n"), page.read_text(encoding="utf-8"))
    held: list[str] = []
    start = 0
    for number, line in enumerate([*text.split("\n"), ""], start=1):
        starts_block = re.match(r"\s*([-*+]|\d+[.)]|#+|>)\s", line)
        if held and (starts_block or not line.strip() or line.lstrip().startswith(("|", "!["))):
            yield start, plain(" ".join(held))
            held = []
        if line.lstrip().startswith("|"):
            yield from ((number, plain(each)) for each in re.split(r"(?<!\\)\|", line) if each.strip(" :-"))
        elif line.strip() and not line.lstrip().startswith("!["):
            start = start if held else number
            held.append(re.sub(r"^\s*([-*+]|\d+[.)]|#+|>)\s+", "", line).strip())


def plain(text: str) -> str:
    """Markdown without marks: code is one word, links are their words."""
    text = re.sub(r"`[^`]*`", "CODE", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"\*\*|\*(?=\w)|(?<=\w)\*|\\", "", text).strip()


def sentences(page: Path) -> Iterator[tuple[int, str]]:
    """Line number and text of each sentence."""
    for line, text in blocks(page):
        guarded = re.sub(r"\b(et al|e\.g|i\.e|vs|eq|Sect)\.", r"\1", text)
        yield from ((line, each) for each in re.split(r"(?<=[.!?:])\*{0,2}\s+", guarded) if each.strip())


def words(sentence: str) -> int:
    """Count the words that hold a letter or digit."""
    return sum(1 for each in sentence.split() if any(sign.isalnum() for sign in each))


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_sentence_has_more_than_thirty_words(page: Path) -> None:
    """The guide asks for 25; a colon ends a sentence here."""
    long = [f"{page.name}:{line}: {words(each)} words: {each}" for line, each in sentences(page) if words(each) > MOST_WORDS]
    assert not long, "\n".join(long)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_sentence_has_at_most_one_semicolon(page: Path) -> None:
    """More of them make a list, which is written as one."""
    many = [f"{page.name}:{line}: {each}" for line, each in sentences(page) if each.count(";") > 1]
    assert not many, "\n".join(many)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_banned_phrase(page: Path) -> None:
    """Each is shown with its replacement."""
    found = [
        f"{page.name}:{line}: {match[0]!r}: write {instead!r}"
        for line, text in blocks(page)
        for phrase, instead in BANNED.items()
        if (match := re.search(phrase, text, re.IGNORECASE))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_spelling_is_american(page: Path) -> None:
    """Common words only."""
    found = [
        f"{page.name}:{line}: {british}: write {american}"
        for line, text in blocks(page)
        for british, american in AMERICAN.items()
        if re.search(british, text.lower())
    ]
    assert not found, "\n".join(found)


def test_the_median_sentence_is_short(record_property: Callable[[str, object], None]) -> None:
    """Over sentences of five words and more, because cells of tables are short anyway."""
    counts = [count for page in PAGES for _, each in sentences(page) if (count := words(each)) >= 5]
    median = statistics.median(counts)
    record_property("median_words", median)
    print(f"{len(counts)} sentences, median {median:g} words, longest {max(counts)}")
    assert median <= MEDIAN_WORDS
