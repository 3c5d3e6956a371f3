"""A recording of vLLM's scheduler: config.json, trace.jsonl, steps.jsonl[.gz], requests.csv."""

from __future__ import annotations

import csv
import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sim import Blackbox, EngineConfig, Images, Requests
from sim.kv_cache_groups import KVCacheGroup
from sim.versions import DEFAULT_VERSION, NEWEST, minor_version, rules_of
from tests.conformance.conventions import DEFAULTS, images_of, output_token_id, prompt_token_ids

SETTINGS = (
    "block_size",
    "num_gpu_blocks",
    "max_num_seqs",
    "max_num_batched_tokens",
    "long_prefill_token_threshold",
    "long_prefill_token_threshold_adaptive",
    "max_model_len",
    "enable_prefix_caching",
    "enable_chunked_prefill",
    "async_scheduling",
    "pipeline_parallel_size",
    "watermark",
    "scheduler_reserve_full_isl",
    "frontend",
    "max_loras",
    "guided_compile_us",
    "num_speculative_tokens",
    "use_eagle",
    "num_prefill_lookahead_tokens",
    "max_num_encoder_input_tokens",
    "encoder_cache_size",
    "disable_chunked_mm_input",
    "encoder_step_us",
    "encoder_token_us",
    "encoder_token_pair_us",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One case: what vLLM was given, and what it did."""

    name: str
    config: EngineConfig
    latency: Blackbox
    requests: Requests
    steps: list[dict[str, Any]]
    num_failed_allocations: int | None
    outcomes: list[dict[str, str]]

    @property
    def has_blocks(self) -> bool:
        """Whether block ids and the free queue were recorded."""
        return bool(self.steps) and "block_ids" in self.steps[0]


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a JSON-lines file, gzipped or not."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def is_async_steps(path: Path) -> bool:
    """Return whether the steps of a file are an async engine's.

    Some of them carry ``exec_start``, and their case does not say that it is a sync one with pipeline stages.
    """
    text = path.read_bytes()
    config = path.parent / "config.json"
    settings = DEFAULTS | (json.loads(config.read_text()) if config.is_file() else {})
    if settings["pipeline_parallel_size"] > 1:
        return bool(settings["async_scheduling"])
    return b'"exec_start"' in (gzip.decompress(text) if path.suffix == ".gz" else text)


def find(directory: Path, name: str) -> Path | None:
    """Return the file ``name`` or ``name.gz``, None when there is neither."""
    for candidate in (directory / name, directory / f"{name}.gz"):
        if candidate.is_file():
            return candidate
    return None


def num_outputs(row: dict[str, Any]) -> int:
    """Return how many tokens a request generates."""
    return min(row["output_len"], row.get("stops_after", row["output_len"]))


FIRST_THAT_HASHES_ALL_IMAGES = 31


def forgets_image(row: dict[str, Any], start: int, end: int, num_prompt_tokens: int) -> bool:
    """Return whether vLLM up to 0.30 hashes a block without an image that it has tokens of.

    Of a block that fills with outputs it looks at the prompt's last image alone (v1/core/kv_cache_utils.py).
    """
    if start == 0 or end <= num_prompt_tokens:
        return False
    return any(position + length > start for position, length, _ in images_of(row)[:-1])


def dense_hashes(
    rows: list[dict[str, Any]], block_size: int, ahead: int = 0, *, forgets_images: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return (offsets, ids): each request's blocks over prompt and outputs, numbered by content.

    A request's list ends where nobody else ever holds the same content. ``ahead``: so many tokens behind a block belong
    to its content. ``forgets_images``: see ``forgets_image``.
    """
    numbers: dict[tuple[int, tuple[int, ...], bool], int] = {}
    lists: list[list[int]] = []
    for index, row in enumerate(rows):
        prompt = prompt_token_ids(row, index)
        tokens = prompt + [output_token_id(index, j) for j in range(num_outputs(row))]
        parent, chain = (
            -1 - row.get("adapter", -1) - 1,
            [],
        )  # what is cached with an adapter is another content
        for start in range(0, len(tokens) - block_size - ahead + 1, block_size):
            end = start + block_size
            forgets = forgets_images and forgets_image(row, start, end, len(prompt))
            key = (parent, tuple(tokens[start : end + ahead]), forgets)
            parent = numbers.setdefault(key, len(numbers))
            chain.append(parent)
        lists.append(chain)
    holders = np.bincount(np.concatenate([np.array(x, np.int64) for x in lists] or [np.zeros(0, np.int64)]))
    kept = [[n for n in chain if holders[n] > 1] for chain in lists]
    used = sorted({n for chain in kept for n in chain})
    dense = {n: i for i, n in enumerate(used)}
    offsets = np.cumsum([0] + [len(chain) for chain in kept])
    ids = np.array([dense[n] for chain in kept for n in chain], np.int64)
    return offsets.astype(np.int64), ids


def images_in(rows: list[dict[str, Any]]) -> Images:
    """Return the images of a trace's prompts."""
    each = [images_of(row) for row in rows]
    columns = np.array([image for images in each for image in images], np.int64).reshape(-1, 3)
    counts = np.array([len(images) for images in each], np.int64)
    _, content = np.unique(columns[:, 2], return_inverse=True)
    return Images(
        starts=np.cumsum(counts) - counts,
        counts=counts,
        position=columns[:, 0],
        num_tokens=columns[:, 1],
        content=content.astype(np.int64),
    )


def unknown_settings_off(version: str) -> dict[str, bool | float]:
    """Return the settings that a version does not know, off: the recorder does not pass them on."""
    rules = rules_of(version)
    known: dict[str, tuple[bool, bool | float]] = {
        "long_prefill_token_threshold_adaptive": (rules.has_adaptive_threshold, False),
        "watermark": (rules.has_watermark, 0.0),
        "scheduler_reserve_full_isl": (rules.has_full_isl_gate, False),
    }
    return {name: off for name, (is_known, off) in known.items() if not is_known}


def offloading_of(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of native offloading."""
    return {
        "kv_offloading": "native",
        "num_cpu_blocks": settings["num_cpu_blocks"],
        "kv_load_us_per_block": float(settings["load_us_per_block"]),
        "kv_store_us_per_block": float(settings["store_us_per_block"]),
        "kv_store_threshold": settings["store_threshold"],
    }


def read_recording(case: Path, results: Path, *, is_async: bool) -> Recording:
    """Return the recording of ``case`` whose steps and outcomes lie in ``results``."""
    settings = DEFAULTS | json.loads((case / "config.json").read_text())
    if is_async:
        settings["async_scheduling"] = True
    trace_path = find(case, "trace.jsonl")
    steps_path = find(results, "steps.jsonl")
    assert trace_path is not None
    assert steps_path is not None
    rows = read_json_lines(trace_path)
    config, latency, requests = case_of(settings, rows)
    with (results / "requests.csv").open(newline="") as file:
        outcomes = list(csv.DictReader(file))
    steps = read_json_lines(steps_path)
    failed = [step.pop("failed") for step in steps if "failed" in step]
    return Recording(
        name=case.name,
        config=config,
        latency=latency,
        requests=requests,
        steps=steps,
        num_failed_allocations=sum(failed) if failed else None,
        outcomes=outcomes,
    )


def case_of(
    settings: dict[str, Any], rows: list[dict[str, Any]], **more: int
) -> tuple[EngineConfig, Blackbox, Requests]:
    """Return what vLLM was given: its settings, none absent, and the lines of its trace; ``more``: of EngineConfig."""
    chosen: dict[str, Any] = {name: settings[name] for name in SETTINGS} | more
    version = settings.get("vllm_version", DEFAULT_VERSION)
    chosen |= unknown_settings_off(version)
    chosen["prefix_cache_retention_interval"] = settings["prefix_cache_retention_interval"]
    chosen["prefix_match_unit"] = settings["prefix_match_unit"]
    chosen["kv_cache_groups"] = tuple(KVCacheGroup(**group) for group in settings["groups"])
    if "num_cpu_blocks" in settings:
        chosen |= offloading_of(settings)
    chosen["synthetic_acceptance_rates"] = tuple(settings["synthetic_acceptance_rates"])
    chosen["num_lookahead_tokens"] = settings["use_eagle"] * settings["num_speculative_tokens"]
    config = EngineConfig(**chosen, scheduling_policy=settings["policy"], vllm_version=version)
    latency = Blackbox(beta0=settings["beta0"], beta1=settings["beta1"], beta2=settings["beta2"])
    prompts = [len(row.get("prompt_token_ids") or []) or row.get("prompt_len", 0) for row in rows]
    offsets, ids = dense_hashes(
        rows,
        config.hash_block_size,
        config.num_hash_lookahead_tokens,
        forgets_images=(minor_version(version) or NEWEST) < FIRST_THAT_HASHES_ALL_IMAGES,
    )
    requests = Requests(
        arrival_us=np.array([row["arrival_us"] for row in rows], np.int64),
        prompt_tokens=np.array(prompts, np.int64),
        output_tokens=np.array([num_outputs(row) for row in rows], np.int64),
        max_tokens=np.array([row["output_len"] for row in rows], np.int64)
        if any("stops_after" in row for row in rows)
        else None,
        priority=np.array([row.get("priority") or 0 for row in rows], np.int64),
        hash_offsets=offsets,
        hash_ids=ids,
        adapter=np.array([row.get("adapter", -1) for row in rows], np.int64) if config.max_loras else None,
        is_guided=np.array([row.get("guided", False) for row in rows])
        if any("guided" in row for row in rows)
        else None,
        images=images_in(rows) if settings["max_num_encoder_input_tokens"] else None,
    )
    return config, latency, requests
