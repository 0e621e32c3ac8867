"""Training of planned runs: the only package that imports JAX, Levanter and Ray."""
