"""Random cases with speculative decoding: a drawn case on one stage, by EAGLE, whose hits lose a block, or n-grams."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.conformance.draw import Case


def with_drafts(case: Case, seed: int, index: int) -> Case:
    """Return the case with one to five drafts, of which many, few, none or all hold; EAGLE's in three of four."""
    rng = Random(f"{seed} {index} drafts")
    k = rng.choice([1, 2, 3, 5])
    rates = sorted((rng.choice([0.0, 0.3, 0.6, 0.9, 1.0]) for _ in range(k)), reverse=True)
    changes = {
        "pipeline_parallel_size": 1,
        "num_speculative_tokens": k,
        "synthetic_acceptance_rates": rates,
        "use_eagle": rng.random() < 3 / 4,
    }
    threshold = case.settings["long_prefill_token_threshold"]
    if 0 < threshold <= k:  # below 1 + k vLLM ends in an assertion of its own
        changes["long_prefill_token_threshold"] = (1 + k) * (1 + k <= case.settings["max_model_len"])
    name = f"drafts_{seed}_{index:04d}" if case.name.startswith("random") else f"{case.name}_drafts"
    return replace(case, name=name, settings=case.settings | changes)
