"""What a fit may expect of ``sim.Extended`` before it has seen a trace: its coefficients from the roofline."""

from __future__ import annotations

from lazy_dataclasses import dataclass

from replay.model.gpus import Gpu
from replay.model.model_peak import peak_times
from replay.model.shape import ModelShape

COMPUTE_EFFICIENCY = 0.65
"""Share of peak compute that large products reach end to end: 0.5 to 0.8 on A100 to H200 for 16 bits, less for fp8."""
ATTENTION_EFFICIENCY = 0.5
"""The same of attention: FlashAttention-2 reaches 0.5 to 0.7 on A100 (arXiv:2307.08691), FlashAttention-3 0.75 on H100
at its best (arXiv:2407.08608), less at the lengths of a chunk."""
BANDWIDTH_EFFICIENCY = 0.8
"""Share of peak bandwidth that reading weights or the KV cache reaches: 0.7 to 0.9."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedCoefficient:
    """A coefficient's expected value (µs), how far off it may well be, and where it comes from.

    ``relative_width``: standard deviation of log(coefficient / value).
    """

    name: str
    value: float
    relative_width: float
    source: str


def expected_coefficients(shape: ModelShape, gpu: Gpu, *, tp: int = 1) -> dict[str, ExpectedCoefficient]:
    """Return priors for beta1, beta3, beta4 and the floor of ``sim.Extended``, by name.

    - ``floor``: every step reads all weights that a lone token touches: bytes / (bandwidth x 0.8). A model with
      experts reads more the more tokens there are, up to all of them: the width covers from one token to many.
    - ``beta1``, per prefill token: 2 FLOPs per active weight / (peak x 0.65), and its share of the all-reduces.
    - ``beta3``, per KV entry that a decode reads: its bytes / (bandwidth x 0.8), or MLA's products where they take
      longer; of the layers that see the whole context.
    - ``beta4``, per (query, key) pair of prefills: its FLOPs / (peak x 0.5); of the same layers.

    ``beta0``, ``beta2``, ``beta5`` and the alphas are vLLM's own time, which no roofline knows: they have no prior.
    What a decode token costs by the roofline is 5 to 10 µs; vLLM's own work for it, ten times as much where few decode
    along. A prior of the former made fits put that work into beta3, and loads beyond the fitted ones 3 to 5 % too slow.
    """
    at_peak = peak_times(shape, gpu, tp=tp)
    link = at_peak.all_reduce / BANDWIDTH_EFFICIENCY
    floor = (
        at_peak.weights + at_peak.head_weights + at_peak.experts_touched_frac_of(1) * at_peak.expert_weights
    )
    entry = max(at_peak.kv_entry / BANDWIDTH_EFFICIENCY, at_peak.decode_entry / ATTENTION_EFFICIENCY)
    compute = (at_peak.matmul + at_peak.expert_matmul) / COMPUTE_EFFICIENCY
    where = f"roofline of {shape.name} on {gpu.name}, tp {tp}"
    has_experts = shape.experts is not None
    values = {
        "floor": (floor / BANDWIDTH_EFFICIENCY, 0.7 if has_experts else 0.2),
        "beta1": (compute + link, 0.4),
        "beta3": (entry, 0.5),
        "beta4": (at_peak.prefill_pair / ATTENTION_EFFICIENCY, 0.5),
    }
    return {
        name: ExpectedCoefficient(name=name, value=value, relative_width=width, source=where)
        for name, (value, width) in values.items()
    }
