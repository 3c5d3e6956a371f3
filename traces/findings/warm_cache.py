"""How much of the prompts the server found in its prefix cache, beyond what the load itself repeats."""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from traces.findings.prefix_ceiling import prefix_hit_ceiling_frac
from traces.metrics import finished_ok, own_prompt_tokens, prompt_tokens
from traces.trace import select_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from traces.header import CounterReading
    from traces.trace import Trace

MORE: Final = 0.01
"""From this share of the prompts' tokens on, of a load that shares nothing; vllm bench warns from the same share."""
MORE_OF_SHARED: Final = 0.1
"""The same of a load that shares prefixes, whose hits are not known to the token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmCache:
    """The share of the prompts' tokens that was found, and the share that the load itself repeats.

    ``num`` of ``of`` requests have hits; all of them where only the server's counters tell.
    """

    found_frac: float
    shared_frac: float
    num: int
    of: int
    source: str


def warm_cache(trace: Trace) -> WarmCache | None:
    """Return what the cache knew of prompts that were meant to be new; None where that is nothing, or not known.

    Only of runs of vtwin's own client, whose prompts are made for the run. Later rounds of a session and requests that
    were sent again repeat what the server has seen, and are not counted; a chat template's tokens are the same in
    every prompt, and may be found. By the answers' usage, else by the server's counters over the run.
    """
    if trace.header.client is None or trace.header.mode != "real":
        return None
    is_new = ~(trace.cells("round_index").values > 0) & ~(trace.cells("attempt").values > 1)
    chosen = select_rows(trace.with_events(None), is_new & finished_ok(trace))
    prompt = prompt_tokens(chosen).sum()
    if not prompt:
        return None
    template = max(int(prompt - own_prompt_tokens(chosen).sum()), 0) / prompt
    shared = prefix_hit_ceiling_frac(chosen) or 0.0
    cached = chosen.cells("cached_input_tokens")
    found, source, hits = 0.0, "usage", 0
    if cached.is_known.any():
        known = prompt_tokens(chosen)[cached.is_known].sum()
        found, hits = float(cached.known().sum() / max(known, 1)), int((cached.known() > 0).sum())
    counted = _by_counters(trace.header.metrics_delta) if is_new.all() else None
    if hits == 0 and counted is not None:
        found, source, hits = counted, "/metrics", len(chosen)
    if found - shared - template < (MORE_OF_SHARED if shared else MORE):
        return None
    return WarmCache(found_frac=found, shared_frac=shared, num=hits, of=len(chosen), source=source)


def _by_counters(deltas: Mapping[str, CounterReading]) -> float | None:
    """Return the share of looked-up tokens that were found, over all engines; None without look-ups.

    None, too, where requests were preempted: they look themselves up again.
    """

    def increase(*ends: str) -> float:
        return float(
            np.sum(
                [
                    each.after - each.before
                    for key, each in deltas.items()
                    if key.partition("{")[0].endswith(ends)
                ]
            )
        )

    queries = increase(":prefix_cache_queries_total", ":gpu_prefix_cache_queries_total")
    hits = increase(":prefix_cache_hits_total", ":gpu_prefix_cache_hits_total")
    if queries <= 0 or not 0 <= hits <= queries or increase(":num_preemptions_total") > 0:
        return None
    return hits / queries
