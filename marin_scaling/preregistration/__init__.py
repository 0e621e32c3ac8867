"""Preregistration: statements that promise a forecast before the run, signed as the exact bytes of their file."""
