"""Experiments: hypotheses, outcomes and evidence."""
