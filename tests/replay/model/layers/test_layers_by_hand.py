"""What single layers keep and weigh, from the numbers of a config.json by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.model import ModelShape
from replay.model.shape import LayerState
from tests.replay.model.layers.test_kinds_of_layers import changed


def state_of(shape: ModelShape) -> LayerState:
    """Return what the layers with a state keep."""
    return next(each.state for each in shape.mixers if each.state is not None)


def test_a_gated_delta_net_writes_reads_and_corrects(tmp_path: Path) -> None:
    keys, values, hidden = 16 * 128, 32 * 128, 2048
    state = state_of(changed(tmp_path, "qwen3_next"))
    assert (state.num_heads, state.head_dim, state.key_heads, state.key_dim) == (32, 128, 16, 128)
    assert state.parameters == hidden * (2 * keys + 2 * values + 2 * 32) + values * hidden + 4 * (
        2 * keys + values
    )
    assert state.num_products == 3
    assert state.flops_per_token(1) == 3 * 2 * 32 * 128 * 128


def test_a_short_convolution_has_three_inputs_of_each_channel(tmp_path: Path) -> None:
    state = state_of(changed(tmp_path, "lfm2", conv_dim=1280))
    assert state.parameters == 4 * 2560 * 1280 + 3 * 1280
    assert state.bytes_per_request(1, dtype_bytes=2) == 2 * 1280 * 2


@pytest.mark.parametrize(("said", "num_bytes"), [({}, 4), ({"mamba_ssm_cache_dtype": "bfloat16"}, 2)])
def test_a_nemotron_s_states_are_in_float32_unless_the_file_says_otherwise(
    said: dict[str, object], num_bytes: int, tmp_path: Path
) -> None:
    shape = changed(tmp_path, "nemotron_h", without=("mamba_ssm_cache_dtype",), **said)
    assert state_of(shape).dtype_bytes == num_bytes


def test_mamba_is_twice_as_wide_as_the_model_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    without = ("intermediate_size", "expand")
    assert state_of(changed(tmp_path, "mamba", without=without)).num_heads == 2 * 768
    assert state_of(changed(tmp_path, "mamba", without=without, expand=3)).num_heads == 3 * 768
    assert state_of(changed(tmp_path, "mamba", without=without, intermediate_size=800)).num_heads == 800


@pytest.mark.parametrize(
    ("said", "heads"), [({"multi_query": True}, 1), ({}, 1), ({"multi_query": False}, 12)]
)
def test_a_gpt_of_code_has_one_head_of_keys_or_all(
    said: dict[str, object], heads: int, tmp_path: Path
) -> None:
    shape = changed(tmp_path, "gpt_bigcode", without=("multi_query", "num_key_value_heads"), **said)
    assert shape.attention.num_kv_heads == heads


def test_an_index_of_blocks_picks_as_many_tokens_as_its_blocks_have(tmp_path: Path) -> None:
    shape = changed(tmp_path, "minimax_m3_vl_text")
    index = next(each.indexer for each in shape.mixers if each.indexer is not None)
    assert (index.top_k, index.block_size, index.num_heads, index.entry_bytes) == (16 * 128, 128, 4, 2 * 128)
    assert index.parameters == 6144 * 5 * 128
