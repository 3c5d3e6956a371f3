"""Which kernels save states inside chunks: by vLLM's version, the GPU and the model, and the blocks that they take."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from replay.model import find_gpu, read_model_config
from replay.model.gpu_memory import Serving, dealt_of
from replay.model.kernels.state_kernels import saved_alignment
from replay.model.layers.groups_of_layers import Dealt
from replay.model.shape import ModelShape, StateKernel

FAMILY_CASES = json.loads(Path(__file__).parents[1].joinpath("families.json").read_text())
NEMOTRON, QWEN = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "Qwen/Qwen3.5-397B-A17B"
NONE = (0, 0)


def dealt_by(shape: ModelShape, version: str, gpu: str | None, **more: Any) -> Dealt:  # noqa: ANN401 - of Serving
    device = None if gpu is None else find_gpu(gpu)
    return dealt_of(shape, tp=8, serving=Serving(vllm_version=version, **more), gpu=device)


def saved(
    shape: ModelShape,
    version: str,
    gpu: str | None = "H100",
    **more: Any,  # noqa: ANN401 - of Serving
) -> tuple[int, int]:
    """Return (blocks for what is saved, alignment) of the model's groups of states, which are alike."""
    groups = dealt_by(shape, version, gpu, **more).kv_cache_groups
    found = {
        (group.num_prefill_checkpoint_blocks, group.prefill_checkpoint_alignment)
        for group in groups
        if group.kind == "state"
    }
    assert {group.num_prefill_checkpoint_blocks for group in groups if group.kind != "state"} <= {0}
    (one,) = found
    return one


def family(model_type: str, tmp_path: Path) -> ModelShape:
    case = next(each for each in FAMILY_CASES if each["config"]["model_type"] == model_type)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(case["config"]))
    return read_model_config(path)


@pytest.mark.parametrize(
    ("version", "gpu", "expected"),
    [
        ("0.31.0", "H100", NONE),
        ("0.32.0", "H100", (1, 1)),
        ("0.33.0", "A100-80", (1, 1)),
        ("0.33.0", "MI300X", (1, 1)),
    ],
)
def test_mamba_2_saves_anywhere_from_0_32_on(version: str, gpu: str, expected: tuple[int, int]) -> None:
    assert saved(read_model_config(NEMOTRON), version, gpu) == expected


@pytest.mark.parametrize(
    ("version", "gpu", "expected"),
    [
        ("0.32.0", "H100", NONE),
        ("0.33.0", "H100", (1, 576)),
        ("0.33.0", "B200", (1, 576)),
        ("0.33.0", None, (1, 576)),
        ("0.33.0", "A100-80", NONE),
        ("0.33.0", "L40S", NONE),
        ("0.33.0", "MI300X", NONE),
    ],
)
def test_gated_delta_nets_save_at_block_ends_where_flashinfer_has_their_kernel(
    version: str, gpu: str | None, expected: tuple[int, int]
) -> None:
    assert saved(read_model_config(QWEN), version, gpu) == expected


def test_their_blocks_are_multiples_of_what_the_kernel_saves_at() -> None:
    """vllm 0.33.0 platforms/interface.py: the least common multiple of 16 and 64, 576 in place of 528."""
    shape = read_model_config(QWEN)
    sizes = [dealt_by(shape, "0.33.0", gpu).block_size for gpu in ("H100", "A100-80")]
    assert sizes == [576, 528]
    assert saved(shape, "0.33.0", prefix_match_unit=96) == (1, 192)


def test_nothing_is_saved_without_prefix_caching() -> None:
    for model in (NEMOTRON, QWEN):
        shape = read_model_config(model)
        assert saved(shape, "0.33.0", enable_prefix_caching=False) == NONE
    assert dealt_by(shape, "0.33.0", "H100", enable_prefix_caching=False).block_size == 528


def test_kimi_delta_attention_saves_where_its_gate_is_bounded(tmp_path: Path) -> None:
    shape = family("kimi_linear", tmp_path)
    states = [each for each in shape.mixers if each.state is not None]
    bounded = replace(
        shape,
        mixers=tuple(
            replace(each, state=replace(each.state, kernel="kda")) if each.state else each
            for each in shape.mixers
        ),
    )
    assert all(each.state and each.state.key_dim == 128 for each in states)
    found = {version: saved(bounded, version) for version in ("0.28.0", "0.29.0", "0.33.0")}
    assert found == {"0.28.0": NONE, "0.29.0": (1, 16), "0.33.0": (1, 16)}
    assert saved(bounded, "0.33.0", "A100-80") == saved(bounded, "0.33.0", "MI300X") == NONE
    assert saved(bounded, "0.33.0", "B200") == (1, 16)


@pytest.mark.parametrize("model_type", ["jamba", "lfm2", "olmo_hybrid"])
def test_other_states_are_not_saved_inside_chunks(model_type: str, tmp_path: Path) -> None:
    assert saved(family(model_type, tmp_path), "0.33.0") == NONE


@pytest.mark.parametrize(
    ("kernel", "gpu", "aligned"),
    [("gated delta", "H100", 64), ("gated delta", "B200", 0), ("kda", "H100", 0), ("mamba2", "B200", 1)],
)
def test_narrow_keys_are_saved_by_hopper_s_gated_delta_nets_alone(
    kernel: StateKernel, gpu: str, aligned: int
) -> None:
    own = next(each.state for each in read_model_config(QWEN).mixers if each.state is not None)
    narrow = replace(own, kernel=kernel, key_dim=64)
    assert saved_alignment(narrow, version="0.33.0", gpu=find_gpu(gpu)) == aligned
