"""Forecast large training runs from ladders of small ones, sign the forecast first, check it after.

    recipe -> ladder -> run -> fit -> forecast -> preregistration -> check -> publish -> cli

Each stage is a folder here and imports only from the stages left of it and from the ground
(`errors`, `units`, `canonical_json`, `durable_files`, `laws`). JAX, Levanter and Ray are imported only below `run/`.
"""

__version__ = "0.1.0"
