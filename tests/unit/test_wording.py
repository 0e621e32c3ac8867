"""Docstrings begin with a verb or a noun, and no text that a user reads contains a banned phrase."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "marin_scaling"

HELD = (
    "cli",
    "preregistration",
    "publish",
    "speedrun",
    "experiment",
    "data",
    "fitting",
    "forecast",
    "ladder",
    "recipe",
    "run",
    "train",
    "*.py",
)
"""Packages that are checked; `*.py` stands for the modules at the root."""

BAD_START = re.compile(
    r"""
    \W*(?:the\s)?
    (about|above|after|and|as|at|because|before|behind|below|beside|between|beyond|but|by|either|for|from|he|her|his|how|if|in|into
    |is|it|its|like|no|nobody|none|not|nothing|of|off|on|once|only|or|otherwise|out|over|same|so|such|than|that|their|them|then
    |there|these|they|this|those|though|through|to|under|unless|until|upon|was|were|what|whatever|when|where|whether|which|while
    |who|whoever|whom|whose|why|with|within|without)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""Words that leave a docstring without a subject if it begins with them."""

BANNED = {
    r"\b(?:goes?|going|went|gone) on\b": "resume, continue",
    r"\btyp(?:e|ed|ing)\b[^.;]*\bagain\b": "rerun",
    r"\bgives? back\b|\bgiven back\b": "return",
    r"\bdoubt(?:s|ed|ful)?\b": "warning",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"\bis \S+ meant\b": "did you mean ...?",
    r"\bnobody\b": "no one, or name who",
    r"\bat hand\b": "available, downloaded, installed",
    r"\bbesides?\b": "next to, in addition to",
    r"\bhangs? on\b|\bhangs? together\b": "depends on, is correlated",
    r"\bsays? (?:nothing|so)\b|\bsaying nothing\b": "name the missing field or the fact",
    r"\bunder way\b": "unfinished, running",
    r"\b(?:became|becomes|become) of\b": "outcome, result",
    r"\bleaves? over\b|\bleft over\b": "residuals, remaining",
    r"\bcounted again\b": "recomputed",
    r"\bbrought (?:here|to)\b": "downloaded, copied",
    r"\ba (?:int|object|array|entry|item|error|integer|other)\b": "an",
    r"\bmade out\b": "determined, read",
    r"\bcomes? to nothing\b": "fails, is empty",
    r"\bone's own\b|\bthat one\b": "name the subject",
    r"\bthere is none\b|\bthere are none\b|\bhas none\b": "name what is missing",
    r"\bas if nothing\b": "state the fact",
}
"""Phrases of a private dialect, each with words of the field to use instead."""


def modules() -> Iterator[Path]:
    """Yield the modules of the packages that are checked."""
    for pattern in HELD:
        yield from sorted(PACKAGE.glob(pattern) if "*" in pattern else (PACKAGE / pattern).rglob("*.py"))


def docstrings(tree: ast.Module) -> dict[ast.Constant, str]:
    """Map the node of each docstring, attribute docstrings included, to its text."""
    found: dict[ast.Constant, str] = {}
    for node in ast.walk(tree):
        for each in getattr(node, "body", ()) if isinstance(getattr(node, "body", None), list) else ():
            if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) and isinstance(each.value.value, str):
                found[each.value] = each.value.value
    return found


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and text of every string of two words or more that is no docstring; braces stand for its fields."""
    skipped = set(docstrings(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [each for each in node.values if isinstance(each, ast.Constant)]
            skipped.update(parts)
            yield node.lineno, "".join(str(each.value) if isinstance(each, ast.Constant) else "{}" for each in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value and node not in skipped:
            yield node.lineno, node.value


@pytest.mark.parametrize("path", [pytest.param(path, id=str(path.relative_to(PACKAGE))) for path in modules()])
def test_docstrings_begin_with_a_verb_or_a_noun(path: Path) -> None:
    """The first word of a docstring is no preposition, pronoun or conjunction."""
    tree = ast.parse(path.read_text("utf-8"))
    found = {node.lineno: BAD_START.match(text) for node, text in docstrings(tree).items()}
    assert {line: match[1] for line, match in found.items() if match} == {}


@pytest.mark.parametrize("path", [pytest.param(path, id=str(path.relative_to(PACKAGE))) for path in modules()])
def test_texts_have_no_banned_phrase(path: Path) -> None:
    """Errors, warnings, help and output use the field's words."""
    tree = ast.parse(path.read_text("utf-8"))
    found = [
        (line, match[0], instead)
        for line, text in texts(tree)
        for pattern, instead in BANNED.items()
        if (match := re.search(pattern, text, re.IGNORECASE))
    ]
    assert found == []
