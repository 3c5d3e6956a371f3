"""Profiles of a GPU that obeys known laws, in Vidur's columns and as tables of vLLM kernels."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from calibrate.predictor.measured import ProfileQuery
from replay.model import read_model_config

CONFIG = {
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 2048,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}

SHAPE = {
    "n_head": 8,
    "n_kv_head": 2,
    "n_embd": 512,
    "n_expanded_embd": 1024,
    "vocab_size": 2048,
    "use_gated_mlp": True,
    "num_tensor_parallel_workers": 2,
}
TOKENS = [1, 2, 4, 8, 16, 32, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024]
MLP = {  # µs of one token, µs more per token
    "emb": (3.0, 0.01),
    "input_layernorm": (4.0, 0.02),
    "attn_pre_proj": (20.0, 0.10),
    "attn_rope": (2.0, 0.01),
    "attn_post_proj": (12.0, 0.08),
    "post_attention_layernorm": (4.0, 0.02),
    "mlp_up_proj": (40.0, 0.30),
    "mlp_act": (3.0, 0.03),
    "mlp_down_proj": (25.0, 0.15),
    "add": (1.0, 0.005),
}
CPU = {
    "schedule_median": 100.0,
    "sampler_e2e_median": 200.0,
    "prepare_inputs_e2e_median": 150.0,
    "process_model_outputs_median": 120.0,
    "ray_comm_time_mean": 300.0,
}


def prefill_us(kv: float, chunk: float) -> float:
    """Return the law of prefill attention: a launch, and 0.001 µs per pair."""
    return 10.0 + 0.001 * chunk * (kv + (chunk + 1) / 2)


def decode_us(batch: float, keys: float) -> float:
    """Return the law of decode attention: a launch, and 0.002 µs per KV entry."""
    return 8.0 + 0.002 * batch * keys


def config(folder: Path, **changed: object) -> Path:
    """Write the model's config.json and return its path."""
    path = folder / "config.json"
    path.write_text(json.dumps({**CONFIG, **changed}))
    return path


def wanted(folder: Path, *, tp: int = 2, **given: object) -> ProfileQuery:
    return ProfileQuery(shape=read_model_config(config(folder)), gpu="A100", tp=tp, **given)  # type: ignore[arg-type]


def mlp_csv(folder: Path, **changed: object) -> Path:
    rows = [
        {f"time_stats.{name}.median": (a + b * tokens) / 1e3 for name, (a, b) in MLP.items()}
        | {"num_tokens": tokens, **SHAPE}
        for tokens in TOKENS
    ]
    return _write(pd.DataFrame(rows).assign(**changed), folder / "mlp.csv")


def attention_csv(folder: Path) -> Path:
    rows = [
        _attention(batch=1, chunk=chunk, kv=kv, time_us=prefill_us(kv, chunk), is_prefill=True)
        for chunk in (16, 32, 64, 128, 192, 256, 384, 512)
        for kv in (0, 64, 128, 256, 512, 1024)
    ]
    rows += [
        _attention(batch=batch, chunk=0, kv=kv, time_us=decode_us(batch, kv + 1), is_prefill=False)
        for batch in (1, 2, 4, 8, 16, 24, 32)
        for kv in (31, 63, 127, 255, 511, 1023)
    ]
    return _write(pd.DataFrame(rows), folder / "attention.csv")


def _attention(*, batch: int, chunk: int, kv: int, time_us: float, is_prefill: bool) -> dict[str, object]:
    return {
        "time_stats.attn_prefill.median": time_us / 1e3 if is_prefill else None,
        "time_stats.attn_decode.median": None if is_prefill else time_us / 1e3,
        "n_embd": 512,
        "n_q_head": 8,
        "n_kv_head": 2,
        "num_tensor_parallel_workers": 2,
        "batch_size": batch,
        "prefill_chunk_size": chunk,
        "kv_cache_size": kv,
        "is_prefill": is_prefill,
    }


def network_csv(folder: Path) -> Path:
    rows = [
        {
            "time_stats.all_reduce.median": (5.0 + 1e-4 * size) / 1e3,
            "num_workers": workers,
            "devices_per_node": workers,
            "size": size,
            "collective": "all_reduce",
        }
        for workers in (2, 4)
        for size in [2048 * 2**i for i in range(16)]
    ]
    return _write(pd.DataFrame(rows), folder / "all_reduce.csv")


def cpu_csv(folder: Path, *, shout: bool = False) -> Path:
    rows = [
        {name: (us + batch) / 1e3 for name, us in CPU.items()}
        | {"model_name": name, "batch_size": batch, "tensor_parallel_degree": 2}
        for batch in (8, 16, 24, 32, 40, 48, 56, 64)
        for name in ("org/model", "org/other")
    ]
    table = pd.DataFrame(rows)
    if shout:
        table = table.rename(columns={name: name.upper() for name in CPU})
    return _write(table, folder / "cpu_overheads.csv")


def gemm_parquet(folder: Path, law: object = None, sizes: tuple[int, ...] = (256, 512, 1024, 2048)) -> Path:
    """Write products of every (n, k) in sizes; by default they take 2 µs and 10⁻⁶ µs per multiplication."""
    time_us = law or (lambda m, n, k: 2.0 + 1e-6 * m * n * k)
    rows = [
        {"m": m, "n": n, "k": k, "gemm_dtype": "bfloat16", "latency": time_us(m, n, k) / 1e3}  # type: ignore[operator]
        for m in (1, 4, 16, 64, 256, 1024)
        for n in sizes
        for k in sizes
    ]
    return _parquet(pd.DataFrame(rows).assign(op_name="gemm"), folder / "gemm_perf.parquet")


def attention_parquets(folder: Path, *, heads: int = 4, kv_heads: int = 1) -> None:
    common = {
        "num_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": 64,
        "kv_cache_dtype": "bfloat16",
    }
    context = [
        {"batch_size": b, "isl": s, "latency": (10.0 + 1e-3 * b * s * (s + 1) / 2) / 1e3, **common}
        for b in (1, 2, 4, 8)
        for s in (16, 64, 256, 1024)
    ]
    generation = [
        {"batch_size": b, "isl": 1, "step": s, "latency": decode_us(b, s + 1) / 1e3, **common}
        for b in (1, 2, 4, 8, 16, 32)
        for s in (15, 63, 255, 1023)
    ]
    _parquet(
        pd.DataFrame(context).assign(op_name="context_attention"), folder / "context_attention_perf.parquet"
    )
    _parquet(
        pd.DataFrame(generation).assign(op_name="generation_attention"),
        folder / "generation_attention_perf.parquet",
    )


def vidur_folder(folder: Path) -> Path:
    """Write a whole profile in Vidur's columns and return its folder."""
    profile = folder / "a100"
    profile.mkdir()
    for write in (mlp_csv, attention_csv, network_csv, cpu_csv):
        write(profile)
    return profile


def _write(table: pd.DataFrame, path: Path) -> Path:
    table.to_csv(path, index=False)
    return path


def _parquet(table: pd.DataFrame, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_parquet(path)
    return path
