"""Attacks on whoever reads the review of a pull request: words of a statement that call people, link, draw, hide or cut."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from fitted_registration import make_fitted_registration
from git_repository import branch_off
from hostile_site import ATTACKS
from registration_factory import CREATED_AT, target_spec
from typer.testing import CliRunner

from marin_scaling.cli.app import app
from marin_scaling.ladder.config import Promise
from marin_scaling.preregistration.review.comment import escape, fitting, length
from marin_scaling.printable import COMMENT_CHARACTERS

CALLS = (
    "@everyone @org/team @ada",
    "#1 GH-12 owner/name#3 owner/name@deadbeef",
    "see deadbeefdeadbeefdeadbeefdeadbeefdeadbeef",
    "https://evil.example/x?y=1 www.evil.example ada@evil.example mailto:ada@evil.example",
    "[text](https://evil.example) ![picture](https://evil.example/x.png)",
    "[text]: https://evil.example",
    "<!-- hidden --> <details><summary>x</summary>",
    "# heading",
    "- [x] done",
    "| a | b |",
    "```mermaid graph TD```",
    "`` code ` span ``",
    "\\`escaped\\` \\| bar \\\\| bar",
    "</code></pre><img src=x>",
    "**Verified** ~~refused~~ _x_ *y*",
    "&#64;everyone &commat;everyone &lt;b&gt;",
    "$x$ $$y$$ :warning: [^1] [!CAUTION]",
    "> quoted",
)


def outside_code(text: str) -> str:
    """What a forge reads of a review: without code elements, code spans and preformatted blocks."""
    text = re.sub(r"<pre.*?</pre>|<code>[^<>]*</code>|```mermaid.*?```", "", text, flags=re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


@pytest.mark.parametrize("words", [*CALLS, *(attack.replace("%s", "x") for attack in ATTACKS)])
def test_a_forge_reads_nothing_in_words_of_a_statement(words: str) -> None:
    """What is not a letter or harmless is an entity within a code element, and no address of mail is left whole."""
    shown = escape(words)
    assert not set(outside_code(shown)) & set("@#<>[]`|*_~&$!\\")
    assert not re.search(r"https?:|www\.|\b[0-9a-f]{7,40}\b|gh-\d", outside_code(shown), re.IGNORECASE)
    for code in re.findall("<code>(.*?)</code>", shown):
        assert re.fullmatch(r"(?:&#\d+;|[A-Za-z0-9 ])*", code)
        assert "&#64;" not in code[:-5]
        assert "www" not in code


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose branch main has one preregistration; we stand on a branch of it."""
    make_fitted_registration(tmp_path)
    branch_off(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def add(root: Path, number: int, **said: object) -> None:
    target = target_spec().model_copy(update={"seed": number})
    make_fitted_registration(root, target=target, slug=f"more-{number}", created_at=CREATED_AT, **said)


def review(*options: str) -> str:
    return CliRunner().invoke(app, ["review", "--base", "main", "--markdown", *options]).stdout


def allowed(text: str) -> set[str]:
    """Tags, and lines that begin a block, of what is outside of code."""
    return {*re.findall(r"</?[a-z]+", text), *re.findall(r"^(#+ [A-Z][a-z ]+|> .*|\[.*)$", text, re.MULTILINE)}


def test_a_review_of_hostile_words_has_no_more_markup_than_one_of_harmless_words(root: Path) -> None:
    """Conditions, assumptions, differences, related runs."""
    add(root, 1, promise=promise({str(number): f"word {number}" for number in range(len(CALLS))}))
    harmless = allowed(outside_code(review()))
    add(root, 2, promise=promise(dict(zip(map(str, range(len(CALLS))), CALLS, strict=True))))
    said = review()
    assert allowed(outside_code(said)) - harmless == set()
    assert "@" not in outside_code(said)
    assert not re.search(r"#\d|https?:|www\.", outside_code(said))
    assert "<!--" not in said


def promise(words: Mapping[str, str]) -> Promise:
    texts = tuple(words.values())
    return Promise(
        void_if=texts,
        known_differences=texts,
        related_runs_seen=texts,
        assumptions=[{"text": text, "if_false": text} for text in texts],
    )


def test_every_verdict_stands_before_the_details_and_none_is_cut(root: Path) -> None:
    """Eight forecasts with long conditions do not fit; a refused one is among them, and it is named first."""
    words = promise({str(number): f"{number} " + "words of a condition " * 90 for number in range(9)})
    for number in range(1, 8):
        add(root, number, promise=words)
    add(root, 8, promise=words, shift=0.02)
    said = review()
    assert length(said) <= COMMENT_CHARACTERS + 300
    head = said.partition("\n## ")[0]
    assert "- **refused**: 2026-11-20-more-8" in head.split("\n- ")[0] + "\n- " + head.split("\n- ")[1]
    assert all(f": 2026-11-20-more-{number}" in head for number in range(1, 9))
    assert "are left out" in said.rstrip().split("\n")[-1]
    assert "marin-scale review" in said.rstrip().split("\n")[-1]
    whole = review("--whole")
    assert "are left out" not in whole
    assert whole.count("\n## ") == 8


def test_what_does_not_fit_is_left_out_as_a_whole() -> None:
    """No detail is cut within, so no code element stays open."""
    kept, left = fitting("head", ["a" * 50, "b" * 500, "@" * 30], most=150)
    assert kept == ["head", "a" * 50, "@" * 30]
    assert left == [1]
