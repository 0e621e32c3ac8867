"""A new recipe is one class and one entry in `RECIPES`: planning, documents and ladder files take it by name."""

import json
from dataclasses import dataclass

import pytest
from typer.testing import CliRunner

from marin_scaling.cli.app import app
from marin_scaling.recipe.find import RECIPES, find_recipe
from marin_scaling.recipe.quickstart import QuickstartRecipe


@dataclass(frozen=True, kw_only=True)
class NarrowRecipe(QuickstartRecipe):
    """The quickstart's formulas for one width."""

    name: str = "narrow"

    def widths_at(self, budget_flops):  # noqa: ARG002
        return (32,)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(RECIPES, "narrow", NarrowRecipe())


def command(*arguments):
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_python_plans_a_run_of_the_recipe():
    """By name, with its width."""
    plan = find_recipe("narrow").plan(budget_flops=3e10, hidden_dim=32)
    assert (plan.shape.hidden_dim, plan.budget_flops) == (32, 3e10)


def test_the_command_line_lists_and_shows_the_recipe():
    """Among the others; its run of a budget has the one width."""
    assert "narrow" in command("recipe", "list")
    document = json.loads(command("recipe", "show", "narrow", "--budget", "3e10", "--json"))
    assert document["recipe"] == "narrow"
    assert document["widths"] == [32]
