"""Layers that no profile given has, and that no estimate may stand in for: named, with the way round."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from calibrate.predictor.measured import Complaint, ProfileError, ProfileQuery
from calibrate.predictor.profiles.latent_modules import latent_fault, module_prefix
from calibrate.predictor.profiles.state_profiles import TABLES
from replay.model import ModelShape, kinds_not_timed
from replay.model.matmuls import LayerKind, kinds_of_layers

MIXING = {"heads": ("attn_prefill", "attn_decode"), "module": ("attn_prefill", "attn_decode")}
"""What mixes tokens in layers of a kind, as they are measured."""


def refuse_unmeasured(
    names: Collection[str], complaints: Sequence[Complaint], wanted: ProfileQuery, *, where: str
) -> None:
    """Raise ProfileError where ``names``, the operators found, lack what mixes tokens in some kind of layers.

    A model of nothing but grouped-query attention is spared: a roofline may stand in for its only kind.
    """
    kinds = kinds_of_layers(wanted.shape)
    if len(kinds) == 1 and kinds[0].how == "heads":
        return
    faults = [
        f"{kind}: {_why(kind, complaints, wanted, where)}"
        for kind in kinds
        if not {kind.operator(name) for name in mixing(kind)} <= set(names)
    ]
    if not faults:
        return
    told = f"{wanted.shape.name}: " + "; ".join(faults)
    raise ProfileError(f"{told}; {_way_round(wanted.shape)}")


def mixing(kind: LayerKind) -> tuple[str, ...]:
    """Return the operators that mix tokens in layers of a kind."""
    return MIXING.get(kind.how, ("state_prefill", "state_decode"))


def _why(kind: LayerKind, complaints: Sequence[Complaint], wanted: ProfileQuery, where: str) -> str:
    """Return why a kind is lacking, and the tables that would have it."""
    state = kind.mixer.state
    if state is not None and state.name not in TABLES:
        return "no table of measured kernels has such layers"
    fault = latent_fault(kind.shape)
    if fault is not None:
        return fault.removeprefix(f"{wanted.shape.name}: ")
    reason = next((each.text for each in complaints if each.kind == kind), f"not in {where}")
    return f"{reason}; expected {_expected(kind)} for {wanted.shape.name} at tp {wanted.tp}"


def _expected(kind: LayerKind) -> str:
    """Return the tables that would have a kind of layers."""
    if kind.mixer.state is not None:
        return TABLES[kind.mixer.state.name]
    prefix = module_prefix(kind.shape)
    names = ("context", "generation")
    return " and ".join(f"{prefix}_{name}_module" if prefix else f"{name}_attention" for name in names)


def _way_round(shape: ModelShape) -> str:
    """Return what a user may do instead."""
    if kinds_not_timed(shape):
        return "calibrate blackbox or extended on traces of the server instead (vtwin calibrate --fit)"
    return "latency.model roofline or physics knows such layers, and traces of the server calibrate them"
