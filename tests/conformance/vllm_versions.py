"""What vLLM 0.12 to 0.33 have in other places than 0.32: the recorder asks here. Runs under a Python that has vLLM.

A version's classes take what they know of the settings; the rest is dropped, as ``recording.unknown_settings_off`` has
it on the engine's side.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from typing import Any

import vllm
from vllm.config import VllmConfig
from vllm.utils.hashing import sha256
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine.core import EngineCore
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request

RETENTION_IN_ENVIRONMENT = "VLLM_PREFIX_CACHE_RETENTION_INTERVAL"
"""Where the versions before 0.29 that know the interval read it."""


def is_at_least(minor: int) -> bool:
    """Return whether this vLLM is 0.``minor`` or newer."""
    return int(vllm.__version__.split(".")[1]) >= minor


def made(kind: type[Any], **values: object) -> Any:  # noqa: ANN401 - a class of vLLM's
    """Return a ``kind`` of the values that it has a parameter for in this version."""
    names = set(inspect.signature(kind).parameters)
    names |= {name for each in kind.__mro__ for name in inspect.signature(each.__init__).parameters}
    if dataclasses.is_dataclass(kind):
        names |= {field.name for field in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in values.items() if name in names})


def put(config: object, **values: object) -> None:
    """Set the fields that a configuration has in this version, behind its validation's back."""
    for name, value in values.items():
        if hasattr(config, name):
            object.__setattr__(config, name, value)


def block_sizes_of(kv_cache: KVCacheConfig, config: VllmConfig) -> tuple[int, int]:
    """Return (the scheduler's tokens per block, tokens per hash).

    Up to 0.22 the engine hands the smallest block size of the groups on as both (v1/engine/core.py:EngineCore).
    """
    if hasattr(kv_cache_utils, "resolve_kv_cache_block_sizes"):
        found: tuple[int, int] = kv_cache_utils.resolve_kv_cache_block_sizes(kv_cache, config)
        return found
    size = config.cache_config.block_size
    sizes = [group.kv_cache_spec.block_size for group in kv_cache.kv_cache_groups]
    return size, math.gcd(size, *sizes) if len(set(sizes)) > 1 else size


def block_hasher_of(scheduler: Scheduler) -> Any:  # noqa: ANN401 - vLLM has no name for the type
    """Return what hashes a request's blocks: from 0.33 on with the tokens behind, where drafts read hidden states."""
    ahead = getattr(scheduler, "num_hash_lookahead_tokens", 0)
    size = scheduler.kv_cache_manager.block_pool.hash_block_size
    more = {"num_hash_lookahead_tokens": ahead} if ahead else {}
    return kv_cache_utils.get_request_block_hasher(size, sha256, **more)


def note_prefill_chunks(scheduler: Scheduler) -> None:
    """Let requests say whether what was scheduled leaves some of their prompt: up to 0.18 they do not."""
    if is_at_least(19):
        return
    after = scheduler._update_after_schedule

    def noted(output: SchedulerOutput) -> None:
        for identity, number in output.num_scheduled_tokens.items():
            request: Request = scheduler.requests[identity]
            known = request.num_tokens + request.num_output_placeholders
            request.is_prefill_chunk = request.num_computed_tokens + number < known
        after(output)

    scheduler._update_after_schedule = noted


def depth_of(config: VllmConfig) -> int:
    """Return how many batches are in flight at once (config/vllm.py, before 0.20 v1/executor/abstract.py)."""
    if hasattr(config, "max_concurrent_batches"):
        found: int = config.max_concurrent_batches
        return found
    if config.parallel_config.pipeline_parallel_size > 1:
        raise ValueError(f"pipeline_parallel_size: vLLM {vllm.__version__} is not recorded with stages")
    return 2 if config.scheduler_config.async_scheduling else 1


def fills_queue_after_empty_batch() -> bool:
    """Return whether an engine schedules on behind a batch of nothing: from 0.23, and up to 0.22 it waits."""
    source = " ".join(inspect.getsource(EngineCore.step_with_batch_queue).split())
    return "model_executed or self.scheduler.has_requests()" in source


def results_of(**values: object) -> ModelRunnerOutput:
    """Return a step's results; up to 0.12 every field must be named."""
    absent = {"prompt_logprobs_dict": {}, "pooler_output": []}
    for field in dataclasses.fields(ModelRunnerOutput):
        is_needed = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if is_needed and field.name not in values:
            values[field.name] = absent.get(field.name)
    return ModelRunnerOutput(**values)


def resumed_in(output: SchedulerOutput) -> set[str]:
    """Return who goes on in a step after a preemption."""
    cached = output.scheduled_cached_reqs
    if hasattr(cached, "resumed_req_ids"):
        return set(cached.resumed_req_ids)
    return {
        identity for identity, was in zip(cached.req_ids, cached.resumed_from_preemption, strict=True) if was
    }
