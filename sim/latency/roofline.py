"""Roofline: a step takes what its FLOPs and bytes take at the share of the peak that kernels reach, and overheads."""

from __future__ import annotations

from lazy_dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from sim.config import InvalidConfig
from sim.latency.batch import StepBatch
from sim.latency.latency_model import TABULATED, Int64s, LatencyModel, Number, check_not_negative
from sim.latency.operators import Operators, operators_at_peak
from sim.latency.peak import PeakTimes
from sim.latency.tabulated import StepTable

Floats = NDArray[np.float64]

LARGEST_STEP_TOKENS = 16384
"""Tokens in a step that are tabulated one by one; longer steps go on as a straight line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Analytic(LatencyModel):
    """A model that follows from ``PeakTimes``; what is common to roofline and physics.

    ``max_capture_size``: steps of up to so many tokens run as CUDA graphs, padded to the next size that was captured.
    ``sigma``: step times scatter lognormally with mean 1, by (``seed``, step number).
    """

    has_operators: ClassVar[bool] = True

    peak: PeakTimes
    max_capture_size: int = 512
    sigma: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Check that every number is one and not negative; raises InvalidConfig."""
        LatencyModel.__post_init__(self)
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float | int):
                check_not_negative(field.name, value)

    @property
    def engine_kind(self) -> int:
        """A table by tokens, and attention."""
        return TABULATED

    def step_table(self) -> StepTable:
        """Return the model as the engine takes it."""
        raise NotImplementedError

    def engine_terms(self) -> Floats:
        """Return the table, and the scatter."""
        return self.step_table().terms(sigma=self.sigma, seed=self.seed)

    def durations_us(self, batch: StepBatch) -> Int64s:
        """Return what steps take, without scatter, int64 µs; one without tokens takes none."""
        has_tokens = batch.num_prefill_tokens + batch.num_decode_tokens > 0
        return np.where(has_tokens, np.rint(self.step_table().durations(batch)), 0).astype(np.int64)

    @property
    def scatter(self) -> float:
        """``sigma``."""
        return self.sigma

    def scattered(self, sigma: float, *, seed: int | None = None) -> Self:
        """Return the model with another ``sigma``; ``seed``: None leaves the model's own."""
        return replace(self, sigma=sigma, seed=self.seed if seed is None else seed)

    def unpadded(self) -> Self:
        """Return the model that pads no step to a captured size."""
        return replace(self, max_capture_size=0)

    def operators(self, batch: StepBatch) -> Operators:
        """Return what each operator takes of each step (``sim.latency.operators``), float64 µs."""
        return operators_at_peak(self, batch)

    def among_ranks(self, of_experts: Floats, *, exchange: float) -> dict[str, Any]:
        """Return what a step table says of ranks that share experts, by its fields; nothing where none do."""
        if self.peak.dp == 1:
            return {}
        return {"shared": of_experts, "exchange": exchange, "captured": self.max_capture_size}

    def computed_tokens(self) -> Floats:
        """Return, for steps of 0, 1, 2, … tokens, how many a GPU computes at once."""
        return self.padded(np.arange(LARGEST_STEP_TOKENS + 1, dtype=np.float64))

    def padded(self, tokens: Floats) -> Floats:
        """Return how many tokens are computed: those of the next captured size, where there is one.

        Sizes 1, 2, 4, then every 8th up to 256, every 16th beyond (vllm 0.32.0 config/vllm.py:_set_cudagraph_sizes).
        """
        small = np.where(tokens <= 2, tokens, np.where(tokens <= 4, 4, 8 * np.ceil(tokens / 8)))
        captured = np.where(small <= 256, small, 16 * np.ceil(tokens / 16))
        return np.asarray(np.where(tokens <= self.max_capture_size, captured, tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline(Analytic):
    """Every operation takes the longer of its products and its bytes, each at its share of the peak; all added up.

    A step's products with weights are one operation: prefill and decode tokens go through them together and the
    weights are read once, √(compute² + reading²), as measured products go from one to the other. Attention is another
    for prefills and another for decodes.

    Efficiencies are shares of the peak: ``expert_efficiency`` that of routed experts' products, whose rows come in
    tiles of ``expert_tile``. The others are µs: ``all_reduce_us`` per collective beside its bytes, ``layer_us`` and
    ``moe_layer_us`` per layer (launches, norms, quantization, routing), ``step_us`` per step (sampling, the ends of the
    step), ``sequence_us`` per request in it; ``cpu_step_us``, ``cpu_sequence_us``: what vLLM's own process takes
    meanwhile; ``cpu_exposed``: the share of it that the GPU waits for (1: no async scheduling). ``batching``: how much
    longer attention with grouped queries takes for several requests (Vidur's figure). Shares are usual ones; alpha0,
    the overheads and the experts' share are round figures near what physics learned on the points that may be tuned
    on (docs/validation.md).
    """

    alpha0: Number = 15_000
    compute_efficiency: float = 0.70
    expert_efficiency: float = 0.20
    attention_efficiency: float = 0.50
    bandwidth_efficiency: float = 0.85
    link_efficiency: float = 0.80
    expert_tile: float = 32.0
    all_reduce_us: float = 20.0
    layer_us: float = 25.0
    moe_layer_us: float = 30.0
    step_us: float = 500.0
    sequence_us: float = 12.0
    cpu_step_us: float = 1500.0
    cpu_sequence_us: float = 10.0
    cpu_exposed: float = 0.0
    batching: float = 0.10

    def __post_init__(self) -> None:
        """Check all; raises InvalidConfig."""
        Analytic.__post_init__(self)
        for name in ("compute", "expert", "attention", "bandwidth", "link"):
            value = getattr(self, f"{name}_efficiency")
            if not 0 < value <= 1:
                raise InvalidConfig(f"{name}_efficiency: got {value!r}, expected a share in (0, 1]")

    def step_table(self) -> StepTable:
        """Return the model as the engine takes it: what hangs on tokens alone, and the rates of attention."""
        at_peak, pp = self.peak, self.peak.pp
        attention, bandwidth = self.attention_efficiency, self.bandwidth_efficiency
        tokens = self.computed_tokens()
        expert_tokens = at_peak.expert_tokens(tokens, tile=self.expert_tile)
        products = at_peak.matmul * tokens / self.compute_efficiency
        of_experts = at_peak.expert_matmul * expert_tokens / self.expert_efficiency
        products += of_experts
        moving = (at_peak.activation + at_peak.kv_write) * tokens / bandwidth
        link = at_peak.all_reduce + at_peak.send_recv + at_peak.all_to_all
        moving += (link / self.link_efficiency + at_peak.per_token) * tokens
        fixed = (
            self.layer_us * at_peak.num_layers
            + self.moe_layer_us * at_peak.num_moe_layers
            + self.all_reduce_us * (at_peak.num_all_reduces + at_peak.num_all_to_alls + pp - 1)
            + at_peak.waiting
            + (self.step_us if pp == 1 else 0.0)
        )
        decode_entry, windowed_entry = (
            max(products / attention, reading / bandwidth)
            for products, reading in (
                (at_peak.decode_entry, at_peak.kv_entry),
                (at_peak.windowed_decode_entry, at_peak.windowed_kv_entry),
            )
        )
        return StepTable(
            compute=products,
            reading=at_peak.weights_read(tokens) / bandwidth,
            rest=moving + fixed,
            sample=at_peak.head_matmul / self.compute_efficiency,
            sample_floor=at_peak.head_weights / bandwidth,
            sequence=self.sequence_us,
            cpu_step=self.cpu_step_us,
            cpu_sequence=self.cpu_sequence_us,
            cpu_exposed=self.cpu_exposed,
            batching=self.batching if at_peak.is_grouped else 0.0,
            pair=at_peak.prefill_pair / attention,
            pair_windowed=at_peak.windowed_prefill_pair / attention,
            keys=at_peak.kv_entry / bandwidth,
            keys_windowed=at_peak.windowed_kv_entry / bandwidth,
            entry=decode_entry,
            entry_windowed=windowed_entry,
            window=at_peak.window,
            stages=pp,
            last=self.step_us,
            **self.among_ranks(of_experts, exchange=at_peak.all_to_all / self.link_efficiency),
            **at_peak.of_states(),
        )
