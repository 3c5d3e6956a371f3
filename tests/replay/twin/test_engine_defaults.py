"""Limits that nobody gives are vLLM's own: by the model's config.json, the GPU and the version; and they are told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import vtwin
from replay.model.gpus import find_gpu
from replay.twin.config_read import load_config
from replay.twin.engine_defaults import batch_limits
from replay.twin.twin_config import TwinConfig
from sim.latency import Blackbox, Physics
from traces.errors import ConfigError

MODEL = "latency: {model: roofline, model_config: Qwen/Qwen3-8B}\n"


def loaded(folder: Path, text: str) -> TwinConfig:
    path = folder / "twin.yaml"
    path.write_text(text)
    return load_config(path)


@pytest.mark.parametrize(
    ("gpu", "version", "limits"),
    [
        ("RTX4090", "0.32.0", (256, 2048)),
        ("L40S", "0.32.0", (256, 2048)),
        ("A100-80", "0.32.0", (256, 2048)),
        ("H100", "0.32.0", (1024, 8192)),
        ("RTXPRO6000", "0.32.0", (1024, 8192)),
        ("H200", "0.32.0", (1024, 8192)),
        ("B200", "0.32.0", (1024, 16384)),
        ("MI300X", "0.28.0", (1024, 16384)),
        ("B200", "0.27.1", (1024, 8192)),
    ],
)
def test_batches_are_as_large_as_vllm_takes_them_on_the_gpu(
    gpu: str, version: str, limits: tuple[int, int], tmp_path: Path
) -> None:
    assert batch_limits(find_gpu(gpu), vllm_version=version) == limits
    config = loaded(tmp_path, f"vllm_version: '{version}'\nhardware: {gpu}\n{MODEL}")
    assert (config.engine.max_num_seqs, config.engine.max_num_batched_tokens) == limits
    said = f"max_num_seqs {limits[0]}, max_num_batched_tokens {limits[1]}, as an API server of vLLM {version} takes on"
    assert [note for note in config.notes if said in note]
    assert config.assumed == ()


def test_the_longest_sequence_is_the_models_own(tmp_path: Path) -> None:
    config = loaded(tmp_path, f"hardware: H100\n{MODEL}")
    assert config.engine.max_model_len == 40960
    assert "engine.max_model_len is absent: 40960, by the config.json of Qwen/Qwen3-8B" in config.notes
    given = loaded(tmp_path, f"hardware: H100\nengine: {{max_model_len: 4096}}\n{MODEL}")
    assert given.engine.max_model_len == 4096
    assert not [note for note in given.notes if "max_model_len is absent" in note]


@pytest.mark.parametrize(
    ("engine", "seqs", "tokens"),
    [
        ("max_num_seqs: 3, max_model_len: 1000", 3, 3000),
        ("max_num_batched_tokens: 100", 100, 100),
        ("enable_chunked_prefill: false, max_model_len: 20000", 1024, 20000),
        ("max_num_seqs: 7, max_num_batched_tokens: 9", 7, 9),
    ],
)
def test_limits_bound_each_other_as_in_vllm(tmp_path: Path, engine: str, seqs: int, tokens: int) -> None:
    config = loaded(tmp_path, f"hardware: H100\nengine: {{{engine}}}\n{MODEL}").engine
    assert (config.max_num_seqs, config.max_num_batched_tokens) == (seqs, tokens)


def test_an_entry_on_record_names_the_gpu_and_the_model_too(tmp_path: Path) -> None:
    text = "latency: {model: blackbox, defaults: {model: qwen/qwen2.5-7b-instruct, gpu: H100}}\n"
    config = loaded(tmp_path, text)
    engine = config.engine
    assert (engine.max_num_seqs, engine.max_num_batched_tokens, engine.max_model_len) == (1024, 8192, 32768)


def test_the_notes_are_in_the_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "twin.yaml").write_text(f"hardware: H100\n{MODEL}")
    asked = ["run", "--config", str(tmp_path / "twin.yaml"), "--rate", "4", "--num-requests", "5", "--json"]
    assert vtwin.main([*asked, "--output", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr()
    notes = json.loads(shown.out)["warnings"]
    assert [note for note in notes if "max_model_len is absent" in note]
    assert all(f"note: {note}\n" in shown.err for note in notes)


@pytest.mark.parametrize(("model", "added"), [("roofline", "15.0 ms"), ("physics", "18.1 ms")])
def test_an_analytic_model_says_how_much_it_adds_to_every_first_token(
    tmp_path: Path, model: str, added: str
) -> None:
    config = loaded(tmp_path, f"hardware: H100\n{MODEL.replace('roofline', model)}")
    assert [note for note in config.notes if f"{model} adds {added} to every request" in note]
    known = MODEL.replace("roofline", model).replace("-8B}", "-8B, coefficients: {alpha0: 900}}")
    assert not [note for note in loaded(tmp_path, f"hardware: H100\n{known}").notes if "alpha0" in note]


def test_a_model_is_simulated_in_its_groups_and_they_size_its_cache(tmp_path: Path) -> None:
    config = loaded(
        tmp_path, "hardware: H100\nlatency: {model: roofline, model_config: google/gemma-3-12b-it}\n"
    )
    kinds = [group.kind for group in config.engine.kv_cache_groups]
    assert kinds == ["sliding"] * 5 + ["full"]
    assert not [note for note in config.notes if note.startswith("model config: vision_config")]
    off = loaded(
        tmp_path,
        "hardware: H100\nengine: {disable_hybrid_kv_cache_manager: true}\n"
        "latency: {model: roofline, model_config: google/gemma-3-12b-it}\n",
    )
    assert off.engine.kv_cache_groups == ()
    assert config.engine.num_gpu_blocks // 6 == off.engine.num_gpu_blocks


def test_what_is_not_simulated_with_groups_keeps_everything_and_says_so(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        "hardware: {gpu: H100, pp: 2}\nlatency: {model: roofline, model_config: google/gemma-3-12b-it}\n",
    )
    assert config.engine.kv_cache_groups == ()
    said = "of google/gemma-3-12b-it is not simulated with engine.pipeline_parallel_size 2"
    assert [note for note in config.notes if said in note]
    states = "latency: {model: roofline, model_config: nvidia/Nemotron-H-56B-Base-8K}\n"
    with pytest.raises(
        ConfigError,
        match=r"kv_cache_groups: states, as nvidia/Nemotron\S+ keeps them, cannot be combined with engine\.",
    ):
        loaded(tmp_path, f"hardware: {{gpu: H100, tp: 4, pp: 2}}\n{states}")


def test_a_block_beside_states_is_as_large_as_vllm_makes_it(tmp_path: Path) -> None:
    latency = "latency: {model: roofline, model_config: nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16}\n"
    config = loaded(tmp_path, f"hardware: H100\n{latency}")
    state = 64 * 64 * 128 * 4 + (64 * 64 + 2 * 8 * 128) * 3 * 2
    assert config.engine.block_size == 16 * -(-state // (16 * 2 * 2 * 128 * 2))
    assert [
        note for note in config.notes if note.startswith(f"engine.block_size: {config.engine.block_size} in")
    ]
    assert {group.mode for group in config.engine.kv_cache_groups if group.kind == "state"} == {"align"}


FINETUNE = """
{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
 "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072,
 "tie_word_embeddings": false, "torch_dtype": "bfloat16"}
"""
AUTO = "latency: {model: auto, model_config: my-finetune/config.json}\nhardware: {gpu: H100, tp: 1}\n"


def test_auto_finds_coefficients_of_the_same_architecture_under_another_name(tmp_path: Path) -> None:
    """Those are weakly identified, so that it takes physics and names them; blackbox takes them."""
    (tmp_path / "my-finetune").mkdir()
    file = tmp_path / "my-finetune" / "config.json"
    file.write_text(FINETUNE)
    config = loaded(tmp_path, AUTO)
    assert isinstance(config.latency, Physics)
    assert "of meta-llama/llama-3.1-8b-instruct on H100 tp=1" in config.latency_reason
    assert "on record are weakly identified" in config.latency_reason
    blackbox = loaded(tmp_path, AUTO.replace("auto", "blackbox"))
    assert isinstance(blackbox.latency, Blackbox)
    assert any("a model of the same architecture" in note for note in blackbox.notes)
    file.write_text(FINETUNE.replace('"num_hidden_layers": 32', '"num_hidden_layers": 31'))
    assert (
        "no coefficients of my-finetune on H100 tp=1 are on record" in loaded(tmp_path, AUTO).latency_reason
    )


def test_auto_takes_the_entry_of_the_version_that_the_file_names(tmp_path: Path) -> None:
    auto = "latency: {model: auto, defaults: {model: meta-llama/Llama-3.1-8B, gpu: RTX 4090, tp: 1}}\n"
    found = loaded(tmp_path, f'vllm_version: "0.19.1"\n{auto}')
    assert "vLLM 0.19.0 are on record" in found.latency_reason
    with pytest.raises(ConfigError):
        loaded(tmp_path, f'vllm_version: "0.32.0"\n{auto}')
