"""The keys of ``hardware:``, part of the table in ``replay.twin.config_keys``."""

from __future__ import annotations

from typing import get_args

from replay.model.layout import ONE_NODE, All2AllBackend
from replay.model.vision.tower import MMEncoderTPMode
from replay.twin.keys.key import Key
from sim import all_versions, rules_of


def _memory_shares() -> str:
    """Return what ``hardware.gpu_memory_utilization`` is without being given, by version."""
    first, *_, last = (rules.gpu_memory_utilization for rules in map(rules_of, all_versions()))
    since = next(each for each in all_versions() if rules_of(each).gpu_memory_utilization == last)
    return f"Share of the memory that vLLM may take: {last:g}, before vLLM {since} {first:g}."


HARDWARE_KEYS: tuple[Key, ...] = (
    Key(
        path="hardware",
        kind="mapping",
        default="none",
        meaning="A GPU of the table by its name, such as `H100`, or a mapping of what follows.",
    ),
    Key(
        path="hardware.gpu",
        kind="text",
        default="none",
        meaning="Its name; numbers next to it take the place of its own.",
    ),
    Key(path="hardware.tp", kind="integer", default="1", least=1, meaning="GPUs that share each layer."),
    Key(
        path="hardware.pp",
        kind="integer",
        default="1",
        least=1,
        meaning="Pipeline stages, for `engine.pipeline_parallel_size`.",
    ),
    Key(
        path="hardware.dp",
        kind="integer",
        default="1",
        least=1,
        meaning="Engines in step that share the experts of each layer (vLLM's data parallelism of a mixture of "
        "experts); one of them is simulated, the others taken to be as loaded.",
    ),
    Key(
        path="hardware.enable_expert_parallel",
        kind="boolean",
        default="false",
        meaning="As vLLM's flag: each of tp x dp GPUs has whole experts in place of a slice of each.",
    ),
    Key(
        path="hardware.all2all_backend",
        kind="choice",
        default=get_args(All2AllBackend)[0],
        meaning="As vLLM's flag, with `dp`: `allgather_reducescatter` and `naive` send every token to every engine, "
        "the others only to its experts.",
        choices=get_args(All2AllBackend),
    ),
    Key(
        path="hardware.mm_encoder_tp_mode",
        kind="choice",
        default=get_args(MMEncoderTPMode)[0],
        meaning="As vLLM's flag: `tp` GPUs split the layers of a vision tower, or share the images of a step out. A "
        "tower for which vLLM does not support it ignores this.",
        choices=get_args(MMEncoderTPMode),
    ),
    Key(
        path="hardware.gpus_per_node",
        kind="integer",
        default=str(ONE_NODE.gpus_per_node),
        least=1,
        meaning="Collectives of more neighbours than that go over the network, at its rate.",
    ),
    Key(
        path="hardware.network_gb_per_s",
        kind="number",
        default=f"{ONE_NODE.network_gb_per_s:g}",
        meaning="A GPU's way to another node at its peak, one direction, GB/s: measured between H100 nodes.",
    ),
    Key(
        path="hardware.network_us",
        kind="number",
        default=f"{ONE_NODE.network_us:g}",
        meaning="µs per hop between nodes: one per send, two per node and collective; measured likewise.",
    ),
    Key(
        path="hardware.nccl_launch_us",
        kind="number",
        default="the latency model's `all_reduce_us`",
        meaning="µs per collective, bytes excluded: roofline has 20 (Vidur's nccl_cpu_launch_overhead), physics a "
        "learned 15.",
    ),
    Key(
        path="hardware.nccl_skew_us",
        kind="number",
        default=f"{ONE_NODE.nccl_skew_us:g}",
        meaning="µs that each collective waits for its slowest GPU, times (GPUs of the group)^1.25 (Vidur's "
        "nccl_cpu_skew_overhead_per_device).",
    ),
    Key(
        path="hardware.gpu_memory_utilization",
        kind="fraction",
        default="vLLM's",
        meaning=_memory_shares(),
    ),
    Key(
        path="hardware.kv_cache_memory_bytes",
        kind="integer",
        default="what is left",
        least=1,
        meaning="As vLLM's flag: bytes of each GPU for its KV cache, in place of what `gpu_memory_utilization` leaves. "
        "Beside the weights there must be room for them; what else takes memory is not counted.",
    ),
    Key(
        path="hardware.kv_offloading_size",
        kind="number",
        default="none",
        meaning="As vLLM's flag: GiB of host memory for KV blocks, of all GPUs together, 0: none; sets "
        "`engine.num_cpu_blocks` by `latency.model_config`.",
    ),
    Key(
        path="hardware.kv_offload_gb_per_s",
        kind="number",
        default="25, told",
        meaning="Between host memory and each GPU, GB/s, each way; sets `engine.kv_load_us_per_block` and "
        "`engine.kv_store_us_per_block`, or `engine.kv_transfer_bandwidth`.",
    ),
    Key(
        path="hardware.memory_gib",
        kind="number",
        default="of `gpu`",
        meaning="Memory as CUDA reports it, GiB.",
    ),
    Key(
        path="hardware.bandwidth_gb_per_s", kind="number", default="of `gpu`", meaning="Of its memory, GB/s."
    ),
    Key(
        path="hardware.tflops_16bit",
        kind="number",
        default="of `gpu`",
        meaning="Dense products of 16 bits, TFLOPS.",
    ),
    Key(
        path="hardware.tflops_fp8", kind="number", default="of `gpu`", meaning="Of fp8; absent: it has none."
    ),
    Key(
        path="hardware.tflops_fp4",
        kind="number",
        default="of `gpu`",
        meaning="Of 4 bits; absent: it has none.",
    ),
    Key(
        path="hardware.tops_int8", kind="number", default="of `gpu`", meaning="Of int8; absent: it has none."
    ),
    Key(
        path="hardware.link_gb_per_s",
        kind="number",
        default="of `gpu`",
        meaning="To its peers, one direction, GB/s.",
    ),
)
