"""What a reviewer of a pull request is shown: what held, against the base's signers; what did not; and what is doubtful."""

import html
import json
import re
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from amendment_factory import lower, make_amendment
from cryptography.hazmat.primitives.asymmetric import ed25519
from fitted_registration import fitted, make_fitted_registration
from git_repository import branch_off, commit, git
from one_page import page
from registration_factory import CREATED_AT, make_registration, run_spec, signing_key, store_run, target_spec
from typer.testing import CliRunner, Result

from marin_scaling.canonical_json import dump_canonical
from marin_scaling.cli.app import app
from marin_scaling.errors import UsageError
from marin_scaling.files import read_bytes
from marin_scaling.ladder.config import Promise
from marin_scaling.preregistration.events.notice import give_notice
from marin_scaling.preregistration.log import write_down
from marin_scaling.preregistration.register import bound_spec, countersign
from marin_scaling.preregistration.registry import allow_signer, read_registration, signers_path
from marin_scaling.preregistration.review.pull_request import review_branch
from marin_scaling.preregistration.review.report import doubts_section, of_backtest, of_fit, of_other_choices, review_text
from marin_scaling.preregistration.signing.allowed_signers import signer_line
from marin_scaling.preregistration.signing.sshsig import NAMESPACE
from marin_scaling.preregistration.verdict import check_preregistration
from marin_scaling.printable import TABLE_WIDTH
from marin_scaling.run.spec import RunSpec
from marin_scaling.units import format_number

FIRST = Path("preregistrations/2026-11-20-tiny-target")
SECOND = Path("preregistrations/2026-11-20-second")
OTHER = signing_key(ed25519.Ed25519PrivateKey.from_private_bytes(bytes([6] * 32))).public_key


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose branch main has one preregistration; we stand on a branch of it."""
    make_fitted_registration(tmp_path)
    branch_off(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def add_second(root: Path, *, shift: float = 0.0, seed: int = 1, **changes: object) -> None:
    """A further forecast, of another target of the same ladder."""
    make_fitted_registration(
        root, shift=shift, target=target_spec().model_copy(update={"seed": seed}), slug="second", **changes
    )


def review(*options: str) -> Result:
    """As a reviewer, or CI, calls it."""
    return CliRunner().invoke(app, ["review", "--base", "main", "--markdown", *options])


def read(text: str) -> str:
    """The text as its reader sees it, with its Markdown and without the marks of code."""
    return html.unescape(re.sub("</?code>", "", text))


NO_RUNS = ", except the runs that it was fitted to, which are not here"


def test_a_new_forecast_is_shown_beside_its_baseline_and_the_one_before(root: Path) -> None:
    """With the digest that its run will carry, and the questions that a person has to answer."""
    add_second(root)
    said = review()
    assert said.exit_code == 0, said.output
    statement = read_registration(SECOND)
    assert f"**Verified{NO_RUNS}**, signed by ada@example.org: **{statement.quantiles[0.5]:.4f} bits/byte**" in read(
        said.stdout
    )
    baseline, median = statement.predicate["scoring"]["baseline"]["point"], statement.quantiles[0.5]
    assert f"**Verified{NO_RUNS}**, signed by ada@example.org: **{median:.4f} bits/byte**" in read(said.stdout)
    assert f"| baseline | {baseline:.4f} | {baseline / median - 1:+.2%} |" in said.stdout
    assert f"| 2026-11-20-tiny-target | {median:.4f} | +0.00% |" in said.stdout
    assert "| combined | 16 (0 more in this forecast, 0 fewer)" in said.stdout
    assert f"`{statement.sha256}`" in said.stdout
    assert "- [ ] Has the run not started yet?" in said.stdout
    assert "2 registered in 1 family of nearly the same run, 0 of them settled: 2 pending" in said.stdout
    assert "**1 other forecast of a similar run by this registrant**" in said.stdout


def test_a_review_is_plain_text_of_80_columns_unless_markdown_is_asked_for(root: Path) -> None:
    """Also in a pipe or file: no entity, no markup, no broken word."""
    add_second(root)
    said = CliRunner().invoke(app, ["review", "--base", "main"]).stdout
    statement = read_registration(SECOND)
    assert not re.search(r"&#|</?[a-z]+>|\*\*|^#", said, re.MULTILINE)
    long = [line for line in said.splitlines() if len(line) > TABLE_WIDTH]
    assert [line for line in long if len(line.split()) > 1] == [], "one word cannot be wrapped"
    assert {"combined", "baseline", SECOND.name, statement.sha256, "ada@example.org"} <= {
        word.strip(",;:") for word in said.split()
    }


def test_an_alternative_that_could_not_be_fitted_has_no_median(root: Path) -> None:
    """The reason stands below the table."""
    add_second(root)
    statement = read_registration(SECOND)
    rows = statement.predicate["forecast"]["sensitivity"]
    rows[1] = {"choice": "another law", "median": None, "whyNone": "3 tokens at one budget."}
    section = doubts_section(statement)
    assert "| another law | none |  |" in section
    assert "another law could not be fitted: 3 tokens at one budget." in section.rpartition("|\n\n- ")[2]


def test_excluded_runs_are_listed_by_their_reason(root: Path) -> None:
    """The first runs of each, the number of the others, and the whole reason."""
    add_second(root)
    statement, why = (
        read_registration(SECOND),
        "swept in lr: 4 of the 5 settings of its size and tokens are lower (--swept all keeps it)",
    )
    statement.predicate["fit"]["excluded"] += [{"run": f"r{each}", "why": why} for each in range(5)] + [
        {"run": "s", "why": "diverged"}
    ]
    said = [read(line) for line in of_fit(SECOND, statement) if "excluded" in line]
    assert [line.partition(": ")[2] for line in said] == [f"r0, r1, r2 and 2 more: {why}", "s: diverged"]


def test_resolvers_and_reviewers_without_a_key_are_named(root: Path) -> None:
    """By the signers of the base; whoever has a key is not."""
    people = {"resolver": "bob@example.org", "reviewers": ("carol@example.net",)}
    add_second(root, promise=Promise(**people))
    said = read(review().stdout)
    for name in ("bob@example.org", "carol@example.net"):
        assert any("no key" in line and name in line for line in said.splitlines())
    assert not any("no key" in line and "ada@" in line for line in said.splitlines())


def test_the_figure_ends_with_median_and_both_ends_of_the_interval(root: Path) -> None:
    """Three lines through the best run of each budget, as the forge's charts know no error bars."""
    add_second(root)
    lines = [json.loads(line.split("line ")[1]) for line in review().stdout.splitlines() if line.startswith("  line [")]
    quantiles = read_registration(SECOND).quantiles
    assert [line[-1] for line in lines] == [round(quantiles[level], 4) for level in (0.5, 0.05, 0.95)]
    assert len({tuple(line[:-1]) for line in lines}) == 1
    assert lines[0][:-1] == sorted(lines[0][:-1], reverse=True)


def test_a_number_moved_by_hand_is_refused_and_not_shown(root: Path) -> None:
    """The reason stands there, and no table that would make it look sound."""
    add_second(root, shift=0.02)
    said = review()
    assert said.exit_code == 1
    assert "**Refused**:" in said.stdout
    assert "refitting its ladder gives" in said.stdout
    assert "Comparison" not in said.stdout


def test_a_key_that_comes_with_its_forecast_is_not_believed(root: Path) -> None:
    """Signers are those of the base; the name of a temporary file is nobody's business."""
    key = signing_key(ed25519.Ed25519PrivateKey.from_private_bytes(bytes([9] * 32)))
    allow_signer(Path("preregistrations"), principal="mallory@example.org", key=key.public_key, at=CREATED_AT)
    add_second(root, key=key, principal="mallory@example.org")
    said = review()
    assert said.exit_code == 1
    assert "**Refused**, the registry as a whole" in said.stdout
    assert "may not sign for mallory@example.org: preregistrations/allowed_signers of main has no such line" in said.stdout


def test_an_edited_old_forecast_is_refused(root: Path) -> None:
    """It is the registry as a whole that is not what it was."""
    (FIRST / "samples.json").write_bytes(b"{}\n")
    said = review()
    assert said.exit_code == 1
    assert "samples.json was changed since main" in said.stdout


def test_what_is_doubtful_is_said_in_bold(root: Path) -> None:
    """No stamp, a resolver who is the registrant, no runs to compare with."""
    add_second(root)
    said = review().stdout
    for doubt in ("its time is not stamped", "its resolver is its registrant", "ladder"):
        assert f"**{doubt}" in said


def test_a_forecast_that_says_it_is_old_is_doubtful(root: Path) -> None:
    """Whoever has a key that was given up can only write an older date."""
    add_second(root)
    for days, doubted in ((1, False), (2, True), (30, True)):
        found = review_branch("main", registry_dir=FIRST.parent, runs_dir=root / "runs")
        text = review_text(found, registry=FIRST.parent, runs_dir=root / "runs", at=CREATED_AT + timedelta(days=days))
        assert (f"**its stated time is {days} days ago**" in text) is doubted


def test_a_resolver_of_ones_own_and_a_near_target_are_no_doubts(root: Path) -> None:
    """What is in order is not warned of."""
    add_second(root, promise=Promise(resolver="bob@example.org"))
    said = review().stdout
    assert "its resolver is" not in said
    assert "x beyond its ladder" not in said


def test_an_outcome_that_comes_later_is_reviewed_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The forecast was merged before; shown is what was added, and how it came out."""
    folder = make_registration(tmp_path).folder
    branch_off(tmp_path)
    monkeypatch.chdir(tmp_path)
    _finish(folder)
    said = review()
    assert said.exit_code == 0, said.output
    assert "Added to it: outcome.json. Its state: held: observed 2.5500 bits/byte" in read(said.stdout)


def test_an_outcome_beside_its_new_forecast_is_doubtful(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody saw the forecast before the run."""
    tmp_path.joinpath("README").write_text("empty\n")
    allow_signer(tmp_path / "preregistrations", principal="ada@example.org", key=signing_key().public_key, at=CREATED_AT)
    branch_off(tmp_path)
    monkeypatch.chdir(tmp_path)
    _finish(make_registration(tmp_path).folder)
    assert "**its outcome comes with it**" in review().stdout


def test_a_new_forecast_whose_run_is_there_is_no_open_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where its outcome is not in the branch: the record says what it would be."""
    tmp_path.joinpath("README").write_text("empty\n")
    allow_signer(tmp_path / "preregistrations", principal="ada@example.org", key=signing_key().public_key, at=CREATED_AT)
    branch_off(tmp_path)
    monkeypatch.chdir(tmp_path)
    folder = make_registration(tmp_path).folder
    open_one = review().stdout
    store_run(tmp_path / "runs", spec=bound_target(folder), loss=2.55, day="2026-11-21")
    settled = review().stdout
    assert "no longer open" not in open_one
    assert "**the forecast is no longer open**: held: observed 2.5500" in settled


def test_what_is_promised_stands_before_how_it_was_got(root: Path) -> None:
    """Run, size, metric, weights, text and which runs were taken, as signed."""
    add_second(root)
    promised = read_registration(SECOND).predicate["targetRun"]
    said = review().stdout.partition("### Promised run")[2].partition("###")[0]
    for row in (
        f"| size | {promised['paramsTotal']:,} parameters, {promised['tokens']:,} tokens, "
        f"{format_number(promised['flops'], 4)} FLOPs",
        "| metric | bits_per_byte in bits/byte; ",
        "| weights | ",
        "| text | digest ",
        "| fitted runs | all finished rungs of runs/tiny, except those listed as excluded |",
    ):
        assert row in said, said


def test_choices_that_the_interval_leaves_out_are_named(root: Path) -> None:
    """By the review and by the page, each with the median that it gives; nothing where all are inside."""
    add_second(root)
    statement = read_registration(SECOND)
    low, high = statement.quantiles[0.05], statement.quantiles[0.95]
    medians = {row["choice"]: row["median"] for row in statement.predicate["forecast"]["sensitivity"]}
    outside = {choice: median for choice, median in medians.items() if median is not None and not low <= median <= high}
    assert outside
    said = review().stdout
    shown = page(root, f"preregistrations/{SECOND.name}.md")
    for text in (said, shown):
        assert f"{len(outside)} of {len(medians) - 1} alternative" in text
        assert f"{low:.4f}, {high:.4f}" in text
        assert all(f"{choice}: {median:.4f}" in text for choice, median in outside.items())
    for row in statement.predicate["forecast"]["sensitivity"]:
        row["median"] = statement.quantiles[0.5]
    assert not list(of_other_choices(statement))


@pytest.mark.parametrize(
    ("inside", "facts"),
    [(0.51, []), (0.5, ["8 forecasts", "3x and more", "50%", "90 %", "2.3% too high"])],
)
def test_a_backtest_that_missed_half_of_its_runs_is_a_warning(inside: float, facts: list[str]) -> None:
    """With how many runs, how far, and to which side: the forecast comes from the same law."""
    row = {"nearest": 3.0, "farthest": 10.0, "count": 8, "bias": 0.023, "inside50": 0.1, "inside90": inside}
    found = list(of_backtest([row]))
    assert len(found) == bool(facts)
    assert all(fact in "".join(found) for fact in facts)


def test_the_fits_own_word_is_told(root: Path) -> None:
    """In bold where it says that it may not be used."""
    add_second(root)
    assert "- status of the fit: " in review().stdout
    path = SECOND / "forecast.json"
    document = json.loads(path.read_bytes()) | {"may_be_used": False, "status": "Not usable: the runs are too few."}
    path.write_bytes(dump_canonical(document))
    said = list(of_fit(SECOND, read_registration(SECOND)))
    assert "**the fit is marked as unusable**: Not usable: the runs are too few." in said


def test_a_void_after_the_value_was_known_is_doubted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its resolver saw the loss first; without a run nothing is said."""
    carol = signing_key(ed25519.Ed25519PrivateKey.from_private_bytes(bytes([5] * 32)))
    promise = Promise(resolver="carol@example.org", void_if=("the text is gone",))
    for name, is_known in (("unknown", False), ("known", True)):
        folder = make_registration(tmp_path / name, promise=promise).folder
        allow_signer(folder.parent, principal="carol@example.org", key=carol.public_key, at=CREATED_AT)
        if is_known:
            store_run(tmp_path / name / "runs", spec=bound_target(folder), loss=2.55, day="2026-11-21")
        branch_off(tmp_path / name)
        monkeypatch.chdir(tmp_path / name)
        at = CREATED_AT + timedelta(days=2)
        said = {"principal": "carol@example.org", "at": at, "reason": "x", "condition": "the text is gone"}
        give_notice(folder, "void", key=carol, **said)
        write_down(folder.parent, at=at)
        assert ("**It is voided after its value was known**" in review().stdout) is is_known


def test_a_branch_that_takes_runs_away_from_a_forecast_is_refused(root: Path) -> None:
    """Its ladder would be compared with nothing, and its outcome be a claim; of ladders without a forecast they may go."""
    store_run(root / "runs", spec=run_spec(ladder="other"), loss=3.0)
    store_run(root / "runs", spec=run_spec(ladder="tiny", hidden_dim=48), loss=3.0, day="2026-11-22")
    commit(root)
    git(root, "branch", "-f", "main")
    shutil.rmtree(root / "runs" / "other")
    assert review().exit_code == 0, review().stdout
    record = next((root / "runs" / "tiny").glob("*/record.json"))
    record.unlink()
    said = review()
    assert said.exit_code == 1
    assert f"{record.relative_to(root)} was removed since main, and forecasts rest on that ladder" in said.stdout
    assert "was removed since main" in str(CliRunner().invoke(app, ["verify", "all", "--base", "main"]).exception)


def test_what_is_odd_about_a_new_key_is_said(root: Path) -> None:
    """Another purpose, one key under two names, and the first key of a name."""
    ada, bob = FIRST.parent.joinpath("allowed_signers").read_text().splitlines()[0], "bob@example.org"
    others = {
        f"{bob} " + ada.partition(" ")[2]: "one key for two names: bob@example.org and ada@example.org",
        signer_line(bob, key=OTHER, namespace="git"): "this line may not sign here: it has other namespaces",
        signer_line(bob, key=OTHER, namespace=NAMESPACE): "this is the first key of bob@example.org",
    }
    for line, warning in others.items():
        (FIRST.parent / "allowed_signers").write_text(f"{ada}\n{line}\n")
        assert warning in read(review().stdout)


def test_who_has_reviewed_a_forecast_stands_at_its_head(root: Path) -> None:
    """Not only among all that was verified."""
    allow_signer(FIRST.parent, principal="bob@example.org", key=OTHER, at=CREATED_AT)
    commit(root)
    git(root, "branch", "-f", "main")
    add_second(root)
    bob = signing_key(ed25519.Ed25519PrivateKey.from_private_bytes(bytes([6] * 32)))
    countersign(SECOND, key=bob, principal="bob@example.org")
    write_down(FIRST.parent, at=CREATED_AT)
    assert f"**Verified{NO_RUNS}**, signed by ada@example.org, reviewed by bob@example.org: **" in read(review().stdout)


def test_a_change_of_trust_says_which_standing_forecasts_it_would_refuse(root: Path) -> None:
    """A key whose line is given an end before the forecast was signed; a line more refuses nothing."""
    signers = FIRST.parent / "allowed_signers"
    bob = signing_key(ed25519.Ed25519PrivateKey.from_private_bytes(bytes([6] * 32)))
    allow_signer(FIRST.parent, principal="bob@example.org", key=bob.public_key, at=CREATED_AT)
    assert "would be refused" not in review().stdout
    git(root, "checkout", "--", str(signers))
    signers.write_text(signers.read_text().replace('namespaces="', 'valid-before="20261101Z",namespaces="'))
    said = review().stdout
    assert "**2026-11-20-tiny-target** would be refused after the merge" in said
    assert "only before 2026-11-01T00:00:00Z" in said
    assert str(root) not in said  # a place on one machine is nothing for a page


def bound_target(folder: Path) -> RunSpec:
    """The run that answers the forecast in a folder."""
    return bound_spec(target_spec(), statement=read_bytes(folder / "statement.json"))


def _finish(folder: Path) -> None:
    """Its target is trained, and it is checked."""
    root = folder.parent.parent
    store_run(root / "runs", spec=bound_target(folder), loss=2.55, day="2026-11-21")
    at = CREATED_AT + timedelta(days=2)
    check_preregistration(folder, runs_dir=root / "runs", allowed_signers=signers_path(folder), checked_at=at)


def test_a_notice_is_shown_with_its_reason(root: Path) -> None:
    """It was added to an old forecast."""
    at = CREATED_AT + timedelta(days=1)
    give_notice(FIRST, "withdraw", key=signing_key(), principal="ada@example.org", at=at, reason="the run was cancelled")
    write_down(FIRST.parent, at=at)
    said = review().stdout
    assert "Added to it: notice-1-withdraw" in said
    assert "the run was cancelled" in said


def test_words_of_a_registrant_break_out_of_no_cell(root: Path) -> None:
    """Anyone may send a pull request: text is text, and mentions nobody."""
    add_second(root, promise=Promise(void_if=["| x | <img src=x> @everyone [link](http://example.org) ```"]))
    said = review().stdout
    for sign in ("<img", "@everyone", "[link]", "```\n```"):
        assert sign not in said


def test_nothing_is_written(root: Path) -> None:
    """Not even an outcome that could be told."""
    add_second(root)
    commit(root)
    review()
    git(root, "diff", "--exit-code")


def test_a_branch_that_brings_no_forecast_says_so(root: Path) -> None:
    """Most pull requests do not."""
    assert "No preregistration is added or changed." in review().stdout


def test_a_base_that_git_does_not_know_is_told(root: Path) -> None:
    """With the command that fetches it."""
    with pytest.raises(UsageError, match=r"git.*'nowhere'"):
        review_branch("nowhere", registry_dir=FIRST.parent, runs_dir=root / "runs")


def test_a_later_forecast_is_shown_beside_the_first(root: Path) -> None:
    """Both numbers, how far it moved in three units, how much of the run was seen, why, and what to ask."""
    make_amendment(FIRST, steps_seen=200)
    said = review()
    assert said.exit_code == 0, said.output
    first = read_registration(FIRST).quantiles
    later = {float(level): value for level, value in amended()["forecast"]["quantiles"].items()}
    moved, width = later[0.5] - first[0.5], first[0.95] - first[0.05]
    assert "**Verified.** Added to it: amend-1. Its state: no outcome yet" in read(said.stdout)
    assert "200 of 800 steps of the run" in said.stdout
    assert "Reason: two more budgets were trained" in said.stdout
    assert (
        f"| {moved:+.4f} | {moved * 0.693147:+.4f} | {moved / width:+.2f} | 16 (0 new, 0 gone, 16 with other numbers) |"
        in said.stdout
    )
    assert "**0 runs of the first forecast are missing, and 16 have other numbers**" in said.stdout
    assert "- [ ] Has the run not ended yet?" in said.stdout
    assert "16 runs fitted again: all 23 quantiles" in said.stdout


def amended() -> dict[str, Any]:
    """What the amendment says."""
    said: dict[str, Any] = json.loads((FIRST / "amend-1" / "amendment.json").read_bytes())["predicate"]
    return said


def test_a_later_forecast_that_comes_with_its_outcome_is_doubted(root: Path) -> None:
    """Nobody else could see it before the run had ended; the same where it comes with the first forecast."""
    registration = make_registration(root, rows=None, slug="second", target=target_spec().model_copy(update={"seed": 1}))
    make_amendment(registration.folder, **lower(registration.folder))
    store_run(root / "runs", spec=registration.target, loss=2.55, started_at="2026-11-21T08:00:00Z")
    at = CREATED_AT + timedelta(days=2)
    check_preregistration(
        registration.folder, runs_dir=root / "runs", allowed_signers=signers_path(registration.folder), checked_at=at
    )
    said = review().stdout
    assert "**the outcome comes with it**" in said
    assert "**it comes together with the first forecast**" in said
    assert "**amend-1 fit**: the law" in read(said)


def test_a_moved_later_forecast_is_refused_and_not_shown(root: Path) -> None:
    """Nor is any of its numbers."""
    rows, document, losses = fitted(shift=0.02, seed=1)
    make_amendment(FIRST, rows=rows, forecast=document, losses=losses)
    said = review()
    assert said.exit_code == 1
    assert "amend-1: it forecasts" in said.stdout
    assert "forecast again" not in said.stdout
