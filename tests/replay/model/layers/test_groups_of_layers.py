"""Groups and num_gpu_blocks of layer sets, against vLLM's own answers (``kv_cache_groups.json``).

Asked of vllm 0.32.0's ``get_kv_cache_configs``, layout LBNHC, 2 bytes a value: first the six of published models, then
sets drawn with a seed, states aligned as ``Platform._align_hybrid_block_size`` does it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from replay.model.gpu_memory import GIB
from replay.model.layers.groups_of_layers import CachedLayers, Dealt, dealt, undivided
from replay.model.layers.read_layers import connection_parameters, indexer_entry_bytes
from sim import DEFAULT_VERSION, EngineConfig
from traces import ConfigError

RECORDED: list[dict[str, Any]] = json.loads(Path(__file__).with_name("kv_cache_groups.json").read_text())
OTHERWISE: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("kv_cache_groups_of_versions.json").read_text()
)
"""What other versions answered otherwise, by the number of the case; with pages that the backend lets vLLM pad."""
KINDS = {
    "FullAttentionSpec": "full",
    "SlidingWindowSpec": "sliding",
    "ChunkedLocalAttentionSpec": "chunked",
    "MambaSpec": "state",
}


def layers_of(case: dict[str, Any]) -> list[CachedLayers]:
    found = []
    for each in case["layers"]:
        heads, width = each.get("num_kv_heads", 0), each.get("head_size", 0)
        found.append(
            CachedLayers(
                kind=each["kind"],
                count=each["count"],
                token_bytes=2 * heads * width * 2,
                state_bytes=4 * each.get("state_values", 0),
                window=each.get("window", 0),
                chunk=each.get("chunk", 0),
                form=(heads, width),
            )
        )
    return found


def answer(case: dict[str, Any], version: str = DEFAULT_VERSION) -> Dealt:
    size = case["block_size"]
    if case["disabled"]:
        return undivided(layers_of(case), block_size=size, version=version)
    return dealt(layers_of(case), block_size=size, caches_prefixes=case["caches"], version=version)


@pytest.mark.parametrize("number", range(len(RECORDED)))
def test_groups_and_blocks_are_those_of_vllm(number: int) -> None:
    case = RECORDED[number]
    if "error" in case["vllm"]:
        with pytest.raises(ConfigError, match="disable_hybrid_kv_cache_manager"):
            answer(case)
        return
    check(answer(case), case)


@pytest.mark.parametrize("version", OTHERWISE)
def test_groups_and_blocks_of_another_version_are_its_own(version: str) -> None:
    for number, case in enumerate(RECORDED):
        theirs = OTHERWISE[version].get(str(number), case["vllm"])
        if "error" in theirs:
            with pytest.raises(ConfigError, match=r"KV cache groups|disable_hybrid_kv_cache_manager"):
                answer(case, version)
            continue
        check(answer(case, version), case | {"vllm": theirs})


def check(found: Dealt, case: dict[str, Any]) -> None:
    """Assert that groups and blocks are those that vLLM answered."""
    assert found.num_blocks(case["gib"] * GIB) == case["vllm"]["num_gpu_blocks"]
    expected = case["vllm"]["groups"]
    assert [each.num_layers for each in found.groups] == [number_of for _, _, number_of in expected]
    for each, (kind, size, _) in zip(found.groups, expected, strict=True):
        if kind != "UniformTypeKVCacheSpecs":
            assert each.group.kind == KINDS[kind]
        if each.group.kind != "state" or each.group.mode == "align":
            assert (each.group.block_size or found.block_size) == size


def test_the_recorded_answers_have_every_kind_and_refusals() -> None:
    kinds = {layers["kind"] for case in RECORDED for layers in case["layers"]}
    assert kinds == set(KINDS.values())
    assert len(RECORDED) >= 100
    assert sum("error" in case["vllm"] for case in RECORDED) >= 5
    sizes = {size for case in RECORDED for _, size, _ in case["vllm"].get("groups", ())}
    assert len(sizes) >= 20, "blocks of other sizes are among them"


def test_what_is_dealt_out_is_what_the_engine_takes() -> None:
    found = dealt(layers_of(RECORDED[1]), block_size=16)
    config = EngineConfig(num_gpu_blocks=found.num_blocks(40 * GIB), kv_cache_groups=found.kv_cache_groups)
    assert [group.kind for group in config.kv_cache_groups] == ["sliding"] * 5 + ["full"]


def test_what_mixes_streams_is_before_and_behind_both_parts_of_a_layer() -> None:
    assert connection_parameters(5, streams=4, hidden=100, num_layers=3) == 2 * 3 * 5 * 4 * 100
    assert connection_parameters(5, streams=2, hidden=1, num_layers=1) == 20
    assert connection_parameters(5, streams=1, hidden=100, num_layers=3) == 0


def test_a_key_of_an_indexer_has_a_scale_for_128_of_it() -> None:
    assert [indexer_entry_bytes(width) for width in (64, 128, 255, 256)] == [64, 132, 259, 264]
