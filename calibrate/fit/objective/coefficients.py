"""The coefficients that a fit finds: their names by model, their units, and how finely they are rounded."""

from __future__ import annotations

from collections.abc import Collection

from sim import Blackbox, Extended

COEFFICIENTS = ("alpha0", "alpha1", "alpha2", "alpha3", "beta0", "beta1", "beta2")
FITTED = ("alpha0", "alpha1", "alpha3", "beta0", "beta1", "beta2")
GUESS: dict[str, float] = {"alpha0": 1000, "alpha1": 1, "beta0": 5000, "beta1": 20, "beta2": 100}
"""µs, of no real server: the start of a fit without any other start."""
EXTENDED_FITTED = ("beta3", "beta4", "floor", "concavity", "kappa", "u0", "tau_s")
"""The further coefficients that a fit of ``latency.model: extended`` varies."""
EXTENDED_SHOWN = (*EXTENDED_FITTED, "sigma")
WITHOUT = {"tau_s": 1.0}
"""The value of a term that is left out of the model, if not 0: without kappa, tau_s has no effect."""
UNITS = {
    "alpha0": "µs",
    "alpha1": "µs/prompt token",
    "alpha2": "µs/output token",
    "alpha3": "µs/output of its step",
    "beta0": "µs/step",
    "beta1": "µs/prefill token",
    "beta2": "µs/decode token",
    "beta3": "µs/context token read",
    "beta4": "µs/(query, key) pair",
    "floor": "µs/step",
    "concavity": "1 - exponent",
    "kappa": "per unit of duty",
    "u0": "share of time",
    "tau_s": "s",
    "sigma": "of log(step time)",
}
UNITS |= {
    **dict.fromkeys(("prefill_compute", "decode_compute", "expert_compute", "prefill_attention"), "x peak"),
    **dict.fromkeys(("decode_attention", "prefill_kv", "decode_kv", "weights", "expert_weights"), "x peak"),
    **dict.fromkeys(("head", "activation", "tensor_parallel"), "x peak"),
    "experts_measured": "x table",
    **dict.fromkeys(
        ("layer_us", "moe_layer_us", "interleaved_moe_layer_us", "block_us", "latent_us", "norm_us"),
        "µs/layer",
    ),
    **dict.fromkeys(("request_us", "cpu_request_us"), "µs/request"),
    **dict.fromkeys(("step_us", "cpu_step_us"), "µs/step"),
    "all_reduce_us": "µs/collective",
    "expert_tile": "rows",
    "scale": "x profile",
    "step": "µs/step",
}
"""Those of physics, factors on the time at the peak and overheads, and of a profile."""


def decimals_of(name: str) -> int:
    """Return to how many decimals a coefficient (µs) is rounded: blackbox's to 10⁻⁶, the tiny ones finer."""
    return 12 if name in ("beta3", "beta4") else 6


def without(terms: Collection[str]) -> dict[str, float]:
    """Return the values of the extended model's terms other than these, left out."""
    return {name: WITHOUT.get(name, 0.0) for name in EXTENDED_FITTED if name not in terms}


def coefficients_in(latency: Blackbox) -> tuple[str, ...]:
    """Return the names of the coefficients that a model has and a report shows."""
    return COEFFICIENTS + (EXTENDED_SHOWN if isinstance(latency, Extended) else ())
