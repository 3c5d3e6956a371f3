"""Settings of where a prompt is computed, and what moving its KV costs."""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import Literal

from sim.cluster.setting_checks import check_choice, check_flag, check_integer, check_number
from sim.config import InvalidConfig

Decider = Literal["always", "never", "prefix-threshold"]

MOST_GBPS = 1e6
"""The largest bandwidth that is accepted."""
MOST_BYTES = 10**8
"""The most KV of one token: of a million tokens' bytes, 64 bits still hold the fractions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disaggregation:
    """Which prompts a prefill instance computes, and the links over which a decode instance reads the KV.

    ``decider``: always; never; or prefix-threshold: where more than ``prefix_threshold`` tokens of the prompt are not
    in the prefix cache of the decode instance that was chosen. ``kv_bandwidth_gbps``: of each instance's link and
    direction, in gigabytes (10^9 bytes) per second. ``kv_base_latency_us``: before the first byte moves.
    ``contention``: transfers share their links; without it each has the whole bandwidth. ``kv_bytes_per_token``:
    KV of one token in all layers, None where nothing is moved.
    """

    decider: Decider = "always"
    prefix_threshold: int = 16
    kv_bandwidth_gbps: float = 25.0
    kv_base_latency_us: int = 50
    contention: bool = True
    kv_bytes_per_token: int | None = None

    def __post_init__(self) -> None:
        """Check the settings."""
        check_choice("decider", self.decider, Decider)
        check_integer("prefix_threshold", self.prefix_threshold, least=0)
        check_number("kv_bandwidth_gbps", self.kv_bandwidth_gbps, least=0, most=MOST_GBPS)
        if self.kv_bandwidth_gbps == 0:
            raise InvalidConfig("kv_bandwidth_gbps: got 0, expected a number > 0")
        check_integer("kv_base_latency_us", self.kv_base_latency_us, least=0)
        check_flag("contention", self.contention)
        if self.kv_bytes_per_token is not None:
            check_integer("kv_bytes_per_token", self.kv_bytes_per_token, least=0)
            check_number("kv_bytes_per_token", self.kv_bytes_per_token, least=0, most=MOST_BYTES)

    @property
    def moves_kv(self) -> bool:
        """Whether any KV can be moved."""
        return self.decider != "never"
