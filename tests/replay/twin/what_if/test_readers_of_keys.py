"""The table of who reads each key of TWIN.yaml, walked: what is declared read changes something, the rest nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import replay.model
from replay.twin.config_keys import all_keys
from replay.twin.config_read import load_config
from replay.twin.keys.overlay import Setting
from replay.twin.own.own_code import allowing_code
from replay.twin.twin_config import TwinConfig
from replay.twin.what_if.readers_of_keys import KINDS, NEEDS, READ_BY, TOWER_TP_MODE, readers_of
from replay.twin.what_if.unanswered import kind_of
from sim import EngineConfig, Images, KVCacheGroup, Requests, simulate
from sim.latency import Extended, LatencyModel
from sim.latency.profiled import COLLECTIVE, TABLES
from traces import ConfigError
from traces.strict.section import read_section

SIX = "alpha0: 500, alpha1: 2, alpha2: 3, beta0: 3000, beta1: 10, beta2: 20"
MIXTRAL = {
    "model_type": "mixtral", "hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 8,
    "num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 4096,
    "num_local_experts": 8, "num_experts_per_tok": 2, "torch_dtype": "bfloat16",
}  # fmt: skip
QUANTIZED = {
    "fp8": {"quant_method": "fp8"},
    "fp4": {"quant_method": "modelopt", "quant_algo": "NVFP4"},
    "int8": {
        "quant_method": "compressed-tensors",
        "config_groups": {
            "group_0": {"weights": {"num_bits": 8, "type": "int"}, "input_activations": {"num_bits": 8}}
        },
    },
}
HARDWARES = {
    "one": ("Qwen/Qwen3-0.6B", "{gpu: B200, tp: 1}"),
    "two": ("Qwen/Qwen3-0.6B", "{gpu: B200, tp: 2}"),
    "many": ("moe.json", "{gpu: B200, tp: 2, dp: 4, gpus_per_node: 2}"),
    "experts": (
        "moe.json",
        "{gpu: B200, tp: 2, dp: 4, gpus_per_node: 2, enable_expert_parallel: true}",
    ),
    "host": ("Qwen/Qwen3-0.6B", "{gpu: B200, kv_offloading_size: 4}"),
    **{name: (f"{name}.json", "{gpu: B200, tp: 1}") for name in QUANTIZED},
}
LATENCY = {
    "blackbox": f"model: blackbox, coefficients: {{{SIX}}}",
    "extended": f"model: extended, coefficients: {{{SIX}, beta3: 0.01, kappa: 0.1, u0: 0.2, tau_s: 3, sigma: 0.1}}",
    "roofline": "model: roofline",
    "physics": "model: physics",
    "profiled": "model: profiled, table: table.json, coefficients: {alpha0: 5}",
    "own": "model: 'own.py:Plain'",
    "own at peak": "model: 'own.py:AtPeak', coefficients: {factor: 2}",
}
OWN = """\
from dataclasses import dataclass
from sim import Blackbox, Roofline

@dataclass(frozen=True, slots=True, kw_only=True)
class Plain(Blackbox):
    alpha0: float = 1
    alpha1: float = 1
    alpha2: float = 1
    beta0: float = 1
    beta1: float = 1
    beta2: float = 1

@dataclass(frozen=True, slots=True, kw_only=True)
class AtPeak(Roofline):
    factor: float = 1.0
"""
PEAK = (
    "{matmul: 0.01, weights: 100, head_matmul: 0.01, head_weights: 10, prefill_pair: 0.001, decode_entry: 0.001, "
    "kv_entry: 0.001, kv_write: 0.001, activation: 0.001, num_layers: 3}"
)
VALUES: Mapping[str, tuple[str, ...]] = {
    "hardware.gpu": ("H100",),
    "hardware.enable_expert_parallel": ("true",),
    "hardware.all2all_backend": ("deepep_low_latency",),
    "hardware.gpu_memory_utilization": ("0.5",),
    "hardware.kv_cache_memory_bytes": ("2000000000",),
    "hardware.kv_offloading_size": ("8",),
    "hardware.kv_offload_gb_per_s": ("3",),
    "latency.model_config": ("Qwen/Qwen3-1.7B",),
    "latency.dtype": ("float32",),
    "latency.kv_cache_dtype": ("fp8",),
    "latency.peak": (PEAK,),
    "hardware.gpus_per_node": ("1",),
    **{f"latency.coefficients.{name}": ("0.25",) for name in ("u0", "concavity")},
    "latency.quantization": ("fp8_per_tensor", "int8_per_channel_weight_only"),
    "latency.table": ("other.json",),
    "latency.tiles": ("[[1, 1.0], [2, 3.0]]",),
    "latency.pace": ("{within: 0.1, beyond: 0.2}",),
    "latency.defaults_file": ("defaults.yaml",),
    "latency.defaults.model": ("meta-llama/llama-2-70b-hf",),
    "latency.defaults.gpu": ("A100-80",),
    "latency.defaults.vllm_version": ("0.8.4",),
}
"""What a key is changed to; a number else, the same for all."""
STATE_DTYPE = "latency.mamba_ssm_cache_dtype"
"""Of models that have states, which none of the files here has."""
SECTIONS = ("hardware", "latency.defaults", "latency.fitted_range", "latency.coefficients", "latency.model")
"""Keys whose parts are walked instead, or that choose who reads."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("twins")
    (path / "own.py").write_text(OWN)
    (path / "moe.json").write_text(json.dumps(MIXTRAL))
    dense = json.loads((Path(replay.model.__file__).parent / "configs/Qwen--Qwen3-0.6B.json").read_text())
    for name, quantization in QUANTIZED.items():
        (path / f"{name}.json").write_text(json.dumps({**dense, "quantization_config": quantization}))
    for name, step_us in (("table", 3.0), ("other", 4.0)):
        tables = {table: np.ones((20,) * len(axes)).tolist() for table, axes in TABLES.items()}
        document = {
            "schema_version": 1,
            "kind": "profiled step times",
            "domain": {},
            "step_us": step_us,
            "grouped_queries": True,
            "tp": 2,
            "components": [{"name": COLLECTIVE, "runs_per_step": 2}],
            "tables": tables,
        }
        (path / f"{name}.json").write_text(json.dumps(document))
    return path


def bases(folder: Path, kind: str) -> list[Path]:
    """Write the files that a kind is tried on, and return them."""
    found = []
    for name, (model, hardware) in HARDWARES.items():
        latency = f"{LATENCY[kind]}, model_config: {model}"
        path = folder / f"{kind.replace(' ', '-')}-{name}.yaml"
        path.write_text(f"engine: {{max_model_len: 2048}}\nlatency: {{{latency}}}\nhardware: {hardware}\n")
        found.append(path)
    return found


def changed(path: Path, key: str) -> TwinConfig | None:
    """Return a file's twin with another value of a key; None where the key is refused there, aloud."""
    for value in VALUES.get(key, ("3.5", "2")):
        try:
            return load_config(path, settings=[Setting(key, value)])
        except ConfigError:
            continue
    return None


KEYS = [
    key.path
    for key in all_keys()
    if key.path.startswith(("latency.", "hardware.", "engine.pipeline"))
    and key.path not in (*SECTIONS, TOWER_TP_MODE, STATE_DTYPE)
]


@pytest.mark.parametrize("kind", LATENCY)
def test_step_times_change_by_the_keys_that_are_declared_as_read_and_by_no_other(
    folder: Path, kind: str
) -> None:
    wrong: dict[str, str] = {}
    with allowing_code():
        files = bases(folder, kind)
        owns = {path: load_config(path) for path in files}
        for key in KEYS:
            readers = readers_of(key)
            assert readers is not None, key
            expected, found = (kind in readers.kinds, readers.engine), (False, False)
            tried = files[:1] if key.startswith("latency.coefficients.") else files
            if kind.startswith("own") and all(changed(path, key) is None for path in tried):
                continue  # a coefficient that the class does not have is refused aloud
            for path in files if any(expected) else unread_on(files):
                other = changed(path, key)
                if other is not None:
                    own = owns[path]
                    found = (found[0] or said(other) != said(own), found[1] or other.engine != own.engine)
                if found == expected and any(expected):
                    break
            if found != expected:
                wrong[key] = f"(step times, engine) change: {found}, declared {expected}"
    assert wrong == {}


def unread_on(files: list[Path]) -> list[Path]:
    """Return the files that a key which nothing reads is tried on: one GPU, experts on many, a tier in host memory."""
    return [files[0], *files[3:5]]


def said(twin: TwinConfig) -> list[object]:
    """Return what a latency model says; a class of the user's own is loaded anew each time, and so is none's equal."""
    values = [getattr(twin.latency, each.name) for each in fields(twin.latency)]
    return [value for value in values if not isinstance(value, np.ndarray)]


ENTRY = "ibm-granite/granite-3.1-8b-instruct"


@pytest.mark.parametrize(
    ("latency", "kind", "key", "value"),
    [
        (
            "model: blackbox, model_config: ibm-granite/granite-3.1-8b-instruct",
            "on record",
            "hardware.gpu",
            "A100-80",
        ),
        (
            "model: blackbox, model_config: ibm-granite/granite-3.1-8b-instruct",
            "on record",
            "hardware.tp",
            "2",
        ),
        (
            "model: blackbox, model_config: ibm-granite/granite-3.1-8b-instruct",
            "on record",
            "latency.model_config",
            "codellama/CodeLlama-34b-Instruct-hf",
        ),
        (
            f"model: blackbox, defaults: {{model: {ENTRY}, gpu: H100}}",
            "defaults",
            "latency.defaults.gpu",
            "A100-80",
        ),
        (f"model: blackbox, defaults: {{model: {ENTRY}, gpu: H100}}", "defaults", "latency.defaults.tp", "2"),
    ],
)
def test_coefficients_that_are_looked_up_change_by_what_finds_them(
    tmp_path: Path, latency: str, kind: str, key: str, value: str
) -> None:
    path = tmp_path / "twin.yaml"
    path.write_text(f"latency: {{{latency}}}\nhardware: {{gpu: H100}}\n")
    own, other = load_config(path), load_config(path, settings=[Setting(key, value)])
    assert kind_of(read_section(path), own.latency) == kind
    assert other.latency != own.latency
    readers = readers_of(key)
    assert readers is not None
    assert kind in readers.kinds
    assert other.unanswered == ()


def test_every_key_is_in_the_table_or_read_whatever_the_latency_model() -> None:
    paths = {key.path for key in all_keys()}
    assert {path for path in READ_BY if path not in paths} <= {"latency.peak"}
    assert {kind for readers in READ_BY.values() for kind in readers.kinds} == set(KINDS)
    left = {path for path in paths if readers_of(path) is None and not path.startswith("cluster")}
    assert left == {
        *("vllm_version", "compatibility", "seed", "hardware"),
        *(path for path in paths if path.startswith("engine.") and path != "engine.pipeline_parallel_size"),
    }


# -- the engine ------------------------------------------------------------------------------------------------

SPECULATION = {"num_speculative_tokens": 2, "synthetic_acceptance_rates": (0.7,)}
SMALL: Mapping[str, object] = {
    "max_num_seqs": 8, "max_num_batched_tokens": 64, "num_gpu_blocks": 60, "max_model_len": 300,
    "async_scheduling": False, "frontend": "none", "language_model_only": True,
}  # fmt: skip
OFFLOADING = {"num_gpu_blocks": 24, "num_cpu_blocks": 50, "kv_offloading": "native"}
ENGINE: Mapping[str, tuple[Mapping[str, object], object]] = {
    "max_num_seqs": ({}, 2),
    "max_num_batched_tokens": ({}, 32),
    "num_gpu_blocks": ({}, 40),
    "block_size": ({}, 8),
    "max_model_len": ({}, 50),
    "enable_prefix_caching": ({}, False),
    "enable_chunked_prefill": (
        {"max_num_seqs": 40, "max_num_batched_tokens": 260, "num_gpu_blocks": 400},
        False,
    ),
    "long_prefill_token_threshold": ({}, 16),
    "long_prefill_token_threshold_adaptive": ({"long_prefill_token_threshold": 4}, True),
    "scheduler_reserve_full_isl": ({"num_gpu_blocks": 20}, False),
    "watermark": ({"num_gpu_blocks": 30}, 0.3),
    "scheduling_policy": ({}, "sjf"),
    "priority_scoring": ({"scheduling_policy": "priority", "priority_age_weight": 500.0}, "slo-based"),
    "priority_age_weight": ({"scheduling_policy": "priority", "priority_scoring": "slo-based"}, 500.0),
    "async_scheduling": ({}, True),
    "pipeline_parallel_size": ({}, 2),
    "frontend": ({"max_model_len": 100}, "openai"),
    "num_speculative_tokens": (SPECULATION, 3),
    "synthetic_acceptance_rates": (SPECULATION, (0.2,)),
    "use_eagle": (SPECULATION, True),
    "num_prefill_lookahead_tokens": ({**SPECULATION, "max_num_batched_tokens": 20, "max_num_seqs": 4}, 2),
    "num_lookahead_tokens": ({**SPECULATION, "num_gpu_blocks": 25}, 9),
    "num_cpu_blocks": ({"num_gpu_blocks": 24, "kv_offload_threshold": 0.1}, 50),
    "kv_offload_threshold": ({"num_gpu_blocks": 24, "num_cpu_blocks": 50}, 0.1),
    "kv_transfer_bandwidth": (
        {"num_gpu_blocks": 24, "num_cpu_blocks": 50, "kv_offload_threshold": 0.1},
        0.01,
    ),
    "kv_transfer_base_latency": (
        {"num_gpu_blocks": 24, "num_cpu_blocks": 50, "kv_offload_threshold": 0.1},
        900,
    ),
    "kv_offloading": ({"num_gpu_blocks": 24, "num_cpu_blocks": 50, "kv_offload_threshold": 0.1}, "native"),
    "kv_load_us_per_block": (OFFLOADING, 9000.0),
    "kv_store_us_per_block": (OFFLOADING, 90000.0),
    "kv_store_threshold": (OFFLOADING, 9),
    "max_loras": ({}, 1),
    "lora_load_us": ({}, 70),
    "lora_step_factor": ({}, 1.5),
    "guided_compile_us": ({}, 90),
    "guided_mask_us": ({}, 5.0),
    "draft_us": (SPECULATION, 30.0),
    "encoder_step_us": ({"language_model_only": False}, 90.0),
    "encoder_token_us": ({"language_model_only": False}, 3.0),
    "encoder_token_pair_us": ({"language_model_only": False}, 3.0),
    "encoder_data_parallel_size": ({"language_model_only": False, "encoder_token_us": 20.0}, 4),
    "enforce_eager": ({"launch_us": 9000.0}, True),
    "max_cudagraph_capture_size": ({"launch_us": 9000.0}, 8),
    "launch_us": ({"max_cudagraph_capture_size": 8}, 9000.0),
    "host_step_us": ({}, 40.0),
    "host_prefill_us": ({}, 40.0),
    "session_kv_ttl_us": ({"num_gpu_blocks": 24}, 10**6),
    "max_num_encoder_input_tokens": ({"language_model_only": False}, 9),
    "encoder_cache_size": ({"language_model_only": False}, 9),
    "disable_chunked_mm_input": ({"language_model_only": False, "max_num_batched_tokens": 15}, True),
    "language_model_only": ({"max_num_encoder_input_tokens": 9}, False),
    "batching": ({"enable_prefix_caching": False}, "orca"),
    "kv_cache_groups": (
        {"num_gpu_blocks": 40},
        (KVCacheGroup(kind="full"), KVCacheGroup(kind="sliding", window=32)),
    ),
}
"""Settings that a key does something beside, and its other value."""


def crowd() -> Requests:
    """Return requests of every trait: shared prefixes, priorities, adapters, grammars, images, some too long."""
    number = 40
    row = np.arange(number)
    prompts = 20 + 7 * (row * 5 % 11) + 200 * (row == 30)
    blocks = prompts // 16
    return Requests(
        arrival_us=(row * 100).astype(np.int64),
        prompt_tokens=prompts.astype(np.int64),
        output_tokens=(5 + row * 3 % 17).astype(np.int64),
        priority=(row * 7 % 3).astype(np.int64),
        hash_offsets=np.concatenate([[0], np.cumsum(blocks)]).astype(np.int64),
        hash_ids=np.concatenate([10 * (r % 4) + np.arange(n) for r, n in enumerate(blocks)]).astype(np.int64),
        is_guided=row % 3 == 0,
        encoder_tokens=np.where(row % 4 == 0, 8, 0).astype(np.int64),
        images=Images(
            starts=2 * row.astype(np.int64),
            counts=np.full(number, 2),
            position=np.tile([0, 5], number),
            num_tokens=np.tile([4, 14], number),
            content=np.arange(2 * number),
        ),
        adapter=(row % 3 - 1).astype(np.int64),
        kv_number=np.where(row < 36, row, -1).astype(np.int64),
        goes_on_from=np.where(row >= 4, row - 4, -1).astype(np.int64),
    )


EXTENDED = Extended(alpha0=0, alpha1=0, alpha2=0, beta0=2000, beta1=20, beta2=50, beta3=0.1, beta4=0, beta5=0)


def finished(settings: Mapping[str, Any], latency: LatencyModel = EXTENDED) -> list[int]:
    outcomes = simulate(crowd(), EngineConfig(**settings), latency).outcomes
    return [*outcomes.last_token_us.tolist(), *outcomes.first_token_us.tolist()]


def test_every_key_of_the_engine_is_walked() -> None:
    names = {key.path.split(".")[1] for key in all_keys() if key.path.startswith("engine.")}
    read_into_groups = {
        "disable_hybrid_kv_cache_manager",
        "speculative_method",
        "speculative_model",
        "prefix_cache_retention_interval",
        "prefix_match_unit",
    }
    of_ranks_in_step = {"prefill_schedule_interval"}
    assert set(ENGINE) == names - read_into_groups - of_ranks_in_step


@pytest.mark.parametrize("kind", ["blackbox", "extended", "roofline", "physics", "profiled"])
def test_every_key_of_the_engine_changes_some_simulation_whatever_the_latency_model(
    folder: Path, kind: str
) -> None:
    latency = load_config(bases(folder, kind)[0]).latency
    if kind == "profiled":
        latency = replace(latency, scale=500.0)  # type: ignore[call-arg]  # it is a table's factor
    idle = []
    for name, (beside, value) in ENGINE.items():
        base = {**SMALL, **beside}
        if finished(base, latency) == finished({**base, name: value}, latency):
            idle.append(name)
    assert idle == []


@pytest.mark.parametrize("key", NEEDS)
def test_a_key_that_needs_another_changes_nothing_while_that_is_at_its_default(key: str) -> None:
    name, needed = key.removeprefix("engine."), NEEDS[key]
    beside, value = ENGINE[name]
    base = {each: was for each, was in {**SMALL, **beside}.items() if each != needed}
    if needed == "num_speculative_tokens":
        base.pop("synthetic_acceptance_rates")
    assert finished(base) == finished({**base, name: value})


@pytest.mark.parametrize("kind", ["roofline", "physics"])
def test_the_type_of_states_changes_blocks_and_step_times(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "twin.yaml"
    model = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
    path.write_text(f"latency: {{model: {kind}, model_config: {model}}}\nhardware: {{gpu: H100}}\n")
    wide, narrow = (
        load_config(path, settings=[Setting(STATE_DTYPE, each)]) for each in ("float32", "float16")
    )
    assert said(wide) == said(load_config(path))
    assert said(narrow) != said(wide)
    assert narrow.engine.num_gpu_blocks > wide.engine.num_gpu_blocks
    with pytest.raises(ConfigError, match="mamba_ssm_cache_dtype: got 'fp8', expected auto, float32"):
        load_config(path, settings=[Setting(STATE_DTYPE, "fp8")])
