"""Experiments: what was asked, what came of it, and how anyone can see. No training here, and no pages."""
