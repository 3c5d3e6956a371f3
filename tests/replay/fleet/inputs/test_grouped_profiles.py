"""Profiles of twins whose layers cache differently: slots, the file, and the longest context that starts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from replay.fleet.inputs.computed import computed_twin
from replay.fleet.inputs.profiles import from_twin, held_by, profile_yaml, read_source
from replay.twin.config_read import load_config
from replay.twin.twin_config import TwinConfig
from sim import UNBOUNDED, EngineConfig, HeldBlocks
from sim.fleet import Lengths

LENGTHS = Lengths(input_tokens=np.array([3000.0]), output_tokens=np.array([400.0]))


def twin_of(folder: Path, model: str, **engine: int) -> TwinConfig:
    """Return the twin of a model on one H100."""
    path = folder / "twin.yaml"
    document = {
        "engine": engine,
        "latency": {"model": "physics", "model_config": model},
        "hardware": {"gpu": "H100"},
    }
    path.write_text(json.dumps(document))
    return load_config(path, allows_cluster=False)


def test_the_slots_of_a_hybrid_model_are_what_its_engine_holds(tmp_path: Path) -> None:
    """28,336 blocks; each request 5 windows of 65 and 100 of 32 tokens. A saturated run holds 63 to 66."""
    twin = twin_of(tmp_path, "google/gemma-4-26B-A4B", max_model_len=16_384, num_gpu_blocks=28_337)
    source = from_twin(twin, LENGTHS, context=3400, name="gemma")
    assert source.profile.slots_for(LENGTHS, 3400) == 64
    assert held_by(twin.engine, LENGTHS) == 64
    path = tmp_path / "profile.yaml"
    path.write_text(profile_yaml(source))
    again = read_source(str(path), LENGTHS, context=3400)
    assert again.profile == source.profile
    assert again.engine.kv_cache_groups == source.engine.kv_cache_groups


def test_an_unbounded_cache_has_blocks_for_all_seats_in_all_groups(tmp_path: Path) -> None:
    sized = twin_of(tmp_path, "google/gemma-4-26B-A4B", max_model_len=16_384)
    twin = replace(sized, engine=replace(sized.engine, num_gpu_blocks=UNBOUNDED))
    profile = from_twin(twin, LENGTHS, context=3400, name="gemma").profile
    assert profile.num_blocks == twin.engine.max_num_seqs * HeldBlocks.of(twin.engine).fullest(3400)
    assert profile.slots_for(LENGTHS, 3400) == twin.engine.max_num_seqs


def test_one_full_group_is_as_it_was_and_its_file_does_not_speak_of_groups(tmp_path: Path) -> None:
    """3,000 and half of 400 tokens are 200 blocks of 16; W and H are fitted over 3,400 tokens, not over blocks."""
    twin = twin_of(tmp_path, "meta-llama/Llama-3.1-8B", max_model_len=16_384, num_gpu_blocks=10_001)
    source = from_twin(twin, LENGTHS, context=3400, name="llama")
    assert source.profile.slots_for(LENGTHS, 3400) == 50
    assert held_by(twin.engine, LENGTHS) == 10_000 * 16 // 3400 == 47
    written = yaml.safe_load(profile_yaml(source))
    assert not {"kv_cache_groups", "max_concurrent_batches", "num_speculative_tokens"} & set(written)


@pytest.mark.parametrize("model", ["google/gemma-3-27b-it", "meta-llama/Llama-3.1-8B"])
def test_a_computed_twin_is_as_long_as_its_cache_can_start_with(model: str) -> None:
    twin = computed_twin(model, "H100", tp=1)
    assert twin.will_not_start == ()
    held, usable = HeldBlocks.of(twin.engine), twin.engine.num_gpu_blocks - 1
    longest = twin.engine.max_model_len
    assert held.fullest(longest) <= usable
    assert longest == 131_072 or held.fullest(longest + 1) > usable


def test_fewer_blocks_for_states_than_seats_lower_the_seats_and_not_the_context() -> None:
    twin = computed_twin("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "H100", tp=1)
    assert twin.will_not_start == ()
    assert twin.engine.max_model_len == 262_144
    assert 500 < twin.engine.max_num_seqs <= twin.engine.num_gpu_blocks


def test_a_profile_of_states_that_kernels_save_is_read_back(tmp_path: Path) -> None:
    model = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
    source = from_twin(
        twin_of(tmp_path, model, max_model_len=16_384, max_num_seqs=256), LENGTHS, context=3400, name="n"
    )
    assert any(group.num_prefill_checkpoint_blocks for group in source.profile.kv_cache_groups)
    path = tmp_path / "profile.yaml"
    path.write_text(profile_yaml(source))
    assert read_source(str(path), LENGTHS, context=3400).profile == source.profile


def test_engines_with_groups_and_without_agree_where_all_is_kept() -> None:
    engine = EngineConfig(num_gpu_blocks=1001, max_num_seqs=64)
    assert HeldBlocks.of(engine).groups == ()
    assert held_by(engine, LENGTHS) == 4
