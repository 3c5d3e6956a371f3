"""What ``vtwin model info`` says: weights, KV cache, where a batch saturates the GPU, and the roofline as a picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray

from replay.model.expectations import expected_coefficients
from replay.model.gpu_memory import GIB, KvCacheSize
from replay.model.gpus import Gpu
from replay.model.kernels.launch_time import MEASURED_WITH, launch_us
from replay.model.matmuls.tiles import Tiles, tiles_of
from replay.model.model_peak import kinds_not_timed, peak_times
from replay.model.shape import ModelShape
from replay.model.towers.tower_kernels import on_gpus
from replay.model.towers.tower_times import tower_times
from replay.model.vision.tower import VisionTower
from sim import KVCacheGroup
from sim.latency import PeakTimes
from traces.facts import AnswerPart, TermRows, Verbatim

WIDTH, HEIGHT = 64, 12
MOST_EDGES = 4
SMALL_INPUT_TOKENS = 256
"""Tokens of the smaller of two images."""
MOST_TOKENS = 8192
"""The picture's right edge: more tokens than most servers give to one step."""


def document(shape: ModelShape, gpu: Gpu, capacity: KvCacheSize, *, tp: int, pp: int) -> dict[str, object]:
    """Return everything that the card says, for ``--json``."""
    experts, untimed = shape.experts, kinds_not_timed(shape)
    return {
        "model": shape.name,
        "architecture": shape.model_type,
        "num_parameters": shape.num_parameters(),
        "num_active_parameters": shape.num_active_parameters(),
        "num_layers": shape.num_layers,
        "num_moe_layers": shape.num_moe_layers,
        "num_windowed_layers": shape.num_windowed_layers,
        "window": shape.window or None,
        "num_experts": experts.num_experts if experts else None,
        "attention": "mla" if shape.attention.is_mla else "gqa",
        "precision": {
            "attention": shape.attention_precision.name,
            "mlp": shape.mlp_precision.name,
            "experts": shape.expert_precision.name if experts else None,
            "kv_cache_bytes": shape.kv_dtype_bytes,
        },
        "gpu": gpu.name,
        "gpu_source": gpu.source,
        "tp": tp,
        "pp": pp,
        "memory": {
            "bytes": capacity.memory_bytes,
            "utilization": capacity.utilization,
            "weight_bytes": capacity.weight_bytes,
            "tower_bytes": capacity.tower_bytes,
            "activation_bytes": capacity.activation_bytes,
            "non_torch_bytes": capacity.non_torch_bytes,
            "cuda_graph_bytes": capacity.cuda_graph_bytes,
            "kv_bytes": capacity.kv_bytes,
        },
        "kv_bytes_per_token": capacity.kv_bytes_per_token,
        "block_size": capacity.block_size,
        "num_gpu_blocks": capacity.num_gpu_blocks,
        "kv_cache_groups": [_group(group, capacity.block_size) for group in capacity.groups],
        "num_kv_tokens": capacity.num_tokens,
        "vision_tower": _tower(shape, gpu, tp=tp),
        "not_timed": list(untimed),
        **({} if untimed else _times(shape, gpu, tp=tp, pp=pp)),
    }


def _times(shape: ModelShape, gpu: Gpu, *, tp: int, pp: int) -> dict[str, object]:
    """Return what is said of a model's time, which some layers' formulas are missing for."""
    at_peak, tiles = peak_times(shape, gpu, tp=tp, pp=pp), tiles_of(shape, gpu, tp=tp)
    return {
        "saturation_batch_size": at_peak.saturation_batch(),
        "step_floor_us": at_peak.weights_read(np.ones(1))[0] + at_peak.head_weights,
        "launch_us": {
            "beyond_graphs": launch_us(shape),
            "enforce_eager": launch_us(shape, enforce_eager=True),
        },
        "tile_edges": [asdict(each) for each in tiles.edges()],
        "tile_edges_unknown": tiles.reason or None,
        "priors": {name: asdict(prior) for name, prior in expected_coefficients(shape, gpu, tp=tp).items()},
    }


def card(shape: ModelShape, gpu: Gpu, capacity: KvCacheSize, *, tp: int, pp: int) -> list[AnswerPart]:
    """Return the card as people read it."""
    stages = f", pp {pp}" if pp > 1 else ""
    rows = {
        f"{shape.name}": f"{parameters_text(shape)} parameters, {_layers(shape)}",
        "kept in": _precisions(shape),
        f"on {gpu.name}, tp {tp}{stages}": f"{gpu.memory_gib:.1f} GiB, {gpu.bandwidth_gb_per_s:,.0f} GB/s, "
        f"{gpu.tflops_16bit:,.0f} TFLOPS (16 bit)",
        "weights per GPU": _weights_text(capacity),
        "set aside": f"{capacity.activation_bytes / GIB:.2f} GiB activations, "
        f"{capacity.non_torch_bytes / GIB:.2f} non-torch, {capacity.cuda_graph_bytes / GIB:.2f} CUDA graphs",
        "KV cache per GPU": f"{capacity.kv_bytes / GIB:.2f} GiB ({_share_text(capacity)})",
        "KV per token and GPU": kv_text(capacity.kv_bytes_per_token),
        "num_gpu_blocks": f"{capacity.num_gpu_blocks:,} of {_sizes(capacity)}",
    }
    untimed = kinds_not_timed(shape)
    if untimed:
        rows["how long a step takes"] = f"not known: it has {', '.join(untimed)}"
    else:
        rows |= _time_rows(shape, gpu, tp=tp, pp=pp)
    if shape.vision is not None:
        rows["an image takes"] = _tower_text(shape.vision, gpu, tp=tp)
    terms = TermRows(list(rows.items()), width=max(map(len, rows)) + 2)
    if untimed:
        return [terms]
    return [terms, "", Verbatim(picture(peak_times(shape, gpu, tp=tp, pp=pp), shape, tp=tp))]


def _time_rows(shape: ModelShape, gpu: Gpu, *, tp: int, pp: int) -> dict[str, str]:
    """Return the card's rows about a step's time."""
    at_peak = peak_times(shape, gpu, tp=tp, pp=pp)
    floor_us = float(at_peak.weights_read(np.ones(1))[0] + at_peak.head_weights)
    return {
        "B_sat": f"{at_peak.saturation_batch():,} tokens in a step saturate the GPU's compute",
        "a step takes at least": f"{floor_us / 1e3:.2f} ms to read the weights",
        "without a CUDA graph": _launch_text(shape, gpu),
        "a token more takes": edges_text(tiles_of(shape, gpu, tp=tp)),
    }


def _launch_text(shape: ModelShape, gpu: Gpu) -> str:
    """Return how long a step takes at least that the CPU starts kernel by kernel, which steps these are, and whence."""
    which = "with --enforce-eager" if shape.experts else "beyond the graphs' tokens, or with --enforce-eager"
    here = "" if gpu.name in MEASURED_WITH else f"; not measured with {gpu.name}"
    return f"{launch_us(shape, enforce_eager=True) / 1e3:.1f} ms at least ({which}{here})"


def _tower(shape: ModelShape, gpu: Gpu, *, tp: int) -> dict[str, object] | None:
    """Return a model's vision tower and how long it takes; None: it has none that is known."""
    if shape.vision is None:
        return None
    times = tower_times(on_gpus(shape.vision, gpu, tp=tp))
    return {
        "kind": shape.vision.kind,
        "num_parameters": shape.vision.parameters(),
        "patches_per_token": shape.vision.merge,
        "encoder_step_us": times.step_us,
        "encoder_token_us": times.token_us,
        "encoder_token_pair_us": times.pair_us,
    }


def _tower_text(tower: VisionTower, gpu: Gpu, *, tp: int) -> str:
    """Return how long images of two sizes take to encode, whole tiles where it has tiles."""
    times, tile = tower_times(on_gpus(tower, gpu, tp=tp)), tower.tile_tokens or SMALL_INPUT_TOKENS
    took = [f"{times.one_us(size) / 1e3:.1f} ms of {size:,} tokens" for size in (tile, 4 * tile)]
    return f"{' and '.join(took)} to encode, in a tower of {tower.parameters() / 1e9:.2f} B parameters (computed)"


def _share_text(capacity: KvCacheSize) -> str:
    """Return what the size of the KV cache is from."""
    if capacity.kv_cache_memory_bytes is not None:
        return "as given"
    return f"utilization {capacity.utilization:g}"


def _weights_text(capacity: KvCacheSize) -> str:
    """Return what the weights take, with the part of them that encodes images and sounds."""
    tower = f", the towers' {capacity.tower_bytes / GIB:.2f} among them" if capacity.tower_bytes else ""
    return f"{capacity.weight_bytes / GIB:.2f} GiB{tower}"


def edges_text(tiles: Tiles) -> str:
    """Return where one token more in a step makes its products take clearly longer, the largest rises first."""
    if tiles.reason:
        return f"not known: {tiles.reason}"
    largest = sorted(tiles.edges(), key=lambda edge: -edge.rise)[:MOST_EDGES]
    if not largest:
        return "no clear step longer anywhere, as its products were measured"
    first, *others = (f"{edge.rise:.0%} beyond {edge.tokens:,}" for edge in largest)
    return ", ".join([f"{first} tokens in a step (products alone, as measured)", *others])


def picture(at_peak: PeakTimes, shape: ModelShape, *, tp: int) -> list[str]:
    """Return the roofline's lines: compute reached at best (log) over a step's tokens (log); ``|`` marks B_sat."""
    tokens = np.unique(np.round(np.geomspace(1, MOST_TOKENS, WIDTH)).astype(np.int64))
    columns = np.geomspace(1, MOST_TOKENS, WIDTH)
    reached = rate_reached(at_peak, shape, columns, tp=tp)
    top, bottom = float(reached.max()), float(reached.min())
    span = max(np.log(top / bottom), 1e-9)
    level = np.round((HEIGHT - 1) * np.log(reached / bottom) / span).astype(int)
    saturated = at_peak.saturation_batch()
    at = int(np.argmin(np.abs(np.log(columns) - np.log(max(saturated, 1)))))
    grid = [[" "] * WIDTH for _ in range(HEIGHT)]
    for row in range(HEIGHT):
        grid[row][at] = "|"
    for column, height in enumerate(level):
        grid[HEIGHT - 1 - height][column] = "*"
    labels = {0: f"{top:,.0f}", HEIGHT - 1: f"{bottom:,.1f}"}
    body = [f"{labels.get(row, ''):>9} {''.join(cells).rstrip()}" for row, cells in enumerate(grid)]
    foot = f"{'':>9} {_axis(tokens[-1])}"
    return ["TFLOP/s per GPU, at most, over tokens in a step:", *body, foot]


def rate_reached(
    at_peak: PeakTimes, shape: ModelShape, tokens: NDArray[np.float64], *, tp: int
) -> NDArray[np.float64]:
    """Return TFLOP/s per GPU of steps with this many tokens and no context: products over the longer of both times."""
    compute = (at_peak.matmul + at_peak.expert_matmul + at_peak.head_matmul) * tokens
    memory = at_peak.weights_read(tokens) + at_peak.head_weights + at_peak.activation * tokens
    flops = 2.0 * shape.num_active_parameters() / tp * tokens
    return np.asarray(flops / np.maximum(compute, memory) / 1e6)


def _axis(last: int) -> str:
    marks: Mapping[int, str] = {n: f"{n}" for n in (1, 8, 64, 512, 4096) if n <= last}
    line = [" "] * (WIDTH + 4)
    for value, text in marks.items():
        start = round((WIDTH - 1) * np.log(value) / np.log(last))
        line[start : start + len(text)] = text
    return "".join(line).rstrip()


def _billions(number: int) -> str:
    return f"{number / 1e9:.1f} B" if number >= 10**9 else f"{number / 1e6:.0f} M"


def parameters_text(shape: ModelShape) -> str:
    """Return the number of parameters, with that of the active ones where there are experts."""
    active = f" ({_billions(shape.num_active_parameters())} active)" if shape.experts else ""
    return f"{_billions(shape.num_parameters())}{active}"


def kv_text(kv_bytes: float) -> str:
    """Return what a token takes in the KV cache, in the unit of the card and of the page."""
    return f"{kv_bytes / 1024:.1f} KiB"


def _layers(shape: ModelShape) -> str:
    parts = [f"{shape.num_layers} layers"]
    if shape.experts is not None:
        parts.append(f"{shape.num_moe_layers} with {shape.experts.num_experts} experts")
    if shape.num_windowed_layers:
        parts.append(f"{shape.num_windowed_layers} with a window of {shape.window:,}")
    parts += [f"{each.num_layers} {each.state.name}" for each in shape.mixers if each.state]
    for each in shape.mixers:
        entries = "tokens"
        if each.compression:
            entries = "entries"
            parts.append(f"{each.num_layers} with one entry for {each.compression.ratio} tokens")
        if each.indexer:
            parts.append(f"an indexer that picks {each.indexer.top_k:,} {entries}")
    return ", ".join(parts)


def _group(group: KVCacheGroup, block_size: int) -> dict[str, object]:
    """Return a group as TWIN.yaml has it."""
    said: dict[str, object] = {"kind": group.kind, "block_size": group.block_size or block_size}
    if group.kind == "state":
        said["mode"] = group.mode
    for name in ("window", "chunk", "num_prefill_checkpoint_blocks", "prefill_checkpoint_alignment"):
        if getattr(group, name):
            said[name] = getattr(group, name)
    return said


def _sizes(capacity: KvCacheSize) -> str:
    """Return the tokens in a block, in each of its sizes, and how many tokens fit; states have no length."""
    if all(group.kind == "state" for group in capacity.groups):
        return f"a state each, in {len(capacity.groups)} groups"
    sizes = sorted(
        {group.block_size or capacity.block_size for group in capacity.groups if group.kind != "state"}
    )
    written = " or ".join(f"{size:,}" for size in sizes)
    return f"{written} tokens: {capacity.num_tokens:,} tokens{_in_groups(capacity)}"


def _in_groups(capacity: KvCacheSize) -> str:
    """Return how many groups of each kind share the blocks, nothing where there is one."""
    if len(capacity.groups) == 1:
        return ""
    kinds = Counter(group.kind for group in capacity.groups)
    parts = " + ".join(f"{number} {kind}" for kind, number in kinds.items())
    return f" of one long sequence, in {len(capacity.groups)} groups ({parts})"


def _precisions(shape: ModelShape) -> str:
    kept = {"attention": str(shape.attention_precision)}
    if shape.num_dense_layers or (shape.experts and shape.experts.shared_size):
        kept["MLP"] = str(shape.mlp_precision)
    if shape.experts is not None:
        kept["experts"] = str(shape.expert_precision)
    kept["KV cache"] = "fp8" if shape.kv_dtype_bytes == 1 else shape.dtype
    return ", ".join(f"{part} {name}" for part, name in kept.items())
