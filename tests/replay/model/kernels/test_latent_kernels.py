"""Blocks and bytes of latent attention by GPU and version, as vLLM's kernels of each have them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import vtwin
from replay.model import Serving, find_gpu, kv_cache_size, read_model_config
from replay.model.kernels.latent_kernels import check_block_size, served_on, usual_block_size
from replay.twin.config_read import load_config
from replay.twin.keys.overlay import Setting
from traces import ConfigError

V3, V32, GLM = "deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-V3.2", "zai-org/GLM-5"
LATENT, PACKED, PLAIN, WIDE = "moonshotai/Kimi-K2.5", 656, 576, 1152


@pytest.mark.parametrize(
    ("model", "gpu", "version", "size"),
    [
        (V32, "H200", "0.32.0", 64),
        (V32, "B200", "0.16.0", 64),
        (V3, "H200", "0.32.0", 16),
        (V3, "H200", "0.18.0", 16),
        (V3, "H200", "0.17.0", 64),
        (V3, "A100", "0.17.0", 16),
        (V3, "MI300X", "0.17.0", 16),
        (V3, "B200", "0.33.0", 32),
        (V3, "GB300", "0.18.0", 32),
        (V3, "B300", "0.17.0", 64),
        (V3, "RTXPRO6000", "0.32.0", 16),
        (LATENT, "B200", "0.32.0", 32),
        ("Qwen/Qwen3-8B", "B200", "0.32.0", 16),
        ("deepseek-ai/DeepSeek-V4-Pro", "B200", "0.32.0", 16),
    ],
)
def test_a_block_holds_what_the_kernels_of_the_gpu_take(
    model: str, gpu: str, version: str, size: int
) -> None:
    assert usual_block_size(read_model_config(model), find_gpu(gpu), version=version) == size


@pytest.mark.parametrize(
    ("model", "asked", "gpu", "version", "tp", "token"),
    [
        (V32, "auto", "H200", "0.32.0", 8, WIDE),
        (V32, "fp8", "H200", "0.32.0", 8, PACKED),
        (V32, "fp8_e4m3", "H200", "0.32.0", 8, PLAIN),
        (V32, "fp8_e4m3", "H200", "0.29.0", 8, PACKED),
        (V32, "fp8_e4m3", "H200", "0.30.0", 8, PLAIN),
        (V32, "fp8", "B200", "0.32.0", 1, PLAIN),
        (V32, "fp8", "B200", "0.19.0", 1, PLAIN),
        (V32, "fp8", "B200", "0.18.0", 4, PACKED),
        (V32, "fp8", "B200", "0.18.0", 8, PLAIN),
        (V32, "fp8", "B200", "0.17.0", 8, PACKED),
        (V32, "fp8_ds_mla", "B200", "0.32.0", 8, PACKED),
        (V32, "auto", "RTXPRO6000", "0.24.0", 8, PACKED),
        (V32, "auto", "RTXPRO6000", "0.23.0", 8, WIDE),
        (GLM, "auto", "B200", "0.32.0", 8, PLAIN),
        (GLM, "auto", "B200", "0.31.0", 8, WIDE),
        (GLM, "bfloat16", "B200", "0.32.0", 8, WIDE),
        (GLM, "auto", "H200", "0.32.0", 8, WIDE),
        (V3, "fp8", "H200", "0.32.0", 8, PLAIN),
    ],
)
def test_a_token_of_sparse_latent_attention_is_packed_or_plain(
    model: str, asked: str, gpu: str, version: str, tp: int, token: int
) -> None:
    shape = read_model_config(model, kv_cache_dtype=asked)
    found = served_on(shape, find_gpu(gpu), tp=tp, version=version)
    assert found.token_bytes(found.mixers[0], tp) == token
    assert served_on(found, find_gpu(gpu), tp=tp, version=version) == found


@pytest.mark.parametrize(
    ("nope", "version", "size"),
    [
        (192, "0.19.0", 32),
        (192, "0.18.0", 16),
        (64, "0.18.0", 32),
        (64, "0.17.0", 16),
        (128, "0.17.0", 64),
        (96, "0.33.0", 16),
    ],
)
def test_flashinfer_takes_heads_of_more_widths_since_later_versions(
    nope: int, version: str, size: int
) -> None:
    shape = read_model_config(V3)
    narrow = replace(shape.attention, head_dim=shape.attention.rope_head_dim + nope)
    assert usual_block_size(replace(shape, attention=narrow), find_gpu("B200"), version=version) == size


def test_one_gpu_s_heads_are_counted_unless_there_are_more() -> None:
    shape = read_model_config(V32, kv_cache_dtype="fp8")
    for heads, packed in ((17, PACKED), (16, 0)):
        few = replace(shape, attention=replace(shape.attention, num_heads=heads))
        assert served_on(few, find_gpu("B200"), version="0.18.0").packed_token_bytes == packed
    assert served_on(few, None).packed_token_bytes == PACKED


@pytest.mark.parametrize("gpu", ["H200", "B200"])
@pytest.mark.parametrize("asked", ["auto", "fp8"])
def test_blocks_and_bytes_per_token_agree(gpu: str, asked: str) -> None:
    shape, serving = read_model_config(V32, kv_cache_dtype=asked), Serving(block_size=64)
    found = kv_cache_size(shape, find_gpu(gpu), tp=8, serving=serving)
    used = found.num_gpu_blocks * found.block_size * found.kv_bytes_per_token
    assert 0 <= found.kv_bytes - used < found.block_size * found.kv_bytes_per_token


def test_a_twin_has_the_blocks_and_the_bytes_of_its_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "twin.yaml"
    said: dict[str, object] = {}
    for gpu, size in (("H200", 16), ("B200", 32)):
        path.write_text(f"latency: {{model: physics, model_config: {V3}}}\nhardware: {{gpu: {gpu}, tp: 8}}\n")
        twin = load_config(path)
        assert twin.engine.block_size == size
        assert any(f"block_size: {size}, the one that" in note for note in twin.notes) == (gpu == "B200")
        assert load_config(path, settings=[Setting("engine.block_size", "128")]).engine.block_size == 128
        options = ["--model-config", V3, "--gpu", gpu, "--tp", "8", "--json"]
        assert vtwin.main(["model", "info", *options]) == 0
        said = json.loads(capsys.readouterr().out)
        assert said["block_size"] == size
    path.write_text(
        f"latency: {{model: physics, model_config: {V32}, kv_cache_dtype: fp8}}\n"
        "hardware: {gpu: B200, tp: 8}\n"
    )
    twin = load_config(path)
    assert twin.engine.block_size == 64
    assert twin.kv_bytes_per_token == 8 * 61 * (PLAIN + 132)


def test_blocks_that_no_kernel_takes_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_block_size(read_model_config(V32), 128, where="--block-size")
    path = tmp_path / "twin.yaml"
    path.write_text(f"latency: {{model: physics, model_config: {V32}}}\nhardware: {{gpu: H200, tp: 8}}\n")
    message = (
        r"engine.block_size: got 16, expected a multiple of 64: vLLM's kernels for \S+ take no other blocks"
    )
    with pytest.raises(ConfigError, match=message):
        load_config(path, settings=[Setting("engine.block_size", "16")])
    options = ["--model-config", V32, "--gpu", "H200", "--tp", "8", "--block-size", "16"]
    assert vtwin.main(["model", "info", *options]) == 2
    assert "--block-size: got 16, expected a multiple of 64" in capsys.readouterr().err
