"""Hand-made sides of a comparison."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from calibrate.compare.gaps import Gaps
from calibrate.compare.pair import LATENCIES, Side


def no_gaps() -> Gaps:
    empty = np.zeros(0)
    return Gaps(request=np.zeros(0, dtype=np.int64), gap_us=empty, weight=empty, basis="events")


def side(
    ids: Sequence[str],
    *,
    ttft: Sequence[float] | None = None,
    tpot: float = 10.0,
    output_tokens: int = 11,
    gaps: Gaps | None = None,
    **columns: object,
) -> Side:
    """Return a side whose e2e is ttft + 10 tpot; further columns replace what is made."""
    n = len(ids)
    first = np.full(n, 100.0) if ttft is None else np.asarray(ttft, dtype=np.float64)
    table = pd.DataFrame(
        {
            "request_id": list(ids),
            "arrival_us": np.arange(n) * 1000.0,
            "prompt_tokens": np.full(n, 50.0),
            "output_tokens": np.full(n, float(output_tokens)),
            "status": ["ok"] * n,
            "warmup": [False] * n,
            "ttft_us": first,
            "itl_mean_us": np.full(n, tpot),
            "tpot_us": np.full(n, tpot),
            "e2e_us": first + (output_tokens - 1) * tpot,
            "queue_us": np.full(n, np.nan),
        }
    ).assign(**columns)
    failed = table["status"].fillna("ok") != "ok"
    table.loc[failed, list(LATENCIES)] = np.nan
    return Side(table=table, gaps=gaps or no_gaps())


def gaps_of(*of_requests: Sequence[float]) -> Gaps:
    """Return the gaps of requests, a sequence for each, one token at a time."""
    request = np.repeat(np.arange(len(of_requests)), [len(each) for each in of_requests])
    gap_us = np.concatenate([np.asarray(each, dtype=np.float64) for each in of_requests])
    return Gaps(request=request, gap_us=gap_us, weight=np.ones(len(gap_us)), basis="events")


def regular_gaps(num_requests: int, gap_us: Sequence[float]) -> Gaps:
    """Return gaps of requests that each have these gaps, one after the other."""
    return gaps_of(*[gap_us] * num_requests)
