"""What the keys of ``hardware:`` mean; all else of them follows from ``Hardware``, its layout and its GPU."""

from __future__ import annotations

from replay.twin.keys.key import GPUS, Said, Sayings
from sim import all_versions, rules_of

_RATE = (1e-6, 1e9)
_TIME_US = (0, 1e9)


def _memory_shares() -> str:
    """Return what ``hardware.gpu_memory_utilization`` is without being given, by version."""
    first, *_, last = (rules.gpu_memory_utilization for rules in map(rules_of, all_versions()))
    since = next(each for each in all_versions() if rules_of(each).gpu_memory_utilization == last)
    return f"Share of the memory that vLLM may take: {last:g}, before vLLM {since} {first:g}."


HARDWARE: Sayings = {
    "": "A GPU of the table by its name, such as `H100`, or a mapping of what follows.",
    "gpu": Said("Its name; numbers next to it take the place of its own.", kind="text", default="none"),
    "tp": Said("GPUs that share each layer.", least=1, within=GPUS),
    "pp": Said("Pipeline stages, for `engine.pipeline_parallel_size`.", least=1, within=GPUS),
    "dp": Said(
        "Engines in step that share the experts of each layer (vLLM's data parallelism of a mixture of experts); one "
        "of them is simulated, the others taken to be as loaded.",
        least=1,
        within=GPUS,
    ),
    "enable_expert_parallel": "As vLLM's flag: each of tp x dp GPUs has whole experts in place of a slice of each.",
    "all2all_backend": "As vLLM's flag, with `dp`: `allgather_reducescatter` and `naive` send every token to every "
    "engine, the others only to its experts.",
    "mm_encoder_tp_mode": "As vLLM's flag: `tp` GPUs split the layers of a vision tower, or share the images of a "
    "step out. A tower for which vLLM does not support it ignores this.",
    "gpus_per_node": Said(
        "Collectives of more neighbours than that go over the network, at its rate.", least=1, within=GPUS
    ),
    "network_gb_per_s": Said(
        "A GPU's way to another node at its peak, one direction, GB/s: measured between H100 nodes.",
        within=_RATE,
        unit="GB/s",
    ),
    "network_us": Said(
        "µs per hop between nodes: one per send, two per node and collective; measured likewise.",
        within=_TIME_US,
        unit="µs",
    ),
    "nccl_launch_us": Said(
        "µs per collective, bytes excluded: roofline has 20 (Vidur's nccl_cpu_launch_overhead), physics a learned 15.",
        default="the latency model's `all_reduce_us`",
        within=_TIME_US,
        unit="µs",
    ),
    "nccl_skew_us": Said(
        "µs that each collective waits for its slowest GPU, times (GPUs of the group)^1.25 (Vidur's "
        "nccl_cpu_skew_overhead_per_device).",
        within=_TIME_US,
        unit="µs",
    ),
    "gpu_memory_utilization": Said(
        _memory_shares(),
        kind="fraction",
        default="vLLM's",
        within=(1e-2, 1),
    ),
    "kv_cache_memory_bytes": Said(
        "As vLLM's flag: bytes of each GPU for its KV cache, in place of what `gpu_memory_utilization` leaves. Beside "
        "the weights there must be room for them; what else takes memory is not counted.",
        default="what is left",
        least=1,
        within=(1, 1e15),
    ),
    "kv_offloading_size": Said(
        "As vLLM's flag: GiB of host memory for KV blocks, of all GPUs together, 0: none; sets "
        "`engine.num_cpu_blocks` by `latency.model_config`.",
        within=(0, 1e6),
        unit="GiB",
    ),
    "kv_offload_gb_per_s": Said(
        "Between host memory and each GPU, GB/s, each way; sets `engine.kv_load_us_per_block` and "
        "`engine.kv_store_us_per_block`, or `engine.kv_transfer_bandwidth`.",
        default="25, told",
        within=_RATE,
        unit="GB/s",
    ),
    "memory_gib": Said("Memory as CUDA reports it, GiB.", default="of `gpu`", within=(1e-3, 1e6)),
    "bandwidth_gb_per_s": Said("Of its memory, GB/s.", default="of `gpu`", within=_RATE),
    "tflops_16bit": Said("Dense products of 16 bits, TFLOPS.", default="of `gpu`", within=_RATE),
    "tflops_fp8": Said("Of fp8; absent: it has none.", default="of `gpu`", within=_RATE),
    "tflops_fp4": Said("Of 4 bits; absent: it has none.", default="of `gpu`", within=_RATE),
    "tops_int8": Said("Of int8; absent: it has none.", default="of `gpu`", within=_RATE),
    "link_gb_per_s": Said("To its peers, one direction, GB/s.", default="of `gpu`", within=_RATE),
}
