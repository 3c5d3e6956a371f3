"""``engine.kv_cache_groups`` of TWIN.yaml: read with the line of each fault, and written back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, cast, get_args

from replay.twin.keys.key import Key
from sim import (
    EngineSettings,
    GroupKind,
    KVCacheGroup,
    StateMode,
    has_known_drafts,
    rules_of,
    without_eagle_marks,
)
from traces.strict.section import Section

GROUPS, DISABLED, METHOD = "kv_cache_groups", "disable_hybrid_kv_cache_manager", "speculative_method"
DRAFT_MODEL, NUMBER = "speculative_model", "num_speculative_tokens"
SIZES = ("window", "chunk", "block_size")
CHECKPOINTS, ALIGNMENT = "num_prefill_checkpoint_blocks", "prefill_checkpoint_alignment"
MTP = "mtp"
HEAD_METHODS = ("eagle", "eagle3", "draft_model")
METHODS = ("none", MTP, *HEAD_METHODS)
"""Methods that draft with layers that keep KV: the model's own, or those of another checkpoint."""
ONE_FULL: tuple[KVCacheGroup, ...] = (KVCacheGroup(kind="full"),)

GROUP_KEYS: tuple[Key, ...] = (
    Key(
        path=f"engine.{GROUPS}",
        kind="mapping",
        default="of `latency.model_config`, else one full group",
        meaning="Groups of layers that keep the same tokens, in vLLM's order: a list of mappings with these keys. Each "
        "has its own blocks for every request, all from one pool (docs/how-to/plan-a-hybrid-model.md).",
    ),
    Key(
        path=f"engine.{GROUPS}.kind",
        kind="choice",
        default="required",
        meaning="What its layers keep: everything, the last `window` tokens, those of the `chunk` under way, or a "
        "state in place of keys and values.",
        choices=get_args(GroupKind),
    ),
    Key(
        path=f"engine.{GROUPS}.window",
        kind="integer",
        default="required with `sliding`",
        least=1,
        meaning="Tokens.",
    ),
    Key(
        path=f"engine.{GROUPS}.chunk",
        kind="integer",
        default="required with `chunked`",
        least=1,
        meaning="Tokens.",
    ),
    Key(
        path=f"engine.{GROUPS}.mode",
        kind="choice",
        default="align with prefix caching, else none",
        meaning="Of `state`: one state per request, or the last ones at the ends of blocks, for finding prefixes.",
        choices=get_args(StateMode),
    ),
    Key(
        path=f"engine.{GROUPS}.block_size",
        kind="integer",
        default="`engine.block_size`",
        least=1,
        meaning="Tokens per block of the group: more where a token takes fewer bytes in its layers.",
    ),
    Key(
        path=f"engine.{GROUPS}.{CHECKPOINTS}",
        kind="integer",
        default="0",
        least=0,
        meaning="Of `state` with mode align, 0 or 1: its kernel saves a state inside a prompt's chunk, in a block of "
        "its own, so that the chunk need not end there (from vLLM 0.29 on).",
    ),
    Key(
        path=f"engine.{GROUPS}.{ALIGNMENT}",
        kind="integer",
        default="required with those from 0.30 on",
        least=1,
        meaning="Tokens behind a chunk's start at whose multiples that kernel can save one.",
    ),
    Key(
        path=f"engine.{GROUPS}.is_eagle_group",
        kind="boolean",
        default="false",
        meaning="With `use_eagle`: the drafting model's layers are in the group, so that a hit loses its last block "
        "there. Where no group says it, all do.",
    ),
    Key(
        path=f"engine.{METHOD}",
        kind="choice",
        default="none",
        meaning="`mtp`: the drafts are made by MTP layers of the model's own. They are dealt out with the layers of "
        "`latency.model_config`, behind them, and the group of the last one is the `is_eagle_group`. `eagle`, "
        "`eagle3`, `draft_model`: by the layers of `speculative_model`, likewise.",
        choices=METHODS,
    ),
    Key(
        path=f"engine.{DRAFT_MODEL}",
        kind="text",
        default="none",
        meaning="The config.json of an EAGLE head or of a smaller model that drafts, or the name of a model that "
        "ships: its weights, its KV and its time count. Absent, none of them does, and a line says so.",
    ),
    Key(
        path=f"engine.{DISABLED}",
        kind="boolean",
        default="false",
        meaning="As vLLM's flag: layers with a window or a chunk keep everything, as one full group.",
    ),
)
"""The engine section's keys of groups; only the effect of the last three is kept."""


def read_groups(section: Section | None, *, caches_prefixes: bool) -> tuple[KVCacheGroup, ...] | None:
    """Return the groups that an engine section gives, None if it gives none. Raises ConfigError.

    ``caches_prefixes``: whether prefix caching is on, which the mode of a state follows where it is not written.
    """
    if section is None or GROUPS not in section:
        return None
    names = [key.path.rpartition(".")[2] for key in GROUP_KEYS if key.path.count(".") > 1]
    groups = []
    for item in section.sections(GROUPS):
        item.refuse_unknown(names)
        groups.append(_read_group(item, caches_prefixes=caches_prefixes))
    if not groups:
        section.fail(GROUPS, got="none", expected="a list of at least one, such as [{kind: full}]")
    return tuple(groups)


def _read_group(item: Section, *, caches_prefixes: bool) -> KVCacheGroup:
    """Return one group. Raises ConfigError with the line of the field that is wrong."""
    kind = item.text("kind", choices=get_args(GroupKind))
    if kind is None:
        item.fail("kind", got="nothing", expected=f"one of {', '.join(get_args(GroupKind))}")
    usual: Literal["align", "none"] = "align" if caches_prefixes and kind == "state" else "none"
    numbers = {name: item.integer(name, least=1) or 0 for name in (*SIZES, ALIGNMENT)}
    group = KVCacheGroup(
        kind=cast(GroupKind, kind),
        mode=cast(StateMode, item.text("mode", choices=get_args(StateMode)) or usual),
        is_eagle_group=item.boolean("is_eagle_group") or False,
        num_prefill_checkpoint_blocks=item.integer(CHECKPOINTS, least=0) or 0,
        **numbers,
    )
    fault = group.fault()
    if fault is not None:
        got, _, expected = fault[1].removeprefix("got ").partition(", expected ")
        item.fail(fault[0], got=got if fault[0] in item else "nothing", expected=expected)
    return group


def notes_of_version(engine: EngineSettings) -> tuple[str, ...]:
    """Return notes on a version's default behaviour that is not simulated."""
    rules, notes = rules_of(engine.vllm_version), []
    aligns_states = any(group.mode == "align" for group in engine.kv_cache_groups)
    if aligns_states and not rules.aligns_all_states:
        notes.append(
            f"engine.{GROUPS}: states as with --mamba-cache-mode align; without it vLLM {engine.vllm_version} keeps "
            "those of Mamba and Mamba-2 layers at the end of every block"
        )
    if engine.num_speculative_tokens > 0 and not has_known_drafts(engine.vllm_version):
        notes.append(
            "engine.num_speculative_tokens: by the rules of vLLM 0.16, whose scheduler was recorded; "
            f"{engine.vllm_version} also drafts behind a part of a prompt, and verifies that with the next part"
        )
    if aligns_states and engine.num_speculative_tokens > 0 and rules.pads_admissions == "or waits":
        notes.append(
            f"engine.num_speculative_tokens: vLLM {engine.vllm_version} goes wrong where the end of a state's block "
            "cuts an admission that it has padded with drafts; here it is not padded"
        )
    return tuple(notes)


def read_disabled(section: Section | None) -> bool:
    """Return whether the hybrid KV cache manager is off. Raises ConfigError."""
    return section is not None and (section.boolean(DISABLED) or False)


def drafting_method(section: Section | None) -> str | None:
    """Return the drafting method, None if it is not given. Raises ConfigError on an unknown method."""
    return None if section is None else section.text(METHOD, choices=METHODS)


def has_no_drafts(section: Section | None) -> bool:
    """Return whether a file gives 0 drafts, as in a comparison with and without them."""
    return section is not None and section.integer(NUMBER, least=0) == 0


def read_method(engine: EngineSettings, section: Section | None) -> str:
    """Return the drafting method, "none" if the file does not give it, or gives 0 drafts.

    Raises ConfigError where it gives a method without drafts.
    """
    method = drafting_method(section)
    if has_no_drafts(section):
        return "none"
    if method not in (None, "none") and section is not None and engine.num_speculative_tokens == 0:
        section.fail(METHOD, got=f"{method} without drafts", expected="num_speculative_tokens >= 1")
    return method or "none"


def without_hybrid(groups: Sequence[KVCacheGroup], section: Section) -> tuple[KVCacheGroup, ...]:
    """Return the groups with ``disable_hybrid_kv_cache_manager``: one that keeps everything.

    vllm 0.32.0 v1/core/kv_cache_utils.py:_promote_local_kv_cache_specs: groups that are alike stay as they are; windows
    and chunks beside a full group become full; anything else vLLM refuses. Raises ConfigError.
    """
    if len(set(without_eagle_marks(groups))) <= 1:
        return tuple(groups)
    kinds = {group.kind for group in groups}
    if "full" not in kinds or "state" in kinds:
        section.fail(
            DISABLED,
            got=f"true with groups of kind {', '.join(sorted(kinds))}",
            expected="false: vLLM can make one group of windows and chunks beside full layers only",
        )
    return ONE_FULL


def groups_text(groups: Sequence[KVCacheGroup]) -> str:
    """Return groups as a line of TWIN.yaml, defaults left out."""
    return f"[{', '.join(map(_group_text, groups or ONE_FULL))}]"


def _group_text(group: KVCacheGroup) -> str:
    parts = [
        f"{name}: {str(value).lower() if isinstance(value, bool) else value}"
        for name, value in group_fields(group).items()
    ]
    return "{" + ", ".join(parts) + "}"


def group_fields(group: KVCacheGroup) -> dict[str, str | int]:
    """Return a group's fields as a file has them, defaults left out."""
    names = ("kind", *SIZES, *(("mode", CHECKPOINTS, ALIGNMENT) if group.kind == "state" else ()))
    found = {name: getattr(group, name) for name in (*names, "is_eagle_group")}
    return {name: value for name, value in found.items() if value}


def chosen_groups(
    engine: EngineSettings, root: Section, of_model: Sequence[KVCacheGroup]
) -> tuple[KVCacheGroup, ...]:
    """Return the groups that the file writes out, or those of the model.

    ``of_model``: as vLLM deals the model's layers out; empty where no model is known. Raises ConfigError.
    """
    section = root.section("engine")
    written = read_groups(section, caches_prefixes=engine.enable_prefix_caching)
    if written is not None and has_no_drafts(section):
        written = without_eagle_marks(written)
    if section is not None and written is not None and read_disabled(section):
        return without_hybrid(written, section)
    return tuple(of_model) if written is None else written


def with_groups(engine: EngineSettings, groups: tuple[KVCacheGroup, ...]) -> EngineSettings:
    """Return the engine with groups, those that count: none for a lone full one."""
    engine = replace(engine, kv_cache_groups=groups)
    return replace(engine, kv_cache_groups=engine.needed_groups)
