"""Forecasts of the loss at a larger budget, with intervals and tests of them."""
