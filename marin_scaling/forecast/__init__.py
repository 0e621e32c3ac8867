"""The loss at a larger budget, with its interval and what the interval rests on."""
