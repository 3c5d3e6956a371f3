"""vLLM's defaults for engine limits that are not given: by the model's config.json, the GPU and the version."""

from __future__ import annotations

from collections.abc import Mapping
from lazy_dataclasses import dataclass

from replay.model.gpus import Gpu
from replay.model.shape import ModelShape
from sim import EngineSettings, nearest_rules

SMALL_GPU, LARGE_SEQS = (256, 2048), 1024
"""(max_num_seqs, max_num_batched_tokens) of a small GPU; max_num_seqs of a large one."""
LIMITS = ("max_num_seqs", "max_num_batched_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The machine and the model from which a server's own defaults follow."""

    vllm_version: str
    gpu: Gpu | None = None
    shape: ModelShape | None = None


def batch_limits(gpu: Gpu | None, *, vllm_version: str) -> tuple[int, int]:
    """Return (max_num_seqs, max_num_batched_tokens) that vLLM's API server takes on a GPU without flags.

    Without a GPU those of a small one. Source: vllm 0.32.0 engine/arg_utils.py:EngineArgs.get_batch_defaults, usage
    context OPENAI_API_SERVER; an A100 counts as small whatever its memory. By version: ``sim/versions.py``.
    """
    if gpu is None or "a100" in gpu.name.lower():
        return SMALL_GPU
    for least_gib, tokens in nearest_rules(vllm_version).batched_tokens_by_gib:
        if gpu.memory_gib >= least_gib:
            return LARGE_SEQS, tokens
    return SMALL_GPU


def with_defaults(given: Mapping[str, object], server: Server) -> tuple[dict[str, object], tuple[str, ...]]:
    """Return the engine's settings with vLLM's own limits where none are given, and a line for each that says so.

    The rest of the rule is EngineArgs._set_default_max_num_seqs_and_batched_tokens_args: tokens at most as many as
    the seats can hold, without chunked prefill at least one whole sequence; seats at most as many as tokens.
    """
    settings = dict(given)
    if server.shape is not None:
        settings.setdefault("max_model_len", server.shape.max_model_len)
    seqs, tokens = batch_limits(server.gpu, vllm_version=server.vllm_version)
    longest = _integer(settings.get("max_model_len", EngineSettings().max_model_len))
    seqs = _integer(settings.get("max_num_seqs", seqs))
    if "max_num_batched_tokens" not in given:
        if settings.get("enable_chunked_prefill") is False:
            tokens = max(tokens, longest)
        settings["max_num_batched_tokens"] = tokens = min(tokens, seqs * longest)
    if "max_num_seqs" not in given:
        settings["max_num_seqs"] = min(seqs, _integer(settings["max_num_batched_tokens"]))
    return settings, _notes(given, settings, server)


def _integer(value: object) -> int:
    assert isinstance(value, int)  # noqa: S101 - read by its field's type
    return value


def _notes(given: Mapping[str, object], settings: Mapping[str, object], server: Server) -> tuple[str, ...]:
    """Return the source of each limit that was not given."""
    absent = [name for name in LIMITS if name not in given]
    lines = []
    if "max_model_len" not in given and server.shape is not None:
        longest = f"{settings['max_model_len']}, by the config.json of {server.shape.name}"
        lines.append(f"engine.max_model_len is absent: {longest}")
    if absent and server.gpu is not None:
        values = ", ".join(f"{name} {settings[name]}" for name in absent)
        lines.append(
            f"not in engine: {values}, as an API server of vLLM {server.vllm_version} takes on {server.gpu.name} "
            f"({server.gpu.memory_gib:.0f} GiB)"
        )
    if server.gpu is None:
        unknown = [
            name for name in (*absent, *(() if server.shape else ("max_model_len",))) if name not in given
        ]
        usual = EngineSettings()
        values = ", ".join(f"{name} {settings.get(name, getattr(usual, name))}" for name in unknown)
        if unknown:
            lines.append(
                f"not in engine: {values} assumed; vLLM goes by the GPU and the model (hardware, latency.model_config)"
            )
    return tuple(lines)
