"""Ladder files (recipe, budgets, sizes, data, evaluation, target), their rungs and cost."""
