"""How evenly a mixture's tokens are spread over its experts while it trains: a file beside the loss curve, and what it shows.

Written when the state is saved, for the batch of that moment, and gone with the working folder. Computes no shares.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marin_scaling.durable_files import read_own_bytes, replace_file
from marin_scaling.run.workplace import shares_path

_LEAST_OF_EVEN = 0.1  # balancing by quantiles gives each expert an even share of the batch before


def write_shares(folder: Path, shares: NDArray[np.float32]) -> None:
    """Keep shares of shape (layer, expert) in a run's working folder."""
    replace_file(shares_path(folder), json.dumps(shares.tolist()).encode())


def read_shares(folder: Path) -> list[list[float]]:
    """What was written last, by layer and expert; nothing where nothing was."""
    path = shares_path(folder)
    found: list[list[float]] = json.loads(read_own_bytes(path)) if path.exists() else []
    return found


def router_faults(shares: Sequence[Sequence[float]]) -> list[str]:
    """A sentence for each layer with experts that hardly any token chooses.

    >>> router_faults([[0.25, 0.26, 0.24, 0.25], [0.5, 0.49, 0.01, 0.0]])
    ['layer 1: 2 of 4 experts get less than a tenth of an even share of the tokens']
    """
    return [
        f"layer {layer}: {idle} of {len(each)} experts get less than a tenth of an even share of the tokens"
        for layer, each in enumerate(shares)
        if (idle := sum(share < _LEAST_OF_EVEN / len(each) for share in each))
    ]
