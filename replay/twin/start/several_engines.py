"""Several engines, behind a router or as data-parallel ranks of a server, as a twin's cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from replay.model.hf_config import read_model_config
from replay.twin.start.model_and_gpu import config_at_hand
from traces import ConfigError

if TYPE_CHECKING:
    from traces import ServerInfo


def engines_of(
    *, servers: int, ranks: int, model: str | None, is_expert_parallel: bool
) -> tuple[dict[str, object], bool, tuple[str, ...]]:
    """Return (the keys of ``cluster``, whether the ranks share experts, notes) of servers of so many ranks each.

    Each engine has its own scheduler, seats and cache; a header's blocks are those of one, as vLLM reports them. The
    ranks of one server share its requests out as vLLM does, and those of a model with experts step together. Nothing of
    one engine. ``model``: a model's name or config.json, None where it is not known.
    """
    number = servers * ranks
    if number < 2:
        return {}, False, ()
    cluster: dict[str, object] = {"instances": number}
    said = [f"{servers} servers"] if servers > 1 else []
    said += [f"data_parallel {ranks}"] if ranks > 1 else []
    notes = [f"{', '.join(said)}: cluster.instances {number}, each engine with its own seats and KV blocks"]
    has_experts = is_expert_parallel or _has_experts(model)
    if servers > 1:
        notes.append("cluster.routing not known: round-robin is assumed")
    if ranks == 1:
        return cluster, False, tuple(notes)
    if servers == 1:
        cluster["routing"] = "{policy: vllm-dp}"
        if has_experts:
            cluster["lockstep"] = True
    elif has_experts:
        notes.append(
            "cluster.lockstep: the ranks of each server step together, which several servers cannot be told"
        )
    if has_experts is None:
        notes.append(
            "cluster.lockstep: true where the model has experts, whose ranks step together; not known here"
        )
    return cluster, bool(has_experts) and servers == 1, tuple(notes)


def cluster_lines(cluster: Mapping[str, object]) -> list[str]:
    """Return the section's lines in a TWIN.yaml; none of one engine."""
    if not cluster:
        return []
    return ["cluster:", *(f"  {key}: {str(value).lower()}" for key, value in cluster.items())]


def refuse_several(server: ServerInfo, *, name: str) -> None:
    """Raise ConfigError for a server of several engines: a fit is of one."""
    number = server.num_engines
    if number > 1:
        raise ConfigError(
            f"--fit: got {name}, measured at an address with {number} engines behind it, expected one engine: one "
            "engine's flags and coefficients cannot be told from the sum. Observe one server at its own address and "
            f"fit that; cluster.instances: {number} in its TWIN.yaml then simulates all"
        )


def _has_experts(model: str | None) -> bool | None:
    """Return whether a model has experts; None where its config.json is not at hand."""
    file = config_at_hand(model)
    if file is None:
        return None
    try:
        return read_model_config(file).experts is not None
    except ConfigError:
        return None
