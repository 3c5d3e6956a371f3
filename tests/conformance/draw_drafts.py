"""Random cases with speculative decoding: a drawn case on one stage, by EAGLE, whose hits lose a block, or n-grams.

Of a case with KV cache groups, some or all are the drafting model's, or several of its modules draft (MTP).
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from tests.conformance.draw import Case


def with_drafts(case: Case, seed: int, index: int) -> Case:
    """Return the case with one to five drafts, of which many, few, none or all hold; EAGLE's in three of four."""
    rng = Random(f"{seed} {index} drafts")
    k = rng.choice([1, 2, 3, 5])
    rates = sorted((rng.choice([0.0, 0.3, 0.6, 0.9, 1.0]) for _ in range(k)), reverse=True)
    changes: dict[str, Any] = {
        "pipeline_parallel_size": 1,
        "num_speculative_tokens": k,
        "synthetic_acceptance_rates": rates,
        "use_eagle": rng.random() < 3 / 4,
    }
    groups = case.settings.get("groups", [])
    threshold = case.settings["long_prefill_token_threshold"]
    is_aligned = any(group.get("mode") == "align" for group in groups)
    if 0 < threshold <= k and not is_aligned:  # below 1 + k vLLM ends in an assertion of its own
        changes["long_prefill_token_threshold"] = (1 + k) * (1 + k <= case.settings["max_model_len"])
    name = f"drafts_{seed}_{index:04d}" if case.name.startswith("random") else f"{case.name}_drafts"
    case = replace(case, name=name, settings=case.settings | changes)
    return with_layers_that_draft(case, rng) if groups else case


def with_layers_that_draft(case: Case, rng: Random) -> Case:
    """Return a case with groups, with those marked that a drafting model's layers are in.

    vLLM serves no chunked group that loses a block, and no modules that read further ahead than a hit's alignment.
    """
    settings = case.settings
    if not settings["use_eagle"]:
        return case
    kinds = {group["kind"] for group in settings["groups"]}
    if settings.get("prefix_match_unit") is not None and "state" in kinds and kinds & {"sliding", "chunked"}:
        return replace(case, settings=settings | {"use_eagle": False})  # not simulated
    groups = [dict(group) for group in settings["groups"]]
    marked = [rng.random() < 1 / 2 for _ in groups]
    if rng.random() < 1 / 3:
        marked = [False for _ in groups]
    caches_chunks = settings["enable_prefix_caching"] and any(group["kind"] == "chunked" for group in groups)
    if caches_chunks:
        marked = [
            is_marked and group["kind"] != "chunked" for is_marked, group in zip(marked, groups, strict=True)
        ]
        if not any(marked):
            marked = [group["kind"] != "chunked" for group in groups]
        if not any(marked):  # none but chunks: nobody drafts by EAGLE
            return replace(case, settings=settings | {"use_eagle": False})
    for group, is_marked in zip(groups, marked, strict=True):
        if is_marked:
            group["is_eagle_group"] = True
    changes: dict[str, Any] = {"groups": groups}
    k = settings["num_speculative_tokens"]
    largest = max(group.get("block_size") or settings["block_size"] for group in groups)
    reads_ahead = k > 1 and rng.random() < 1 / 4 and settings.get("prefix_match_unit") is None
    if reads_ahead and (largest >= k or not settings["enable_prefix_caching"]):
        changes["num_prefill_lookahead_tokens"] = k
    return replace(case, settings=settings | changes)
