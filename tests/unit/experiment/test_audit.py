"""What an audit finds in experiments: names of what is not there, links that moved, one experiment twice."""

from datetime import date
from typing import Any

import pytest

from marin_scaling.experiment.checks import Known, audit
from marin_scaling.experiment.experiment import Experiment

KNOWN = Known(preregistrations=["2026-11-21-a"], ladders=["tiny"])
SOUND = {"hypothesis": "it is better", "conclusion": "it is", "ladders": ["tiny"], "outcome": "worked"}


def experiment(name: str = "one", **changes: Any) -> Experiment:
    return Experiment.model_validate({"name": name, "title": name, **SOUND, **changes})


def found(*experiments: Experiment) -> list[tuple[str, str, str]]:
    """Severity, key and sentence of all findings about the first."""
    return [(one.severity, one.where, one.message) for one in audit(experiments, known=KNOWN)[experiments[0].name]]


def test_a_sound_one_has_no_finding() -> None:
    """Also one that names a preregistration, another experiment and links."""
    links = {"issue": "https://github.com/marin-community/marin/issues/1", "tracker": ["https://wandb.ai/x"]}
    changes = {"preregistration": "2026-11-21-a", "baseline": "two", "supersedes": ["two"], "links": links}
    assert found(experiment(**changes), experiment("two")) == []


@pytest.mark.parametrize(
    ("changes", "severity", "key", "said"),
    [
        ({"preregistration": "2026-11-21-b"}, "error", "preregistration", "2026-11-21-b"),
        ({"ladders": ["huge"]}, "error", "ladders", "huge"),
        ({"ladders": ["runs/tiny"]}, "error", "ladders", "write tiny"),
        ({"preregistration": "preregistrations/2026-11-21-a"}, "error", "preregistration", "; write 2026-11-21-a"),
        ({"baseline": "none"}, "error", "baseline", "none"),
        ({"supersedes": ["one"]}, "error", "supersedes", "one"),
        (
            {"links": {"execution": "https://crfm.stanford.edu/marin/data_browser/x"}},
            "warning",
            "links.execution",
            "crfm.stanford.edu",
        ),
        (
            {"links": {"issue": "https://github.com/stanford-crfm/marin/issues/1"}},
            "warning",
            "links.issue",
            "marin-community",
        ),
        ({"links": {"data": ["http://example.org/x"]}}, "warning", "links.data", "http://example.org/x"),
        ({"code": {"repository": "http://example.org/x"}}, "warning", "code.repository", "http://example.org/x"),
        ({"hypothesis": None}, "warning", "hypothesis", "hypothesis"),
        ({"conclusion": None}, "warning", "conclusion", "conclusion"),
        ({"ladders": []}, "warning", "metrics", "metric"),
    ],
)
def test_each_fault_is_found_by_its_key(changes: dict[str, Any], severity: str, key: str, said: str) -> None:
    """And nothing else."""
    ((found_severity, found_key, found_said),) = found(experiment(**changes))
    assert (found_severity, found_key) == (severity, key)
    assert said in found_said


def test_two_that_replace_each_other_are_refused() -> None:
    """Neither can be the last word."""
    first, second = experiment(supersedes=["two"]), experiment("two", supersedes=["one"])
    for one, other in ((first, second), (second, first)):
        ((severity, key, said),) = found(one, other)
        assert (severity, key) == ("error", "supersedes")
        assert one.name in said


def test_a_day_to_come_is_doubted() -> None:
    """With a day's grace for those in the east."""
    for day, count in (("2026-11-24", 0), ("2026-11-25", 1)):
        assert len(audit([experiment(date=day)], known=KNOWN, today=date(2026, 11, 23))["one"]) == count


def test_two_with_one_issue_are_doubted() -> None:
    """Each names the other."""
    links = {"issue": "https://example.org/7"}
    ((severity, key, said),) = found(experiment(links=links), experiment("two", links=links))
    assert (severity, key) == ("warning", "links.issue")
    assert said.startswith("two has the same issue")


def test_an_import_is_not_asked_for_what_its_source_lacks() -> None:
    """Nor one that is not finished for its conclusion."""
    bare: dict[str, Any] = {"hypothesis": None, "conclusion": None, "ladders": []}
    assert found(experiment(**bare, source="a list")) == []
    assert found(experiment(conclusion=None, outcome="in-progress")) == []
