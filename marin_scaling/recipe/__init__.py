"""Recipes: a FLOP budget and a width determine shape, batch, steps and learning rates, each by a formula with its source."""
