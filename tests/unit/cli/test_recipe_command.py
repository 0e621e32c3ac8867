"""`marin-scale recipe` as a person types it: what is printed, recipes of one's own, and what is refused."""

import json
from pathlib import Path

import pytest
from command_line import assert_refused, marin_scale

HOTTER = "name: hotter\nbase: delphi\nconstants: {tuned_learning_rate: 0.008}\n"
WIDER = "name: wider\nbase: hotter.yaml\nconstants: {mlp_ratio: 3}\n"
OWN = """\
from dataclasses import dataclass
from marin_scaling.recipe.quickstart import QuickstartRecipe


@dataclass(frozen=True, kw_only=True)
class Deeper(QuickstartRecipe):
    name: str = "deeper"
    num_layers: int = 4


class Plain:  # the interface, and no dataclass
    name = "plain"

    def __getattr__(self, attribute):
        return getattr(QuickstartRecipe(), attribute)


class Nothing:
    name = "nothing"


class Failing(QuickstartRecipe):
    def plan(self, **wanted):
        raise KeyError("oops")


class Odd(QuickstartRecipe):
    def widths_at(self, budget_flops):
        return None


class Broken:
    def __init__(self):
        raise ValueError("no constants today")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "recipes").mkdir()
    for name, text in {"hotter": HOTTER, "wider": WIDER}.items():
        (tmp_path / "recipes" / f"{name}.yaml").write_text(text)
    (tmp_path / "own_recipes.py").write_text(OWN)
    return tmp_path


def test_every_number_is_printed_with_formula_and_numbered_source(tmp_path: Path) -> None:
    """Delphi at 3e18 FLOPs and width 1024 is the published run."""
    shown = marin_scale("recipe", "show", "delphi", "--budget", "3e18", "--width", "1024", cwd=tmp_path).stdout
    assert "recipe delphi: 3e18 FLOPs at width 1024" in shown
    assert "train_steps                       37335  round(planned_tokens / (batch_size *" in shown
    assert "[3] Marin, experiments/scaling_law_sweeps/completed_adamh.py" in shown


def test_the_document_has_the_same_numbers(tmp_path: Path) -> None:
    """One object on standard output."""
    found = json.loads(marin_scale("recipe", "show", "delphi", "--budget", "3e18", "--json", cwd=tmp_path).stdout)
    numbers = {each["name"]: each for each in found["numbers"]}
    assert found["widths"] == [512, 640, 768, 896, 1024]
    assert numbers["hidden_dim"]["value"] == 512  # 27.5 tokens per parameter; the next width has 14.4
    assert numbers["num_layers"]["formula"].startswith("round(hidden_dim")


def test_recipe_files_override_constants_of_recipes_and_of_each_other(folder: Path) -> None:
    """And the difference names just those, and what follows from them."""
    shown = marin_scale("recipe", "diff", "delphi", "recipes/wider.yaml", "--budget", "1e20", cwd=folder).stdout
    constants = shown.split("constants:")[1].split("numbers at")[0].split()
    assert constants == ["tuned_learning_rate", "0.0063", "0.008", "mlp_ratio", "4", "3"]
    assert "params_total                  998036992  884790784" in shown


def test_a_class_of_ones_own_is_found_in_the_working_directory(folder: Path) -> None:
    """By its import path, with its constants in place of those it was made from."""
    shown = marin_scale("recipe", "show", "own_recipes:Deeper", "--budget", "1e11", cwd=folder).stdout
    assert "recipe deeper" in shown
    assert "num_layers                            4" in shown


def test_a_class_with_the_interface_alone_is_shown(folder: Path) -> None:
    """It has no constants to show, and says where its numbers are from."""
    shown = marin_scale("recipe", "show", "own_recipes:Plain", "--budget", "1e11", cwd=folder).stdout
    assert "recipe plain" in shown
    assert "the recipe's own" in shown


def test_the_published_run_of_1e23_is_shown_with_its_batch(tmp_path: Path) -> None:
    """2048 sequences, for the hardware: 74,884 steps."""
    options = ("--budget", "1e23", "--width", "5376", "--batch", "2048")
    assert "train_steps                       74884" in marin_scale("recipe", "show", "delphi", *options, cwd=tmp_path).stdout


def test_numbers_in_scientific_notation_are_numbers(folder: Path) -> None:
    """YAML takes 8e-3 for text; a person does not."""
    (folder / "recipes" / "hot.yaml").write_text(HOTTER.replace("hotter", "hot").replace("0.008", "8e-3"))
    shown = marin_scale("recipe", "diff", "recipes/hotter.yaml", "recipes/hot.yaml", "--budget", "1e20", cwd=folder).stdout
    assert shown == "hotter and hot do not differ.\n"


def test_recipes_with_two_optimizers_differ_in_them(tmp_path: Path) -> None:
    """A choice that is no number is shown as well."""
    shown = marin_scale("recipe", "diff", "grug-moe", "grug-moe-v16", "--budget", "1e20", cwd=tmp_path).stdout
    assert "  optimizer                         muonH  adamH\n" in shown


def test_without_a_budget_two_recipes_are_compared_by_what_they_are(tmp_path: Path) -> None:
    """Constants and formulas; no run of either has to exist at one budget."""
    shown = marin_scale("recipe", "diff", "quickstart", "delphi", cwd=tmp_path).stdout
    assert "constants:\n" in shown
    assert "formulas:\n" in shown
    assert "numbers at" not in shown


def test_a_recipe_file_overrides_a_recipe_of_ones_own(folder: Path) -> None:
    """A class of one's own is guarded, and stays one whose constants can be set."""
    (folder / "recipes" / "own.yaml").write_text("name: own\nbase: own_recipes:Deeper\nconstants: {mlp_ratio: 3}\n")
    trusted = ("--trust-recipe", "own_recipes:Deeper")
    shown = marin_scale(*trusted, "recipe", "show", "recipes/own.yaml", "--budget", "1e11", cwd=folder).stdout
    assert "num_layers                            4" in shown
    assert "mlp_ratio                             3" in shown


def test_a_recipe_does_not_differ_from_itself(tmp_path: Path) -> None:
    """Said in a sentence."""
    assert marin_scale("recipe", "diff", "delphi", "delphi", "--budget", "1e20", cwd=tmp_path).stdout == (
        "delphi and delphi do not differ.\n"
    )


@pytest.mark.parametrize(
    ("recipe", "budget", "fragments"),
    [
        ("delfi", "1e20", ("recipe 'delfi'", "delphi, grug-moe, grug-moe-v16, quickstart, quickstart-moe")),
        ("delphi", "1e10", ("makes no run of 1e10 FLOPs",)),
        ("grug-moe", "1e300", ("makes no run of 1e300 FLOPs",)),
        ("grug-moe-v16", "1e30", ("makes no run of 1e30 FLOPs",)),
        ("delphi", "much", ("'much' is not a",)),
        ("recipes/none.yaml", "1e20", ("none.yaml",)),
        ("no_module:Recipe", "1e20", ("No module named 'no_module'",)),
        ("own_recipes:Nothing", "1e20", ("formulas, widths, widths_at, shape, plan",)),
        ("own_recipes:Broken", "1e20", ("ValueError: no constants today",)),
        ("own_recipes:Failing", "1e11", ("'own_recipes:Failing': its method plan failed: KeyError: 'oops'",)),
        ("own_recipes:Odd", "1e11", ("its method widths_at failed: TypeError: 'NoneType' object is not iterable",)),
    ],
)
def test_what_is_no_recipe_is_refused_with_what_why_and_fix(
    folder: Path, recipe: str, budget: str, fragments: tuple[str, ...]
) -> None:
    """Status 2 and no traceback."""
    assert_refused(marin_scale("recipe", "show", recipe, "--budget", budget, cwd=folder), *fragments)


@pytest.mark.parametrize(
    ("text", "fragments"),
    [
        ("name: bad\nbase: delphi\nconstants: {tuned_rate: 1}\n", ("constants.tuned_rate: unknown constant",)),
        ("name: bad\nbase: delphi\nconstants: {mlp_ratio: 0}\n", ("constants.mlp_ratio: 0 is not above 0",)),
        ("name: bad\nbase: delphi\nconstants: {mlp_ratio: 2.5}\n", ("constants.mlp_ratio: 2.5 is not an integer",)),
        ("name: bad\nbase: delphi\nconstants: {beta1: 1}\n", ("constants.beta1: 1 is not below 1",)),
        ("name: bad\nbase: delphi\nconstants: {warmup_fraction: 5}\n", ("constants.warmup_fraction: 5 is more than 1",)),
        ("name: bad\nbase: delphi\nconstants: {widest: 1e12}\n", ("is more than 1000 times off the recipe's own, 16384",)),
        ("name: bad\nbase: delphi\nconstants: {tuned_tokens: 5e-324}\n", ("is more than 1e9 times off the recipe's own",)),
        ("name: bad\nbase: own_recipes:Plain\nconstants: {mlp_ratio: 3}\n", ("has no constants to override",)),
        ("name: bad\nbase: delphi\nconstants: {mlp_ratio: yes}\n", ("line 3: constants: mlp_ratio is true, not a number",)),
        ("name: bad\nbase: delphi\n", ("constants: field required",)),
        ("name: bad\nbase: delphi\nconstants: {}\n", ("constants: must not be empty",)),
        ("name: other\nbase: delphi\nconstants: {mlp_ratio: 3}\n", ("name: 'other'", "'bad'")),
        ("name: bad\nbase: bad.yaml\nconstants: {mlp_ratio: 3}\n", ("base: ", "cycle")),
        ("name: bad\nbase: delphi\nconstants: {width_of_head: 100}\n", ("do not divide",)),
    ],
)
def test_a_recipe_file_that_says_no_recipe_is_refused_by_key(folder: Path, text: str, fragments: tuple[str, ...]) -> None:
    """File, line and key; nothing is planned with it."""
    (folder / "recipes" / "bad.yaml").write_text(text)
    trusted = ("--trust-recipe", "own_recipes:Plain")
    assert_refused(marin_scale(*trusted, "recipe", "show", "recipes/bad.yaml", "--budget", "1e20", cwd=folder), *fragments)


def test_a_recipe_file_does_not_take_the_name_of_another_recipe(folder: Path) -> None:
    """Records of runs could not be told apart."""
    (folder / "recipes" / "quickstart.yaml").write_text(HOTTER.replace("hotter", "quickstart"))
    refused = marin_scale("recipe", "show", "recipes/quickstart.yaml", "--budget", "1e20", cwd=folder)
    assert_refused(refused, "name: 'quickstart' is the name of another recipe")
