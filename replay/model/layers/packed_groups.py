"""Groups of layers whose pages differ: a block holds the pages of all layers of one group, side by side.

Rules of vllm 0.32.0 v1/core/kv_cache_utils.py (_get_packed_kv_cache_groups), as DeepSeek-V4's layers go by them
(layout BLHNC). ``tests/replay/model/layers/test_packed_groups.py`` has what vLLM itself answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass, replace

from replay.model.layers.groups_of_layers import Dealt, DealtGroup
from replay.model.shape import Compression, ModelShape
from sim import GroupKind, KVCacheGroup

BLOCK = 256
"""Tokens per block that the backend prefers (v1/attention/backends/mla/sparse_swa.py:get_preferred_block_size)."""
WINDOW_BLOCK = 64
"""Tokens per block of a window (the same file: DeepseekV4SWACache)."""
STATE_BLOCKS = {4: 4, 128: 8}
"""Tokens per block of what no entry stands for yet, by ratio (models/deepseek_v4/compressor.py)."""
ENTRY_BYTES = 584
"""An entry in fp8: 448 values, 64 in 16 bits, 8 scales (models/deepseek_v4/attention.py: fp8_ds_mla)."""
PAGE_MULTIPLE = 576
"""Pages are padded to it (the same file: alignment)."""
FLOAT32_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedLayers:
    """Caches that are alike: how many, the tokens and the bytes of a page, and what of a request they keep."""

    kind: GroupKind
    count: int
    block_size: int
    page: int
    window: int = 0
    has_mtp: bool = False


def packed_layers(shape: ModelShape, *, block_size: int, with_mtp: bool = False) -> tuple[PackedLayers, ...]:
    """Return the caches of a model that compresses its context, in the order in which vLLM meets them.

    A layer has those of its indexer first, then its window, its entries, and what no entry stands for yet.
    ``with_mtp``: the model's own layers draft, behind all others; they have a window alone.
    """
    found = []
    mtp = shape.mtp.mixer if with_mtp and shape.mtp else None
    for mixer in (*shape.mixers, *([mtp] if mtp else [])):
        kept, number = mixer.compression, mixer.num_layers
        if kept is not None and mixer.indexer is not None:
            index = block_size // kept.ratio * mixer.indexer.entry_bytes
            found.append(PackedLayers(kind="full", count=number, block_size=block_size, page=_padded(index)))
            width = 2 * mixer.indexer.head_dim * (kept.state_window // kept.ratio)
            found.append(_unfinished(kept, number, width=width))
        window = kept.window if kept else mixer.window
        page = _padded(WINDOW_BLOCK * ENTRY_BYTES)
        found.append(
            PackedLayers(
                kind="sliding",
                count=number,
                block_size=WINDOW_BLOCK,
                page=page,
                window=window,
                has_mtp=mixer is mtp,
            )
        )
        if kept is not None:
            page = _padded(block_size // kept.ratio * ENTRY_BYTES)
            found.append(PackedLayers(kind="full", count=number, block_size=block_size, page=page))
            found.append(_unfinished(kept, number, width=kept.state_width))
    return tuple(found)


def _padded(page: int) -> int:
    return -(-page // PAGE_MULTIPLE) * PAGE_MULTIPLE


def _unfinished(kept: Compression, number: int, *, width: int) -> PackedLayers:
    """Return the cache of the tokens that no entry stands for yet: a window of float32 numbers."""
    size = STATE_BLOCKS[kept.ratio]
    page = _padded(size * width * FLOAT32_BYTES)
    return PackedLayers(kind="sliding", count=number, block_size=size, page=page, window=kept.state_window)


def dealt_packed(layers: Sequence[PackedLayers], *, block_size: int) -> Dealt:
    """Return the groups: caches of one kind, window and block size together, the more numerous split.

    A bucket of several pages whose numbers are equal is not split, and says how many layers a group may have at least;
    of the numbers from there on that one is taken that leaves the fewest places empty, the larger of equals. Without
    such a bucket windows are split until a group of them is no wider than the other buckets make a block. The group of
    the last layer is marked where that one drafts (_annotate_eagle_groups).
    """
    last = next(
        ((each.kind, each.block_size, each.window, each.page) for each in layers if each.has_mtp), None
    )
    buckets: dict[tuple[GroupKind, int, int], dict[int, int]] = {}
    for each in layers:
        pages = buckets.setdefault((each.kind, each.block_size, each.window), {})
        pages[each.page] = pages.get(each.page, 0) + each.count
    balanced = [pages for pages in buckets.values() if len(set(pages.values())) == 1]
    least = max((max(pages.values()) for pages in balanced if len(pages) > 1), default=0)
    size = _group_size([max(pages.values()) for pages in balanced], least) if least else 0
    widest = max(
        sum(page if kind == "sliding" else page * count for page, count in pages.items())
        for (kind, _, _), pages in buckets.items()
    )
    groups = []
    for (kind, tokens, window), pages in buckets.items():
        number = -(-max(pages.values()) // size) if size and pages in balanced else 1
        if not size and kind == "sliding":
            number = -(-sum(pages.values()) // max(1, widest // next(iter(pages))))
        own = tokens if tokens != block_size else 0
        group = KVCacheGroup(kind=kind, window=window, block_size=own)
        for index in range(number):
            counts = {page: len(range(index, count, number)) for page, count in pages.items()}
            taken = sum(page * count for page, count in counts.items())
            is_last = any(
                last == (kind, tokens, window, page) and index == (count - 1) % number
                for page, count in pages.items()
            )
            group = replace(group, is_eagle_group=is_last)
            groups.append(DealtGroup(group=group, num_layers=sum(counts.values()), block_bytes=taken))
    return Dealt(groups=tuple(groups), block_size=block_size)


def _group_size(counts: Sequence[int], least: int) -> int:
    """Return how many layers a group has (_approximate_gcd)."""
    return min(
        range(least, max(counts) + 1), key=lambda size: (sum(-count % size for count in counts), -size)
    )
