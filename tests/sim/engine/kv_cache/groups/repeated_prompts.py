"""Prompts that come one long after the other and begin alike: what a prefix cache is asked with."""

from __future__ import annotations

import numpy as np

from sim import Requests


def repeated(unit: int, prompts: list[int]) -> Requests:
    """Return prompts that begin alike as far as they go, one long after the other; a content per whole unit."""
    numbers = [np.arange(prompt // unit) for prompt in prompts]
    return Requests(
        arrival_us=np.arange(len(prompts), dtype=np.int64) * 10_000_000,
        prompt_tokens=np.array(prompts, np.int64),
        output_tokens=np.full(len(prompts), 5, np.int64),
        priority=np.zeros(len(prompts), np.int64),
        hash_offsets=np.cumsum([0, *map(len, numbers)]),
        hash_ids=np.concatenate(numbers),
    )
