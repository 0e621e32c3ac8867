"""Forecast large training runs from ladders of small ones: sign the forecast before the run, and check it afterwards.

`ARCHITECTURE.md` shows the packages. A package imports only from the layers below it.
Only `train` imports JAX, Levanter and Ray.
"""

__version__ = "0.1.0"
