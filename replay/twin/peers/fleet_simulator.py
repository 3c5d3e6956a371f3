"""Commands and arguments of the vLLM fleet simulator, as its command line and its Python functions name them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

_SLO: Final = "--slo ttft_p99=500ms"
_SPLIT: Final = "--layout split with --profile SHORT,LONG"
_DISAGG: Final = "--layout disagg with --profile PREFILL,DECODE"
_FLAGS: Final[Mapping[str, str]] = {
    "cdf": "--workload CDF.json of vtwin fleet size",
    "lam": "--rate",
    "lam-range": "--rate R,R,…",
    "b-short": "--split TOKENS",
    "gpu-short": _SPLIT,
    "gpu-long": _SPLIT,
    "gpu-prefill": _DISAGG,
    "gpu-decode": _DISAGG,
    "gpu-compare": "--profile A100,H100",
    "gpus": "--profile A100,H100",
    "long-max-ctx": "--context",
    "max-ctx": "--context",
    "t-slo-ms": _SLO,
    "slo-tpot": "--slo tpot_p99=50ms",
    "node-avail": "--availability",
    "alpha-pre": "--alpha-prefill",
    "alpha-dec": "--alpha-decode",
    "beta-ttft": "--beta-ttft",
    "spill-threshold": "--spill",
    "rho-max": "--utilization-cap",
    "n-sim-req": "--num-requests",
    "n-req": "--num-requests",
    "verify-des": "--verify with --num-requests",
    "verify-top": "--verify",
    "warmup-fraction": "--measure FROM:TO",
    "gamma": "--compress",
    "gamma-max": "--compress 1,1.5,2",
    "n-gpus": "--engines",
    "n-s": "--layout pools, whose engines are found",
    "n-l": "--layout pools, whose engines are found",
    "flex-pcts": "vtwin fleet flex has fixed shares of the power",
    "rho-sweep": "--rate R,R,…",
    "mean-isl": "--workload, whose lengths count",
    "mean-osl": "--output-frac",
    "max-prefill": "not needed here: sizes are tried until one is enough",
    "max-decode": "not needed here: sizes are tried until one is enough",
    "out": "--json",
    "max-slots": "engine.max_num_seqs",
    "blk-size": "engine.block_size",
    "total-kv-blks": "engine.num_gpu_blocks",
    "calibration-ctx": "calibration_context of a profile (vtwin fleet profile)",
}
"""Our option, key or sentence, by an argument without its dashes."""
_COMMON: Final = ("out", "gpus", "max-ctx", "gamma")

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "optimize": ("the vLLM fleet simulator's", "vtwin fleet size"),
    "pareto": ("the vLLM fleet simulator's", "vtwin fleet size --layout split, which compares thresholds"),
    "simulate": ("the vLLM fleet simulator's", "vtwin run --instances N"),
    "simulate-fleet": ("the vLLM fleet simulator's", "vtwin fleet size POOLS.yaml --layout pools"),
    "whatif": ("the vLLM fleet simulator's", "vtwin fleet size --compare"),
    "disagg": ("the vLLM fleet simulator's", "vtwin fleet size --layout disagg"),
    "compare-routers": ("the vLLM fleet simulator's", "vtwin fleet routers"),
    "grid-flex": ("the vLLM fleet simulator's", "vtwin fleet flex"),
    "tok-per-watt": ("the vLLM fleet simulator's", "vtwin fleet size --compare, in whose rows tok/J stands"),
    "bench": ("vLLM's", "vtwin observe, on a live server, or vtwin run, on a twin"),
    "convert": ("BLIS's", "vtwin trace convert"),
}
"""Other tools' commands: whose each is, and ours."""

POOL_KEYS: Final[Mapping[str, str]] = {
    "B_short": "up_to",
    "gpu": "profile",
    "max_ctx": "up_to",
    "spill_threshold": "--spill",
    "node_avail": "failures",
    "n_gpus": "nothing: engines are found",
}
"""Names of a pool's settings, and POOLS.yaml's."""


def of_fleet_simulator(flag: str, options: Collection[str]) -> str | None:
    """Return our option, key or sentence for an argument, dashes and capitals as they may be; None if it is not one.

    ``options``: of the command; words that anybody may mean something by count only where fleets are planned.
    """
    name = flag.lstrip("-").replace("_", "-").lower()
    return None if name in _COMMON and "--profile" not in options else _FLAGS.get(name)


def own_command(name: str) -> str | None:
    """Return whose command this is and which is ours, None if no tool known here has it."""
    if name not in COMMANDS:
        return None
    whose, own = COMMANDS[name]
    return f"it is {whose}; here {own}"
