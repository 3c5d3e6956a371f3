"""Physics-informed: what each part takes at the peak times what measurements say of it, and overheads they found."""

from __future__ import annotations

from collections.abc import Mapping
from lazy_dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from sim.config import InvalidConfig
from sim.latency.latency_model import HANDED_ON_US, Fitting, coefficient
from sim.latency.peak import Floats
from sim.latency.roofline import Analytic
from sim.latency.tabulated import StepTable

PARTS: Final = {
    "experts_measured": "experts_us",
    "block_us": "block_layers",
    "latent_us": "latent_layers",
    "norm_us": "norm_layers",
}
"""Coefficients, and the peak time without which they describe nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Physics(Analytic):
    """``PeakTimes``, each part with a correction that a fit finds: one set of numbers for many models and GPUs.

    Corrections are factors on the time at the peak, 1 being the peak itself: ``prefill_compute`` and
    ``decode_compute`` of the products with weights, ``expert_compute`` of those with routed experts' (each expert that
    is touched computes ``expert_tile``/2 more rows than it was given, the end of its last tile), ``prefill_attention``
    of a chunk's (query, key) pairs, its real context and no more, ``decode_attention`` of what decodes compute,
    ``decode_kv`` of what they read, ``prefill_kv`` of the KV entries that prefills write, ``weights`` of reading the
    weights, ``expert_weights`` those of the experts touched, ``experts_measured`` of a measured time of experts, which
    is in place of their products, reading and tiles, ``head`` of the LM head, ``activation`` of vectors through
    memory, ``tensor_parallel`` of the bytes of the collectives. Overheads in µs: ``layer_us`` per layer,
    ``moe_layer_us`` per layer with experts, ``interleaved_moe_layer_us`` the same where not all layers have some,
    ``block_us`` per layer that cuts inputs to FP8 in blocks, ``latent_us`` per layer with latent attention,
    ``norm_us`` per layer with a norm that GPUs share,
    ``all_reduce_us`` per collective, ``request_us`` per request in the step, ``step_us`` per step; ``cpu_step_us`` and
    ``cpu_request_us`` of the process that schedules, hidden behind the GPU but for ``cpu_exposed``. ``exposed``: how
    much of the shorter of products and reading is not hidden behind the other.
    """

    fitting: ClassVar[Fitting] = Fitting.NEARBY
    first_guesses: ClassVar[Mapping[str, float]] = {"alpha3": HANDED_ON_US}
    in_words: ClassVar[str] = (
        "A step lasts what each of its parts takes at the GPU's peak, times a correction (x peak), and overheads per "
        "layer, collective, request and step"
    )

    prefill_compute: float = coefficient(1.0, "x peak", prior=0.4)
    decode_compute: float = coefficient(1.0, "x peak", prior=0.4)
    expert_compute: float = coefficient(1.0, "x peak", prior=0.6)
    prefill_attention: float = coefficient(1.0, "x peak", prior=0.5)
    decode_attention: float = coefficient(1.0, "x peak", prior=0.5)
    prefill_kv: float = coefficient(1.0, "x peak", prior=0.5)
    decode_kv: float = coefficient(1.0, "x peak", prior=0.4)
    weights: float = coefficient(1.0, "x peak", prior=0.25)
    expert_weights: float = coefficient(1.0, "x peak", prior=0.4)
    experts_measured: float = coefficient(1.0, "x table", prior=0.2)
    head: float = coefficient(1.0, "x peak", prior=0.4)
    activation: float = coefficient(1.0, "x peak", prior=0.6)
    tensor_parallel: float = coefficient(1.0, "x peak", prior=0.6)
    expert_tile: float = coefficient(0.0, "rows", prior=0.6)
    layer_us: float = coefficient(0.0, "µs/layer", prior=0.7)
    moe_layer_us: float = coefficient(0.0, "µs/layer", prior=0.7)
    interleaved_moe_layer_us: float = coefficient(0.0, "µs/layer", prior=0.7)
    block_us: float = coefficient(0.0, "µs/layer", prior=0.7)
    latent_us: float = coefficient(0.0, "µs/layer", prior=0.7)
    norm_us: float = coefficient(0.0, "µs/layer", prior=0.7)
    all_reduce_us: float = coefficient(0.0, "µs/collective", prior=0.7)
    request_us: float = coefficient(0.0, "µs/request", prior=0.8)
    step_us: float = coefficient(0.0, "µs/step", prior=0.8)
    cpu_step_us: float = coefficient(0.0, "µs/step", prior=0.8)
    cpu_request_us: float = coefficient(0.0, "µs/request", prior=0.8)
    cpu_exposed: float = 0.0
    exposed: float = 0.0

    def __post_init__(self) -> None:
        """Check all; raises InvalidConfig."""
        Analytic.__post_init__(self)
        for name in ("exposed", "cpu_exposed"):
            if getattr(self, name) > 1:
                raise InvalidConfig(f"{name}: got {getattr(self, name)!r}, expected a share in [0, 1]")

    def describes(self, name: str) -> bool:
        """Return whether this server has the part that a coefficient is about: experts, several GPUs."""
        at_peak = self.peak
        if name in ("expert_compute", "expert_weights", "expert_tile"):
            return bool(at_peak.num_experts) and not at_peak.experts_us
        if name in ("moe_layer_us", "interleaved_moe_layer_us"):
            return bool(at_peak.num_experts)
        if name in ("tensor_parallel", "all_reduce_us"):
            return at_peak.tp > 1
        return name not in PARTS or bool(getattr(at_peak, PARTS[name]))

    def _per_token(self) -> float:
        """Return the µs of what a step does once for each of its tokens, products aside."""
        at_peak = self.peak
        return (
            self.activation * at_peak.activation
            + self.prefill_kv * at_peak.kv_write
            + self.tensor_parallel * (at_peak.all_reduce + at_peak.send_recv + at_peak.all_to_all)
            + at_peak.per_token
        )

    def _experts(self, tokens: Floats) -> tuple[Floats, Floats, Floats]:
        """Return what routed experts compute and read, and what both took where somebody measured it."""
        at_peak = self.peak
        if at_peak.experts_us:
            none = np.zeros_like(tokens)
            return none, none, self.experts_measured * at_peak.measured_experts(tokens)
        rows = at_peak.expert_tokens(tokens, tile=self.expert_tile)
        read = self.expert_weights * at_peak.expert_weights * at_peak.experts_read_frac(tokens)
        return self.expert_compute * at_peak.expert_matmul * rows, read, np.zeros_like(tokens)

    def step_table(self) -> StepTable:
        """Return the model as the engine takes it."""
        at_peak, pp = self.peak, self.peak.pp
        tokens = self.computed_tokens()
        is_interleaved = 0 < at_peak.num_moe_layers < at_peak.num_layers
        per_moe_layer = self.moe_layer_us + (self.interleaved_moe_layer_us if is_interleaved else 0.0)
        fixed = (
            self.layer_us * at_peak.num_layers
            + per_moe_layer * at_peak.num_moe_layers
            + self.block_us * at_peak.block_layers
            + self.latent_us * at_peak.latent_layers
            + self.norm_us * at_peak.norm_layers
            + self.all_reduce_us * (at_peak.num_all_reduces + at_peak.num_all_to_alls + pp - 1)
            + at_peak.waiting
            + (self.step_us if pp == 1 else 0.0)
        )
        entry = max(self.decode_attention * at_peak.decode_entry, self.decode_kv * at_peak.kv_entry)
        windowed = max(
            self.decode_attention * at_peak.windowed_decode_entry, self.decode_kv * at_peak.windowed_kv_entry
        )
        of_experts, read, measured = self._experts(tokens)
        return StepTable(
            compute=of_experts,
            reading=self.weights * at_peak.weights + read,
            rest=self._per_token() * tokens + fixed + measured,
            prefill=self.prefill_compute * at_peak.matmul,
            decode=self.decode_compute * at_peak.matmul,
            exposed=self.exposed,
            sample=self.head * at_peak.head_matmul,
            sample_floor=self.head * at_peak.head_weights,
            sequence=self.request_us,
            cpu_step=self.cpu_step_us,
            cpu_sequence=self.cpu_request_us,
            cpu_exposed=self.cpu_exposed,
            pair=self.prefill_attention * at_peak.prefill_pair,
            pair_windowed=self.prefill_attention * at_peak.windowed_prefill_pair,
            keys=self.decode_kv * at_peak.kv_entry,
            keys_windowed=self.decode_kv * at_peak.windowed_kv_entry,
            entry=entry,
            entry_windowed=windowed,
            window=at_peak.window,
            stages=pp,
            last=self.step_us,
            **self.among_ranks(of_experts, exchange=self.tensor_parallel * at_peak.all_to_all),
            **at_peak.of_states(),
        )
