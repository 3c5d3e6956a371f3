"""How a server's GPUs stand: data and expert parallelism, nodes, and what their collectives take beside bytes."""

from __future__ import annotations

from lazy_dataclasses import dataclass, replace
from typing import Annotated, Literal

from replay.model.gpus import Gpu
from replay.model.shape import ModelShape
from replay.model.vision.tower import TowerTPMode
from replay.numbers.argument_ranges import GbPerS, GpuCount, PartOfStepUs, Within
from traces import ConfigError

All2AllBackend = Literal[
    "allgather_reducescatter", "naive", "pplx", "deepep_high_throughput", "deepep_low_latency"
]
"""vLLM's ``--all2all-backend``: how tokens reach the GPUs that have their experts. The first two send every token to
every group, the others a token to its experts only."""

SENDS_EVERYTHING = ("allgather_reducescatter", "naive")

GPUS_PER_NODE = 8
"""As in DGX A100 and H100, and in Vidur's node SKUs (vidur/config/node_sku_config.py)."""

NETWORK_GB_PER_S = 44.0
"""One GPU's way to another node, one direction: two H100 DGX nodes send 35 GB/s (Vidur's profile
network/h100_dgx/send_recv.csv, 64 MiB, one device per node), which is 0.8, the share of the peak that links reach, of
this; the card's own peak is 50."""

NETWORK_US = 11.0
"""What a hop between nodes takes beside its bytes: 18.5 µs less the 7.5 within a node, medians below 64 KiB of the same
profile. Two hops per node and all-reduce make the 45 µs by which 16 A100s on two nodes take longer than 8 on one."""

SKEW_EXPONENT = 1.25
"""How waiting for the slowest grows with the size of the group (Vidur:
nccl_cpu_skew_overhead_per_device_ms x TP^1.25)."""


MemoryShare = Annotated[float, Within(least=1e-2, most=1)]
MemoryBytes = Annotated[int, Within(least=1, most=1e15)]
HostGib = Annotated[float, Within(least=0, most=1e6, unit="GiB")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where a model's parts stand beyond ``tp`` and ``pp``, which stand beside it everywhere.

    ``dp``: engines in step that share the experts of each layer (``--data-parallel-size``), of which one is simulated.
    ``nccl_skew_us``: what each collective waits for its slowest GPU, per (GPUs of the group)^1.25.
    """

    dp: GpuCount = 1
    enable_expert_parallel: bool = False
    all2all_backend: All2AllBackend = "allgather_reducescatter"
    gpus_per_node: GpuCount = GPUS_PER_NODE
    network_gb_per_s: GbPerS = NETWORK_GB_PER_S
    network_us: PartOfStepUs = NETWORK_US
    nccl_skew_us: PartOfStepUs = 0.0

    def expert_ranks(self, tp: int) -> int:
        """Return how many GPUs share a layer's experts, whole ones or a slice of each (vLLM: TP x DP)."""
        return tp * self.dp

    def served(self, shape: ModelShape, *, tp: int) -> Layout:
        """Return the layout that vLLM can start: whole experts where slices would cut a block of FP8 weights.

        vLLM refuses a slice whose width its blocks do not divide (vllm 0.32.0 fp8.py: Fp8MoEMethod.create_weights).
        """
        experts, block = shape.experts, shape.expert_precision.block
        if experts is None or not block or experts.intermediate_size % (self.expert_ranks(tp) * block) == 0:
            return self
        return replace(self, enable_expert_parallel=True)

    def expert_share(self, shape: ModelShape, *, tp: int) -> float:
        """Return which share of all experts' weights the fullest GPU has."""
        ranks = self.expert_ranks(tp)
        if shape.experts is None or not self.enable_expert_parallel:
            return 1 / ranks
        return -(-shape.experts.num_experts // ranks) / shape.experts.num_experts

    def num_nodes(self, num_gpus: int) -> int:
        """Return over how many nodes this many neighbouring GPUs stand."""
        return -(-num_gpus // self.gpus_per_node)

    def bytes_per_us(self, num_gpus: int, gpu: Gpu) -> float:
        """Return the peak rate at which a group of neighbours exchanges: the link's, or the network's between nodes."""
        if self.num_nodes(num_gpus) > 1:
            return min(self.network_gb_per_s * 1e3, gpu.link_bytes_per_us())
        return gpu.link_bytes_per_us()

    def waiting_us(self, num_gpus: int) -> float:
        """Return what a collective of GPUs takes beside its launch and its bytes, µs: skew, hops between nodes."""
        nodes = self.num_nodes(num_gpus)
        hops = 2 * nodes * self.network_us if nodes > 1 else 0.0
        return self.nccl_skew_us * float(num_gpus**SKEW_EXPONENT) + hops

    def num_crossings(self, *, tp: int, pp: int) -> int:
        """Return how many of the ways from a pipeline stage to the next lead to another node."""
        last = [((stage + 1) * tp - 1) // self.gpus_per_node for stage in range(pp)]
        first = [stage * tp // self.gpus_per_node for stage in range(pp)]
        return sum(last[stage] != first[stage + 1] for stage in range(pp - 1))

    def check(self, shape: ModelShape, *, tp: int) -> None:
        """Raise ConfigError on a layout that does nothing for the model, or that vLLM could not make."""
        if shape.experts is None and (self.dp > 1 or self.enable_expert_parallel):
            name, value = ("dp", str(self.dp)) if self.dp > 1 else ("enable_expert_parallel", "true")
            raise ConfigError(
                f"hardware.{name}: got {value} for {shape.name}, expected a model with experts: engines of a dense one "
                "share nothing"
            )
        if shape.experts is not None and self.enable_expert_parallel:
            ranks, number = self.expert_ranks(tp), shape.experts.num_experts
            if ranks > number:
                raise ConfigError(
                    f"hardware.enable_expert_parallel: got tp {tp} x dp {self.dp} = {ranks} GPUs, expected at most "
                    f"{shape.name}'s {number} experts"
                )


ONE_NODE = Layout()
"""Tensor and pipeline parallelism only, as far as they go on nodes of the usual size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """A server's hardware: GPUs of one kind, their number and layout, and the share of their memory for vLLM.

    ``kv_cache_memory_bytes``: of each GPU's KV cache; None: what that share leaves.
    ``nccl_launch_us``: what a collective takes beside its bytes; None: the latency model's own ``all_reduce_us``.
    ``kv_offloading_size``: GiB of host memory for KV blocks, of all GPUs together; ``kv_offload_gb_per_s``: from there
    to each GPU. ``mm_encoder_tp_mode``: what tensor parallelism does with a vision tower. ``written``: the file's keys.
    """

    gpu: Gpu
    tp: GpuCount = 1
    pp: GpuCount = 1
    layout: Layout = ONE_NODE
    gpu_memory_utilization: MemoryShare | None = None
    kv_cache_memory_bytes: MemoryBytes | None = None
    nccl_launch_us: PartOfStepUs | None = None
    kv_offloading_size: HostGib | None = None
    kv_offload_gb_per_s: GbPerS | None = None
    mm_encoder_tp_mode: TowerTPMode = "weights"
    written: tuple[str, ...] = ()

    @property
    def has_data_towers(self) -> bool:
        """Whether its GPUs share images out instead of splitting a vision tower's layers."""
        return self.mm_encoder_tp_mode == "data"

    @property
    def num_gpus(self) -> int:
        """How many GPUs the engine that is simulated has: of several in step (``dp``) one."""
        return self.tp * self.pp
