"""Random cases whose kernels save a state inside a prompt's chunk: a drawn case with KV cache groups.

In most, all groups of states save; in some only a few do, and then the scheduler cuts chunks as if none did. Several
MTP modules are not drawn: with them such states are refused.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from tests.conformance.draw import Case
from tests.conformance.draw_units import groups_with_states, let_begin_alike


def with_checkpoints(case: Case, seed: int, index: int) -> Case:
    """Return the case with states at the ends of blocks, in nine of ten cases saved inside chunks."""
    rng = Random(f"{seed} {index} checkpoints")
    settings: dict[str, Any] = dict(case.settings) | {"num_prefill_lookahead_tokens": 0}
    if not any(group.get("mode") == "align" for group in settings["groups"]) and rng.random() < 9 / 10:
        settings = with_states(settings, rng)
    aligned = [group for group in settings["groups"] if group.get("mode") == "align"]
    can_save = settings["block_size"] > settings.get("num_speculative_tokens", 0)
    if aligned and can_save and rng.random() < 9 / 10:
        settings["groups"] = saving(settings, rng)
    rows = let_begin_alike(case.rows, rng) if case.traits["sharing"] == "nothing" else case.rows
    return replace(case, name=f"checkpoints_{case.name}", settings=settings, rows=rows)


def with_states(settings: dict[str, Any], rng: Random) -> dict[str, Any]:
    """Return the settings with groups of states, some of them the drafting model's."""
    groups = [dict(group) for group in groups_with_states(rng)]
    if settings.get("use_eagle") and rng.random() < 1 / 2:
        rng.choice(groups)["is_eagle_group"] = True
    usable = (settings["num_gpu_blocks"] - 1) // len(settings["groups"])
    size = settings["block_size"]
    changes: dict[str, Any] = {
        "enable_prefix_caching": True,
        "groups": groups,
        "num_gpu_blocks": 1 + usable * len(groups),
        "prefix_cache_retention_interval": rng.choice([None, None, 0, 0, 0, size, 3 * size]),
    }
    return settings | changes


def saving(settings: dict[str, Any], rng: Random) -> list[dict[str, Any]]:
    """Return the groups; their states are saved at places of one alignment, in one case of eight of unlike ones."""
    size, unit = settings["block_size"], settings.get("prefix_match_unit") or settings["block_size"]
    alignments = [1, 1, 2, 16, unit, size, 2 * size, rng.randint(1, 2 * size)]
    alignment, is_alike = rng.choice(alignments), rng.random() < 7 / 8
    groups = []
    for group in settings["groups"]:
        if group.get("mode") == "align" and (is_alike or rng.random() < 3 / 4):
            own = alignment if is_alike else rng.choice(alignments)
            groups.append(group | {"num_prefill_checkpoint_blocks": 1, "prefill_checkpoint_alignment": own})
        else:
            groups.append(group)
    return groups
