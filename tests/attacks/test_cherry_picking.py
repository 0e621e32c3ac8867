"""Attacks on the count: of several forecasts of nearly one run the best is shown, and the others never miss.

Each is signed well; what shows them are the longest term, and the family to which they belong.
"""

import html
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from forgery import BOB, allow, key_of, log_again, refused, said_by, sign_again
from git_repository import branch_off
from registration_factory import (
    CREATED_AT,
    forecast_document,
    ladder_rows,
    make_registration,
    run_spec,
    signing_key,
    store_run,
    target_spec,
)
from typer.testing import CliRunner

from marin_scaling.cli.app import app
from marin_scaling.errors import SigningError, StatementError
from marin_scaling.ladder.config import Promise
from marin_scaling.preregistration.register import Registration
from marin_scaling.preregistration.registry import (
    Forecaster,
    RunSize,
    allow_signer,
    family_numbers,
    read_registration,
    registration_folders,
    run_size,
)
from marin_scaling.preregistration.review.report import of_void_conditions, remarks
from marin_scaling.preregistration.track_record import KnownForecasts
from marin_scaling.preregistration.verdict import verdicts_on
from marin_scaling.preregistration.verify.rules import require_followable
from marin_scaling.publish.forecast_index import forecasts_index
from marin_scaling.publish.forecast_page import forecast_page
from marin_scaling.run.spec import RunSpec


@pytest.mark.parametrize("due", [date(9999, 12, 31), date(2100, 1, 1), date(2030, 11, 25)])
def test_a_forecast_that_is_due_too_late_is_not_signed(root: Path, due: date) -> None:
    """Four years are the most, as for a seal."""
    with pytest.raises(StatementError, match="1464 days"):
        make_registration(root, promise=Promise(due=due))
    assert not list((root / "preregistrations").glob("2026-*"))


@pytest.mark.parametrize("due", ["9999-12-31T23:59:59Z", "2100-01-01T23:59:59Z", "2030-11-23T08:30:01Z"])
@pytest.mark.parametrize("command", ["verify", "check"])
def test_a_forecast_that_was_signed_as_due_too_late_is_refused(root: Path, folder: Path, due: str, command: str) -> None:
    """By another tool, or a changed one."""
    sign_again(folder, lambda said: said["resolution"].update(due=due))
    refused(root, f"is due at {due}", "allows 1464 days", command=command)


def test_a_policy_shortens_the_longest_term(root: Path, folder: Path) -> None:
    """For what is signed, and for what is about to be."""
    sign_again(folder, lambda said: said["resolution"].update(due="2027-01-01T00:00:00Z"))
    (folder.parent / "policy.yaml").write_text("since: 2026-11-01\ndue_days: 41\n")
    refused(root, "is due at 2027-01-01T00:00:00Z", "policy.yaml of this registry allows 41 days")
    asked: dict[str, Any] = {"registrant": BOB, "resolver": BOB, "sealed": False, "at": CREATED_AT}
    with pytest.raises(SigningError, match="41 days"):
        require_followable(folder.parent, **asked, due=CREATED_AT + timedelta(days=42))
    require_followable(folder.parent, **asked, due=CREATED_AT + timedelta(days=41))


@pytest.mark.parametrize(
    "condition",
    [
        "the value is above the forecast",
        "Loss over 2.6",
        "it leaves the INTERVAL",
        "the observed values disappoint",
        "it misses",
    ],
)
def test_a_void_condition_that_depends_on_the_value_is_warned_of(root: Path, condition: str) -> None:
    """Shown in full, before all else that is said of the forecast."""
    folder = make_registration(root, promise=Promise(void_if=("the text is gone", condition))).folder
    said = [html.unescape(line) for line in of_void_conditions(read_registration(folder))]
    assert said[0] == "void if: the text is gone"
    assert said[1] == f"void if: {condition}"
    assert said[2].startswith("**that condition may depend on the value itself**")
    assert len(said) == 3


@pytest.mark.parametrize("changes", [{"budget_flops": 1e9 * (1 + 1e-12)}, {"ladder": "other"}, {"budget_flops": 2e9}])
def test_a_second_forecast_of_one_run_under_another_label_is_refused(root: Path, changes: dict[str, Any]) -> None:
    """By preregister, and by verify where another tool signed it."""
    first = make_registration(root)
    twin = target_spec().model_copy(update=changes)
    with pytest.raises(StatementError, match="2026-11-20-tiny-target"):
        second(root, twin)
    first.folder.rename(root / "aside")
    (first.folder.parent / "log.jsonl").unlink()
    second(root, twin)
    (root / "aside").rename(first.folder)
    log_again(first.folder.parent)
    refused(root, "is for the same target as")


def second(root: Path, target: RunSpec, *, shift: float = 0.02, slug: str = "second", **changes: Any) -> Registration:
    """A further forecast, by default with a number of its own, of a target near the first."""
    document = forecast_document(flops=target.flops)
    prediction = document["predictions"][0]
    prediction["median"] += shift
    prediction["quantiles"] = {level: value + shift for level, value in prediction["quantiles"].items()}
    return make_registration(root, rows=ladder_rows(root / "runs"), target=target, forecast=document, slug=slug, **changes)


NEAR = {
    "another seed": target_spec().model_copy(update={"seed": 1}),
    "one step more": target_spec().model_copy(update={"train_steps": 801}),
    "9 % more steps": target_spec().model_copy(update={"train_steps": 872}),
    "a width of 130": run_spec(hidden_dim=130, train_steps=800, role="target"),
}


@pytest.mark.parametrize("name", NEAR)
def test_a_forecast_of_nearly_the_same_run_is_shown_and_counts_with_the_first(
    root: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reviewer sees the other with its median; a hit alone settles nothing."""
    first = make_registration(root)
    branch_off(root)
    second(root, NEAR[name])
    monkeypatch.chdir(root)
    said = shown(root, "second")
    noted = [line for line in said if "1 other forecast of a similar run by this registrant" in line]
    assert "2026-11-20-tiny-target: 2.5000" in noted[0]
    store_run(root / "runs", spec=first.target, loss=2.5, day="2026-11-21")
    record = said_by("check", root)[1].partition("ada@example.org: ")[2]
    assert record.startswith("2 registered in 1 family of nearly the same run, 0 of them settled: 1 pending, 0 overdue, 1 held")
    assert "90 % intervals" not in record


def shown(root: Path, slug: str) -> list[str]:
    """What a reviewer is told of a forecast."""
    from marin_scaling.preregistration.review.pull_request import review_branch

    found = review_branch("main", registry_dir=Path("preregistrations"), runs_dir=Path("runs"))
    (each,) = [each for each in found.reviewed if each.folder.name.endswith(slug)]
    from marin_scaling.preregistration.review.pull_request import Reviewed

    statement = read_registration(each.folder)
    plain = Reviewed(folder=each.folder, added=each.added, statement=statement, receipts=each.receipts)
    known = KnownForecasts(registry=each.folder.parent, runs_dir=root / "runs", at=datetime.now(UTC))
    return [html.unescape(line) for line in remarks(plain, statement, known=known)]


def test_another_name_or_a_hair_of_a_constant_makes_no_other_recipe(root: Path) -> None:
    """A recipe is what its constants are; a constant of twice the size is another."""
    predicate = read_registration(make_registration(root).folder).predicate
    run, optimizer = run_size(predicate), predicate["recipe"]["optimizer"]
    assert run.is_near(replace(run, recipe="delphi-2", optimizer={**optimizer, "beta2": 0.951}))
    assert not run.is_near(replace(run, recipe="delphi-2", optimizer={**optimizer, "learning_rate": 0.02}))
    assert run.is_near(replace(run, data={**run.data, "source": "another name"}))
    assert not run.is_near(replace(run, data={"source": "another text", "digest": "e" * 64}))


def test_a_family_counts_as_its_worst_member(root: Path) -> None:
    """A miss beside a hit, and beside one that is pending."""
    first = make_registration(root)
    second(root, NEAR["another seed"], shift=1.0)
    third = second(root, NEAR["one step more"], slug="third")
    store_run(root / "runs", spec=first.target, loss=2.5, day="2026-11-21")
    store_run(root / "runs", spec=third.target, loss=3.5, day="2026-11-21")
    record = said_by("check", root)[1].partition("ada@example.org: ")[2]
    assert record.startswith(
        "3 registered in 1 family of nearly the same run, 1 of them settled: 1 pending, 0 overdue, 1 held, 1 missed"
    )
    assert "in their 90 % intervals 0 of 1 " in record


def test_the_index_of_forecasts_counts_families(root: Path) -> None:
    """Two registered, one family, none settled."""
    first = make_registration(root)
    second(root, NEAR["another seed"])
    store_run(root / "runs", spec=first.target, loss=2.5, day="2026-11-21")
    assert said_by("check", root)[0] == 0
    pages = [forecast_page(root, folder) for folder in registration_folders(root / "preregistrations")]
    index = forecasts_index(pages, root=root)["index.md"].decode()
    assert "| ada&#64;example.org | 2 | 1 pending, 0 overdue, 1 held, 0 missed, 0 refused | 1 | 0 |" in index


def test_one_key_under_two_names_makes_one_family(root: Path) -> None:
    """Ada registers the other number as Dora, with the same key."""
    first = make_registration(root)
    with (first.folder.parent / "allowed_signers").open("a") as signers:
        signers.write(f'dora@example.org namespaces="preregistration@marin-scaling" {signing_key().public_key.text}\n')
    second(root, NEAR["one step more"], principal="dora@example.org")
    store_run(root / "runs", spec=first.target, loss=2.5, day="2026-11-21")
    said = said_by("check", root)[1]
    assert "ada@example.org: 1 registered: 0 pending, 0 overdue, 1 held" in said
    assert "90 % intervals" not in said.partition("ada@example.org: ")[2]


def test_two_keys_of_one_name_make_one_family(root: Path) -> None:
    """A second key does not make a second person."""
    first = make_registration(root)
    allow_signer(first.folder.parent, principal="ada@example.org", key=key_of("new").public_key, at=CREATED_AT)
    second(root, NEAR["9 % more steps"], key=key_of("new"))
    assert "2 registered in 1 family" in said_by("check", root)[1]


def test_forecasts_of_others_and_of_other_sizes_are_no_family(root: Path) -> None:
    """Another person with another key, and a run of half the tokens."""
    first = make_registration(root)
    allow(first.folder.parent, BOB)
    second(root, NEAR["one step more"], key=key_of(BOB), principal=BOB)
    second(root, run_spec(hidden_dim=128, train_steps=1200, role="target"), slug="longer")
    assert "famil" not in said_by("check", root)[1]


def test_a_run_that_is_due_after_more_than_a_year_is_warned_of(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the day; within a year nothing is said."""
    make_registration(root)
    branch_off(root)
    second(root, run_spec(hidden_dim=128, train_steps=1200, role="target"), promise=Promise(due=date(2028, 1, 1)))
    second(
        root, run_spec(hidden_dim=128, train_steps=1600, role="target"), slug="third", promise=Promise(due=date(2027, 11, 1))
    )
    monkeypatch.chdir(root)
    assert any("its run is due only after 407 days" in line for line in shown(root, "second"))
    assert not any("is due only after" in line for line in shown(root, "third"))
    assert CliRunner().invoke(app, ["verify", "all", "--no-refit"]).exit_code == 0


def test_very_many_forecasts_of_one_run_are_joined_with_as_many_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in one family already is not compared again: 1,000 forecasts took 10 s, eight times as long for each doubling."""
    compared, is_near = [0], RunSize.is_near

    def counted(one: RunSize, other: RunSize) -> bool:
        compared[0] += 1
        return is_near(one, other)

    monkeypatch.setattr(RunSize, "is_near", counted)
    sizes = [RunSize(recipe="a", optimizer={}, data={"source": "b"}, params=1e6 + place, tokens=1e9) for place in range(300)]
    assert family_numbers([Forecaster(name="ada@example.org", key="k", run=size) for size in sizes]) == [0] * 300
    assert compared[0] == 299


def test_a_review_of_several_forecasts_judges_the_registry_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole registry was verified again for each forecast of a pull request."""
    make_registration(root)
    branch_off(root)
    for steps in (1200, 1600, 2000):
        second(root, run_spec(hidden_dim=128, train_steps=steps, role="target"), slug=f"target-{steps}")
    judged: list[int] = []

    def counted(folders: Any, **options: Any) -> Any:
        judged.append(len(folders))
        return verdicts_on(folders, **options)

    monkeypatch.setattr("marin_scaling.preregistration.track_record.verdicts_on", counted)
    monkeypatch.chdir(root)
    assert "Preregistrations: 3" in CliRunner().invoke(app, ["review", "--base", "main"]).stdout
    assert judged == [4]
