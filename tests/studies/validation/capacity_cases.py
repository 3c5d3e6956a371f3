"""The servers and loads whose capacities are searched for and held against long runs (``capacity_coverage``)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replay.search.workload_draws import searchable
from replay.twin.config_read import load_config
from replay.twin.twin_config import TwinConfig
from traces.workload import WorkloadOptions, trace_from_options

if TYPE_CHECKING:
    from traces import Trace

ENGINE = """\
engine:
  {max_num_seqs: 64, max_num_batched_tokens: 2048, num_gpu_blocks: %d, max_model_len: 16384, async_scheduling: false}
latency:
  model: blackbox
  coefficients: {alpha0: 500, alpha1: 2, alpha2: 0, beta0: 6000, beta1: 10, beta2: 20}
"""
PREFIXES = """\
version: "2"
aggregate_rate: 1
num_requests: 2000
cohorts:
  - id: app
    population: 16
    rate_fraction: 1
    prefix_group: app
    prefix_length: 3000
    prefix_sharing: per_member
    arrival: {process: poisson}
    input_distribution: {type: exponential, params: {mean: 100}}
    output_distribution: {type: exponential, params: {mean: 60}}
"""
"""Sixteen applications, each with a system prompt of its own; a server's KV cache holds some of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A server, what it is sent, and within which limits. ``spec``: the load, where options do not say it."""

    cluster: str = ""
    slo: str = "ttft_p99=500ms,tpot_p99=50ms"
    load: dict[str, Any] = field(default_factory=dict)
    spec: str | None = None
    num_gpu_blocks: int = 4000

    def twin(self, folder: Path) -> TwinConfig:
        """Return the twin."""
        (folder / "twin.yaml").write_text(ENGINE % self.num_gpu_blocks + self.cluster)
        return load_config(folder / "twin.yaml")

    def drawn(self, folder: Path, *, seed: int, num_requests: int) -> Trace:
        """Return the load drawn with a seed."""
        options = WorkloadOptions(seed=seed, num_requests=num_requests, **self.load)
        if self.spec is not None:
            (folder / "load.yaml").write_text(self.spec)
            options = replace(options, workload=folder / "load.yaml")
        return trace_from_options(searchable(options))


CASES = {
    "one server": Case(),
    "four, round robin": Case(cluster="cluster: {instances: 4, routing: {policy: round-robin}}\n"),
    "four, prefix-aware": Case(
        cluster="cluster: {instances: 4, routing: {policy: weighted, scorers: {prefix-affinity: 2, queue-depth: 3}}}\n",
        spec=PREFIXES,
        num_gpu_blocks=1500,
    ),
    "prefill and decode, 2 + 2": Case(
        cluster="""\
cluster:
  pools:
    - {name: prefill, role: prefill, instances: 2}
    - {name: decode, role: decode, instances: 2}
  disaggregation: {decider: always, kv_bandwidth_gbps: 25, kv_base_latency_us: 50, kv_bytes_per_token: 131072}
"""
    ),
    "prefill-heavy": Case(load={"prompt_tokens": 4000, "prompt_tokens_stdev": 1000, "output_tokens": 50}),
    "decode-heavy": Case(load={"prompt_tokens": 100, "output_tokens": 1000, "output_tokens_stdev": 300}),
}
