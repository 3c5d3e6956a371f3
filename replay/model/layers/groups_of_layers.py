"""A model's layers as vLLM deals them out: groups that keep alike, the bytes of a block, the tokens in it.

Rules of vllm 0.32.0 v1/core/kv_cache_utils.py (get_kv_cache_groups and what it calls), with every layer in memory of
its own (layout LBNHC), as FlashAttention has it on a GPU; what other versions do otherwise is in ``sim/versions.py``.
``tests/replay/model/layers/test_groups_of_layers.py`` has what vLLM itself answered.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from lazy_dataclasses import dataclass, replace

from replay.model.gpus import Gpu
from replay.model.kernels.state_kernels import saved_alignment
from replay.model.shape import Mixer, ModelShape
from sim import DEFAULT_VERSION, GroupKind, KVCacheGroup, StateMode, VersionRules, nearest_rules
from traces import ConfigError

KERNEL_BLOCK = 16
"""Tokens that a block is a multiple of beside states (v1/attention/backends/flash_attn.py: MultipleOf(16))."""
MLA_KERNEL_BLOCK = 128
"""The same of multi-head latent attention (vllm 0.32.0 platforms/interface.py:_align_hybrid_block_size)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedLayers:
    """Layers that keep alike: how many, what of a request, and its bytes on one GPU, in one layer.

    ``token_bytes``: of a token's keys and values; ``state_bytes``: of a state, whatever the length. ``form``: what
    tells layers of equal bytes apart, heads and their width. ``is_mla``: a latent vector, whose pages cannot be padded.
    ``has_mtp``: the model's last layer, which drafts, is the last of them. ``saved_alignment``: of states that a kernel
    saves inside chunks, 0: it saves none; ``aligns_blocks``: blocks are multiples of it, states saved where hits end.
    """

    kind: GroupKind
    count: int
    token_bytes: int = 0
    state_bytes: int = 0
    window: int = 0
    chunk: int = 0
    form: tuple[int, ...] = ()
    is_mla: bool = False
    has_mtp: bool = False
    saved_alignment: int = 0
    aligns_blocks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DealtGroup:
    """One group, how many layers share its blocks, and the bytes of a block in them."""

    group: KVCacheGroup
    num_layers: int
    block_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dealt:
    """A model's groups. ``block_size``: tokens per block where a group has no size of its own."""

    groups: tuple[DealtGroup, ...]
    block_size: int

    @property
    def bytes_per_block(self) -> int:
        """What one block of the pool takes: that of the largest group (_get_kv_cache_bytes_per_block)."""
        return max(each.block_bytes for each in self.groups)

    @property
    def kv_cache_groups(self) -> tuple[KVCacheGroup, ...]:
        """The groups as the engine has them."""
        return tuple(each.group for each in self.groups)

    def num_blocks(self, kv_bytes: float) -> int:
        """Return ``num_gpu_blocks``, the null block included (get_kv_cache_config_from_groups)."""
        return int(kv_bytes // self.bytes_per_block)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spec:
    """Layers of one kind with the tokens and the bytes of their pages."""

    layers: CachedLayers
    block_size: int
    page: int


def dealt(
    layers: Sequence[CachedLayers],
    *,
    block_size: int,
    caches_prefixes: bool = True,
    version: str = DEFAULT_VERSION,
    match_unit: int | None = None,
) -> Dealt:
    """Return a model's layers in groups; ``layers`` in the order in which the model has the first of each kind.

    ``block_size``: as the server is told; beside states it grows until a block holds a state. ``caches_prefixes``: with
    it states are kept at the ends of blocks. ``version``: vLLM's.
    ``match_unit``: ``prefix_match_unit``. Raises ConfigError on layers that it could not serve together.
    """
    rules = nearest_rules(version)
    mode: StateMode = "align" if caches_prefixes else "none"
    if not caches_prefixes:
        layers = [replace(each, saved_alignment=0, aligns_blocks=False) for each in layers]
    block_size = block_size_beside_states(layers, block_size=block_size)
    layers = _saved_on_grid(layers, block_size=block_size, match_unit=match_unit)
    specs = _merged([_spec(each, block_size) for each in layers if each.count])
    if len({(each.layers.kind, each.layers.window, each.layers.chunk) for each in specs}) == 1:
        page = sum(each.page * each.layers.count for each in specs)
        if specs[0].layers.kind != "state" or len({each.page for each in specs}) == 1:
            whole = sum(each.layers.count for each in specs)
            return Dealt(groups=(_group(specs[0], whole, page, block_size, mode),), block_size=block_size)
    if rules.keeps_all_where_uneven and _needs_full_allocation(specs):
        page = sum(each.page * each.layers.count for each in specs)
        full = DealtGroup(
            group=KVCacheGroup(kind="full"),
            num_layers=sum(each.layers.count for each in specs),
            block_bytes=page,
        )
        return Dealt(groups=(full,), block_size=block_size)
    _refuse_what_is_not_padded(specs, rules, version)
    groups = _uniform_pages(_unified(specs), block_size, mode, rules)
    return Dealt(groups=tuple(groups), block_size=block_size)


def _refuse_what_is_not_padded(specs: Sequence[_Spec], rules: VersionRules, version: str) -> None:
    """Raise ConfigError on pages of unlike bytes that a version cannot pad: a server of this model does not start.

    States' pages are made as large as the first attention layer's beforehand (platforms/interface.py).
    """
    pages = [each.page for each in specs if each.layers.kind != "state"] or [each.page for each in specs]
    has_states = any(each.layers.kind == "state" for each in specs)
    is_uneven = any(max(pages) % page for page in pages)
    if (is_uneven and not rules.pads_pages) or (
        has_states and pages[0] != max(pages) and not rules.pads_states
    ):
        shown = ", ".join(f"{page:,}" for page in sorted(set(pages)))
        raise ConfigError(
            f"KV cache groups: got pages of {shown} bytes with vllm_version {version}, expected even ones: this "
            "version pads none of them, and such a model does not start"
        )


def undivided(layers: Sequence[CachedLayers], *, block_size: int, version: str = DEFAULT_VERSION) -> Dealt:
    """Return the one group of ``--disable-hybrid-kv-cache-manager`` (_promote_local_kv_cache_specs).

    Layers that are alike stay as they are; windows and chunks beside full layers keep everything. Raises ConfigError
    where vLLM refuses: without a full layer among unlike ones, or with states.
    """
    kept = {(each.kind, each.window, each.chunk) for each in layers if each.count}
    kinds = {kind for kind, _, _ in kept}
    if len(kept) == 1:
        return dealt(layers, block_size=block_size, version=version)
    if "state" in kinds or "full" not in kinds or len(kept) > len(kinds):
        raise ConfigError(
            f"disable_hybrid_kv_cache_manager: got true with layers of kind {', '.join(sorted(kinds))}, expected "
            "false: vLLM can make one group of windows of one width beside full layers only"
        )
    whole = [replace(each, kind="full", window=0, chunk=0) for each in layers]
    return dealt(whole, block_size=block_size, version=version)


def block_size_beside_states(layers: Sequence[CachedLayers], *, block_size: int) -> int:
    """Return the tokens per block that vLLM takes where a block must hold a state, too, ``block_size`` without any.

    vllm 0.32.0 platforms/interface.py:_align_hybrid_block_size: the smallest multiple of the kernel's block, or of the
    size that is asked for, whose keys and values take as much as a state in one layer; from 0.33 on also of what a
    kernel saves states at.
    """
    states = [each.state_bytes for each in layers if each.kind == "state" and each.count]
    attention = [each for each in layers if each.kind != "state" and each.count]
    if not states or not attention:
        return block_size
    step = max(KERNEL_BLOCK, block_size, MLA_KERNEL_BLOCK if attention[0].is_mla else 0)
    step = math.lcm(step, *(each.saved_alignment or 1 for each in layers if each.aligns_blocks))
    least = step * -(-max(states) // (step * attention[0].token_bytes))
    return max(block_size, -(-least // KERNEL_BLOCK) * KERNEL_BLOCK)


def _saved_on_grid(
    layers: Sequence[CachedLayers], *, block_size: int, match_unit: int | None
) -> list[CachedLayers]:
    """Return layers whose states are saved where prefix hits can end, if their kernel wants that.

    vllm 0.33.0 model_executor/layers/mamba/abstract.py:get_mamba_prefill_checkpoint_grid.
    """
    return [
        replace(
            each, saved_alignment=math.lcm(match_unit, each.saved_alignment) if match_unit else block_size
        )
        if each.aligns_blocks and each.saved_alignment
        else each
        for each in layers
    ]


def _spec(layers: CachedLayers, block_size: int) -> _Spec:
    page = layers.state_bytes if layers.kind == "state" else layers.token_bytes * block_size
    return _Spec(layers=layers, block_size=block_size, page=page)


def _merged(specs: Sequence[_Spec]) -> list[_Spec]:
    """Return specs with those that differ in their number of layers alone as one (the buckets of equal specs)."""
    counts: Counter[_Spec] = Counter()
    with_mtp = set()
    for each in specs:
        bare = replace(each, layers=replace(each.layers, count=0, has_mtp=False))
        counts[bare] += each.layers.count
        if each.layers.has_mtp:
            with_mtp.add(bare)
    return [
        replace(each, layers=replace(each.layers, count=count, has_mtp=each in with_mtp))
        for each, count in counts.items()
    ]


def _unified(specs: Sequence[_Spec]) -> list[_Spec]:
    """Return specs whose pages all have the bytes of the largest (unify_kv_cache_spec_page_size).

    More tokens per block where that comes out even; a state's page, or one that does not come out even, is padded.
    """
    most = max(each.page for each in specs)
    found = []
    for each in specs:
        if each.page == most or each.layers.kind == "state":
            found.append(replace(each, page=most))
        elif most % each.page == 0:
            found.append(replace(each, block_size=each.block_size * (most // each.page), page=most))
        elif not each.layers.is_mla:
            found.append(replace(each, page=most))
        else:
            raise ConfigError(
                f"KV cache groups: got pages of {each.page:,} and {most:,} bytes, expected even ones: vLLM cannot pad "
                "those of latent attention; write the server's groups as engine.kv_cache_groups"
            )
    return found


def _needs_full_allocation(specs: Sequence[_Spec]) -> bool:
    """Return whether windows keep everything, as pages cannot be unified (_try_get_full_allocation_fallback_groups)."""
    most = max(each.page for each in specs)
    is_uneven = any(each.layers.is_mla and most % each.page for each in specs)
    kinds = {each.layers.kind for each in specs}
    return is_uneven and kinds == {"full", "sliding"}


def _uniform_pages(
    specs: Sequence[_Spec], block_size: int, mode: StateMode, rules: VersionRules
) -> list[DealtGroup]:
    """Return groups of equally many layers, the last of each kind padded (_get_kv_cache_groups_uniform_page_size).

    The group of the last layer is marked where that one drafts (_annotate_eagle_groups).
    """
    fewest = min(each.layers.count for each in specs)
    most = max(each.layers.count for each in specs)
    size = most if most < fewest * rules.few_more_layers else fewest
    groups = []
    for each in specs:
        number = -(-each.layers.count // size)
        for index in range(number):
            count = len(range(index, each.layers.count, number))
            group = _group(each, count, each.page * count, block_size, mode)
            is_last = (
                rules.marks_mtp_group and each.layers.has_mtp and index == (each.layers.count - 1) % number
            )
            groups.append(replace(group, group=replace(group.group, is_eagle_group=is_last)))
    return groups


def _group(spec: _Spec, num_layers: int, block_bytes: int, block_size: int, mode: StateMode) -> DealtGroup:
    layers = spec.layers
    own = spec.block_size if spec.block_size != block_size else 0
    group = KVCacheGroup(
        kind=layers.kind,
        window=layers.window,
        chunk=layers.chunk,
        mode=mode if layers.kind == "state" else "none",
        block_size=own,
        num_prefill_checkpoint_blocks=int(layers.saved_alignment > 0),
        prefill_checkpoint_alignment=layers.saved_alignment,
    )
    return DealtGroup(group=group, num_layers=num_layers, block_bytes=block_bytes)


def cached_layers(
    shape: ModelShape,
    *,
    tp: int = 1,
    num_lookahead: int = 0,
    appended: Sequence[Mixer] = (),
    version: str = DEFAULT_VERSION,
    gpu: Gpu | None = None,
) -> tuple[CachedLayers, ...]:
    """Return what the layers of a model keep on one of ``tp`` GPUs, in the order of the first of each kind.

    An indexer's cache is a layer of its own, of one head, that keeps everything (deepseek_v2.py:
    DeepseekV32IndexerCache). ``num_lookahead``: drafts per request and step. ``appended``: the layers that draft,
    behind the model's own. ``version``: vLLM's; with ``gpu`` it says which kernels save states inside chunks.
    """
    found: list[CachedLayers] = []
    last = appended[-1] if appended else None
    for each in (*shape.mixers, *appended):
        attention, state = each.attention, each.state
        if attention is not None and attention.reads_other_layers:
            continue
        kept = CachedLayers(
            kind=each.kind,
            count=each.num_layers,
            token_bytes=round(shape.token_bytes(each, tp)),
            state_bytes=state.bytes_per_request(
                tp, dtype_bytes=shape.dtype_bytes, num_lookahead=num_lookahead
            )
            if state
            else 0,
            window=each.window if each.kind == "sliding" else 0,
            chunk=each.window if each.kind == "chunked" else 0,
            form=(attention.num_kv_heads, attention.head_dim, attention.v_head_dim) if attention else (),
            is_mla=attention is not None and attention.is_mla,
            has_mtp=each is last,
            saved_alignment=saved_alignment(state, version=version, gpu=gpu) if state else 0,
            aligns_blocks=state is not None and state.kernel == "gated delta",
        )
        found.append(kept)
        if each.indexer is not None and each.indexer.entry_bytes:
            found.append(
                CachedLayers(
                    kind="full", count=each.num_layers, token_bytes=each.indexer.entry_bytes, is_mla=True
                )
            )
    return tuple(found)
