"""How many engines answer behind one address, by the labels of its metrics.

A router or gateway gives every server's metrics under a label of its own: vLLM's production stack ``server``, others
``pod``, ``instance``, ``worker`` or ``backend``. vLLM itself labels each engine of ``--data-parallel-size`` with
``engine`` (vllm 0.32.0 v1/metrics/loggers.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass

from observe.response.stated_values import short_text
from observe.server.prometheus_text import Sample

_OF_SERVING = (
    "vllm",
    "sglang",
    "sgl_router",
    "smg_",
    "lmdeploy",
    "dynamo",
    "llm_d",
    "inference_",
    "ray_vllm",
    "ray_serve",
    "trtllm",
    "tgi_",
)
"""How names of metrics begin that are about serving; others, of a proxy or a process, may label anything."""
_LABELS = (
    *(
        "server",
        "pod",
        "pod_name",
        "model_server_pod",
        "instance",
        "instance_id",
        "backend",
        "endpoint",
        "worker",
        "worker_id",
        "WorkerId",
        "worker_url",
    ),
    *("replica", "replica_id", "ReplicaId", "upstream", "upstream_host", "node", "hostname", "host"),
)
"""Labels that tell servers apart, the usual ones first."""
_HEALTH = "healthy_pods_total"
"""The production stack's gauge: 0 for a server that does not answer."""
_MOST = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginesBehind:
    """The servers behind an address, named by ``label``, and the engines (data-parallel ranks) of each.

    ``servers`` is empty where the metrics are those of one server.
    """

    label: str
    servers: tuple[str, ...]
    ranks: int


def engines_behind(samples: Sequence[Sample], *, model: str | None) -> EnginesBehind:
    """Return the servers and engines that the metrics tell apart, for one model where several are served."""
    known = [sample for sample in samples if sample.name.startswith(_OF_SERVING)]
    own = [sample for sample in known if sample.labels.get("model_name", model) == model]
    chosen = own if any("model_name" in sample.labels for sample in own) else known
    label = next((name for name in _LABELS if len(_values(chosen, name)) > 1), "")
    servers = _values(chosen, label) if label else []
    down = {
        sample.labels.get(label)
        for sample in chosen
        if label and sample.name.endswith(_HEALTH) and sample.value == 0
    }
    servers = [name for name in servers if name not in down]
    return EnginesBehind(
        label=label,
        servers=tuple(servers) if len(servers) > 1 else (),
        ranks=max([1, *(len(_values(each, "engine")) for each in _by_server(chosen, label))]),
    )


def _values(samples: Sequence[Sample], label: str) -> list[str]:
    """Return the different values of a label in vLLM's metrics, in order; only of those that fit on a line."""
    found = dict.fromkeys(sample.labels[label] for sample in samples if label in sample.labels)
    return [value for value in found if short_text(value) is not None][:_MOST]


def _by_server(samples: Sequence[Sample], label: str) -> list[list[Sample]]:
    """Return each server's samples; all together where they are of one."""
    groups: dict[str, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(sample.labels.get(label, ""), []).append(sample)
    return list(groups.values())
