"""Prefill attention of a batch, from what was measured: single prompts and chunks, or batches of equal prompts.

The engine knows a step's prefills by two sums: their tokens P, and the (query, key) pairs A that they attend to, so
that a query sees A/P keys on average. A profile has points of either kind:

- Vidur's: one chunk of c tokens behind kv tokens of context. It sees kv + (c + 1)/2 keys per query: with P and A/P
  given, c = P and kv = A/P - (P + 1)/2, where that is not negative. Fewer keys than (P + 1)/2 mean several prompts.
- operator tables: batches of equal prompts without context. More keys than (P + 1)/2 mean context.

What lies on the other side is told from what was measured. P tokens that see k keys each are P/s prompts of
s = 2k - 1 tokens, all or a part:

- part of a prompt, of tables: the launch once, and of the rest of a prompt of s tokens its share P/s.
- several prompts, of Vidur's points: the geometric mean of two rules. The launch once and the rest P/s times is too
  long where prompts are too short to fill the GPU alone; Vidur's own, one prompt of the root of the sum of squares,
  is too short, its rows being longer but fewer. docs/validation.md has all three against measured batches.
"""

from __future__ import annotations

import numpy as np

from calibrate.predictor.measured import Floats, OperatorTable


def prefill_points(table: OperatorTable, points: Floats) -> Floats:
    """Return the features to be predicted for rows of (tokens, keys per query): two for each row, and the floor."""
    tokens, keys = points.T
    prompt = np.maximum(2 * keys - 1, 1.0)
    is_measured = _is_measured(table, points)
    full = (tokens + 1) / 2
    if table.features == ("kv", "chunk"):
        nothing = np.zeros_like(tokens)
        first = np.column_stack(
            [np.where(is_measured, keys - full, 0.0), np.where(is_measured, tokens, prompt)]
        )
        second = np.column_stack([nothing, np.sqrt(tokens * prompt)])
    else:
        first = np.column_stack([keys, np.where(is_measured, tokens, prompt)])
        second = np.column_stack([np.minimum(keys, full), tokens])
    smallest = table.points[np.argmin(table.points.sum(axis=1))]
    return np.vstack([first, second, smallest])


def prefill_times(table: OperatorTable, points: Floats, predicted: Floats) -> Floats:
    """Return µs for rows of (tokens, keys per query) from what ``prefill_points`` asked for."""
    tokens, keys = points.T
    n = len(points)
    first, second, floor = predicted[:n], predicted[n : 2 * n], predicted[-1]
    prompts = tokens / np.maximum(2 * keys - 1, 1.0)
    shared = floor + np.maximum(first - floor, 0.0) * prompts
    told = np.sqrt(shared * second) if table.features == ("kv", "chunk") else np.maximum(shared, second)
    times: Floats = np.where(_is_measured(table, points), first, told)
    return times


def _is_measured(table: OperatorTable, points: Floats) -> np.ndarray:
    """Return which rows are of the kind that the profile has."""
    full = (points[:, 0] + 1) / 2
    measured: np.ndarray = points[:, 1] >= full if table.features == ("kv", "chunk") else points[:, 1] <= full
    return measured
