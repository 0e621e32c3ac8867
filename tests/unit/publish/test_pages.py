"""The generated pages: everything is on them, the failures first, and the same files give the same bytes."""

import html
import json
import re
import shutil
from datetime import UTC, date, datetime
from pathlib import Path
from statistics import NormalDist

import pytest
from amendment_factory import lower, make_amendment
from one_page import page
from registration_factory import CREATED_AT, PRINCIPAL, forecast_document, make_registration, run_spec, signing_key, store_run

from marin_scaling.fitting.fit import fit
from marin_scaling.forecast.backtest import backtest, backtest_text
from marin_scaling.forecast.forecast import forecast
from marin_scaling.ladder.config import Assumption, Promise
from marin_scaling.markdown import escape, page_name
from marin_scaling.preregistration.events.notice import give_notice
from marin_scaling.preregistration.format import LEVELS
from marin_scaling.preregistration.layout import RECORD_NAME
from marin_scaling.preregistration.log import write_down
from marin_scaling.preregistration.outcome import State, Verdict
from marin_scaling.preregistration.public_record import read_public_record
from marin_scaling.preregistration.registry import signers_path
from marin_scaling.preregistration.verdict import check_preregistration
from marin_scaling.publish.build import generated_pages, write_generated_pages
from marin_scaling.publish.forecast_index import forecasts_index
from marin_scaling.publish.forecast_page import ForecastPage
from marin_scaling.run.curves import LossCurve
from marin_scaling.run.store import Workplace, curve_path, work_dir
from marin_scaling.run.table import read_run_table
from marin_scaling.scoring import crps
from marin_scaling.units import format_count, format_flops

NAME = "2026-11-20-tiny-target"
PAGE = f"preregistrations/{NAME}.md"
LOWER_CRPS = crps({level: NormalDist(2.45, 0.1).inv_cdf(level) for level in LEVELS}, observed=2.66)
DELPHI = Path(__file__).parents[3] / "runs" / "delphi"


@pytest.fixture
def registration(tmp_path):
    return make_registration(tmp_path)


@pytest.fixture(scope="module")
def delphi_pages(tmp_path_factory):
    """All pages of a repository whose only ladder is Delphi's."""
    root = tmp_path_factory.mktemp("delphi")
    shutil.copytree(DELPHI, root / "runs" / "delphi")
    return generated_pages(root)


LATER = "<summary>Later forecasts of the same run</summary>"


def states(shown):
    """The states that a page shows as chips."""
    return re.findall(r'<span class="chip[^"]*">([^<]*)</span>', shown)


def against(shown):
    """The part of a forecast's page that lists what speaks against it."""
    return shown.split("## What speaks against it")[1].split("\n## ")[0]


def check(root, registration):
    folder, now = registration.folder, datetime(2026, 11, 22, tzinfo=UTC)
    check_preregistration(folder, runs_dir=root / "runs", allowed_signers=signers_path(folder), checked_at=now)


def test_a_forecast_without_its_run_is_pending(tmp_path, registration):
    """The page shows median, interval, signer and target, and says that nothing is observed yet."""
    shown = page(tmp_path, PAGE)
    assert states(shown) == ["pending"]
    assert "**2.5000** bits/byte, 90 % interval 2.3355 to 2.6645" in shown
    assert "ada&#64;example.org" in shown
    assert "| said of itself | free asymptote |" in shown
    assert "free asymptote" in against(shown).lower()
    assert "not run yet" in page(tmp_path, "index.md")


def test_a_forecast_whose_time_is_over_is_overdue(tmp_path):
    """On the index and at the head of its page."""
    make_registration(tmp_path, promise=Promise(due=date(2026, 11, 21)))
    shown = page(tmp_path, PAGE)
    assert states(shown) == ["overdue"]
    assert "was due on 2026-11-21" in shown
    assert "1 preregistered: 0 refused, 1 overdue" in page(tmp_path, "index.md")


def test_a_forecast_that_was_taken_back_is_shown_as_that(tmp_path, registration):
    """With who took it back and why; it stays on the index."""
    known = {"key": signing_key(), "principal": PRINCIPAL, "at": CREATED_AT, "reason": "the run is cancelled"}
    give_notice(registration.folder, "withdraw", **known)
    write_down(registration.folder.parent, at=CREATED_AT)
    shown = page(tmp_path, PAGE)
    assert states(shown) == ["withdrawn"]
    assert "**2.5000** bits/byte" in shown
    assert "the run is cancelled" in shown
    assert "0 pending, 1 withdrawn." in page(tmp_path, "index.md")


def test_a_run_that_left_its_recipe_is_shown_as_that(tmp_path, registration):
    """At the head of the page, on the index, and with the step among what was verified."""
    store_run(tmp_path / "runs", spec=registration.target, loss=2.61, day="2026-11-21")
    at = datetime(2026, 11, 21, tzinfo=UTC)
    said = {"principal": PRINCIPAL, "at": at, "reason": "other clipping", "from_step": 80}
    give_notice(registration.folder, "deviate", key=signing_key(), **said)
    write_down(registration.folder.parent, at=at)
    assert "from step 80 (signed 2026-11-21): other clipping" in against(page(tmp_path, PAGE))
    check(tmp_path, registration)
    shown = page(tmp_path, PAGE)
    assert "from step 80 (signed 2026-11-21): other clipping" in against(shown)
    assert "00Z: from step 80: other clipping" in html.unescape(shown)
    index = page(tmp_path, "index.md")
    assert states(index) == ["held"]
    assert "its run left the recipe |" in index


def test_what_was_promised_in_words_and_what_the_number_hangs_on_are_shown(tmp_path):
    """And where nothing was said, that."""
    make_registration(tmp_path, promise=Promise(void_if=("the text is gone",), assumptions=(Assumption(text="it holds"),)))
    shown = page(tmp_path, PAGE)
    assert "| void if | the text is gone |" in shown
    assert "| assumed | A1: it holds |" in shown
    assert "| differences from the ladder | not stated |" in shown
    assert "| as forecast | 2.5000 | +0.00% |" in shown
    assert "baseline: a line through the best run of each budget" in shown


@pytest.mark.parametrize(("loss", "word"), [(2.55, "held"), (2.9, "missed"), (None, "missed")])
def test_an_outcome_stands_beside_its_forecast(tmp_path, registration, loss, word):
    """Held, missed, and diverged are shown as what they are, with the observed loss."""
    store_run(tmp_path / "runs", spec=registration.target, loss=loss, day="2026-11-21")
    check(tmp_path, registration)
    shown = page(tmp_path, PAGE)
    assert states(shown) == states(page(tmp_path, "index.md")) == [word]
    assert ("diverged" if loss is None else f"**{loss:.4f}**") in shown


@pytest.mark.parametrize(
    ("loss", "row"),
    [
        (None, "| amend-1 | 2026-11-20T09:30:00Z | 200 | 2.4500 | 2.2855 to 2.6145 |  |  |  |"),
        (2.66, f"| amend-1 | 2026-11-20T09:30:00Z | 200 | 2.4500 | 2.2855 to 2.6145 | -0.2100 | {LOWER_CRPS:.4f} | no |"),
    ],
    ids=["before the run", "after it"],
)
def test_a_later_forecast_stands_beside_the_first(tmp_path, registration, loss, row):
    """In a table with it, with why it was made; the words of its registrant stay text, and the verdict is the first's."""
    assert LATER not in page(tmp_path, PAGE)
    make_amendment(registration.folder, steps_seen=200, **lower(registration.folder), reason="<b>two</b> budgets | more")
    if loss is not None:
        store_run(tmp_path / "runs", spec=registration.target, loss=loss, day="2026-11-21")
        check(tmp_path, registration)
    shown, index = page(tmp_path, PAGE), page(tmp_path, "index.md")
    assert row in shown
    assert "| the first | 2026-11-20T08:30:00Z | 0 | 2.5000 | 2.3355 to 2.6645 |" in shown
    assert "* amend-1: &#60;b&#62;two&#60;/b&#62; budgets &#124; more." in shown
    assert states(index) == ["pending" if loss is None else "held"]
    assert "later forecasts: 1 |" in index
    assert "1 preregistered:" in index


def test_a_later_forecast_that_came_too_late_is_shown_with_the_reason(tmp_path, registration):
    """And without an error, which everybody would have made small."""
    store_run(tmp_path / "runs", spec=registration.target, loss=2.66, day="2026-11-21")
    make_amendment(registration.folder, logged=datetime(2026, 11, 21, 12, tzinfo=UTC), **lower(registration.folder, by=-0.16))
    check(tmp_path, registration)
    shown = page(tmp_path, PAGE)
    assert "| amend-1 | 2026-11-21T12:00:00Z | 0 | 2.6600 | 2.4955 to 2.8245 |  |  |  |" in shown
    assert "two more budgets were trained. Not scored: it came after the run had ended." in shown


def test_a_changed_statement_is_listed_as_refused_with_the_reason_and_first(tmp_path, registration):
    """Its numbers are not shown, and it is not skipped."""
    other = tmp_path / "preregistrations" / "2026-11-19-changed"
    shutil.copytree(registration.folder, other)
    (other / "statement.json").write_bytes(registration.statement.raw.replace(b"2.5", b"2.4", 1))
    index = page(tmp_path, "index.md")
    assert "2 preregistered: 1 refused, 0 overdue, 0 missed, 0 held, 1 pending" in index
    assert index.index("2026-11-19-changed") < index.index(NAME)
    assert "**Refused.**" in page(tmp_path, "preregistrations/2026-11-19-changed.md")


def test_a_forecast_that_does_not_follow_its_registrys_policy_is_listed_as_refused(tmp_path, registration):
    """As `verify` and `check` do."""
    (registration.folder.parent / "policy.yaml").write_text("since: 2026-01-01\nreviewers: 1\n")
    assert "1 preregistered: 1 refused" in page(tmp_path, "index.md")
    assert "asks for 1 signature of reviewers" in page(tmp_path, PAGE)


def test_an_empty_folder_in_the_registry_is_listed_too(tmp_path, registration):
    """What lacks its files is refused, not passed over."""
    (tmp_path / "preregistrations" / "2026-11-19-empty").mkdir()
    assert "1 refused" in page(tmp_path, "index.md")


def test_a_ladder_page_shows_every_run_and_the_forecasts_of_those_held_out(delphi_pages):
    """All 81 Delphi runs, and 1e23 with its measured loss beside the forecast of a run of its size."""
    shown = delphi_pages["ladders/delphi.md"].decode()
    runs = shown.split("<summary>Runs</summary>")[1].split("</details>")[0]
    assert runs.count("\n| ") == 81 + 2
    run = read_run_table(DELPHI / "heldout.csv").frame.set_index("run").loc["delphi-1e23-seed0"]
    ahead = forecast(fit(read_run_table(DELPHI)), flops=run["flops"], params=run["params"], tokens=run["tokens"])
    low, high = ahead.interval()
    assert f"| delphi-1e23-seed0 | 1e23 | 2.3546 | {ahead.median:.4f} | {low:.4f} to {high:.4f} |" in shown
    assert "No run was left out." in shown


def store_fittable_ladder(runs_dir):
    """Five widths at each of four budgets, with losses of a law of size and tokens; the rows of a table of them."""
    rows = []
    for budget_flops in (1e9, 2e9, 4e9, 8e9):
        for hidden_dim in (16, 24, 32, 48, 64):
            flops_of_a_step = run_spec(hidden_dim=hidden_dim, train_steps=1).flops
            spec = run_spec(hidden_dim=hidden_dim, train_steps=max(1, round(budget_flops / flops_of_a_step)))
            spec = spec.model_copy(update={"budget_flops": budget_flops})
            params, tokens = spec.model.shape().params_total, spec.trained_tokens
            loss = 1.0 + 40 * params**-0.35 + 60 * tokens**-0.35
            store_run(runs_dir, spec=spec, loss=loss)
            budget = spec.budget_flops
            rows.append(
                {
                    "run": spec.digest,
                    "budget_flops": budget,
                    "flops": spec.flops,
                    "params": params,
                    "tokens": tokens,
                    "loss": loss,
                }
            )
    return rows


def test_a_run_under_way_here_stands_on_the_page_of_its_forecast_as_it_is(tmp_path, registration):
    """Beside what was signed; before it begins, and once its outcome is known, nothing is said of it."""
    assert "## The run so far" not in page(tmp_path, PAGE)
    place = work_dir(registration.target, Workplace(runs_dir=tmp_path / "runs", work_root=tmp_path / ".marin-scaling"))
    place.mkdir(parents=True)
    with LossCurve(curve_path(place)) as curve:
        for number in range(200):
            curve.add(5.5 - number / 100)
    shown = page(tmp_path, PAGE).split("## The run so far")[1].split("\n## ")[0]
    assert "step 200 of 800 (25%), training loss" in shown
    assert f"(signed: {registration.folder.name})" in shown
    assert str(tmp_path) not in shown
    store_run(tmp_path / "runs", spec=registration.target, loss=2.5, started_at="2026-11-21T08:00:00Z")
    check(tmp_path, registration)
    assert "## The run so far" not in page(tmp_path, PAGE)


@pytest.fixture
def drawn(tmp_path):
    """A preregistration of a ladder that carries a law; the document it was made from has a second prediction, 3.3 at 1e20."""
    document = forecast_document()
    (prediction,) = document["predictions"]
    levels = dict.fromkeys(prediction["quantiles"], 3.3)
    other = {**prediction, "flops": 1e20, "median": 3.3, "quantiles": levels}
    rows = store_fittable_ladder(tmp_path / "runs")
    return make_registration(tmp_path, rows=rows, forecast={**document, "predictions": [other, prediction]})


@pytest.mark.parametrize(("count", "is_drawn"), [(7, False), (8, True)])
def test_calibration_is_drawn_from_eight_settled_forecasts_on(tmp_path, count, is_drawn):
    """Promised and held shares with their exact intervals; the values of half of the forecasts lie in the central 50 %."""
    outcomes = [{"scores": {"pit": 0.3 if number % 2 else 0.9, "hit": True}, "baseline": None} for number in range(count)]
    verdicts = [
        Verdict(id=str(number), state=State.HELD, sentence="", outcome=outcome, registrant=PRINCIPAL)
        for number, outcome in enumerate(outcomes)
    ]
    made = forecasts_index([ForecastPage(files={}, index_row=("",) * 8, verdict=each) for each in verdicts], root=tmp_path)
    assert ("index.figures/held.svg" in made) is is_drawn
    shown = made["index.md"].decode()
    assert ("| 50% | 50% | 16% to 84% |" in shown) is is_drawn
    if is_drawn:
        assert b"8 settled" in made["index.figures/held.svg"]


def test_all_forecasts_are_drawn_as_intervals_with_what_was_observed(tmp_path, registration):
    """Also before anything is settled; the picture has each forecast's run by name."""
    pages = generated_pages(tmp_path)
    for name in ("index.figures/intervals.svg", "index.figures/intervals-narrow.svg", "index.figures/interactive.html"):
        assert b"tiny, " in pages[name]
    assert (
        b"observed, inside" not in re.sub(rb"<title>.*?</title>", b"", pages["index.figures/intervals.svg"]).split(b"legend")[0]
    )
    store_run(tmp_path / "runs", spec=registration.target, loss=2.61, day="2026-11-21")
    check(tmp_path, registration)
    assert b"measured: 2.6100" in generated_pages(tmp_path)["index.figures/intervals.svg"]


def test_the_figure_of_a_forecast_shows_what_was_signed(tmp_path, drawn):
    """The picture carries the registered median at the target, not the refit's, nor that of another size in the document."""
    pages = generated_pages(tmp_path)
    assert f'src="{NAME}.figures/forecast.svg"' in pages[PAGE].decode()
    for name in (f"preregistrations/{NAME}.figures/forecast.svg", "ladders/tiny.figures/law.svg"):
        assert b"forecast 2.5000" in pages[name]
        assert b"forecast 3.3" not in pages[name]


def test_the_first_page_of_a_repository_shows_its_results(tmp_path, drawn):
    """The law with the forecast and what was observed, and how many forecasts held; without any, how to make the first."""
    store_run(tmp_path / "runs", spec=drawn.target, loss=2.61, day="2026-11-21")
    check(tmp_path, drawn)
    pages = generated_pages(tmp_path)
    shown = pages["home.snippet"].decode()
    assert "<strong>1 of 1</strong>" in shown
    assert "generated/index.figures/intervals-narrow.svg" in shown
    for name in ("home.figures/law.svg", "home.figures/law-narrow.svg"):
        assert b"observed 2.6100" in pages[name]
    (tmp_path / "empty").mkdir()
    assert "marin-scale quickstart" in generated_pages(tmp_path / "empty")["home.snippet"].decode()


def test_a_forecast_whose_ladder_is_not_here_links_to_no_page(tmp_path, registration):
    """A registry may be published without its runs; a link to nowhere would end the build."""
    assert "[tiny](../ladders/tiny.md)" in page(tmp_path, PAGE)
    shutil.rmtree(tmp_path / "runs")
    assert "../ladders/" not in page(tmp_path, PAGE)
    assert "| ladder | tiny (not in this repository) |" in page(tmp_path, PAGE)


def test_the_page_of_a_ladder_lists_what_was_forecast_from_it(tmp_path, drawn):
    """With what was observed once it is checked; a refused forecast is not among them."""
    store_run(tmp_path / "runs", spec=drawn.target, loss=2.61, day="2026-11-21")
    row = f"| [{NAME}](../preregistrations/{NAME}.md) | {format_flops(drawn.target.flops)} | 2.5000 | 2.3355 to 2.6645 |"
    assert f'{row}  | <span class="chip open">pending</span> |' in page(tmp_path, "ladders/tiny.md")
    check(tmp_path, drawn)
    pages = generated_pages(tmp_path)
    assert '| 2.6100 | <span class="chip good">held</span> |' in pages["ladders/tiny.md"].decode()
    assert b"observed 2.6100" in pages["ladders/tiny.figures/law.svg"]
    assert b"observed 2.6100" in pages[f"preregistrations/{NAME}.figures/forecast.svg"]
    (drawn.folder / "statement.json").write_text("{}")
    assert NAME not in page(tmp_path, "ladders/tiny.md")


def test_the_page_of_a_law_says_what_more_compute_would_buy(delphi_pages):
    """At ten times the largest budget as `marin-scale fit --predict` says; a slider has the same numbers."""
    shown = delphi_pages["ladders/delphi.md"].decode()
    result = fit(read_run_table(DELPHI))
    ahead = forecast(result, flops=10 * result.largest_flops)
    low, high = ahead.interval()
    assert f"| 10x | {ahead.median:.4f} | {low:.4f} to {high:.4f} | {format_count(ahead.params)} | " in shown
    document = json.loads(html.unescape(re.search(r'data-law="([^"]*)"', shown).group(1)))
    assert document["points"][document["start"]][1:4] == pytest.approx([low, ahead.median, high], rel=1e-5)
    assert len(document["points"]) == 41
    assert b"data-law" in delphi_pages["ladders/law.js"]


def test_the_page_of_a_law_has_its_residuals_and_its_back_test(delphi_pages):
    """Every run is among the residuals, and the scores are those of `marin-scale backtest`."""
    drawn = delphi_pages["ladders/delphi.figures/residuals.svg"].decode()
    assert drawn.count('aria-roledescription="circle"') == len(read_run_table(DELPHI).frame)
    scores = backtest_text(backtest(read_run_table(DELPHI))).splitlines()[2:]
    assert all(line in html.unescape(delphi_pages["ladders/delphi.md"].decode()) for line in scores)


def test_a_law_that_may_not_be_used_forecasts_nothing_on_its_page(tmp_path):
    """Neither table nor slider nor residuals."""
    folder = tmp_path / "runs" / "rising"
    folder.mkdir(parents=True)
    rows = [
        f"{flops},{size},{flops / (6 * size)},{2 + flops / 1e19}" for flops in (1e18, 3e18, 1e19) for size in (1e8, 2e8, 4e8)
    ]
    (folder / "runs.csv").write_text("\n".join(["flops,params,tokens,loss", *rows]) + "\n")
    pages = generated_pages(tmp_path)
    assert "What more compute would buy" not in pages["ladders/rising.md"].decode()
    assert "ladders/rising.figures/residuals.svg" not in pages


def test_a_ladder_that_cannot_be_fitted_has_a_page_with_the_reason(tmp_path, registration):
    """Four runs at four budgets of their own carry no law of three unknowns with bowls; nothing is fatal."""
    folder = tmp_path / "runs" / "hostile <b>|name"
    folder.mkdir()
    (folder / "runs.csv").write_text("flops,params,tokens,loss\n1e9,1,1,x<script>\n")
    pages = generated_pages(tmp_path)
    index = pages["ladders/index.md"].decode()
    assert "hostile &#60;b&#62;&#124;name" in index
    assert "<script>" not in index


def test_hostile_names_of_runs_stay_text_on_page_and_in_figures(tmp_path):
    """A run's name opens no tag, ends no cell, and ends no script of the interactive figure."""
    folder = tmp_path / "runs" / "delphi"
    shutil.copytree(DELPHI, folder)
    rows = (folder / "runs.csv").read_text()
    (folder / "runs.csv").write_text(rows.replace("3e+18-d512-L6-B32", "</script><script>alert(1)</script>|x"))
    pages = generated_pages(tmp_path)
    for name in ("ladders/delphi.md", "ladders/delphi.figures/runs.svg", "ladders/delphi.figures/interactive.html"):
        assert b"<script>alert(1)" not in pages[name]
        assert b"</script><" not in pages[name]


def test_the_same_files_give_the_same_pages(tmp_path, registration):
    """Byte for byte, figures included."""
    assert generated_pages(tmp_path) == generated_pages(tmp_path)


def test_a_page_made_alone_is_the_page_of_the_site(tmp_path, drawn):
    """Most tests here look at one page."""
    pages = generated_pages(tmp_path)
    for name in ("index.md", PAGE, "ladders/tiny.md"):
        assert page(tmp_path, name) == pages[name].decode()


def test_a_page_of_an_earlier_time_does_not_stay(tmp_path, registration):
    """A generated page without its source is removed."""
    stale = tmp_path / "site" / "generated" / "ladders" / "gone.md"
    stale.parent.mkdir(parents=True)
    stale.write_text("# Gone")
    assert tmp_path / "site" / "generated" / PAGE in write_generated_pages(tmp_path)
    assert not stale.exists()


def test_no_page_says_where_on_this_machine_it_was_made(tmp_path, registration):
    """Not those of ladders without a law, nor a plan that cannot be read, nor the index, nor a forecast without figure."""
    (tmp_path / "ladders").mkdir()
    (tmp_path / "ladders" / "planned.yaml").write_text("name: planned\n")
    for name, table in {"broken": "flops,params\n1,2\n", "binary": "\x00", "delphi": ""}.items():
        (tmp_path / "runs" / name).mkdir()
        (tmp_path / "runs" / name / "runs.csv").write_text(table)
    (tmp_path / "preregistrations" / "2026-11-19-empty").mkdir()
    pages = generated_pages(tmp_path)
    assert len(pages) >= 8
    for name, content in pages.items():
        assert str(tmp_path) not in html.unescape(content.decode()), name
        assert not (name.endswith(".md") and re.search(rb"\.\.\s", content)), name


def test_a_ladder_without_a_law_still_says_how_many_runs_it_has(tmp_path, registration):
    """Four rungs in the store, also where one is torn and a fifth half written; three rows of a table; of a torn one none."""
    tables = {"few": "flops,params,tokens,loss\n6e15,1e7,1e8,3\n6e15,1e7,1e8,3\n1.2e16,1e7,2e8,3\n", "torn": "flops\n1\n"}
    for name, table in tables.items():
        (tmp_path / "runs" / name).mkdir()
        (tmp_path / "runs" / name / "runs.csv").write_text(table)
    hurt = shutil.copytree(tmp_path / "runs" / "tiny", tmp_path / "runs" / "hurt")
    run = min(hurt.iterdir())
    shutil.copytree(run, run.with_name(f".{run.name}.b47f4287.tmp"))
    (run / "record.json").write_text("{")
    shown = generated_pages(tmp_path)["ladders/index.md"].decode()
    rows = [line.split(" | ")[:2] for line in shown.splitlines() if line.startswith("| [")]
    assert rows == [
        ["| [few](few.md)", "3"],
        ["| [hurt](hurt.md)", "4"],
        ["| [tiny](tiny.md)", "4"],
        ["| [torn](torn.md)", "unknown"],
    ]


def test_a_run_held_out_and_then_left_out_is_on_the_page(tmp_path):
    """With the reason; the others stay beside their forecasts."""
    folder = tmp_path / "runs" / "delphi"
    shutil.copytree(DELPHI, folder)
    lines = (folder / "heldout.csv").read_text().splitlines()
    states = ["status", "diverged", *["finished"] * (len(lines) - 2)]
    (folder / "heldout.csv").write_text("".join(f"{line},{state}\n" for line, state in zip(lines, states, strict=True)))
    shown = page(tmp_path, "ladders/delphi.md").split("## Larger runs, held out")[1].split("\n## ")[0]
    name = lines[1].split(",")[lines[0].split(",").index("run")]
    assert f"Left out of these:\n\n| run | why |\n| --- | --- |\n| {name} | it diverged (status) |" in shown
    assert shown.count("\n| ") == 2 + (len(lines) - 2) + 2 + 1


def test_ladders_of_any_name_share_no_file(tmp_path):
    """Not with the index, nor with the figures of another ladder."""
    names, fitted = ["delphi", "delphi-law", "index", "README", "index.page"], ["delphi", "index"]
    for name in names:
        shutil.copytree(DELPHI, tmp_path / "runs" / name)
        if name not in fitted:
            (tmp_path / "runs" / name / "runs.csv").write_text("flops,params,tokens,loss\n1e9,1,1,3\n")
    pages = generated_pages(tmp_path)
    assert len(pages) == 13 + 5 * len(fitted) + len(names)  # what draws their figures is there once
    assert pages["ladders/index.md"].startswith(b'---\ntitle: "Ladders"\n---\n\n# Ladders\n')
    assert b"[index](index.page.md)" in pages["ladders/index.md"]
    assert len({page_name(name).lower() for name in names}) == len(names)


def test_a_source_in_another_encoding_is_shown(tmp_path):
    """Signs that are not UTF-8 are replaced; the page is not lost."""
    folder = tmp_path / "runs" / "delphi"
    shutil.copytree(DELPHI, folder)
    (folder / "SOURCE.md").write_bytes("From Zürich.".encode("latin-1"))
    assert "From Z\ufffdrich." in page(tmp_path, "ladders/delphi.md")


RECORD = Path(__file__).parents[3] / "preregistrations" / RECORD_NAME


def test_the_record_of_each_registrant_is_on_the_index(tmp_path, registration):
    """Counts of all states, coverage with its exact interval, fifths; and what is not authentic is nobody's."""
    store_run(tmp_path / "runs", spec=registration.target, loss=2.55, day="2026-11-21")
    check(tmp_path, registration)
    (tmp_path / "preregistrations" / "2026-11-19-empty").mkdir()
    section = page(tmp_path, "index.md").split("## The record of each registrant")[1]
    one = "1 of 1: 100% (3% to 100%)"
    counted = "0 pending, 0 overdue, 1 held, 0 missed, 0 refused"
    assert f"| ada&#64;example.org | 1 | {counted} | 1 | 1 | {one} | {one} | 0 0 0 1 0 | +" in section
    counted = "0 pending, 0 overdue, 0 held, 0 missed, 1 refused"
    assert f"| not authentic | 1 | {counted} | 1 | 0 |  |  |  | no baseline |" in section


def test_public_forecasts_stand_apart_from_those_that_were_signed(tmp_path, registration):
    """Below them, each with its post or commit, error and caveat; no count above them knows of them."""
    shutil.copy(RECORD, tmp_path / "preregistrations")
    own, public = page(tmp_path, "index.md").split("## Forecasts posted elsewhere")
    assert "1 preregistered: 0 refused, 0 overdue, 0 missed, 0 held, 1 pending." in own
    assert "Delphi" not in own
    posted, caveats = public.split("<summary>Caveats of these forecasts</summary>")
    for each in read_public_record(RECORD):
        where = each.registered_where[0]
        assert (f"| [{escape(each.run)}](<{where}>)" if where.startswith("https:") else f"| {escape(each.run)} |") in posted
        assert f"| {escape(each.run)} | {escape(each.metric)} | {escape(each.caveat)} |" in caveats
    assert (posted.count("\n| ["), caveats.count("\n| ") - 2) == (32, 36)
    assert "| 2026-03-03 | 1e23 | 2.4 | none | 2.3546 | +0.0454 | +1.93&nbsp;% | +9.99&nbsp;% |" in posted
    assert "| 2026-08 | 2.7e24 | 2.039 | none | no value yet |  |  |  |" in posted
    assert "| 1.54626 to 1.6743, missed | 1.34186 |" in posted
    assert "| no date |  | none | none |  |  |  |  |" in posted


def test_a_public_record_that_cannot_be_read_is_shown_as_that(tmp_path, registration):
    """With the reason, and without this machine's paths; the signed ones stay."""
    (tmp_path / "preregistrations" / RECORD_NAME).write_text("run\n<script>\n")
    index = page(tmp_path, "index.md")
    assert "preregistrations/public-record.csv, line 1: column 'registered_date' is missing." in index
    assert "1 preregistered" in index
    assert str(tmp_path) not in index


def test_hostile_cells_of_a_public_record_stay_text(tmp_path, registration):
    """No cell opens a tag or ends a cell of the table."""
    path = tmp_path / "preregistrations" / RECORD_NAME
    shutil.copy(RECORD, path)
    path.write_text(path.read_text().replace("July hero,", "<script>|](https://x),", 1))
    index = page(tmp_path, "index.md")
    assert "<script>" not in index
    assert "[&#60;script&#62;&#124;&#93;(https://x)](<https://github.com/marin-community/marin/issues/6702>)" in index
