"""Loads several times each, in blocks: every block has each load once, in an order of its own.

What changes over the hours (the machine's temperature, another tenant) then falls on all loads alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from observe.plan.loads import ListedLoad

_STREAM: Final = 1207
"""Of the order of blocks, which so hangs on no other draw of the seed."""


def in_blocks(loads: Sequence[ListedLoad], repeats: int, *, seed: int) -> list[ListedLoad]:
    """Return the loads ``repeats`` times, block after block, each named by its number: ``rate-4-run-1``.

    A load alone is named ``run-1``. A block's order is drawn by the seed and the block's number, so that more repeats
    leave the first ones as they were.
    """
    return [
        replace(loads[place], name=run_name(loads[place].name, block))
        for block in range(1, repeats + 1)
        for place in np.random.default_rng([_STREAM, seed, block]).permutation(len(loads)).tolist()
    ]


def run_name(load: str, block: int) -> str:
    """Return the name of a load's run in a block, from 1."""
    return f"{load}-run-{block}" if load else f"run-{block}"
