"""Which windows and states a server keeps in its prefix cache: what absent keys mean, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.model.gpu_memory import GIB, Serving, dealt_of
from replay.twin.config_read import load_config
from replay.twin.config_write import dump_config
from replay.twin.start.serve_flags import parse_serve
from replay.twin.twin_config import TwinConfig
from tests.twins import ONE_US_EACH
from traces import ConfigError

WINDOW = "kv_cache_groups: [{kind: full}, {kind: sliding, window: 64}]"
STATE = "kv_cache_groups: [{kind: full}, {kind: state}]"
CHUNK = "kv_cache_groups: [{kind: full}, {kind: chunked, chunk: 64}]"
EAGLE = (
    "num_speculative_tokens: 1, use_eagle: true, synthetic_acceptance_rates: [0.5], num_lookahead_tokens: 1"
)


def load(tmp_path: Path, engine: str, *, version: str = "0.32.0") -> TwinConfig:
    path = tmp_path / "twin.yaml"
    path.write_text(f"vllm_version: {version}\nengine: {{{engine}}}\n{ONE_US_EACH}\n")
    return load_config(path)


@pytest.mark.parametrize(
    ("engine", "version", "interval"),
    [
        (WINDOW, "0.32.0", 0),
        (WINDOW, "0.29.0", 0),
        (WINDOW, "0.28.0", None),
        (STATE, "0.32.0", 0),
        (f"{STATE}, {EAGLE}", "0.32.0", None),
        (f"{WINDOW}, {EAGLE}", "0.32.0", 0),
        (CHUNK, "0.32.0", None),
        (f"{WINDOW}, enable_prefix_caching: false", "0.32.0", None),
        (f"{WINDOW}, prefix_cache_retention_interval: none", "0.32.0", None),
        (f"{WINDOW}, prefix_cache_retention_interval: 32", "0.28.0", 32),
        ("max_num_seqs: 4", "0.32.0", None),
    ],
)
def test_an_absent_key_is_what_the_version_has(
    tmp_path: Path, engine: str, version: str, interval: int | None
) -> None:
    config = load(tmp_path, engine, version=version)
    assert config.engine.prefix_cache_retention_interval == interval
    is_told = any("prefix_cache_retention_interval is absent" in note for note in config.notes)
    assert is_told == (interval == 0)
    path = tmp_path / "again.yaml"
    path.write_text(dump_config(config))
    assert load_config(path).engine == config.engine


@pytest.mark.parametrize(
    ("engine", "fault"),
    [
        (f"{WINDOW}, prefix_cache_retention_interval: -1", "got -1, expected an integer >= 0, or none"),
        (f"{WINDOW}, prefix_cache_retention_interval: {'9' * 5000}", f"got {'9' * 20}"),
        (
            f"{WINDOW}, prefix_cache_retention_interval: 99999999999",
            "got 99999999999, expected an integer from 0 to",
        ),
        (
            "max_num_seqs: 4, prefix_cache_retention_interval: 2000000000",
            "got 2000000000, expected an integer from 0",
        ),
        (f"{WINDOW}, prefix_cache_retention_interval: 40", "got 40, expected a multiple of 16 tokens"),
        (
            f"{CHUNK}, prefix_cache_retention_interval: 16",
            "got 16 without a sliding or state group, expected 0",
        ),
    ],
)
def test_what_vllm_would_refuse_is_refused(tmp_path: Path, engine: str, fault: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(tmp_path, engine)
    assert f"engine.prefix_cache_retention_interval: {fault}" in str(error.value)
    assert "twin.yaml:2" in str(error.value)


@pytest.mark.parametrize(("written", "value"), [("0", 0), ("4096", 4096), ("4k", 4000), ("None", "none")])
def test_the_flag_of_vllm_serve(written: str, value: int | str) -> None:
    served = parse_serve(f"vllm serve m --prefix-cache-retention-interval {written}")
    assert served.engine["prefix_cache_retention_interval"] == value


def test_a_block_in_host_memory_has_the_bytes_of_one_of_the_pool(tmp_path: Path) -> None:
    path = tmp_path / "twin.yaml"
    path.write_text(
        "engine: {max_model_len: 32768}\nlatency: {model: roofline, model_config: google/gemma-3-12b-it}\n"
        "hardware: {gpu: H100, tp: 2, kv_offloading_size: 64}\n"
    )
    config = load_config(path)
    assert config.shape is not None
    serving = Serving(block_size=16, enable_prefix_caching=True, disable_hybrid_kv_cache_manager=False)
    of_gpu = dealt_of(config.shape, tp=2, serving=serving).bytes_per_block
    assert config.engine.kv_offloading == "native"
    assert config.engine.num_cpu_blocks == 64 * GIB // (2 * of_gpu)
    assert config.engine.kv_load_us_per_block == pytest.approx(of_gpu / 25e3, abs=1e-6)


def test_states_have_host_memory_with_prefix_caching_alone_as_in_vllm(tmp_path: Path) -> None:
    config = load(tmp_path, f"{STATE}, num_cpu_blocks: 100")
    assert config.engine.kv_offloading == "native"
    with pytest.raises(
        ConfigError, match="kv_offloading: native cannot be combined with enable_prefix_caching false"
    ):
        load(tmp_path, f"{STATE}, num_cpu_blocks: 100, kv_offloading: native, enable_prefix_caching: false")
