"""What the keys of ``hardware:`` mean; all else of them follows from ``Hardware``, its layout and its GPU."""

from __future__ import annotations

from functools import lru_cache

from replay.model.gpu_memory import shares_by_version
from replay.model.gpus import Gpu
from replay.model.layout import Hardware, Layout
from replay.twin.keys.key import Key, KeyText, Sayings, keys_of

OF_GPU = "of `gpu`"

HARDWARE: Sayings = {
    "": "A GPU of the table by its name, such as `H100`, or a mapping of what follows.",
    "gpu": KeyText("Its name; numbers next to it take the place of its own.", kind="text", default="none"),
    "tp": "GPUs that share each layer.",
    "pp": "Pipeline stages, for `engine.pipeline_parallel_size`.",
    "dp": "Engines in step that share the experts of each layer (vLLM's data parallelism of a mixture of experts); one "
    "of them is simulated, the others taken to be as loaded.",
    "enable_expert_parallel": "As vLLM's flag: each of tp x dp GPUs has whole experts in place of a slice of each.",
    "all2all_backend": "As vLLM's flag, with `dp`: `allgather_reducescatter` and `naive` send every token to every "
    "engine, the others only to its experts.",
    "mm_encoder_tp_mode": "As vLLM's flag: `tp` GPUs split the layers of a vision tower, or share the images of a "
    "step out. A tower for which vLLM does not support it ignores this.",
    "gpus_per_node": "Collectives of more neighbours than that go over the network, at its rate.",
    "network_gb_per_s": "A GPU's way to another node at its peak, one direction, GB/s: measured between H100 nodes.",
    "network_us": "µs per hop between nodes: one per send, two per node and collective; measured likewise.",
    "nccl_launch_us": KeyText(
        "µs per collective, bytes excluded: roofline has 20 (Vidur's nccl_cpu_launch_overhead), physics a learned 15.",
        "the latency model's `all_reduce_us`",
    ),
    "nccl_skew_us": "µs that each collective waits for its slowest GPU, times (GPUs of the group)^1.25 (Vidur's "
    "nccl_cpu_skew_overhead_per_device).",
    "gpu_memory_utilization": KeyText(
        f"Share of the memory that vLLM may take: {shares_by_version()}.", "vLLM's"
    ),
    "kv_cache_memory_bytes": KeyText(
        "As vLLM's flag: bytes of each GPU for its KV cache, in place of what `gpu_memory_utilization` leaves. Beside "
        "the weights there must be room for them; what else takes memory is not counted.",
        default="what is left",
    ),
    "kv_offloading_size": "As vLLM's flag: GiB of host memory for KV blocks, of all GPUs together, 0: none; sets "
    "`engine.num_cpu_blocks` by `latency.model_config`.",
    "kv_offload_gb_per_s": KeyText(
        "Between host memory and each GPU, GB/s, each way; sets `engine.kv_load_us_per_block` and "
        "`engine.kv_store_us_per_block`, or `engine.kv_transfer_bandwidth`.",
        "25, told",
    ),
    "memory_gib": KeyText("Memory as CUDA reports it, GiB.", OF_GPU),
    "bandwidth_gb_per_s": KeyText("Of its memory, GB/s.", OF_GPU),
    "tflops_16bit": KeyText("Dense products of 16 bits, TFLOPS.", OF_GPU),
    "tflops_fp8": KeyText("Of fp8; absent: it has none.", OF_GPU),
    "tflops_fp4": KeyText("Of 4 bits; absent: it has none.", OF_GPU),
    "tops_int8": KeyText("Of int8; absent: it has none.", OF_GPU),
    "link_gb_per_s": KeyText("To its peers, one direction, GB/s.", OF_GPU),
}


@lru_cache(maxsize=1)
def hardware_keys() -> tuple[Key, ...]:
    """Return the keys of ``hardware``, as a server's hardware, its layout and its GPU have them."""
    return keys_of("hardware", HARDWARE, {"": (Hardware, Layout, Gpu)})
