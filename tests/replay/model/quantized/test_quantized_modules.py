"""What names in a quantization mean, on checkpoints as their makers write them, and module by module."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from replay.model.gpu_memory import weight_bytes
from replay.model.gpus import find_gpu
from replay.model.hf_config import read_model_config
from replay.model.model_peak import peak_times
from replay.model.shape import ModelShape, Precision
from replay.model.shipped_models import shipped_config
from traces import ConfigError

LAYERS = 80
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
PER_FP4 = 0.5 + 1 / 16


def quantized(folder: Path, name: str, quantization: dict[str, object]) -> ModelShape:
    """Return a model that ships with another quantization."""
    file = shipped_config(name)
    assert file is not None
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(file.read_text()), "quantization_config": quantization}))
    return read_model_config(path)


def kept(shape: ModelShape) -> tuple[Precision, Precision, Precision]:
    """Return the precisions of attention, MLP and experts."""
    return shape.attention_precision, shape.mlp_precision, shape.expert_precision


def test_names_of_towers_norms_and_routers_spare_nothing_of_the_language_model(tmp_path: Path) -> None:
    towers = [
        f"model.visual.blocks.{layer}.{module}" for layer in range(27) for module in ("attn.qkv", "mlp.fc1")
    ]
    norms = [f"model.language_model.layers.{layer}.post_attention_layernorm" for layer in range(36)]
    spared = {**FP8, "modules_to_not_convert": [*towers, *norms, "model.visual.merger.mlp", "lm_head"]}
    vision = quantized(tmp_path, "Qwen/Qwen3-VL-8B-Instruct", spared)
    assert [str(each) for each in kept(vision)[:2]] == ["fp8", "fp8"]
    assert weight_bytes(vision) < 0.62 * weight_bytes(read_model_config("Qwen/Qwen3-VL-8B-Instruct"))
    routers = [f"model.layers.{layer}.mlp.gate" for layer in range(94)]
    moe = quantized(tmp_path, "Qwen/Qwen3-235B-A22B", {**NVFP4, "exclude_modules": ["lm_head", *routers]})
    assert [str(each) for each in kept(moe)] == ["nvfp4", "nvfp4", "nvfp4"]


def test_one_module_of_one_layer_is_its_own_share_of_the_weights(tmp_path: Path) -> None:
    spared = {**FP8, "modules_to_not_convert": [f"model.layers.{layer}.mlp.down_proj" for layer in range(8)]}
    in_attention, in_mlp, _ = kept(quantized(tmp_path, "meta-llama/Llama-3.1-70B", spared))
    assert str(in_attention) == "fp8"
    share = 8 / LAYERS / 3
    assert in_mlp.bytes_per_weight == pytest.approx(1 + share)
    assert str(in_mlp) == f"fp8 ({share:.0%} bfloat16)"


@pytest.mark.parametrize(
    ("names", "share"),
    [
        ([f"model.layers.{layer}.self_attn*" for layer in range(LAYERS)], 1.0),
        (["self_attn"], 1.0),
        (["*.self_attn.*"], 1.0),
        (["re:.*self_attn.*"], 1.0),
        (["model.layers.*.self_attn"], 1.0),
        (["model.layers.1*", "model.layers.2.*", "model.layers.3", "model.layers.4."], 14 / LAYERS),
        (["re:model\\.layers\\.[0-9]\\.self_attn\\.o_proj"], 10 / LAYERS * 64 / 144),
        (["model.layers.7.self_attn.qkv_proj"], 80 / 144 / LAYERS),
        (["vpm.encoder.layers.3.self_attn*", "model.visual.layers.3.self_attn"], 0),
        (["model.layers.7.self_attn.q_norm", "model.layers.7.mlp", "mtp.layers.0*", "model.layers.80.self_attn*"], 0),
    ],
)  # fmt: skip
def test_each_way_of_naming_covers_what_it_says(tmp_path: Path, names: list[str], share: float) -> None:
    """Of Llama 3.1 70B, whose 80 layers have 64 heads of queries and 8 of keys and values."""
    found = kept(quantized(tmp_path, "meta-llama/Llama-3.1-70B", {**NVFP4, "ignore": names}))[0]
    assert found.bytes_per_weight == pytest.approx(PER_FP4 + share * (2 - PER_FP4), rel=0.006)


def test_weights_in_several_precisions_are_multiplied_in_each(tmp_path: Path) -> None:
    """As nvidia/DeepSeek-V3.1-NVFP4 is kept: of attention the last product alone in four bits."""
    names = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj")
    spared = [f"model.layers.{layer}.self_attn.{name}" for layer in range(61) for name in names]
    mixed = quantized(tmp_path, "deepseek-ai/DeepSeek-V3", {**NVFP4, "exclude_modules": spared})
    plain = quantized(tmp_path, "deepseek-ai/DeepSeek-V3", NVFP4)
    wide = quantized(tmp_path, "deepseek-ai/DeepSeek-V3", {**NVFP4, "exclude_modules": ["self_attn"]})
    last = 128 * 128 * 7168
    all_products = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + last
    share = 1 - last / all_products
    assert str(mixed.attention_precision) == f"nvfp4 ({share:.0%} bfloat16)"
    assert mixed.attention_precision.bytes_per_weight == pytest.approx(PER_FP4 + share * (2 - PER_FP4))
    took = [peak_times(each, find_gpu("B200")).matmul for each in (plain, mixed, wide)]
    assert took[1] - took[0] == pytest.approx(share * (took[2] - took[0]))


def test_groups_of_compressed_tensors_are_each_kept_as_they_say(tmp_path: Path) -> None:
    activations = {"num_bits": 8, "type": "float"}
    wide = {"weights": {"num_bits": 8, "type": "float"}, "input_activations": activations}
    narrow = {
        "weights": {"num_bits": 4, "type": "float"},
        "input_activations": {"num_bits": 4, "type": "float"},
    }
    groups = {
        "group_0": {**wide, "targets": ["re:.*self_attn.*"]},
        "group_1": {**narrow, "targets": ["re:.*mlp.*"]},
    }
    quantization = {"quant_method": "compressed-tensors", "config_groups": groups}
    found = kept(quantized(tmp_path, "meta-llama/Llama-3.1-70B", quantization))
    assert [str(each) for each in found[:2]] == ["fp8", "nvfp4"]


def test_a_class_of_layers_is_all_products_or_none_and_a_misspelt_one_is_refused(tmp_path: Path) -> None:
    weights = {
        "weights": {"num_bits": 8, "type": "float"},
        "input_activations": {"num_bits": 8, "type": "float"},
    }

    def of(*targets: str) -> list[str]:
        groups = {"group_0": {**weights, "targets": list(targets)}}
        quantization = {"quant_method": "compressed-tensors", "config_groups": groups}
        shape = quantized(tmp_path, "meta-llama/Llama-3.1-70B", quantization)
        return [str(part) for part in kept(shape)[:2]]

    assert of("Linear") == of("QKVParallelLinear", "Linear") == ["fp8", "fp8"]
    assert of("LlamaAttention") == of("lm_head") == ["bfloat16", "bfloat16"]
    with pytest.raises(
        ConfigError, match=r"config_groups\.group_0\.targets: got 'Liner', expected names of modules .*Linear"
    ):
        of("Liner")


def test_experts_are_named_as_a_whole_or_one_by_one(tmp_path: Path) -> None:
    each = [f"model.layers.{layer}.mlp.experts.0.gate_proj" for layer in range(94)]
    found = kept(quantized(tmp_path, "Qwen/Qwen3-235B-A22B", {**FP8, "modules_to_not_convert": each}))
    assert [str(part) for part in found] == ["fp8", "fp8", "bfloat16"]


def test_a_pattern_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"^quantization_config: got 're:\(', expected a regular expression"
    ):
        quantized(tmp_path, "meta-llama/Llama-3.1-70B", {**FP8, "ignore": ["re:("]})


@pytest.mark.parametrize(
    ("names", "kept_as"),
    [
        (["*.experts.*"], "bfloat16"),
        (["re:.*\\.experts\\..*"], "bfloat16"),
        (["re:.*mlp\\.(gate|up|down)_proj$"], "nvfp4"),
        (["*.mlp.gate"], "nvfp4"),
    ],
)
def test_patterns_mean_experts_as_their_modules_are_called(
    tmp_path: Path, names: list[str], kept_as: str
) -> None:
    found = kept(quantized(tmp_path, "Qwen/Qwen3-235B-A22B", {**NVFP4, "exclude_modules": names}))
    assert str(found[2]) == kept_as


def test_targets_that_are_single_experts_are_all_of_them(tmp_path: Path) -> None:
    four = {
        "weights": {"num_bits": 4, "type": "float"},
        "input_activations": {"num_bits": 4, "type": "float"},
    }
    groups = {"group_0": {**four, "targets": ["re:.*mlp\\.experts\\..*(gate|up|down)_proj$"]}}
    quantization = {"quant_method": "compressed-tensors", "config_groups": groups}
    found = kept(quantized(tmp_path, "Qwen/Qwen3-235B-A22B", quantization))
    assert [str(each) for each in found] == ["bfloat16", "bfloat16", "nvfp4"]


def test_layers_that_are_one_thing_each_have_no_modules_of_the_others(tmp_path: Path) -> None:
    """Nemotron 3: a layer is a state, attention, an MLP or experts, and all are called mixer."""
    name = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
    file = shipped_config(name)
    assert file is not None
    pattern = json.loads(file.read_text())["hybrid_override_pattern"]
    experts = [f"backbone.layers.{layer}.mixer.experts" for layer, kind in enumerate(pattern) if kind == "E"]
    listed = {"quantized_layers": {each: {"quant_algo": "NVFP4"} for each in experts}}
    mixed = quantized(tmp_path, name, {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", **listed})
    assert [str(each) for each in kept(mixed)] == ["bfloat16", "bfloat16", "nvfp4"]
    others = [f"backbone.layers.{layer}.mixer" for layer, kind in enumerate(pattern) if kind in "M*"]
    spared = kept(quantized(tmp_path, name, {**NVFP4, "exclude_modules": others}))
    assert [str(each) for each in spared] == ["bfloat16", "nvfp4", "nvfp4"]


def test_every_second_layer_with_experts_is_told_from_those_without(tmp_path: Path) -> None:
    name = "meta-llama/Llama-4-Maverick-17B-128E-Instruct"
    names = ["re:.*self_attn.*", "re:.*feed_forward\\.(gate|up|down)_proj$", "re:.*shared_expert.*"]
    found = kept(quantized(tmp_path, name, {**FP8, "ignore": names}))
    assert [str(each) for each in found] == ["bfloat16", "bfloat16", "fp8"]


def test_rules_of_gptq_spare_what_they_take_out(tmp_path: Path) -> None:
    rules = {"dynamic": {"-:.*attn.*": {}, "+:.*mlp.*": {"bits": 4}}}
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 128, **rules}
    found = kept(quantized(tmp_path, "meta-llama/Llama-3.1-70B", gptq))
    assert [str(each) for each in found[:2]] == ["bfloat16", "int4"]
    awq = kept(
        quantized(
            tmp_path, "meta-llama/Llama-3.1-70B", {"quant_method": "modelopt", "quant_algo": "W4A16_AWQ"}
        )
    )
    assert [str(each) for each in awq[:2]] == ["int4", "int4"]
    ignored = {**FP8, "ignored_layers": ["self_attn"]}
    assert str(kept(quantized(tmp_path, "meta-llama/Llama-3.1-70B", ignored))[0]) == "bfloat16"


SLOW_ELSEWHERE = [
    "re:(.*a)*b",
    "re:(x+)+y",
    "re:.*.*.*.*.*z",
    f"re:{'.?' * 60}%",
    "re:(.|..)*%",
    f"re:(a|aa){{1,40}}{'(.*)' * 20}%",
    f"*{'*a' * 200}%",
]
"""What a matcher that goes back over a text has no end with."""


@pytest.mark.parametrize("name", SLOW_ELSEWHERE)
def test_an_expression_that_is_slow_elsewhere_is_matched_at_once(tmp_path: Path, name: str) -> None:
    begin = time.process_time()
    found = quantized(
        tmp_path, "meta-llama/Llama-3.1-70B", {**FP8, "ignore": [name, r"re:.*self_attn\.o_proj$"]}
    )
    assert str(kept(found)[0]).startswith(("fp8", "bfloat16"))
    assert time.process_time() - begin < 5


@pytest.mark.parametrize(
    ("expression", "kept_as"),
    [
        (r".*layers\.[0-9+*]+\.self_attn\.(q|k|v|o)_proj$", ["bfloat16", "fp8"]),
        (r"^(?!.*mlp).*$", ["bfloat16", "fp8"]),
        (r"^(?!.*\.self_attn(?:\.|$)).*$", ["fp8", "bfloat16"]),
        (r"model\.layers\.(?:[0-9]|[1-7]\d)\.mlp\..*", ["fp8", "bfloat16"]),
    ],
)
def test_forms_that_checkpoints_have_are_read(tmp_path: Path, expression: str, kept_as: list[str]) -> None:
    found = kept(quantized(tmp_path, "meta-llama/Llama-3.1-70B", {**FP8, "ignore": [f"re:{expression}"]}))
    assert [str(each) for each in found[:2]] == kept_as


def test_ten_thousand_names_are_read_and_more_are_refused(tmp_path: Path) -> None:
    begin = time.process_time()
    for form in ("vision.{}", "layers.*.a{}.b", "re:.*a{}b.*"):
        names = [form.format(number) for number in range(9_999 if form[0] != "r" else 1_000)]
        found = kept(
            quantized(tmp_path, "meta-llama/Llama-3.1-70B", {**FP8, "ignore": [*names, "self_attn"]})
        )
        assert str(found[0]) == "bfloat16"
    assert time.process_time() - begin < 20
    many = [f"layer{number}" for number in range(10_001)]
    with pytest.raises(ConfigError, match="got 10,001 names, expected at most 10,000"):
        quantized(tmp_path, "meta-llama/Llama-3.1-70B", {**FP8, "ignore": many})


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a" * 2001], "got a name of 2,001 characters, expected at most 2,000"),
        (["re:(?i)a"], "expected a regular expression of a form that is read"),
        (["re:((a{1000}){1000}){1000}"], "expressions of more than 20,000 characters"),
        (["re:((((){1000}){1000}){1000}){1000}"], "expressions of more than 20,000 characters"),
        (
            [f"re:.*{'[a-z.]' * number}[0-9]{{99}}.*x" for number in range(1, 180)],
            "quantization_config: got express",
        ),
    ],
)
def test_expressions_that_are_too_large_are_refused_in_one_line(
    tmp_path: Path, names: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as refused:
        quantized(tmp_path, "meta-llama/Llama-3.1-70B", {**FP8, "ignore": names})
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300
