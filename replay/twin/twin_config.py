"""The simulator's configuration, read from a TWIN.yaml."""

from __future__ import annotations

from lazy_dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from replay.twin.cluster_section import with_overrides
from replay.twin.config_keys import DEFAULT_SEED, VERSION
from replay.twin.fitted.fitted_on import FittedOn
from replay.twin.fitted.fitted_range import FittedRange
from replay.twin.fitted.held_out import HeldOut
from replay.twin.fitted.leaves import AskedServer, outside_note
from replay.twin.fitted.pace import Pace
from replay.twin.keys.fitted_on_keys import FLAGS
from replay.twin.what_if.unanswered import Unanswered
from sim import (
    UNBOUNDED,
    Compatibility,
    EngineConfig,
    HeldBlocks,
)
from sim.latency import LatencyModel
from traces import ConfigError
from traces.facts import NotebookAnswer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.model.shape import ModelShape
    from sim.cluster import ClusterConfig, Pool
    from sim.latency import PeakTimes
    from traces import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinConfig(NotebookAnswer):
    """The content of a TWIN.yaml, defaults filled in.

    ``cluster``: all servers. ``asked_cluster``: those of the file's section, or of ``--instances``; None: one server,
    which is a cluster of one pool of one. ``engine`` and ``latency`` are those of the first pool. ``fitted``: the
    loads and lengths of the traces behind the coefficients, where they were fitted; ``pace``: how far its steps may
    be off together; ``held_out``: its errors on unseen requests, and the day of the fit. ``assumed``: flags that
    affect every busy step and that the file does not give. ``written``: the engine's keys that the file gives; None,
    of a configuration made in code: all of them. ``latency_reason``: why ``latency.model: auto`` is this one.
    ``peaks``: of each pool, or of the one server, its model at its GPU's peak, None where one of them is not named.
    ``kv_bytes_per_token``: in all layers, on all GPUs; None where no model is named. ``group_block_bytes``: likewise
    of a block that its KV cache groups share, None if the file gives the groups or there are none. ``shape``: that
    model. ``gpus_of_pools``: the GPU's name and how many one server has (tp x pp x dp), by pool; empty where no
    hardware is named. ``unanswered``: requested settings that have no effect in this twin. ``will_not_start``: why
    vLLM would refuse to start the model on its GPU, where the GPU's memory or the flags say so. ``source`` is the
    file it was read from, ``notes`` the lines to tell the user before a run (assumptions made, things vLLM would
    refuse); none of them counts when two configurations are compared. ``doubts``: those of the notes that say how far
    the twin, or a pool of it, was off.
    """

    drawn_by: ClassVar[str] = "replay.drawn_answers:of_twin"

    engine: EngineConfig
    latency: LatencyModel
    seed: int = DEFAULT_SEED
    asked_cluster: ClusterConfig | None = None
    fitted: FittedRange | None = None
    pace: Pace | None = None
    held_out: HeldOut | None = None
    fitted_on: FittedOn | None = None
    served: AskedServer = field(default=AskedServer(), compare=False)
    assumes_memory: bool = field(default=False, compare=False)
    assumed: tuple[str, ...] = field(default=(), compare=False)
    written: frozenset[str] | None = field(default=None, compare=False)
    latency_reason: str = field(default="", compare=False)
    source: Path | None = field(default=None, compare=False)
    peaks: tuple[PeakTimes | None, ...] = field(default=(), compare=False)
    kv_bytes_per_token: int | None = field(default=None, compare=False)
    group_block_bytes: int | None = field(default=None, compare=False)
    shape: ModelShape | None = field(default=None, compare=False)
    gpus_of_pools: tuple[tuple[str, int], ...] = field(default=(), compare=False)
    unanswered: tuple[Unanswered, ...] = field(default=(), compare=False)
    will_not_start: tuple[str, ...] = field(default=(), compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    doubts: tuple[str, ...] = field(default=(), compare=False)
    _cluster_of_one: ClusterConfig | None = field(init=False, default=None, compare=False, repr=False)

    @property
    def cluster(self) -> ClusterConfig:
        """The pools, and the gateway in front of them; one server's gateway decides nothing."""
        if self.asked_cluster is not None:
            return self.asked_cluster
        if self._cluster_of_one is None:
            object.__setattr__(self, "_cluster_of_one", self._as_cluster())
        assert self._cluster_of_one is not None  # noqa: S101 - set above
        return self._cluster_of_one

    def _as_cluster(self) -> ClusterConfig:
        from sim.cluster import ClusterConfig, Pool

        pool = Pool(engine=self.engine, latency=self.latency)
        return ClusterConfig(pools=(pool,), seed=self.seed, compatibility=self.engine.compatibility)

    @property
    def tier(self) -> EngineConfig | None:
        """The first pool's engine that has a second KV tier, None where none has."""
        return next((pool.engine for pool in self.cluster.pools if pool.engine.has_cpu_tier), None)

    @property
    def kv_block_bytes(self) -> int | None:
        """What a KV block takes, on all GPUs of a server; None where no model is named, or groups are written out."""
        engines = {(pool.engine.block_size, pool.engine.kv_cache_groups) for pool in self.cluster.pools}
        if len(engines) > 1:
            return None
        if self.engine.kv_cache_groups:
            return self.group_block_bytes
        if self.kv_bytes_per_token is None:
            return None
        return self.kv_bytes_per_token * self.engine.block_size

    @property
    def is_plain_server(self) -> bool:
        """Whether no cluster was requested: figures are then of a server, not of a fleet."""
        return self.asked_cluster is None

    @property
    def most_seats(self) -> int:
        """The most requests that run at once on a server; one whose answer is on its way to the client runs no more."""
        return max(pool.engine.max_num_seqs for pool in self.cluster.pools)

    @property
    def asked_server(self) -> AskedServer:
        """The server as it is simulated: the file's model and GPU, with the flags that the engine has now."""
        flags = {name: getattr(self.engine, name) for name in FLAGS if hasattr(self.engine, name)}
        return replace(self.served, vllm_version=self.vllm_version, flags={**flags, **self.served.flags})

    @property
    def outside_server(self) -> str | None:
        """How the server differs from the one that the twin was fitted on; None where it does not, or is unknown."""
        return outside_note(self.fitted_on, self.asked_server)

    @property
    def vllm_version(self) -> str:
        """The version whose scheduling rules the engine follows."""
        return self.engine.vllm_version

    @property
    def unanswered_keys(self) -> tuple[str, ...]:
        """The keys of the settings that change nothing in this twin."""
        return tuple(each.key for each in self.unanswered)

    @property
    def unanswered_document(self) -> list[dict[str, str]]:
        """The same with their reasons, as JSON has them."""
        return [{"key": each.key, "reason": each.reason} for each in self.unanswered]

    @property
    def has_version(self) -> bool:
        """Whether somebody said which version it is; else the newest known is taken."""
        return self.written is None or VERSION in self.written

    @property
    def num_seats(self) -> int:
        """How many requests may run at once, on all servers together."""
        return sum(pool.num_slots * pool.engine.max_num_seqs for pool in self.cluster.pools)

    @property
    def num_gpus(self) -> dict[str, int]:
        """How many GPUs of each name all servers have together; empty where a server's hardware is not named."""
        instances = tuple(pool.num_slots for pool in self.cluster.pools)
        if len(self.gpus_of_pools) != len(instances):
            return {}
        total: dict[str, int] = {}
        for (name, number), times in zip(self.gpus_of_pools, instances, strict=True):
            total[name] = total.get(name, 0) + number * times
        return total

    @property
    def compatibility(self) -> Compatibility:
        """Whose scheduler the engine follows."""
        return self.engine.compatibility


def with_cluster(config: TwinConfig, *, instances: int | None, routing: str | None) -> TwinConfig:
    """Return the configuration with ``--instances`` and ``--routing`` in place of the file's. Raises ConfigError."""
    if instances is None and routing is None:
        return config
    cluster = with_overrides(
        config.cluster,
        vllm_version=config.vllm_version,
        instances=instances,
        routing=routing,
        folder=Path() if config.source is None else config.source.parent,
    )
    return replace(config, asked_cluster=cluster)


def with_pools(config: TwinConfig, pools: Sequence[Pool]) -> TwinConfig:
    """Return the configuration with other pools behind the same gateway."""
    first = pools[0]
    asked = None if config.asked_cluster is None else replace(config.asked_cluster, pools=tuple(pools))
    return replace(config, engine=first.engine, latency=first.latency, asked_cluster=asked)


def check_fits(config: TwinConfig, trace: Trace) -> None:
    """Raise ConfigError when not even the trace's smallest prompt fits in the KV cache."""
    from traces import prompt_tokens

    prompts = prompt_tokens(trace)
    pools = config.cluster.pools
    if len(prompts) == 0 or any(pool.engine.num_gpu_blocks == UNBOUNDED for pool in pools):
        return
    smallest = int(prompts.min())
    engine = max((pool.engine for pool in pools), key=lambda engine: engine.num_gpu_blocks)
    needed = HeldBlocks.of(engine).fullest(smallest)
    usable = engine.num_gpu_blocks - 1
    if needed > usable:
        raise ConfigError(
            f"engine.num_gpu_blocks: got {engine.num_gpu_blocks} (usable: {usable} of {engine.block_size} "
            f"tokens), expected at least {needed + 1}: the trace's smallest prompt has {smallest} tokens "
            f"({config.source})"
        )
