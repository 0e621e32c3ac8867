"""Speedrun: submissions, what makes one acceptable, and which of them nobody beats."""
