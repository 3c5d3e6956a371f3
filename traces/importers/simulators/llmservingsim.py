"""LLMServingSim's benchmark runs: a real vLLM's times of each request, by its own clock.

A line of requests.jsonl holds what vLLM's ``RequestStateStats`` recorded: ``arrival_time`` is the Unix time
at which the frontend took the request in; ``queued_ts`` (the request joined the engine's queue),
``scheduled_ts``, ``first_token_ts`` and ``last_token_ts`` are seconds of the engine's monotonic clock. The
distance between the two clocks is not recorded, and the way from arrival to queue varies by up to 0.4 s, so
only the monotonic times can be subtracted: a request counts as due and sent when it was queued, and TTFT runs
from there. There is no frontend in these times, so nothing for alpha0 and alpha1 to explain.

Its workload files have the same name of a format: ``llmservingsim_workload``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from traces.errors import TraceError
from traces.header import Header, ServerInfo, Source
from traces.importers.jsonl import COUNT, NUMBER, TEXT, Column, read_jsonl
from traces.importers.micros import micros
from traces.importers.simulators.llmservingsim_workload import is_workload, read_workload
from traces.strict.json_text import parse_value, read_bytes
from traces.trace import Trace, make_trace

_KINDS: Final = {
    "request_id": TEXT,
    "input_toks": COUNT,
    "output_toks": COUNT,
    "queued_ts": NUMBER,
    "scheduled_ts": NUMBER,
    "first_token_ts": NUMBER,
    "last_token_ts": NUMBER,
}
_NOTES: Final = (
    "times are the engine's monotonic clock, 0 at the first queued_ts; arrival_time, by another, is left out",
    "arrival and send are queued_ts: TTFT and E2E begin in the engine's queue",
)
# Where meta.json states it -> ServerInfo's name. The later one wins: what was resolved beats what was asked.
_META: Final = (
    (("model",), "model"),
    (("vllm_version",), "version"),
    (("engine_kwargs", "tensor_parallel_size"), "tensor_parallel"),
    (("engine_kwargs", "data_parallel_size"), "data_parallel"),
    (("engine_kwargs", "enable_expert_parallel"), "enable_expert_parallel"),
    (("engine_kwargs", "max_num_seqs"), "max_num_seqs"),
    (("engine_kwargs", "max_num_batched_tokens"), "max_num_batched_tokens"),
    (("engine_kwargs", "max_model_len"), "max_model_len"),
    (("engine_kwargs", "dtype"), "dtype"),
    (("engine_kwargs", "kv_cache_dtype"), "kv_cache_dtype"),
    (("kv_cache", "num_gpu_blocks"), "num_gpu_blocks"),
    (("kv_cache", "block_size"), "block_size"),
    (("kv_cache", "gpu_memory_utilization"), "gpu_memory_utilization"),
    (("kv_cache", "enable_prefix_caching"), "enable_prefix_caching"),
    (("hardware", "device_name"), "gpu"),
    (("hardware", "device_count"), "num_gpus"),
    (("resolved_config", "parallel_config", "pipeline_parallel_size"), "pipeline_parallel"),
    (("resolved_config", "scheduler_config", "async_scheduling"), "async_scheduling"),
    (("resolved_config", "scheduler_config", "enable_chunked_prefill"), "enable_chunked_prefill"),
    (("resolved_config", "scheduler_config", "long_prefill_token_threshold"), "long_prefill_token_threshold"),
    (("resolved_config", "scheduler_config", "scheduler_reserve_full_isl"), "scheduler_reserve_full_isl"),
    (("resolved_config", "scheduler_config", "policy"), "scheduling_policy"),
)


def read_llmservingsim(path: Path) -> Trace:
    """Return the run in ``path``: a requests.jsonl, or the folder that holds it, or that of the run above it.

    A file of requests to simulate is read as the workload that it is. A meta.json beside a run fills the header's
    ``server``, each value with the key that it was read from. Raises TraceError.
    """
    file = _requests_file(path)
    content = read_bytes(file, expected="a readable file")
    if is_workload(content):
        return read_workload(file, content)
    columns = read_jsonl(file, _KINDS)
    origin = float(np.min(np.asarray(columns["queued_ts"], dtype=np.float64)))
    queued, scheduled = _micros(columns["queued_ts"], origin), _micros(columns["scheduled_ts"], origin)
    first, last = _micros(columns["first_token_ts"], origin), _micros(columns["last_token_ts"], origin)
    server, started_at = _server(file.with_name("meta.json"))
    source = Source(format="llmservingsim", file=file.name, notes=_NOTES)
    return make_trace(
        Header(mode="real", created_at=started_at, server=server, source=source),
        {
            "request_id": columns["request_id"],
            "streaming": True,
            "input_tokens": columns["input_toks"],
            "output_tokens": columns["output_toks"],
            "arrival_time_us": queued,
            "send_time_us": queued,
            "scheduled_time_us": scheduled,
            "server_queue_us": scheduled - queued,
            "server_prefill_us": first - scheduled,
            "server_decode_us": last - first,
            "first_chunk_time_us": first,
            "content_first_time_us": first,
            "last_chunk_time_us": last,
            "last_token_time_us": last,
            "status": "ok",
        },
    )


def _requests_file(path: Path) -> Path:
    candidates = (path, path / "requests.jsonl", path / "vllm" / "requests.jsonl")
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise TraceError(f"{path}: got no such run, expected a requests.jsonl or the folder that holds one")


def _micros(column: Column, origin: float) -> NDArray[np.int64]:
    """Return seconds as µs from ``origin``; a double still resolves nanoseconds after a month of uptime."""
    return micros(np.asarray(column, dtype=np.float64) - origin, 1_000_000, what="requests.jsonl: times")


def _server(meta: Path) -> tuple[ServerInfo, str | None]:
    """Return the server's description in meta.json, and when the run started."""
    if not meta.is_file():
        return ServerInfo(), None
    try:
        stated = parse_value(meta.read_bytes())
    except json.JSONDecodeError as error:
        raise TraceError(
            f"{meta.name}:{error.lineno}: {error.msg}, expected one JSON object ({meta})"
        ) from error
    except (OSError, ValueError) as error:
        raise TraceError(f"{meta.name}: got {error}, expected one JSON object ({meta})") from error
    if not isinstance(stated, dict):
        raise TraceError(f"{meta.name}: got {type(stated).__name__}, expected one JSON object ({meta})")
    server = ServerInfo(type="vllm", sources={"type": meta.name})
    for keys, name in _META:
        value = _at(stated, keys)
        if value is not None:
            server = server.learn(f"{meta.name} {'.'.join(keys)}", **{name: value})
    return server, _at(stated, ("started_at",))


def _at(stated: Mapping[str, Any], keys: tuple[str, ...]) -> Any:  # noqa: ANN401  whatever JSON holds
    value: Any = stated
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
