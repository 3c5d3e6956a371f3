"""Layers that draft among a model's own: their groups, against vLLM's own answers (``mtp_groups.json``).

Asked of vllm 0.32.0's ``get_kv_cache_groups`` with the method mtp, layout LBNHC: first the layers of Qwen3.5-397B and
MiMo-V2-Flash, then sets drawn with a seed; the MTP layers stand behind all others.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from replay.model.gpu_memory import Serving, dealt_of
from replay.model.hf_config import read_model_config
from replay.model.layers.drafter import mtp_drafter
from replay.model.layers.groups_of_layers import CachedLayers, dealt
from sim import GroupKind

RECORDED: list[dict[str, Any]] = json.loads(Path(__file__).with_name("mtp_groups.json").read_text())
KINDS = {"FullAttentionSpec": "full", "SlidingWindowSpec": "sliding", "MambaSpec": "state"}


def layers_of(kind: GroupKind, count: int, *, has_mtp: bool = False) -> CachedLayers:
    if kind == "state":
        return CachedLayers(kind=kind, count=count, state_bytes=128)
    window = 128 if kind == "sliding" else 0
    return CachedLayers(kind=kind, count=count, token_bytes=8, window=window, has_mtp=has_mtp)


@pytest.mark.parametrize("number", range(len(RECORDED)))
def test_the_group_of_the_last_layer_is_the_one_that_vllm_marks(number: int) -> None:
    case = RECORDED[number]
    layers = [layers_of(kind, count) for kind, count in case["layers"]]
    found = dealt([*layers, layers_of(*case["mtp"], has_mtp=True)], block_size=16).groups
    assert [[each.group.kind, each.num_layers, each.group.is_eagle_group] for each in found] == [
        [KINDS[name], count, is_marked] for name, count, is_marked in case["groups"]
    ]


@pytest.mark.parametrize(
    ("model", "kind", "number"),
    [
        ("Qwen/Qwen3.5-397B-A17B", "full", 1),
        ("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", "full", 1),
        ("deepseek-ai/DeepSeek-V4-Pro", "sliding", 1),
        ("XiaomiMiMo/MiMo-V2-Flash", "sliding", 1),
        ("zai-org/GLM-5", "full", 1),
        ("zai-org/GLM-5.2", "full", 1),
    ],
)
def test_what_a_model_drafts_with_follows_from_its_config_json(model: str, kind: str, number: int) -> None:
    mtp = read_model_config(model).mtp
    assert mtp is not None
    assert (mtp.mixer.kind, mtp.mixer.num_layers, mtp.num_modules) == (kind, number, 1)


def test_a_layer_that_drafts_has_an_index_of_its_own() -> None:
    """Most of GLM-5.2's layers take that of the layer before."""
    mtp = read_model_config("zai-org/GLM-5.2").mtp
    assert mtp is not None
    assert mtp.mixer.indexer is not None
    assert mtp.mixer.indexer.num_heads == 32


def test_layers_that_vllm_does_not_serve_draft_nothing() -> None:
    """MiniMax-M2.5's file has three (num_mtp_modules); vllm 0.32.0 and 0.33.0 refuse the method mtp for it."""
    assert read_model_config("MiniMaxAI/MiniMax-M2.5").mtp is None


def test_deepseek_v4_s_window_that_drafts_is_the_last_of_its_kind() -> None:
    shape = read_model_config("deepseek-ai/DeepSeek-V4-Pro")
    plain, mtp = (
        dealt_of(shape, tp=8, serving=Serving(drafter=drafter)) for drafter in (None, mtp_drafter(shape))
    )
    windows = [each for each in mtp.groups if (each.group.kind, each.group.block_size) == ("sliding", 64)]
    assert sum(each.num_layers for each in windows) == 62
    assert [each.group.is_eagle_group for each in windows] == [False, True]
    assert not any(each.group.is_eagle_group for each in plain.groups)


@pytest.mark.parametrize(
    ("model", "has_room"), [("XiaomiMiMo/MiMo-V2-Flash", True), ("Qwen/Qwen3.5-397B-A17B", False)]
)
def test_a_block_grows_with_a_layer_that_drafts_unless_a_group_has_room_for_it(
    model: str, has_room: bool
) -> None:
    """The last of MiMo's five groups of windows has one layer fewer than the others."""
    shape = read_model_config(model)
    plain, mtp = (
        dealt_of(shape, tp=8, serving=Serving(drafter=drafter)) for drafter in (None, mtp_drafter(shape))
    )
    assert (mtp.bytes_per_block == plain.bytes_per_block) is has_room


def test_a_state_has_an_input_of_its_convolution_more_for_each_draft() -> None:
    state = next(each.state for each in read_model_config("Qwen/Qwen3.5-397B-A17B").mixers if each.state)
    width = state.num_heads * state.head_dim + 2 * state.key_heads * state.key_dim
    more = state.bytes_per_request(1, dtype_bytes=2, num_lookahead=3) - state.bytes_per_request(
        1, dtype_bytes=2
    )
    assert more == 3 * 2 * width
