"""KV blocks come out as vLLM counts them, from the GPU's memory and the model's shape."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import vtwin
from replay.model import Serving, find_gpu, kv_cache_size, read_model_config
from replay.model.gpu_memory import GIB, tokens_held, weight_bytes
from replay.model.gpus import read_gpu, shipped_gpus
from sim import KVCacheGroup
from traces.errors import ConfigError
from traces.strict.section import read_section

COUNTED = [
    # vLLM's own counts, from public logs and a recording; vLLM's version; 2,048 tokens per step, utilization 0.9
    ("meta-llama/Llama-2-7b-hf", "H100", 1, "0.15.1", 7462),
    ("meta-llama/Llama-2-70b-hf", "H100", 4, "0.15.1", 31356),
    ("mistralai/Mixtral-8x7B-Instruct-v0.1", "H100", 2, "0.15.1", 27510),
    ("codellama/CodeLlama-34b-Instruct-hf", "H100", 2, "0.15.1", 26602),
]


@pytest.mark.parametrize(("model", "gpu", "tp", "version", "counted"), COUNTED)
def test_blocks_are_within_half_a_per_cent_of_those_that_vllm_counted(
    model: str, gpu: str, tp: int, version: str, counted: int
) -> None:
    serving = Serving(vllm_version=version)
    found = kv_cache_size(read_model_config(model), find_gpu(gpu), tp=tp, serving=serving)
    assert found.num_gpu_blocks == pytest.approx(counted, rel=0.005)


def test_a_recorded_server_on_a_small_gpu_had_almost_as_many_blocks() -> None:
    shape, gpu = read_model_config("meta-llama/Llama-3.1-8B"), find_gpu("RTX4090")
    found = kv_cache_size(shape, gpu, serving=Serving(vllm_version="0.19.0"))
    assert found.num_gpu_blocks == pytest.approx(2588, rel=0.03)  # LLMServingSim's recording


@pytest.mark.parametrize("max_num_seqs", [1024, 64])
def test_the_second_model_runner_profiles_neither_top_k_nor_cuda_graphs(max_num_seqs: int) -> None:
    shape, gpu = read_model_config("meta-llama/Llama-3.1-8B"), find_gpu("H100")
    serving = Serving(vllm_version="0.24.0", max_num_batched_tokens=8192, max_num_seqs=max_num_seqs)
    found = kv_cache_size(shape, gpu, serving=serving)
    assert found.num_gpu_blocks == pytest.approx(
        28_934, rel=0.01
    )  # counted by vLLM (tests/studies/validation/h100)
    assert found.cuda_graph_bytes == 0
    before = kv_cache_size(shape, gpu, serving=replace(serving, vllm_version="0.22.0", max_num_seqs=1024))
    assert before.num_gpu_blocks < 0.97 * found.num_gpu_blocks


def test_memory_goes_by_the_table_of_versions() -> None:
    shape, gpu = read_model_config("Qwen/Qwen2.5-7B-Instruct"), find_gpu("H100")
    versions = ("0.19.1", "0.20.0", "0.21.0", "0.99", "0.8.5")
    found = [kv_cache_size(shape, gpu, serving=Serving(vllm_version=version)) for version in versions]
    assert [each.utilization for each in found] == [0.9, 0.92, 0.92, 0.92, 0.9]
    assert [each.cuda_graph_bytes > 0 for each in found] == [False, False, True, True, False]
    told = kv_cache_size(shape, gpu, serving=Serving(gpu_memory_utilization=0.5))
    assert told.utilization == 0.5


def test_a_cache_of_given_bytes_is_that_many_blocks_whatever_is_left() -> None:
    shape, gpu = read_model_config("Qwen/Qwen2.5-7B-Instruct"), find_gpu("H100")
    block_bytes = 16 * 2 * 28 * 4 * 128 * 2  # tokens, keys and values, layers, heads, width, bytes
    given = kv_cache_size(shape, gpu, serving=Serving(kv_cache_memory_bytes=1000 * block_bytes + 7))
    assert (given.num_gpu_blocks, given.kv_bytes) == (1000, 1000 * block_bytes + 7)
    with pytest.raises(
        ConfigError, match=r"^kv_cache_memory_bytes: got 917,504, expected at least 1,835,008: two"
    ):
        kv_cache_size(shape, gpu, serving=Serving(kv_cache_memory_bytes=block_bytes))
    with pytest.raises(
        ConfigError, match=r"got 80,000,000,000, expected at most what the weights leave, of Qwen"
    ):
        kv_cache_size(shape, gpu, serving=Serving(kv_cache_memory_bytes=80 * 10**9))


def test_the_parts_add_up_to_the_memory_that_may_be_used() -> None:
    found = kv_cache_size(read_model_config("Qwen/Qwen3-32B"), find_gpu("H200"), tp=2)
    taken = found.weight_bytes + found.activation_bytes + found.non_torch_bytes + found.cuda_graph_bytes
    assert taken + found.kv_bytes == pytest.approx(found.memory_bytes * found.utilization)
    used = found.num_gpu_blocks * found.block_size * found.kv_bytes_per_token
    assert 0 <= found.kv_bytes - used < found.block_size * found.kv_bytes_per_token
    assert found.num_tokens == (found.num_gpu_blocks - 1) * 16  # the null block holds nothing


def test_more_gpus_hold_more_and_stages_divide_the_layers() -> None:
    shape, gpu = read_model_config("meta-llama/Llama-3.1-70B"), find_gpu("H200")
    blocks = [kv_cache_size(shape, gpu, tp=tp).num_gpu_blocks for tp in (2, 4, 8)]
    assert blocks == sorted(blocks)
    stages = kv_cache_size(shape, gpu, tp=2, pp=2)
    assert stages.kv_bytes_per_token == kv_cache_size(shape, gpu, tp=2).kv_bytes_per_token / 2
    assert stages.weight_bytes < 0.52 * weight_bytes(shape, tp=2)


def test_what_does_not_fit_says_what_it_needs() -> None:
    with pytest.raises(
        ConfigError, match=r"Llama-3\.1-70B on A40 tp=1 .* needs 13\d\.\d GiB .* expected a larger tp"
    ):
        kv_cache_size(read_model_config("Llama-3.1-70B"), find_gpu("A40"))
    with pytest.raises(ConfigError, match=r"tp: got 3, expected a divisor of .*32 heads \(nearest: 2\)"):
        kv_cache_size(read_model_config("Llama-3.1-8B"), find_gpu("A40"), tp=3)


def test_a_gpu_is_found_by_what_people_call_it() -> None:
    for name in ("h100", "H100-SXM", "h100_sxm", "NVIDIA H100 80GB HBM3"):
        assert find_gpu(name).name == "H100"
    assert find_gpu("rtx 4090").name == "RTX4090"
    with pytest.raises(ConfigError, match=r"--gpu: got 'H1000', expected a GPU of the table \(nearest: H100"):
        find_gpu("H1000")


def test_the_table_has_the_gpus_that_people_serve_on_each_with_its_source() -> None:
    wanted = "A40 A100-40 A100-80 L40S A10G RTX4090 RTXPRO6000 H100 H200 H20 B200 B300 GB200 GB300 L4 B60"
    wanted += " MI300X MI325X MI355X"
    assert {gpu.name for gpu in shipped_gpus()} >= set(wanted.split())
    for gpu in shipped_gpus():
        assert gpu.source
        assert gpu.flops_per_us("fp8") >= gpu.flops_per_us("16bit")  # or as slow, where it lacks the units
        assert 20 < gpu.memory_gib < 300
        assert gpu.tdp_w is not None
        assert 50 < gpu.tdp_w <= 1400


def test_a_gpu_can_be_described_by_its_numbers(tmp_path: Path) -> None:
    path = tmp_path / "twin.yaml"
    path.write_text("{memory_gib: 100, bandwidth_gb_per_s: 2000, tflops_16bit: 400}")
    own = read_gpu(read_section(path), base=None)
    assert (own.memory_gib, own.tflops_fp8) == (100.0, None)
    path.write_text("{memory_gib: 64}")
    smaller = read_gpu(read_section(path), base=find_gpu("H100"))
    assert smaller == replace(find_gpu("H100"), memory_gib=64.0)
    with pytest.raises(ConfigError, match=r"bandwidth_gb_per_s: got nothing, expected a number.*twin\.yaml"):
        read_gpu(read_section(path), base=None)


def test_memory_of_the_sampler_grows_with_the_vocabulary() -> None:
    small, large = read_model_config("Llama-2-7b-hf"), read_model_config("Llama-3.1-8B")
    gpu, serving = find_gpu("H100"), Serving(max_num_seqs=1024, vllm_version="0.22.0")
    few, many = (
        kv_cache_size(shape, gpu, serving=serving).activation_bytes / GIB for shape in (small, large)
    )
    assert few < 1
    assert many > 3


def test_a_gpu_like_none_gets_the_list_and_the_help_has_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        find_gpu("xyz")
    names = [gpu.name for gpu in shipped_gpus()]
    assert [name for name in names if name not in str(refused.value)] == []
    assert vtwin.main(["model", "info", "--help"]) == 0
    shown = capsys.readouterr().out
    assert [name for name in names if name not in shown] == []


def test_a_sequence_holds_no_more_of_a_window_than_it_has() -> None:
    """One by one: the longest sequence whose blocks in all groups are there."""
    groups = (KVCacheGroup(kind="full", block_size=32), *[KVCacheGroup(kind="sliding", window=100)] * 3)
    for blocks in (5, 9, 20, 29, 60, 400):
        fits = [
            tokens
            for tokens in range(32 * blocks)
            if -(-tokens // 32) + 3 * min(-(-tokens // 16), -(-99 // 16) + 1) <= blocks - 1
        ]
        assert tokens_held(groups, num_gpu_blocks=blocks, block_size=16) == max(fits)
