"""The CPU's time: what it does between steps, and for steps that are no CUDA graphs."""

from __future__ import annotations

from lazy_dataclasses import dataclass

from sim.features.setting import setting

MOST_GRAPH_TOKENS = 512
"""vLLM captures CUDA graphs of twice the seats, and of so many tokens at most."""


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class HostTimes:
    """What the CPU takes: to start kernels, and between steps."""

    __slots__ = ()

    enforce_eager: bool = setting(
        False,
        "No step runs as a CUDA graph: each takes `launch_us` at least, and the KV cache has the "
        "graphs' memory.",
        flag="enforce-eager",
    )
    max_cudagraph_capture_size: int = setting(
        0,
        "A step of up to this many tokens runs as a CUDA graph. 0: vLLM's default, twice "
        "`max_num_seqs`, 512 at most.",
        flag="max-cudagraph-capture-size",
    )
    launch_us: float = setting(
        0.0,
        "A step of more tokens than that takes at least this many µs: the CPU starts its kernels one by one. "
        "Some 700 for each layer of the model.",
        least=0,
        taken=True,
    )
    host_step_us: float = setting(
        0.0,
        "µs that the CPU needs between two steps. Added to every step without `async_scheduling`, hidden "
        "with it. 2,300 on an H100 machine with 16 cores.",
        least=0,
    )
    host_prefill_us: float = setting(
        0.0, "The same, in addition, of a step with prompts. 3,800 on that machine.", least=0
    )
