"""Latent attention that was measured as a module: whose it is, by how many heads, and what a step makes of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibrate.predictor.build import train
from calibrate.predictor.component_tables import StepTables, all_axes
from calibrate.predictor.measured import ProfileError, ProfileQuery
from calibrate.predictor.profiles.kernel_tables import read_kernels
from calibrate.predictor.profiles.latent_modules import latent_fault, module_prefix
from replay.model import ModelShape, Precision, find_gpu, read_model_config
from replay.model.matmuls import kinds_of_layers
from tests.calibrate.predictor import made_profiles as profiles

LATENT = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 2048, "num_attention_heads": 128,
    "num_key_value_heads": 128, "head_dim": None, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128,
}  # fmt: skip
IN_MODULE = {"attn_pre_proj", "attn_rope", "attn_kv_cache_save", "attn_post_proj"}


def prompt_us(heads: int, tokens: float, keys: float) -> float:
    return 50.0 + 0.01 * heads * tokens + 1e-5 * heads * tokens * keys


def decode_us(heads: int, batch: float, keys: float) -> float:
    return 40.0 + 0.1 * heads * batch + 1e-4 * heads * batch * keys


def module_tables(folder: Path, *, heads: tuple[int, ...] = (8, 16, 64)) -> Path:
    """Write both modules, each by two kernels of which the second takes twice as long, and a table of products."""
    common = {"kv_cache_dtype": "bfloat16", "gemm_type": "bfloat16"}
    prompts = [
        {"num_heads": h, "batch_size": b, "isl": s, "step": 0, "latency": n * prompt_us(h, b * s, (s + 1) / 2) / 1e3}
        for h in heads for b in (1, 2, 4, 8) for s in (16, 64, 256, 1024) for n in (1, 2)
    ]  # fmt: skip
    decodes = [
        {"num_heads": h, "batch_size": b, "isl": 1, "step": s, "latency": slower * decode_us(h, b, s + 1) / 1e3}
        for h in heads for b in (1, 2, 4, 8, 16) for s in (16, 64, 256, 1024) for slower in (1, 2)
    ]  # fmt: skip
    for name, rows in (("mla_context_module", prompts), ("mla_generation_module", decodes)):
        pd.DataFrame(rows).assign(op_name=name, **common).to_parquet(folder / f"{name}_perf.parquet")
    profiles.gemm_parquet(folder)
    return folder


def query(folder: Path, *, tp: int = 8, **changed: object) -> ProfileQuery:
    shape = read_model_config(profiles.config(folder, **{**LATENT, **changed}))
    return ProfileQuery(shape=shape, gpu="H100", tp=tp)


def step_of(folder: Path, *, tp: int = 8) -> StepTables:
    return train([folder], query(folder, tp=tp), find_gpu("H100"), names=("grid",))[1]


@pytest.mark.parametrize("tp", [8, 4])
def test_a_step_has_the_module_in_place_of_projections_and_attention(tmp_path: Path, tp: int) -> None:
    """Sixteen heads were measured; 32 lie between 16 and 64, where the law is as straight as the line."""
    made, axes, heads = step_of(module_tables(tmp_path), tp=tp), all_axes(), 128 // tp
    assert not IN_MODULE & {each.component.name for each in made.components}
    row, column = (
        int(np.searchsorted(axis, value)) for axis, value in ((axes.sequences, 8), (axes.keys, 65))
    )
    told = made.decode_us[row, int(np.searchsorted(axes.keys, 64))], made.decode_us[row, column]
    expected = 4 * decode_us(heads, 8, 64), 4 * decode_us(heads, 8, axes.keys[column])
    assert told == pytest.approx(expected, rel=0.01)
    prompt = int(np.searchsorted(axes.tokens, 1024)), int(np.searchsorted(axes.keys, 512))
    assert made.prefill_us[prompt] == pytest.approx(4 * prompt_us(heads, 1024, 512), rel=0.02)


def test_without_the_modules_no_roofline_stands_in(tmp_path: Path) -> None:
    (tmp_path / "products").mkdir()
    profiles.gemm_parquet(tmp_path / "products")
    with pytest.raises(
        ProfileError, match=r"expected mla_context_module and mla_generation_module for .* at tp 8"
    ):
        train([tmp_path / "products"], query(tmp_path), find_gpu("H100"))


def test_more_heads_than_were_measured_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"no rows of num_heads=128 \(nearest: num_heads=64\)"):
        step_of(module_tables(tmp_path), tp=1)


def alone(model: str, number: int = 0) -> ModelShape:
    """Return a model that ships as if it had one kind of its layers."""
    return kinds_of_layers(read_model_config(model))[number].shape


def test_other_sizes_are_named_and_the_nearest(tmp_path: Path) -> None:
    fault = latent_fault(query(tmp_path, hidden_size=5120, q_lora_rank=None).shape)
    assert fault is not None
    assert fault.endswith("which alone were measured: q_lora_rank 0 (1536), hidden_size 5120 (7168)") or (
        fault.endswith("which alone were measured: hidden_size 5120 (7168), q_lora_rank 0 (1536)")
    )
    for name in ("deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-V3.2", "zai-org/GLM-5", "Qwen/Qwen3-8B"):
        assert latent_fault(alone(name)) is None


@pytest.mark.parametrize(
    ("model", "number", "prefix"),
    [
        ("deepseek-ai/DeepSeek-V3", 0, "mla"),
        ("deepseek-ai/DeepSeek-V3.2", 0, "dsa"),
        ("zai-org/GLM-5", 0, "dsa"),
        ("deepseek-ai/DeepSeek-V4-Pro", 0, "dsv4_hca"),
        ("deepseek-ai/DeepSeek-V4-Pro", 1, "dsv4_csa"),
        ("nvidia/DeepSeek-V4-Flash-NVFP4", 0, "dsv4_hca"),
        ("Qwen/Qwen3-8B", 0, None),
        ("Qwen/Qwen3.5-397B-A17B", 0, None),
    ],
)
def test_a_model_s_layers_belong_to_the_tables_of_their_module(
    model: str, number: int, prefix: str | None
) -> None:
    assert module_prefix(alone(model, number)) == prefix


def test_an_index_of_the_layer_before_was_not_measured() -> None:
    assert latent_fault(alone("zai-org/GLM-5.2")) is None
    assert "by the index of the layer before" in (latent_fault(alone("zai-org/GLM-5.2", 1)) or "")


def test_a_module_in_two_precisions_is_their_mean_by_weights(tmp_path: Path) -> None:
    """Three quarters in fp8, which takes half as long here."""
    folder = module_tables(tmp_path)
    path = folder / "mla_generation_module_perf.parquet"
    rows = pd.read_parquet(path)
    pd.concat([rows, rows.assign(gemm_type="fp8_block", latency=rows["latency"] / 2)]).to_parquet(path)
    wanted = query(tmp_path)
    fp8 = Precision(name="fp8", bytes_per_weight=1.0, matmul="fp8")
    kept = (("latent_module", ((fp8, 0.75), (wanted.shape.attention_precision, 0.25))),)
    shape = replace(wanted.shape, products=kept)
    found = read_kernels(path, replace(wanted, shape=shape))[0][0]
    law = [decode_us(16, *point) for point in found.points]
    np.testing.assert_allclose(found.time_us, np.array(law) * (0.75 / 2 + 0.25))
    assert found.notes == tuple(f"{path.name}: {said}" for said in ("75% in fp8_block", "25% in bfloat16"))


def test_a_sparse_module_s_rows_are_those_of_its_own_model(tmp_path: Path) -> None:
    """DeepSeek-V3.2 and GLM-5 are in one table; GLM-5 takes three times as long here."""
    rows = [
        {
            "model": model,
            "num_heads": 16,
            "batch_size": b,
            "isl": 1,
            "step": s,
            "latency": n * decode_us(16, b, s + 1) / 1e3,
        }
        for model, n in (("deepseek-ai/DeepSeek-V3.2", 1), ("zai-org/GLM-5", 3))
        for b in (1, 2, 4)
        for s in (16, 64, 256)
    ]
    common = {"op_name": "dsa_generation_module", "kv_cache_dtype": "bfloat16", "gemm_type": "bfloat16"}
    path = tmp_path / "dsa_generation_module_perf.parquet"
    pd.DataFrame(rows).assign(**common).to_parquet(path)
    wanted = ProfileQuery(shape=read_model_config("zai-org/GLM-5"), gpu="H100", tp=4)
    found = read_kernels(path, wanted)[0][0]
    assert found.operator == "attn_decode"
    np.testing.assert_allclose(found.time_us, [3 * decode_us(16, *point) for point in found.points])
    other = ProfileQuery(shape=read_model_config("deepseek-ai/DeepSeek-V3"), gpu="H100", tp=8)
    assert read_kernels(path, other) == ([], [])
