"""Reading experiments: what stands in a file is kept, what cannot be so is refused by name, and one fault hinders no other."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from marin_scaling.errors import DocumentError
from marin_scaling.experiment.experiment import (
    Experiment,
    Outcome,
    read_experiment,
    read_experiments,
    to_line,
    write_experiments,
)

ROOT = Path(__file__).parents[3]


def experiment(name: str = "one", **changes: Any) -> Experiment:
    """One that says what it has to."""
    return Experiment.model_validate({"name": name, "title": "Wider layers", "outcome": "worked", **changes})


def write(root: Path, name: str, text: str) -> Path:
    path = root / name / "experiment.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


def test_what_is_written_as_lines_is_read_back(tmp_path: Path) -> None:
    """Figures, links, steps and all."""
    first = experiment(metrics=[{"name": "loss", "value": 2.5, "unit": "nats"}], links={"issue": "https://example.org/1"})
    second = experiment("two", outcome="did-not-work", steps=[{"name": "a"}, {"name": "b", "inputs": ["a"]}])
    write_experiments(tmp_path / "many.jsonl", [first, second])
    assert [each.experiment for each in read_experiments(tmp_path)] == [first, second]


def test_a_folder_has_one_in_yaml_under_its_own_name(tmp_path: Path) -> None:
    """Another name is refused, with both."""
    path = write(tmp_path, "wide", "name: wide\ntitle: Wider layers\noutcome: mixed\ndate: 2026-11-20\n")
    assert read_experiment(path).outcome is Outcome.MIXED
    other = write(tmp_path, "other", "name: wide\ntitle: Wider layers\noutcome: mixed\n")
    with pytest.raises(DocumentError, match=r"name: 'wide' .*'other'"):
        read_experiment(other)


def test_a_malformed_one_is_kept_with_its_reason_and_hinders_no_other(tmp_path: Path) -> None:
    """In a file of many by its line; a name that is taken is malformed, too."""
    good = to_line(experiment()).decode()
    lines = [good, "{", json.dumps({"name": "x", "title": "y", "outcome": "great"}), good]
    (tmp_path / "many.jsonl").write_text("".join(f"{line.strip()}\n" for line in lines))
    write(tmp_path, "wide", "name: wide\ntitel: x\n")
    found = read_experiments(tmp_path)
    assert [each.experiment is None for each in found] == [False, True, True, True, True]
    reasons = [each.refusal for each in found if each.experiment is None]
    for part, reason in zip(["line 2", "line 3: outcome", "duplicate name one", "titel: unknown key"], reasons, strict=True):
        assert part in reason


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"outcome": None}, "worked, promising, mixed, did-not-work, not-evaluated, in-progress"),
        ({"links": {"tracker": ["https://wandb.ai/x?accessToken=abc"]}}, "accessToken"),
        ({"conclusion": "see https://ada:pw@example.org/x"}, "a password"),
        (
            {"configuration": {"data": {"from": "https://example.org/x?sig=abc"}}},
            "configuration.data.from: a web address contains sig",
        ),
        (
            {"configuration": {"a": [{"hf_token": "hf_abcdefghijkl"}]}},
            "configuration.a.0.hf_token",
        ),
        ({"links": {"issue": "javascript:alert(1)"}}, "links.issue"),
        ({"steps": [{"name": "a"}, {"name": "a"}]}, "steps.1.name"),
        ({"steps": [{"name": "a", "inputs": ["b"]}]}, "a needs b"),
        ({"steps": [{"name": "a", "inputs": ["b"]}, {"name": "b", "inputs": ["a"]}]}, "cycle: a"),
        ({"metrics": [{"name": "loss"}]}, "metrics.0"),
        ({"metrics": [{"name": "loss", "low": 2.0, "high": 1.0}]}, "low 2 is above high 1"),
        ({"metrics": [{"name": "loss", "low": 2.0}]}, "both low and high"),
        ({"metrics": [{"name": "loss", "value": float("nan")}]}, "finite number"),
        (
            {"steps": [{"name": "a", "started_at": "2026-11-21T00:00:00Z", "finished_at": "2026-11-20T00:00:00Z"}]},
            "2026-11-20 00:00:00+00:00",
        ),
        ({"title": "a\u202eb"}, "title"),
        ({"ladders": ["a", "a"]}, "ladders: duplicate name in a, a"),
        ({"links": {"issue": "https://[x"}}, "valid address"),
        ({"metrics": [{"name": "loss", "value": 9.0, "low": 1.0, "high": 2.0}]}, "value 9 is not between low 1 and high 2"),
    ],
)
def test_what_cannot_be_so_is_refused(changes: dict[str, Any], said: str) -> None:
    """And no address with a key is ever read, wherever it stands."""
    with pytest.raises(ValidationError) as refused:
        experiment(**changes)
    where = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in refused.value.errors())
    assert said in where


def test_each_fault_stands_at_its_line_with_what_was_meant(tmp_path: Path) -> None:
    """As people get them wrong."""
    lines = [
        *(
            "name: wide",
            "titel: Wider",
            "outcome: worked",
            "hypotesis: x",
            "topics: dense",
            "authors: [Ada]",
            "date: 22.11.2026",
        ),
        *("links: {issue: '#123'}", "configuration: {batch size: 3}", "code: none"),
    ]
    path = write(tmp_path, "wide", "\n".join(lines))
    with pytest.raises(DocumentError) as refused:
        read_experiment(path)
    for part in (
        "line 2: titel: unknown key; did you mean 'title'?",
        "line 4: hypotesis: unknown key; did you mean 'hypothesis'?",
        "line 5: topics: ",
        "line 6: authors.0: ",
        "line 7: date: ",
        "line 8: links.issue: ",
        "line 10: code: ",
    ):
        assert part in refused.value.what


def test_what_several_keys_say_together_is_wrong_at_its_line(tmp_path: Path) -> None:
    """Not at the first line of the file."""
    lines = ["name: wide", "title: x", "outcome: worked", "links:", "  tracker:", "    - https://wandb.ai/x?accessToken=abc"]
    with pytest.raises(DocumentError, match=r"line 6: links\.tracker\.0: .*accessToken"):
        read_experiment(write(tmp_path, "wide", "\n".join(lines)))
    lines[3:] = ["steps:", "  - {name: a}", "  - {name: b, inputs: [c]}"]
    with pytest.raises(DocumentError, match=r"line 6: steps\.1\.inputs: b needs c"):
        read_experiment(write(tmp_path / "again", "wide", "\n".join(lines)))


def test_numbers_are_numbers_however_they_are_written(tmp_path: Path) -> None:
    """As in JSON; PyYAML by itself reads 3e-4 as text."""
    text = "name: wide\ntitle: x\noutcome: worked\nconfiguration: {a: 3e-4, b: 1E5, c: -2.e3, d: '3e-4', e: 1.5e+3, f: e5}\n"
    found = read_experiment(write(tmp_path, "wide", text))
    assert found.configuration == {"a": 3e-4, "b": 1e5, "c": -2e3, "d": "3e-4", "e": 1.5e3, "f": "e5"}


def test_a_refusal_tells_no_value_of_the_file(tmp_path: Path) -> None:
    """It stands on a page that everybody reads, and what was refused may hold a key."""
    line = {"name": "x", "title": "y", "outcome": "worked", "links": {"tracker": "https://ada:hidden@b.org/"}}
    (tmp_path / "many.jsonl").write_text(json.dumps(line))
    (found,) = read_experiments(tmp_path)
    assert "links.tracker" in found.refusal
    assert "hidden" not in found.refusal


def test_a_refusal_tells_no_name_of_a_setting_that_carries_a_key(tmp_path: Path) -> None:
    """Its place would else be the key itself."""
    settings = {"https://wandb.ai/l/r?accessToken=hidden": 1}
    line = {"name": "x", "title": "y", "outcome": "worked", "configuration": {"deep": settings}}
    (tmp_path / "many.jsonl").write_text(json.dumps(line))
    (found,) = read_experiments(tmp_path)
    assert "configuration.deep: a web address contains accessToken" in found.refusal
    assert "hidden" not in found.refusal


@pytest.mark.parametrize(
    ("settings", "is_refused"),
    [
        ({"hf_token": ["hf_abcdefghijklmnop"]}, True),
        ({"hf_token": {"value": "hf_abcdefghijklmnop"}}, True),
        ({"api_keys": ["sk-abcdefghijklmnop"]}, True),
        ({"key": "fineweb-edu-10bt"}, False),
        ({"image_token": "<|image_placeholder|>", "special_tokens": ["<|endoftext|>"]}, False),
        ({"flops_per_token": 6.0, "max_tokens": 4096, "hf_token": None}, False),
    ],
)
def test_keys_in_settings_are_refused_and_words_of_models_are_not(settings: dict[str, Any], is_refused: bool) -> None:
    """However deep they lie."""
    with pytest.raises(ValidationError) if is_refused else nullcontext():
        experiment(configuration=settings)


def test_a_text_of_a_megabyte_is_read_and_thousands_of_aliases_of_a_long_one_are_refused(tmp_path: Path) -> None:
    """Sought from each place to its end, the first would take hours."""
    text = "name: long\ntitle: x\noutcome: worked\nconfiguration: {a: %s}\n"
    path = write(tmp_path, "long", text % ("a" * 900_000))
    assert len(read_experiment(path).configuration["a"]) == 900_000
    write(tmp_path / "again", "long", text % f"&a {'a' * 20_000}, b: [{', '.join(['*a'] * 4000)}]")
    with pytest.raises(DocumentError, match="more than 100000 values"):
        read_experiment(tmp_path / "again" / "long" / "experiment.yaml")


def test_a_link_or_a_number_of_thousands_of_digits_is_no_experiment(tmp_path: Path) -> None:
    """The one could lead anywhere, the other cannot be written."""
    write(tmp_path, "wide", f"name: wide\ntitle: x\noutcome: worked\nconfiguration: {{a: 0x{'f' * 5000}}}\n")
    (tmp_path / "linked.jsonl").symlink_to("/dev/zero")
    reasons = [each.refusal for each in read_experiments(tmp_path)]
    assert "linked.jsonl is a link" in reasons[0]
    assert "line 4: a number of 5002 characters" in reasons[1]


def test_aliases_that_stand_for_millions_of_values_are_refused(tmp_path: Path) -> None:
    """Ten lines may stand for more than a machine holds, and one that holds itself for more than any."""
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    write(tmp_path, "bomb", "\n".join(lines))
    write(tmp_path, "ring", "name: ring\nconfiguration: &c {a: *c}\n")
    write(tmp_path, "sound", "name: sound\ntitle: x\noutcome: worked\nconfiguration: {a: &a [1, 2], b: *a}\n")
    bomb, ring, sound = read_experiments(tmp_path)
    assert "bomb/experiment.yaml expands to more than 100000 values" in bomb.refusal
    assert "ring/experiment.yaml expands to more than 100000 values" in ring.refusal
    assert sound.experiment is not None
    assert sound.experiment.configuration == {"a": [1, 2], "b": [1, 2]}


def test_what_has_another_name_than_an_experiment_is_told(tmp_path: Path) -> None:
    """Nothing that somebody may have meant as one is passed over in silence."""
    write(tmp_path, "sound", "name: sound\ntitle: x\noutcome: worked\n")
    (tmp_path / "short").mkdir()
    (tmp_path / "short" / "experiment.yml").write_text("name: short\n")
    write(tmp_path / "deep", "deeper", "name: deeper\ntitle: x\noutcome: worked\n")
    (tmp_path / "wide.yaml").write_text("name: wide\n")
    (tmp_path / "README.md").write_text("About these.\n")
    sound, *others = read_experiments(tmp_path)
    assert sound.experiment is not None
    assert [each.refusal.removeprefix(f"{tmp_path}/").split()[0] for each in others] == ["deep", "short", "wide.yaml"]


def test_only_an_import_may_leave_its_outcome_unsaid() -> None:
    """Its source may not say it; who did it knows it."""
    assert experiment(outcome=None, source="a list").outcome is None


def test_this_projects_own_experiments_are_sound() -> None:
    """All that lie in this repository, the imported ones too."""
    found = read_experiments(ROOT / "experiments")
    assert len(found) > 77
    assert [each.refusal for each in found if each.experiment is None] == []
