"""No command runs Python, or reads a file outside of the folder, because a file of a pull request names it as a recipe."""

from pathlib import Path

import pytest
from command_line import assert_refused, marin_scale_process

CODE = """
from pathlib import Path
Path("ran").write_text("ran")
class Recipe:
    name = "evil"
"""
LADDER = """\
name: tiny
recipe: {recipe}
rungs:
  - {{budget_flops: 1e10, hidden_dims: [8, 12]}}
target: {{budget_flops: 1e11}}
evaluation: {{windows: 64}}
"""
BASED = "name: theirs\nbase: {base}\nconstants: {{mlp_ratio: 3}}\n"
FORMS = {
    "a module": ("evil:Recipe", {}),
    "a module in a package": ("lib.evil:Recipe", {}),
    "the base of a recipe file": ("recipes/theirs.yaml", {"recipes/theirs.yaml": BASED.format(base="evil:Recipe")}),
    "the base of a base": (
        "recipes/mine.yaml",
        {
            "recipes/mine.yaml": "name: mine\nbase: theirs.yaml\nconstants: {mlp_ratio: 3}\n",
            "recipes/theirs.yaml": BASED.format(base="lib.evil:Recipe"),
        },
    ),
}


def hostile(root: Path, recipe: str, files: dict[str, str]) -> Path:
    """A repository whose ladder names a recipe, with code that leaves the file `ran` when it is imported."""
    written = {
        "evil.py": CODE,
        "lib/evil.py": CODE,
        "ladders/tiny.yaml": LADDER.format(recipe=recipe),
        "mkdocs.yml": "site_name: x\ndocs_dir: site\nsite_dir: .site\ntheme: {name: material}\n",
        "site/index.md": "# x\n",
        **files,
    }
    for name, text in written.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "command",
    [("ladder", "ladders/tiny.yaml", "--dry-run"), ("ladder", "ladders/tiny.yaml"), ("status", "ladders/tiny.yaml")],
)
def test_a_ladder_of_a_pull_request_runs_no_code(form: str, command: tuple[str, ...], tmp_path: Path) -> None:
    root = hostile(tmp_path, *FORMS[form])
    assert_refused(marin_scale_process(*command, cwd=root), "evil:Recipe", "--trust-recipe")
    assert not (root / "ran").exists()


@pytest.mark.parametrize("form", FORMS)
def test_pages_of_a_ladder_run_no_code(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from marin_scaling.publish.build import write_generated_pages

    root = hostile(tmp_path, *FORMS[form])
    monkeypatch.chdir(root)
    write_generated_pages(root)
    page = (root / "site" / "generated" / "ladders" / "tiny.md").read_text()
    assert "evil" in page
    assert not (root / "ran").exists()


def test_an_entry_of_a_pull_request_runs_no_code(tmp_path: Path) -> None:
    entry = "name: x\ntrack: cpu\nauthor: {name: a}\ndescription: d\nrecipe: evil:Recipe\n"
    entry += "budget_flops: 1e10\nhidden_dim: 8\nseeds: [0]\n"
    root = hostile(tmp_path, "quickstart", {"speedruns/x/entry.yaml": entry})
    marin_scale_process("speedrun", "run", "speedruns/x/entry.yaml", cwd=root)
    marin_scale_process("speedrun", "validate", "speedruns", cwd=root)
    assert not (root / "ran").exists()


def test_code_that_a_person_names_is_run(tmp_path: Path) -> None:
    """It is no whole recipe, and that is what is said."""
    root = hostile(tmp_path, "evil:Recipe", {})
    done = marin_scale_process("--trust-recipe", "evil:Recipe", "ladder", "ladders/tiny.yaml", "--dry-run", cwd=root)
    assert_refused(done, "formulas")
    assert (root / "ran").exists()


@pytest.mark.parametrize("named", ["{outside}/secret.yaml", "../outside/secret.yaml", "recipes/../../outside/secret.yaml"])
def test_a_recipe_file_outside_is_not_read(named: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.yaml").write_text("key of ours: [")
    root = tmp_path / "root"
    root.mkdir()
    (root / "recipes").mkdir()
    hostile(root, named.format(outside=outside), {})
    done = marin_scale_process("ladder", "ladders/tiny.yaml", "--dry-run", cwd=root)
    assert_refused(done, "outside")
    assert "is not YAML" not in done.stderr


@pytest.mark.parametrize("module", ["numpy", "yaml", "pydantic", "rich", "sitecustomize"])
def test_a_module_in_the_current_folder_is_not_imported(module: str, tmp_path: Path) -> None:
    root = hostile(tmp_path, "quickstart", {f"{module}.py": CODE})
    done = marin_scale_process("ladder", "ladders/tiny.yaml", "--dry-run", cwd=root)
    assert done.returncode == 0, done.stderr
    assert not (root / "ran").exists()
