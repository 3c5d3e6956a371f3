"""What operators have to do, in µs at a GPU's peak, from the columns of the tables that measured them.

One function for each kind of operator: rows and a GPU in, the parts of ``replay.model.operator_forms.Form`` out.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from replay.model import Gpu
from replay.model.gpus import FLOPS_PER_EXPONENTIAL
from replay.model.operator_forms import TAPS, tower_attention_work
from tests.studies.validation.expert_loads import loads

Floats = NDArray[np.float64]
Work = dict[str, Floats]

BYTES = {"bfloat16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "nvfp4": 0.5625, "int4_wo": 0.53, "w4a16_mxfp4": 0.53}
KINDS = {
    "bfloat16": "16bit",
    "fp8": "fp8",
    "fp8_block": "fp8",
    "nvfp4": "fp4",
    "int4_wo": "16bit",
    "w4a16_mxfp4": "16bit",
}


def _of(rows: pd.DataFrame, *names: str) -> list[Floats]:
    return [rows[name].to_numpy(np.float64) for name in names]


def _tiles(length: Floats, tile: int) -> Floats:
    return np.asarray(np.ceil(length / tile) * tile)


def _rate(gpu: Gpu, kind: str = "16bit") -> float:
    return gpu.flops_per_us(kind)  # type: ignore[arg-type]  # a MatmulKind, out of a table


def _weights(
    rows: pd.DataFrame, gpu: Gpu, parameters: Floats, tokens: Floats, column: str = "gemm_type"
) -> Work:
    """Return products with so many weights and the reading of them, in the precision of each row."""
    rate = np.array([_rate(gpu, KINDS[each]) for each in rows[column]])
    size = np.array([BYTES[each] for each in rows[column]])
    return {"products": 2 * parameters * tokens / rate, "weights": parameters * size / gpu.bytes_per_us()}


def _partly_quantized(
    rows: pd.DataFrame, gpu: Gpu, tokens: Floats, *, quantized: Floats, rest: Floats
) -> Work:
    """Return the same of a module of which ``rest`` weights stay in 16 bits."""
    work = _weights(rows, gpu, quantized, tokens)
    work["products"] = work["products"] + 2 * rest * tokens / _rate(gpu)
    work["weights"] = work["weights"] + 2 * rest / gpu.bytes_per_us()
    return work


def _seen(batch: Floats, tokens: Floats, context: Floats, most: Floats | float) -> Floats:
    """Return the pairs of prompts whose queries see at most so many keys."""
    short = np.clip(most - context, 0, tokens)
    return np.asarray(batch * (short * context + short * (short + 1) / 2 + (tokens - short) * most))


def recurrence_prompt(rows: pd.DataFrame, gpu: Gpu) -> Work:
    """Chunks of 64 tokens, a head's one behind the other on one multiprocessor; vectors, and states written."""
    heads, key_heads, width, key, batch, length = _of(
        rows, "num_v_heads", "num_k_heads", "head_v_dim", "head_k_dim", "batch_size", "seq_len"
    )
    waves = np.ceil(batch * heads / gpu.sms())
    vectors = 4 * batch * length * (heads * width + key_heads * key)
    return {
        "moved": (batch * heads * width * key * 8 + vectors) / gpu.bytes_per_us(),
        "chunk_us": np.ceil(length / 64) * waves,
        "wave_us": waves,
    }


def recurrence_decode(rows: pd.DataFrame, gpu: Gpu) -> Work:
    """Each head's matrix, read and written in float32."""
    heads, width, key, batch, length = _of(
        rows, "num_v_heads", "head_v_dim", "head_k_dim", "batch_size", "seq_len"
    )
    return {"moved": batch * length * heads * width * key * 8 / gpu.bytes_per_us()}


def convolution(rows: pd.DataFrame, gpu: Gpu) -> Work:
    """Channels in and out, and as many multiplications as there are taps."""
    heads, width, key_heads, key, tokens = _of(
        rows, "num_v_heads", "head_v_dim", "num_k_heads", "head_k_dim", "num_tokens"
    )
    channels = heads * width + 2 * key_heads * key
    return {
        "moved": tokens * channels * 4 / gpu.bytes_per_us(),
        "vector": 2 * TAPS * tokens * channels / gpu.vector_flops_per_us(),
    }


def attention_decode(rows: pd.DataFrame, gpu: Gpu) -> Work:
    """KV entries within the window, in tiles of 128 keys, one more for a window that a tile's end cuts.

    A tile is 64 queries high for the matrix units, however few heads share it, and the busiest multiprocessor has one
    at least; a block for each head of KV, sequence and 64 heads that share it.
    """
    heads, kv_heads, width, batch, step, window = _of(
        rows, "num_heads", "num_key_value_heads", "head_dim", "batch_size", "step", "window_size"
    )
    keys = np.where(window > 0, np.minimum(step + 1, window), step + 1)
    tiles = np.ceil(keys / 128) + ((window > 0) & (step + 1 > window))
    entry = 2 * kv_heads * width * rows["kv_cache_dtype"].map(BYTES).to_numpy()
    blocks = batch * kv_heads * np.ceil(heads / kv_heads / 64)
    return {
        "moved": batch * (entry * tiles * 128 + 4 * heads * width) / gpu.bytes_per_us(),
        "tensor": np.maximum(blocks * tiles, gpu.sms()) * 4 * 64 * 128 * width / _rate(gpu),
        "wave_us": np.ceil(blocks / gpu.sms()),
    }


def attention_prompt(rows: pd.DataFrame, gpu: Gpu) -> Work:
    """Pairs within the window, in tiles of 128 keys and 128 queries (256 on Blackwell), an exponential of each pair.

    On Hopper the heads of a group share a tile of a short prompt. ``chunk_us`` counts the tiles of the longest block.
    Keys and values are read, written to the cache, and read; with a cache in fp8 a pass quantizes queries, too. Within
    a window it is masks rather than exponentials that take the time, which Blackwell Ultra computes no faster.
    """
    heads, kv_heads, width, batch, length, window = _of(
        rows, "num_heads", "num_key_value_heads", "head_dim", "batch_size", "isl", "window_size"
    )
    tile = 256 if gpu.is_blackwell else 128
    queries = _tiles(length, tile) * heads / kv_heads
    if not gpu.is_blackwell:
        queries = np.where(length < tile, _tiles(length * heads / kv_heads, tile), queries)
    padded = _tiles(length, 128)
    most = np.where(window > 0, np.minimum(window + 128, padded), padded)
    pairs = batch * kv_heads * queries * (most * (most + 128) / 2 + (padded - most) * most) / padded
    is_fp8 = (rows["kv_cache_dtype"] == "fp8").to_numpy()
    masks = gpu.vector_flops_per_us() / FLOPS_PER_EXPONENTIAL
    return {
        "tensor": 4 * width * pairs / _rate(gpu),
        "vector": pairs / np.where(window > 0, masks, gpu.exponentials_per_us()),
        "moved": 4 * batch * length * width * (heads + 3 * kv_heads) / gpu.bytes_per_us(),
        "scan": is_fp8 * 3 * batch * length * width * (heads + 2 * kv_heads) / gpu.bytes_per_us(),
        "chunk_us": most / 128,
    }


def encoder(rows: pd.DataFrame, gpu: Gpu) -> Work:
    """All pairs, in tiles, heads padded."""
    heads, width, batch, length = _of(rows, "num_heads", "head_dim", "batch_size", "isl")
    return tower_attention_work(gpu, heads=heads, head_dim=width, batch=batch, length=length)


def quantize(rows: pd.DataFrame, gpu: Gpu) -> Work:
    """16 bits in, 8 out; a block of threads for each token, which goes along its numbers, a thousand a chunk."""
    tokens, width = _of(rows, "m", "k")
    waves = np.ceil(tokens / gpu.sms())
    return {
        "moved": tokens * width * 3 / gpu.bytes_per_us(),
        "chunk_us": waves * width / 1000,
        "wave_us": waves,
    }


def hyper_connections(rows: pd.DataFrame, gpu: Gpu) -> Work:
    """Four streams of hidden vectors in and out (DeepSeek-V4)."""
    tokens, width = _of(rows, "num_tokens", "hidden_size")
    return {"moved": tokens * width * 16 / gpu.bytes_per_us()}


def absorbed(rows: pd.DataFrame, gpu: Gpu) -> Work:
    """A product of 128 by 512 per head."""
    tokens, heads = _of(rows, "num_tokens", "num_heads")
    return {
        "products": 2 * tokens * heads * 128 * 512 / _rate(gpu),
        "weights": heads * (128 * 512 + tokens * 640) * 2 / gpu.bytes_per_us(),
    }


def _latent_weights(heads: Floats, sizes: Mapping[str, Floats | float]) -> Floats:
    hidden, q, kv, rope, nope, v = (sizes[each] for each in ("hidden", "q", "kv", "rope", "nope", "v"))
    return np.asarray(hidden * (q + kv + rope) + heads * (q * (nope + rope) + kv * (nope + v) + v * hidden))


def _latent_module(rows: pd.DataFrame, gpu: Gpu, tokens: Floats) -> Work:
    """Return the products of DeepSeek-V3's layer: up to queries and out of the heads quantized, the rest in 16 bits."""
    (heads,) = _of(rows, "num_heads")
    quantized = heads * (1536 * 192 + 128 * 7168)
    return _partly_quantized(
        rows, gpu, tokens, quantized=quantized, rest=_latent_weights(heads, V3) - quantized
    )


V3 = {"hidden": 7168, "q": 1536, "kv": 512, "rope": 64, "nope": 128, "v": 128, "index_heads": 64}
GLM = {"hidden": 6144, "q": 2048, "kv": 512, "rope": 64, "nope": 192, "v": 256, "index_heads": 32}


def latent_decode(rows: pd.DataFrame, gpu: Gpu) -> Work:
    """The layer's weights; the latent vectors, in blocks of 64, all heads on each; a pass over the token's vectors."""
    heads, batch, step = _of(rows, "num_heads", "batch_size", "step")
    keys = batch * _tiles(step + 1, 64)
    return {
        **_latent_module(rows, gpu, batch),
        "moved": 576 * rows["kv_cache_dtype"].map(BYTES).to_numpy() * keys / gpu.bytes_per_us(),
        "tensor": 2 * _tiles(heads, 64) * 1088 * keys / _rate(gpu),
        "scan": 2 * batch * (heads * (3 * 512 + 640) + 2 * (7168 + 2112)) / gpu.bytes_per_us(),
    }


def latent_prompt(rows: pd.DataFrame, gpu: Gpu) -> Work:
    """The layer's weights; pairs in tiles of 128, keys and values of each head unpacked; a pass over all vectors."""
    heads, batch, length = _of(rows, "num_heads", "batch_size", "isl")
    padded = _tiles(length, 128)
    return {
        **_latent_module(rows, gpu, batch * length),
        "tensor": 2 * heads * 320 * batch * padded * (padded + 128) / 2 / _rate(gpu),
        "scan": 2 * batch * length * (heads * 1600 + 2 * (7168 + 2112)) / gpu.bytes_per_us(),
    }


def _sparse_module(rows: pd.DataFrame, gpu: Gpu, tokens: Floats) -> tuple[Floats, Floats, Work]:
    """Return heads, heads of the indexer, and the products of the layer and its indexer.

    Quantized are those up to queries, out of the heads, and up to the indexer's queries.
    """
    (heads,) = _of(rows, "num_heads")
    is_glm = rows["model"].str.contains("GLM").to_numpy()
    sizes = {name: np.where(is_glm, GLM[name], V3[name]).astype(np.float64) for name in V3}
    index = sizes["index_heads"]
    from_heads = heads * (sizes["q"] * (sizes["nope"] + sizes["rope"]) + sizes["v"] * sizes["hidden"])
    rest = _latent_weights(heads, sizes) - from_heads + sizes["hidden"] * (128 + index)
    quantized = from_heads + sizes["q"] * index * 128
    return heads, index, _partly_quantized(rows, gpu, tokens, quantized=quantized, rest=rest)


def sparse_decode(rows: pd.DataFrame, gpu: Gpu) -> Work:
    """As latent attention, to 2,048 keys at most; before it a scan of all keys of one head of 128 in fp8."""
    batch, step = _of(rows, "batch_size", "step")
    heads, index, products = _sparse_module(rows, gpu, batch)
    keys = batch * (step + 1)
    picked = np.minimum(keys, batch * 2048)
    entry = np.where(rows["kv_cache_dtype"] == "fp8", 656, 1152)
    return {
        **products,
        "tensor": 2 * heads * 1088 * picked / _rate(gpu),
        "moved": entry * picked / gpu.bytes_per_us(),
        "scan": 2 * index * 128 * keys / _rate(gpu, "fp8") + 132 * keys / gpu.bytes_per_us(),
        "row_us": batch,
    }


def sparse_prompt(rows: pd.DataFrame, gpu: Gpu) -> Work:
    """The same for the tokens of prompts; over a cache in fp8 Hopper's kernel computes 64 heads, however few."""
    batch, length, context = _of(rows, "batch_size", "isl", "step")
    heads, index, products = _sparse_module(rows, gpu, batch * length)
    if not gpu.is_blackwell:
        heads = np.where(rows["kv_cache_dtype"] == "fp8", _tiles(heads, 64), heads)
    return {
        **products,
        "tensor": 2 * heads * 1088 * _seen(batch, length, context, 2048.0) / _rate(gpu),
        "scan": 2 * index * 128 * _seen(batch, length, context, 1e12) / _rate(gpu, "fp8"),
        "row_us": batch * length,
    }


def _block_sparse(rows: pd.DataFrame) -> tuple[Floats, Floats]:
    """Return heads and heads of KV."""
    (heads,) = _of(rows, "num_heads")
    return heads, np.maximum(1, heads / 16)


def _block_sparse_module(rows: pd.DataFrame, gpu: Gpu, tokens: Floats) -> Work:
    """Return the products of MiniMax M3's layer: out of the heads quantized, into them and the index in 16 bits."""
    heads, kv_heads = _block_sparse(rows)
    rest = 6144 * (heads * 128 + 2 * kv_heads * 128 + 256)
    return _partly_quantized(rows, gpu, tokens, quantized=6144 * heads * 128, rest=rest)


def block_sparse_decode(rows: pd.DataFrame, gpu: Gpu) -> Work:
    """MiniMax M3: grouped heads to 2,048 keys at most, picked by a scan of one head of 128."""
    _, kv_heads = _block_sparse(rows)
    batch, step = _of(rows, "batch_size", "step")
    keys, entry = batch * (step + 1), rows["kv_cache_dtype"].map(BYTES).to_numpy()
    return {
        **_block_sparse_module(rows, gpu, batch),
        "moved": 256 * kv_heads * entry * np.minimum(keys, batch * 2048) / gpu.bytes_per_us(),
        "scan": 256 * keys / gpu.bytes_per_us(),
        "row_us": batch,
    }


def block_sparse_prompt(rows: pd.DataFrame, gpu: Gpu) -> Work:
    """The same for the tokens of prompts; ``vector``: what is read in fp8 is widened for each token."""
    _, kv_heads = _block_sparse(rows)
    batch, length, context = _of(rows, "batch_size", "isl", "step")
    pairs = kv_heads * _seen(batch, length, context, 2048.0)
    is_fp8 = (rows["kv_cache_dtype"] == "fp8").to_numpy()
    return {
        **_block_sparse_module(rows, gpu, batch * length),
        "tensor": 4 * 16 * 128 * pairs / _rate(gpu),
        "vector": is_fp8 * 256 * pairs / gpu.vector_flops_per_us(),
        "row_us": batch * length,
    }


def index_scores(rows: pd.DataFrame, gpu: Gpu) -> Work:
    """DeepSeek-V4: 64 heads of 128 in fp8 against every fourth key, in blocks of 64."""
    batch, length, step = _of(rows, "batch_size", "isl", "step")
    return {
        "tensor": 2 * 64 * 128 * batch * length * _tiles((step + length / 2) / 4, 64) / _rate(gpu, "fp8"),
        "row_us": batch * length,
    }


def routed(rows: pd.DataFrame, gpu: Gpu) -> Work:
    """The GPU with most tokens: experts with any are read, each computes whole tiles of 16; copies are moved.

    vLLM's Triton kernels write and add up the copies of all tokens' experts, those of other GPUs included.
    """
    tokens, hidden, width, top, tp = _of(
        rows, "num_tokens", "hidden_size", "inter_size", "topk", "moe_tp_size"
    )
    plain = [size in NOT_GATED for size in zip(hidden, width, strict=True)]
    one = np.where(plain, 2, 3) * hidden * width / tp
    copies, touched, padded = loads(rows)
    moves_all = rows["kernel_source"].str.contains("tritonexperts").to_numpy()
    moved = np.where(moves_all, tokens * top, copies)
    work = _weights(rows, gpu, one * touched, np.ones(len(rows)), "moe_dtype")
    rate = np.array([_rate(gpu, KINDS[each]) for each in rows["moe_dtype"]])
    return {
        "products": 2 * one * padded / rate,
        "weights": work["weights"],
        "scan": 2 * (moved * 3 * (hidden + width / tp) + tokens * hidden) / gpu.bytes_per_us(),
        "row_us": tokens,
    }


NOT_GATED = {(2688.0, 1856.0), (2048.0, 5120.0)}
"""Hidden size and width of experts of two matrices: Nemotron 3's, squared ReLU (arXiv:2109.08668)."""


def product(rows: pd.DataFrame, gpu: Gpu) -> Work:
    """The weights are read, and the tokens' vectors."""
    m, n, k = _of(rows, "m", "n", "k")
    work = _weights(rows, gpu, n * k, m, "gemm_dtype")
    return {"products": work["products"], "weights": work["weights"] + 2 * m * (n + k) / gpu.bytes_per_us()}


def product_by_block(rows: pd.DataFrame, gpu: Gpu) -> Work:
    """The same in fp8; before it a pass quantizes the tokens' vectors."""
    m, k = _of(rows, "m", "k")
    return {**product(rows, gpu), "scan": 3 * m * k / gpu.bytes_per_us()}


def product_in_fp8(rows: pd.DataFrame, gpu: Gpu) -> Work:
    """The same, each token with its scale, which is found row by row; no block of threads shares its sum with another.

    ``chunk_us``: along k, a thousand numbers a chunk, for each 64 rows of a block of at most 256. ``tensor`` and
    ``moved`` are the products and the reading, so that the longest of the three counts.
    """
    m, k = _of(rows, "m", "k")
    work = product_by_block(rows, gpu)
    return {
        "tensor": work["products"],
        "moved": work["weights"],
        "chunk_us": np.minimum(np.ceil(m / 64), 4) * k / 1000,
        "scan": work["scan"],
        "row_us": m,
    }
