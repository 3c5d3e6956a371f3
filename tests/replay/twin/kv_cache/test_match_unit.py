"""How finely a server matches prefixes: what the key and vLLM's flag become, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.twin.config_read import load_config
from replay.twin.config_write import dump_config
from replay.twin.start.from_serve import start_from_serve, twin_text
from replay.twin.start.serve_flags import parse_serve
from replay.twin.twin_config import TwinConfig
from tests.twins import ONE_US_EACH
from traces import ConfigError

STATES = "kv_cache_groups: [{kind: full}, {kind: state}], block_size: 64"
WINDOW = "kv_cache_groups: [{kind: full}, {kind: sliding, window: 64}]"
EAGLE = (
    "num_speculative_tokens: 2, use_eagle: true, synthetic_acceptance_rates: [0.5], num_lookahead_tokens: 2"
)


def load(tmp_path: Path, engine: str, *, version: str = "0.32.0") -> TwinConfig:
    path = tmp_path / "twin.yaml"
    path.write_text(f"vllm_version: {version}\nengine: {{{engine}}}\n{ONE_US_EACH}\n")
    return load_config(path)


@pytest.mark.parametrize(
    ("engine", "version", "unit", "hash_size", "is_inside"),
    [
        (STATES, "0.32.0", None, 64, False),
        (f"{STATES}, prefix_match_unit: none", "0.32.0", None, 64, False),
        (f"{STATES}, prefix_match_unit: 16", "0.32.0", 16, 16, True),
        (f"{STATES}, prefix_match_unit: 16, {EAGLE}", "0.33.0", 16, 16, True),
        (f"{STATES}, prefix_match_unit: 64", "0.30.0", 64, 64, False),
        (f"{WINDOW}, prefix_match_unit: 4", "0.32.0", 4, 4, False),
        (f"{STATES}, prefix_match_unit: 5, enable_prefix_caching: false", "0.32.0", 5, 32768, False),
        ("prefix_match_unit: 16", "0.32.0", 16, 16, False),
    ],
)
def test_a_unit_is_what_hashes_have_and_states_let_hits_end_inside_blocks(
    tmp_path: Path, engine: str, version: str, unit: int | None, hash_size: int, *, is_inside: bool
) -> None:
    config = load(tmp_path, engine, version=version)
    assert config.engine.prefix_match_unit == unit
    assert config.engine.hash_block_size == hash_size
    assert config.engine.matches_inside_blocks == is_inside
    path = tmp_path / "again.yaml"
    path.write_text(dump_config(config))
    if config.engine.kv_cache_groups:
        assert load_config(path).engine == config.engine


@pytest.mark.parametrize(
    ("engine", "version", "fault"),
    [
        (f"{STATES}, prefix_match_unit: 0", "0.32.0", "got 0, expected an integer from 1 to"),
        (f"{STATES}, prefix_match_unit: 1.5", "0.32.0", "got 1.5, expected an integer >= 1, or none"),
        (f"{STATES}, prefix_match_unit: {'9' * 5000}", "0.32.0", f"got {'9' * 20}"),
        (
            f"{STATES}, prefix_match_unit: 24",
            "0.32.0",
            "got 24 with KV cache groups of [64, 64] tokens per block, expected a divisor of all",
        ),
        ("prefix_match_unit: 8", "0.32.0", "got 8 with one KV cache group, expected 16, or none"),
        (f"{STATES}, prefix_match_unit: 16", "0.31.0", "got 16 with vllm_version 0.31.0, expected none"),
        (
            f"{STATES}, prefix_match_unit: 16, num_gpu_blocks: 900, num_cpu_blocks: 9",
            "0.32.0",
            "got 16 with kv_offloading native",
        ),
        (
            f"{STATES}, prefix_match_unit: 16, {EAGLE}, num_prefill_lookahead_tokens: 2",
            "0.32.0",
            "got 16 with num_prefill_lookahead_tokens 2, expected 0 or 1",
        ),
        (
            f"kv_cache_groups: [{{kind: full}}, {{kind: state}}, {{kind: sliding, window: 9}}], {EAGLE}, "
            "prefix_match_unit: 8",
            "0.32.0",
            "got 8 with use_eagle true and a window or a chunk beside states, expected none",
        ),
    ],
)
def test_what_vllm_would_refuse_or_is_not_simulated_is_refused(
    tmp_path: Path, engine: str, version: str, fault: str
) -> None:
    with pytest.raises(ConfigError) as error:
        load(tmp_path, engine, version=version)
    assert f"engine.prefix_match_unit: {fault}" in str(error.value)
    assert "twin.yaml:2" in str(error.value)


def test_the_flags_of_vllm_serve() -> None:
    served = parse_serve("vllm serve m --prefix-match-unit 32 --mamba-block-size 512")
    assert served.engine["prefix_match_unit"] == 32
    assert "mamba-block-size" in [flag.name.lstrip("-") for flag in served.others]


def test_a_command_line_s_unit_is_of_the_model_s_groups(tmp_path: Path) -> None:
    """Qwen3.5's blocks have 528 tokens, which 16 divides and 32 does not; without a GPU nobody knows."""
    command = "vllm serve Qwen/Qwen3.5-397B-A17B -tp 8 --max-model-len 32768 --prefix-match-unit"
    for unit in (16, 32):
        text, _ = twin_text(start_from_serve(f"{command} {unit}"), gpu="H200")
        (tmp_path / f"{unit}.yaml").write_text(text)
    assert load_config(tmp_path / "16.yaml").engine.hash_block_size == 16
    with pytest.raises(ConfigError, match=r"got 32 with KV cache groups of \[528, 528, 528, 528\] tokens"):
        load_config(tmp_path / "32.yaml")
    text, notes = twin_text(start_from_serve(f"{command} 32"))
    assert "prefix_match_unit:" not in text
    assert any(note.startswith("prefix_match_unit 32 is left out") for note in notes)
