"""Models of several kinds of layers: what of each, its groups, and what of its time is counted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from replay.model import find_gpu, peak_times, read_model_config
from replay.model.layers.groups_of_layers import cached_layers, dealt
from replay.model.operator_forms import state_form
from traces import ConfigError

FAMILY_CASES = json.loads(Path(__file__).parents[1].joinpath("families.json").read_text())
GROUPS = {
    "google/gemma-4-26B-A4B": {("sliding", 5): 5, ("full", 5): 1},
    "XiaomiMiMo/MiMo-V2-Flash": {("full", 9): 1, ("sliding", 8): 4, ("sliding", 7): 1},
    "Qwen/Qwen3.5-397B-A17B": {("state", 15): 3, ("full", 15): 1},
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": {("state", 6): 3, ("state", 5): 1, ("full", 6): 1},
    "deepseek-ai/DeepSeek-V3.2": {("full", 122): 1},
    "zai-org/GLM-5.2": {("full", 99): 1},
    "openai/gpt-oss-20b": {("sliding", 12): 1, ("full", 12): 1},
    "mistralai/Mistral-7B-v0.1": {("sliding", 32): 1},
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": {("chunked", 12): 3, ("full", 12): 1},
}


@pytest.mark.parametrize("model", GROUPS)
def test_a_model_s_layers_are_dealt_into_groups(model: str) -> None:
    found: dict[tuple[str, int], int] = {}
    for each in dealt(cached_layers(read_model_config(model)), block_size=16).groups:
        key = (each.group.kind, each.num_layers)
        found[key] = found.get(key, 0) + 1
    assert found == GROUPS[model]


def test_full_layers_of_wider_heads_have_blocks_of_other_sizes() -> None:
    found = dealt(cached_layers(read_model_config("XiaomiMiMo/MiMo-V2-Flash")), block_size=16)
    assert {each.group.kind: each.group.block_size for each in found.groups} == {"full": 32, "sliding": 0}


def test_states_of_gated_delta_nets_are_in_the_model_s_own_type_unless_the_file_says_float32(
    tmp_path: Path,
) -> None:
    """vLLM on GPUs logs for Qwen3-Next: attention's blocks have 544 tokens, so that a page holds a state."""
    case = next(each for each in FAMILY_CASES if each["config"]["model_type"] == "qwen3_next")
    path = tmp_path / "config.json"
    sizes = {}
    for said in (None, "float32"):
        path.write_text(json.dumps({**case["config"], "mamba_ssm_dtype": said}))
        shape = read_model_config(path)
        sizes[said] = dealt(cached_layers(shape), block_size=16).block_size
    assert sizes == {None: 544, "float32": 1056}


def test_a_request_reads_and_writes_a_state_whatever_the_length() -> None:
    gpu = find_gpu("H100")
    shape = read_model_config("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")
    at_peak = peak_times(shape, gpu)
    state = next(each for each in shape.mixers if each.state)
    assert state.state is not None
    kept = state.num_layers * state.state.bytes_per_request(1, dtype_bytes=2)
    assert at_peak.window == 0
    assert at_peak.state == pytest.approx(state_form(state.state).moved * 2 * kept / gpu.bytes_per_us())
    assert at_peak.kv_entry == pytest.approx(shape.kv_bytes_per_token(1) / gpu.bytes_per_us())


def test_prompts_through_states_take_what_kernels_were_measured_to_take() -> None:
    """Qwen3.5-397B's recurrence and convolution on an H100, vLLM 0.24: µs of one layer, by prompts and their tokens."""
    shape = read_model_config("Qwen/Qwen3.5-397B-A17B")
    at_peak = peak_times(shape, find_gpu("H100"))
    num_layers = sum(each.num_layers for each in shape.mixers if each.kind == "state")
    for prompts, length, measured_us in (
        (1, 32768, 1530.9 + 718.7),
        (16, 4096, 1726.2 + 1455.4),
        (64, 512, 1019.5 + 722.6),
    ):
        tokens = prompts * length
        long = max(at_peak.recurrence * tokens, at_peak.chain * length) + at_peak.state * prompts
        assert long / num_layers == pytest.approx(measured_us, rel=0.3)


def test_states_and_windows_are_timed_together() -> None:
    shape = read_model_config("Qwen/Qwen3.5-397B-A17B")
    (states, full) = shape.mixers
    mixed = replace(shape, mixers=(states, replace(full, kind="sliding", window=512)))
    at_peak = peak_times(mixed, find_gpu("H100"))
    assert at_peak.window == 512
    assert at_peak.state > 0


def test_sparse_attention_scans_everything_and_reads_what_it_picks() -> None:
    gpu = find_gpu("H200")
    sparse, plain = (
        read_model_config("deepseek-ai/DeepSeek-V3.2"),
        read_model_config("deepseek-ai/DeepSeek-V3"),
    )
    at_peak, before = peak_times(sparse, gpu, tp=8), peak_times(plain, gpu, tp=8)
    assert at_peak.window == 2048
    assert at_peak.kv_entry == pytest.approx(before.kv_entry * 132 / 1152)
    assert at_peak.windowed_kv_entry == pytest.approx(before.kv_entry)


def test_layers_without_a_formula_are_refused_by_name() -> None:
    shape = replace(read_model_config("Qwen/Qwen3-8B"), not_timed=("convolutions",))
    with pytest.raises(
        ConfigError, match=r"roofline or physics for Qwen/Qwen3-8B with convolutions, expected blackbox"
    ):
        peak_times(shape, find_gpu("H100"))
