"""What a person writes: a ladder file (recipe, budgets, sizes, data, evaluation, target) and what it costs."""
