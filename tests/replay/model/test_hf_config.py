"""A config.json becomes the model that its publisher says it is, or one line that says what is wrong."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from replay.model.families import FAMILIES
from replay.model.hf_config import read_model_config
from replay.model.layers.hybrids import HYBRIDS
from replay.model.shape import ModelShape
from replay.model.shipped_models import SAME_ARCHITECTURE, SHIPPED, shipped_config, shipped_models
from traces.errors import ConfigError

ACTIVE = {
    # model: billions of parameters active per token, as the model cards say
    "meta-llama/Llama-2-7b-hf": 6.6,
    "meta-llama/Llama-3.1-70B": 69.5,
    "mistralai/Mixtral-8x7B-Instruct-v0.1": 12.9,
    "mistralai/Mixtral-8x22B-Instruct-v0.1": 39,
    "Qwen/Qwen3-30B-A3B": 3.3,
    "Qwen/Qwen3-235B-A22B-FP8": 22,
    "Qwen/Qwen3-Coder-480B-A35B-Instruct": 35,
    "openai/gpt-oss-120b": 5.1,
    "openai/gpt-oss-20b": 3.6,
    "MiniMaxAI/MiniMax-M2.5": 10,
    "moonshotai/Kimi-K2.5": 32,
    "deepseek-ai/DeepSeek-V2-Lite": 2.4,
    "deepseek-ai/DeepSeek-V2": 21,
    "deepseek-ai/DeepSeek-V3": 37,
    "deepseek-ai/DeepSeek-V4-Pro": 49,
    "nvidia/DeepSeek-V4-Flash-NVFP4": 13,
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": 17,
    "microsoft/Phi-3.5-MoE-instruct": 6.6,
    "zai-org/GLM-4.5-Air": 12,
}
PUBLISHED = {
    row[0]: float(row[1])
    for row in re.findall(
        r"^\| `(\S+)` \| ([\d.]+) \|", (SHIPPED / "PROVENANCE.md").read_text(), re.MULTILINE
    )
}
"""Billions of parameters by model: the table of the file that says where each one's numbers are from."""
COMPARED = dict(
    re.findall(r"^\| `(\S+)` \|.*\| (.+) \|$", (SHIPPED / "PROVENANCE.md").read_text(), re.MULTILINE)
)
"""What each model's fields were compared with: the last column of the same table."""
PLAIN: Mapping[str, object] = {
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 12,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "torch_dtype": "bfloat16",
}


def written(folder: Path, **changes: object) -> Path:
    """Return a config.json: a plain one with changes, None taking a field away."""
    values = {key: value for key, value in {**PLAIN, **changes}.items() if value is not None}
    path = folder / "config.json"
    path.write_text(json.dumps(values))
    return path


@pytest.mark.parametrize("model", shipped_models())
def test_a_model_has_as_many_parameters_as_is_published(model: str) -> None:
    assert read_model_config(model).num_parameters() / 1e9 == pytest.approx(PUBLISHED[model], rel=0.01)


def test_every_model_says_what_it_was_compared_with() -> None:
    assert set(COMPARED) == set(shipped_models())
    alone = [model for model, what in COMPARED.items() if what.startswith("nothing of its own")]
    assert len(alone) == 6
    assert sum("every field" in what for what in COMPARED.values()) == 12
    assert sum("the file itself" in what for what in COMPARED.values()) == 22


@pytest.mark.parametrize("model", ACTIVE)
def test_a_token_passes_as_many_parameters_as_the_card_says(model: str) -> None:
    assert read_model_config(model).num_active_parameters() / 1e9 == pytest.approx(ACTIVE[model], rel=0.1)


@pytest.mark.parametrize(
    "family",
    [
        *(f"Qwen/Qwen3-{size}B" for size in (4, 8, 14, 32)),
        *("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.2-3B", "meta-llama/Llama-3.3-70B-Instruct"),
        *(f"google/gemma-3-{size}b-it" for size in (1, 4, 12, 27)),
        *(
            "mistralai/Mistral-7B-Instruct-v0.3",
            "mistralai/Mistral-Small-24B-Instruct-2501",
            "microsoft/phi-4",
        ),
        *(
            "openai/gpt-oss-20b",
            "openai/gpt-oss-120b",
            "deepseek-ai/DeepSeek-R1",
            "deepseek-ai/DeepSeek-V2-Lite",
        ),
    ],
)
def test_the_families_that_people_serve_first_are_found_by_name(family: str) -> None:
    assert read_model_config(family).num_layers > 0


def test_every_model_that_ships_is_understood_by_its_name_alone() -> None:
    for model in shipped_models():
        assert read_model_config(model.split("/")[1].upper()).name == model


def test_latent_attention_keeps_one_vector_whatever_the_tensor_parallelism() -> None:
    shape = read_model_config("deepseek-ai/DeepSeek-V3")
    assert shape.kv_bytes_per_token(1) == shape.kv_bytes_per_token(8) == 61 * (512 + 64) * 2
    dense = read_model_config("meta-llama/Llama-3.1-70B")
    assert dense.kv_bytes_per_token(8) == dense.kv_bytes_per_token(1) / 8
    assert dense.kv_bytes_per_token(16) == dense.kv_bytes_per_token(8)  # a head is not divided


@pytest.mark.parametrize(
    ("changes", "num_moe", "shared"),
    [
        ({"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}, 12, 0),
        ({"model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
          "decoder_sparse_step": 2}, 6, 0),
        ({"model_type": "qwen2_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
          "mlp_only_layers": [0, 5], "shared_expert_intermediate_size": 96}, 10, 96),
        ({"model_type": "deepseek_v3", "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
          "first_k_dense_replace": 3, "moe_layer_freq": 1, "n_shared_experts": 2}, 9, 128),
        ({"model_type": "llama4_text", "num_local_experts": 8, "num_experts_per_tok": 1,
          "interleave_moe_layer_step": 2, "intermediate_size_mlp": 8192}, 6, 4096),
    ],
    ids=["all", "every second", "all but two", "from the fourth on", "interleaved"],
)  # fmt: skip
def test_experts_are_in_the_layers_that_have_them(
    tmp_path: Path, changes: dict[str, object], num_moe: int, shared: int
) -> None:
    shape = read_model_config(written(tmp_path, **changes))
    assert shape.num_moe_layers == num_moe
    assert shape.experts is not None
    assert shape.experts.shared_size == shared


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (0, 0)),
        ({"model_type": "mistral", "sliding_window": 4096}, (12, 4096)),
        ({"model_type": "mistral"}, (12, 4096)),  # as transformers has it, unless it is null
        ({"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": False}, (0, 0)),
        ({"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": True,
          "max_window_layers": 0}, (12, 4096)),
        ({"model_type": "gemma2", "sliding_window": 4096}, (6, 4096)),
        ({"model_type": "gemma3_text", "sliding_window": 512, "sliding_window_pattern": 6}, (10, 512)),
        ({"model_type": "gpt_oss", "sliding_window": 128,
          "layer_types": ["sliding_attention", "full_attention"] * 6}, (6, 128)),
        ({"model_type": "llama4_text", "attention_chunk_size": 8192, "no_rope_layers": [1, 1, 1, 0] * 3}, (9, 8192)),
    ],
)  # fmt: skip
def test_windows_are_in_the_layers_that_have_them(
    tmp_path: Path, changes: dict[str, object], expected: tuple[int, int]
) -> None:
    shape = read_model_config(written(tmp_path, **changes))
    assert (shape.num_windowed_layers, shape.window) == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"layer_types": ["sliding_attention", "full_attention"]},
            "layer_types: got 2 kinds, expected one for each of",
        ),
        (
            {"layer_types": ["sliding_attention"] * 12, "sliding_window": 0},
            "sliding_window: got 0, expected the tokens",
        ),
    ],
)
def test_windows_that_are_half_said_are_refused_by_field(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    said = {"model_type": "gpt_oss", "sliding_window": 128, **changes}
    with pytest.raises(ConfigError, match=message):
        read_model_config(written(tmp_path, **said))


@pytest.mark.parametrize(
    ("quantization", "expected"),
    [
        (None, ("bfloat16", 2, "16bit")),
        ({"quant_method": "fp8"}, ("fp8", 1, "fp8")),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, ("int4", 0.515625, "16bit")),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, ("int4", 0.53125, "16bit")),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, ("nvfp4", 0.5625, "fp4")),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {
            "weights": {"num_bits": 8, "type": "int"}, "input_activations": {"num_bits": 8}}}}, ("int8", 1, "int8")),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {
            "weights": {"num_bits": 8, "type": "float"}, "input_activations": {"num_bits": 8}}}}, ("fp8", 1, "fp8")),
    ],
)  # fmt: skip
def test_weights_are_as_wide_as_the_quantization_says(
    tmp_path: Path, quantization: object, expected: tuple[str, float, str]
) -> None:
    shape = read_model_config(written(tmp_path, quantization_config=quantization))
    found = shape.mlp_precision
    assert (found.name, found.bytes_per_weight, found.matmul) == expected


def test_what_a_quantization_spares_stays_wide() -> None:
    kimi, oss = read_model_config("moonshotai/Kimi-K2.5"), read_model_config("openai/gpt-oss-120b")
    assert (kimi.attention_precision.name, kimi.mlp_precision.name, kimi.expert_precision.name) == (
        "bfloat16",
        "bfloat16",
        "int4",
    )
    assert (oss.attention_precision.name, oss.expert_precision.name) == ("bfloat16", "mxfp4")
    minimax = read_model_config("MiniMaxAI/MiniMax-M2.5")  # it spares the routers: "gate"
    assert minimax.attention_precision.name == minimax.expert_precision.name == "fp8"


def test_the_kv_cache_follows_the_flag_else_the_checkpoint(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert read_model_config(path).kv_dtype_bytes == 2
    assert read_model_config(path, kv_cache_dtype="fp8").kv_dtype_bytes == 1
    assert read_model_config("nvidia/Llama-3.1-8B-Instruct-FP8").kv_dtype_bytes == 1
    assert (
        read_model_config("nvidia/Llama-3.1-8B-Instruct-FP8", kv_cache_dtype="bfloat16").kv_dtype_bytes == 2
    )


def test_a_multimodal_model_is_its_language_model_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    text = {**PLAIN, "model_type": "mistral"}
    path.write_text(
        json.dumps({"model_type": "mistral4v", "text_config": text, "vision_config": {"depth": 2}})
    )
    shape = read_model_config(path)
    assert shape.num_layers == 12
    assert ["vision_config" in note for note in shape.left_out] == [True]
    assert read_model_config(written(tmp_path)).left_out == ()


def test_gemma_3_files_that_leave_out_what_their_class_has_are_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    text = {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "sliding_window": 1024,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    }
    path.write_text(json.dumps({"model_type": "gemma3", "text_config": text, "vision_config": {"depth": 27}}))
    read, ships = read_model_config(path), read_model_config("google/gemma-3-4b-it")
    assert dataclasses.replace(read, name=ships.name, vision=ships.vision) == ships
    assert (read.num_windowed_layers, read.window, read.max_model_len) == (29, 1024, 131072)


@pytest.mark.parametrize(
    ("changes", "longest"),
    [
        ({"max_position_embeddings": 8192}, 8192),
        ({}, 2048),
        ({"n_positions": 1024, "max_position_embeddings": 4096}, 1024),
        ({"max_position_embeddings": 8192, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 8192),
        ({"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 4}}, 16384),
        ({"max_position_embeddings": 163840, "rope_scaling": {
            "type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}}, 163840),
        ({"max_position_embeddings": 32768, "rope_parameters": {
            "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}, 131072),
    ],
)  # fmt: skip
def test_the_longest_sequence_is_what_vllm_takes_of_the_file(
    tmp_path: Path, changes: dict[str, object], longest: int
) -> None:
    assert read_model_config(written(tmp_path, **changes)).max_model_len == longest


def test_a_window_that_no_context_outgrows_is_one_to_vllm(tmp_path: Path) -> None:
    path = written(tmp_path, model_type="phi3", sliding_window=262144, max_position_embeddings=131072)
    shape = read_model_config(path)
    assert (shape.num_windowed_layers, shape.window) == (shape.num_layers, 262144)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "qwen4"}, r"model_type: got 'qwen4', expected .*nearest: .*qwen3.*config\.json"),
        (
            {"model_type": "qwen3_next", "layer_types": ["full_attention", "convolution"]},
            r"layer_types: got 'convolution', a kind of layer that is not known, expected .*kv_cache_groups.*json",
        ),
        (
            {"model_type": "nemotron_h", "hybrid_override_pattern": "M*W"},
            r"hybrid_override_pattern: got 'W', a kind of layer that is not known, .*config\.json",
        ),
        ({"model_type": "deepseek_v32"}, r"index_n_heads: got nothing, expected an integer >= 1.*config\.json"),
        ({"model_type": "minimax"}, r"model_type: got 'minimax': linear-attention layers, .*config\.json"),
        ({"model_type": "deepseek_v4"}, r"qk_rope_head_dim: got nothing, expected an integer >= 1.*config\.json"),
        ({"model_type": "glm5_next_text"}, r"model_type: got 'glm5_next_text': an index over pools .*config\.json"),
        ({"model_type": "inkling_text"}, r"model_type: got 'inkling_text': attention with convolutions .*blackbox"),
        ({"model_type": "hrm_text"}, r"engine\.kv_cache_groups and num_gpu_blocks written out"),
        ({"model_type": "bamba"}, r"model_type: got 'bamba': state-space layers, .*config\.json"),
        ({"model_type": "mllama_text_model"}, r"model_type: got .*: cross-attention to an encoder, .*config\.json"),
        ({"model_type": "new", "mamba_d_state": 16}, r"mamba_d_state: got 16: state-space layers"),
        ({"rope_scaling": {"rope_type": "linear", "factor": "4"}}, r'rope_scaling\.factor: got "4", expected a number'),
        ({"model_type": None}, r"model_type: got '', expected an architecture"),
        ({"num_hidden_layers": None, "num_layers": 4},
         r"num_hidden_layers: got nothing, expected .*the file has num_layers \(.*config\.json\)"),
        ({"num_attention_heads": "many"}, r'num_attention_heads: got "many", expected an integer'),
        ({"hidden_size": 0}, r"hidden_size: got 0, expected an integer >= 1"),
        ({"torch_dtype": "bf61"}, r"torch_dtype: got 'bf61', expected .*nearest: bfloat16"),
        ({"quantization_config": {"quant_method": "gptg"}},
         r"quantization_config\.quant_method: got 'gptg'.*nearest: gptq"),
        ({"layer_types": ["linear_attention"] * 12, "sliding_window": 1}, r"layer_types: got 'linear_attention'"),
        ({"model_type": "mixtral", "num_local_experts": 8}, r"num_experts_per_tok: got nothing"),
    ],
)  # fmt: skip
def test_a_config_that_cannot_be_used_is_one_line_with_file_field_and_what_would_do(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read_model_config(written(tmp_path, **changes))
    assert "\n" not in str(caught.value)
    assert "config.json" in str(caught.value)


def test_a_file_that_is_not_there_or_no_json_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"got nothing at Qwen/Qwen3-33B.*nearest: Qwen/Qwen3-32B"):
        read_model_config("Qwen/Qwen3-33B")
    with pytest.raises(ConfigError, match=r"got an empty name, expected .* \(such as [\w/.-]+\)$"):
        read_model_config("")
    bad = tmp_path / "config.json"
    bad.write_text("{")
    with pytest.raises(ConfigError, match=r"JSON: got text that does not parse .*config\.json"):
        read_model_config(bad)
    bad.write_text("[]")
    with pytest.raises(ConfigError, match="expected an object"):
        read_model_config(bad)


def test_every_known_architecture_reads_a_plain_decoder(tmp_path: Path) -> None:
    for model_type in (
        set(FAMILIES) - set(HYBRIDS) - {"dbrx", "mpt"}
    ):  # these two have no name in common with others
        assert read_model_config(written(tmp_path, model_type=model_type)).model_type == model_type


def test_a_model_tuned_for_chats_is_found_by_its_own_name() -> None:
    for base, others in SAME_ARCHITECTURE.items():
        assert base in shipped_models()
        for other in others:
            assert read_model_config(other) == read_model_config(base)
    assert read_model_config("llama-3.1-8b-instruct").name == "meta-llama/Llama-3.1-8B"


def test_a_name_like_none_that_ships_gets_the_list() -> None:
    with pytest.raises(ConfigError) as refused:
        read_model_config("foo")
    assert [name for name in shipped_models() if name not in str(refused.value)] == []


@pytest.mark.parametrize(("dtype", "size"), [("float16", 2), ("fp8_e5m2", 1), ("nvfp4", 0.5625)])
def test_a_number_in_the_kv_cache_is_as_wide_as_the_flag_says(
    tmp_path: Path, dtype: str, size: float
) -> None:
    assert read_model_config(written(tmp_path), kv_cache_dtype=dtype).kv_dtype_bytes == size


@pytest.mark.parametrize("dtype", ["banana", "fp9", "turboquant_k8v4"])
def test_a_kv_cache_of_an_unknown_type_is_refused(tmp_path: Path, dtype: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"kv_cache_dtype: got '{dtype}', expected auto, bfloat16, float16"
    ):
        read_model_config(written(tmp_path), kv_cache_dtype=dtype)


QWEN_OF_2023 = {
    "architectures": ["QWenLMHeadModel"],
    "bf16": False,
    "hidden_size": 4096,
    "intermediate_size": 22016,
    "kv_channels": 128,
    "layer_norm_epsilon": 1e-6,
    "max_position_embeddings": 32768,
    "model_type": "qwen",
    "no_bias": True,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "onnx_safe": None,
    "rotary_pct": 1.0,
    "seq_length": 8192,
    "tie_word_embeddings": False,
    "use_flash_attn": "auto",
    "vocab_size": 151936,
}
INTERNLM = {
    "architectures": ["InternLMForCausalLM"],
    "bias": True,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "max_position_embeddings": 2048,
    "model_type": "internlm",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "rms_norm_eps": 1e-6,
    "rotary": {"base": 10000, "type": "dynamic"},
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "vocab_size": 103168,
}


@pytest.mark.parametrize(
    ("config", "billions", "longest"), [(QWEN_OF_2023, 7.72, 8192), (INTERNLM, 7.32, 2048)]
)  # as their makers say
def test_models_of_2023_have_the_weights_that_they_are_said_to_have(
    config: dict[str, object], billions: float, longest: int, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    shape = read_model_config(tmp_path / "config.json")
    assert shape.num_parameters() == pytest.approx(billions * 1e9, rel=0.002)
    assert (shape.max_model_len, shape.intermediate_size) == (longest, 11008)


def of_qwen3(folder: Path, changes: dict[str, object]) -> ModelShape:
    ships = shipped_config("Qwen/Qwen3-8B")
    assert ships is not None
    config = {**json.loads(Path(ships).read_text()), **changes}
    (folder / "config.json").write_text(json.dumps(config))
    return read_model_config(folder / "config.json")


@pytest.mark.parametrize(
    ("scheme", "kv_bytes"),
    [
        ("FP8", 1.0),
        ("fp8", 1.0),
        ("FP8_E4M3", 1.0),
        ({"num_bits": 8, "type": "float"}, 1.0),
        (None, 2.0),
        ("", 2.0),
        ("none", 2.0),
    ],
)
def test_a_kv_scheme_is_read_by_name_too(scheme: object, kv_bytes: float, tmp_path: Path) -> None:
    section = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": scheme}
    assert of_qwen3(tmp_path, {"quantization_config": section}).kv_dtype_bytes == kv_bytes


def test_a_kv_scheme_that_is_not_known_is_refused_by_name(tmp_path: Path) -> None:
    section = {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": "NVFP4"}
    with pytest.raises(
        ConfigError, match=r"quantization_config\.kv_cache_scheme: got 'NVFP4', expected FP8, none"
    ):
        of_qwen3(tmp_path, {"quantization_config": section})


@pytest.mark.parametrize("said", [{"model_type": ""}, {}, {"model_type": None}])
@pytest.mark.parametrize(
    ("whole", "found"),
    [
        ("minimax_m3_vl", "minimax_m3_vl_text"),
        ("llava", "llama"),
        ("qwen3_vl", "qwen3_vl_text"),
        ("mistral3", "mistral"),
    ],
)
def test_a_language_model_without_a_type_is_what_the_whole_is_made_of(
    said: dict[str, object], whole: str, found: str, tmp_path: Path
) -> None:
    ships = shipped_config("Qwen/Qwen3-8B")
    assert ships is not None
    inner = {key: value for key, value in json.loads(Path(ships).read_text()).items() if key != "model_type"}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": whole, "text_config": {**inner, **said}}))
    assert read_model_config(tmp_path / "config.json").model_type == found


def test_a_part_that_says_no_sizes_is_a_remnant_of_the_file(tmp_path: Path) -> None:
    assert of_qwen3(tmp_path, {"text_config": {"model_type": ""}}).model_type == "qwen3"


@pytest.mark.parametrize(
    ("whole", "message"),
    [
        ("glm5_next", "text_config.model_type: got 'glm5_next_text': an index over pools of tokens"),
        ("deepseek_v41", "text_config.compress_ratios: got"),
        ("foo_vl", "text_config.model_type: got 'foo_vl', expected an architecture that is known"),
    ],
)
def test_a_whole_that_is_not_known_is_refused_by_its_name(whole: str, message: str, tmp_path: Path) -> None:
    more = {"compress_ratios": [0, 4]} if whole == "deepseek_v41" else {}
    inner = {"model_type": "", "hidden_size": 64, "num_hidden_layers": 2, **more}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": whole, "text_config": inner}))
    with pytest.raises(ConfigError) as refused:
        read_model_config(tmp_path / "config.json")
    assert str(refused.value).startswith(message)
