"""Speedrun: submissions, their checks, and the Pareto board."""
