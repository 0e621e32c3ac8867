"""Verification of one preregistration: authenticity, refit and policy."""
