"""Tracks: what each rule refuses, and that the document of a track says file, line and key of what is wrong with it."""

from pathlib import Path
from typing import Any

import pytest
from submission_factory import changed, seed_document, submission

from marin_scaling.errors import DocumentError, Severity
from marin_scaling.speedrun.submission import Submission, read_submissions
from marin_scaling.speedrun.track import AXES, Track, axis_key, read_tracks, track_findings
from marin_scaling.units import format_number

ROOT = Path(__file__).parents[3]
LIMITED = ("model_flops", "hardware_flops", "chip_seconds", "seconds", "us_dollars", "parameters", "trained_tokens")


def said(each: Submission, **rules: Any) -> list[str]:
    """What its track, with these rules, has against it."""
    track = Track(name="fineweb-edu", title="x", **rules)
    return [f"{found.severity} {found.where}: {found.message}" for found in track_findings(each, {track.name: track})]


def test_a_track_without_rules_asks_nothing() -> None:
    """Nothing is found."""
    assert said(submission()) == []


def test_a_repository_without_tracks_has_a_warning_for_each_submission() -> None:
    """With the file that is missing."""
    (found,) = track_findings(submission(), {})
    assert found.severity is Severity.WARNING
    assert "speedruns/tracks/fineweb-edu.yaml" in found.message


@pytest.mark.parametrize("axis", AXES)
def test_each_cost_can_have_a_limit(axis: str) -> None:
    """At the limit it is accepted, below it refused with both figures."""
    each, key = submission(), axis_key(axis)
    cost = AXES[axis](each)
    assert cost is not None
    assert said(each, limits={key: cost}) == []
    assert said(each, limits={key: cost * 0.99}) == [
        f"error {key}: {format_number(cost)} {axis}; the track allows {format_number(cost * 0.99)}"
    ]


@pytest.mark.parametrize(
    ("rules", "key", "found", "required"),
    [
        ({"hardware": ("h100", "cpu")}, "compute.hardware.kind", "v5p", "h100, cpu"),
        ({"chips_at_most": 8}, "compute.hardware.chips", "16", "8"),
        ({"data_name": "other"}, "data.name", "fineweb-edu-10B", "other"),
        ({"data_sha256": "0" * 64}, "data.digest", "c" * 64, "0" * 64),
        ({"unique_tokens_at_most": 10**8}, "data.unique_tokens", f"{10**10}", f"{10**8}"),
        ({"evaluation_name": "wikitext"}, "evaluation.name", "paloma/c4_en", "wikitext"),
        ({"evaluation_sha256": "0" * 64}, "evaluation.digest", "d" * 64, "0" * 64),
        ({"seeds_at_least": 3}, "seeds", "2", "3"),
    ],
)
def test_a_broken_rule_is_named_with_both_values(rules: dict[str, Any], key: str, found: str, required: str) -> None:
    """The finding names key, found value and required value."""
    (sentence,) = said(submission(), **rules)
    assert sentence.startswith(f"error {key}: ")
    assert found in sentence
    assert required in sentence


@pytest.mark.parametrize(
    ("losses", "accepted"),
    [((1.08, 1.081, 1.082), True), ((1.09, 1.11, 1.10), False), ((1.0, 1.2, 1.05), False), ((1.0, 1.0, 1.0), False)],
)
def test_a_loss_to_reach_is_reached_by_more_than_chance(losses: tuple[float, ...], accepted: bool) -> None:
    """The mean lies below 1.1 with p < .05; seeds of one loss say nothing of chance."""
    each = submission(seeds=[seed_document(seed=seed, bits_per_byte=loss) for seed, loss in enumerate(losses)])
    found = said(each, target_bits_per_byte=1.1, seeds_at_least=3)
    assert bool(found) is not accepted
    assert all("seeds.bits_per_byte" in line for line in found)


def test_a_loss_among_the_limits_is_named_with_its_line_and_the_right_key(tmp_path: Path) -> None:
    """A loss is no cost."""
    (tmp_path / "a.yaml").write_text("name: a\ntitle: x\nlimits: {bits_per_byte: 0.73}\n")
    with pytest.raises(DocumentError) as error:
        read_tracks(tmp_path)
    assert "a.yaml, line 3" in error.value.what
    assert "target_bits_per_byte" in error.value.what


def test_rules_that_are_kept_say_nothing() -> None:
    """All of them at once."""
    rules = {
        "hardware": ("v5p",),
        "chips_at_most": 16,
        "data_name": "fineweb-edu-10B",
        "data_sha256": "c" * 64,
        "unique_tokens_at_most": 10**10,
        "evaluation_name": "paloma/c4_en",
        "evaluation_sha256": "d" * 64,
        "seeds_at_least": 2,
        "retrained_by_ci": True,
    }
    assert said(submission(), **rules) == []
    assert len(Track(name="x", title="x", limits={"seconds": 1.0}, **rules).rules()) == 10


def test_a_cost_that_is_not_known_is_not_below_a_limit() -> None:
    """A price, here."""
    unpriced = changed(compute__cost_usd=None, absent={"compute.cost_usd": "not told"})
    assert said(unpriced, limits={"us_dollars": 100.0}) == ["error us_dollars: US dollars are unknown; the track allows 100"]


def test_a_track_without_a_file_is_an_error_but_for_imported_submissions() -> None:
    """The error names the nearest track; another board's track may have no file here."""
    tracks = {"fineweb-edu-1e18": Track(name="fineweb-edu-1e18", title="x")}
    own, imported = (track_findings(submission(imported_from=source), tracks) for source in (None, "results.json"))
    (error,), (warning,) = own, imported
    assert (error.severity, warning.severity) == (Severity.ERROR, Severity.WARNING)
    assert "did you mean fineweb-edu-1e18" in error.message


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("name: a\n", "a.yaml, line 1: title: field required"),
        ("name: b\ntitle: x\n", "a.yaml, line 1: name: 'b'"),
        ("name: a\ntitle: x\nlimits: {watts: 3}\n", "'watts'"),
        ("name: a\ntitle: x\nlimits: {seconds: 0}\n", "a.yaml, line 3: limits.seconds: input should be greater than 0"),
        ("name: a\ntitle: x\nretrained_by_ci: true\n", "seeds_at_least"),
        ("name: a\ntitle: x\nrule: 3\n", "a.yaml, line 3: rule:"),
    ],
)
def test_a_track_that_is_malformed_is_refused_with_line_and_key(tmp_path: Path, text: str, reason: str) -> None:
    """Nothing is guessed of a rule."""
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(DocumentError) as error:
        read_tracks(tmp_path)
    assert reason in error.value.what


def test_every_submission_of_this_repository_keeps_to_its_track() -> None:
    """And the track of each is written down."""
    tracks = read_tracks(ROOT / "speedruns" / "tracks")
    submissions = [each.submission for each in read_submissions(ROOT / "speedruns") if each.submission]
    assert {each.track for each in submissions} <= set(tracks)
    assert [found for each in submissions for found in track_findings(each, tracks)] == []


def test_the_limited_costs_are_those_of_the_board() -> None:
    """One list of names for files, filters and addresses."""
    assert tuple(map(axis_key, AXES)) == LIMITED
