"""Which layer is of which kind, by every field that vLLM and transformers read it from; a file that says it otherwise
is read so or refused.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from replay.model import ModelShape, read_model_config
from replay.model.config_json import ModelFields, json_node, read_model_fields
from replay.model.hf_config import find_config
from replay.model.layers.hybrids import HYBRIDS
from replay.model.layers.mamba_models import MOST_FACTOR, _width_of_mlp
from replay.model.shape import Attention
from traces import ConfigError
from traces.strict.section import section_of

OF_FAMILIES: list[dict[str, Any]] = [
    each["config"] for each in json.loads(Path(__file__).parents[1].joinpath("families.json").read_text())
]
NEMOTRON = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
LITE = "deepseek-ai/DeepSeek-V2-Lite"
SMOLLM = "HuggingFaceTB/SmolLM3-3B"
PATTERN = "FFFSSSFSSS" + "FSSS" * 17


def config_of(model: str) -> dict[str, Any]:
    """A shipped model's config.json, or the one of a model type as transformers writes it."""
    if "/" in model:
        found: dict[str, Any] = json.loads(find_config(model).read_text())
        return found
    return next(each for each in OF_FAMILIES if each.get("text_config", each)["model_type"] == model)


def changed(folder: Path, model: str, *, without: tuple[str, ...] = (), **fields: object) -> ModelShape:
    """Read a model's config.json without some fields and with others."""
    config = config_of(model)
    inner = config.get("text_config", config)
    text = {key: value for key, value in inner.items() if key not in without} | fields
    path = folder / "config.json"
    path.write_text(json.dumps({**config, "text_config": text} if "text_config" in config else text))
    return read_model_config(path)


def num_indexers(shape: ModelShape) -> int:
    return sum(each.num_layers for each in shape.mixers if each.indexer and each.indexer.num_heads)


def test_an_indexer_is_shared_by_frequency_offset_or_pattern(tmp_path: Path) -> None:
    """vllm 0.32.0 models/deepseek_v32/attention.py builds 21 of 78 for GLM-5.2, which also lists them."""
    glm, deepseek = "zai-org/GLM-5.2", "deepseek-ai/DeepSeek-V3.2"
    assert num_indexers(read_model_config(glm)) == 21
    assert num_indexers(changed(tmp_path, glm, without=("indexer_types",))) == 21
    for pattern in (PATTERN, list(PATTERN)):
        shape = changed(tmp_path, glm, without=("indexer_types",), index_topk_pattern=pattern)
        assert num_indexers(shape) == PATTERN.count("F") == 21
    assert num_indexers(changed(tmp_path, deepseek)) == 61
    assert num_indexers(changed(tmp_path, deepseek, index_topk_freq=4)) == 16
    assert num_indexers(changed(tmp_path, deepseek, index_topk_freq=4, index_skip_topk_offset=0)) == 15
    assert num_indexers(changed(tmp_path, deepseek, index_topk_pattern="FS")) == 60
    assert num_indexers(changed(tmp_path, "hy_v4", without=("indexer_types",), num_hidden_layers=8)) == 3


def test_indexers_that_vllm_would_not_build_so_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="indexer_types: got 21 layers that are full, expected the 78 of"):
        changed(tmp_path, "zai-org/GLM-5.2", without=("index_topk_freq", "index_skip_topk_offset"))
    with pytest.raises(ConfigError, match=r"index_topk_pattern: got 'X', a kind of layer that is not known"):
        changed(tmp_path, "deepseek-ai/DeepSeek-V3.2", index_topk_pattern="FSX")
    with pytest.raises(ConfigError, match="index_topk_freq: got 0, expected an integer >= 1"):
        changed(tmp_path, "deepseek-ai/DeepSeek-V3.2", index_topk_freq=0)


WINDOWS: list[tuple[str, tuple[str, ...], dict[str, object], dict[int, int]]] = [
    ("afmoe", ("layer_types",), {}, {1024: 5, 0: 1}),
    ("afmoe", ("layer_types",), {"global_attn_every_n_layers": 3}, {1024: 4, 0: 2}),
    ("muse_glimmer_text", ("layer_types",), {}, {2048: 6, 0: 2}),
    ("muse_glimmer_text", ("layer_types",), {"no_rope_layers": [0] + [1] * 7}, {0: 1, 2048: 7}),
    ("granite_swa", ("layer_types",), {}, {0: 2, 128: 4}),
    ("cwm", ("layer_types", "sliding_window"), {}, {0: 2, 8192: 4}),
    ("mellum", ("layer_types",), {}, {0: 6}),
    ("cohere2_moe", ("layer_types", "mlp_layer_types"), {"first_k_dense_replace": 1}, {0: 2, 4097: 4}),
    ("cohere2_moe", ("layer_types",), {"sliding_window_pattern": 2}, {0: 3, 4097: 3}),
    ("cohere2_moe", ("layer_types", "sliding_window_pattern"), {}, {0: 1, 4097: 5}),
    ("gemma3_text", ("layer_types",), {}, {4096: 5, 0: 1}),
    (
        "gemma3_text",
        ("layer_types",),
        {"_sliding_window_pattern": 2, "num_hidden_layers": 5},
        {4096: 3, 0: 2},
    ),
    ("exaone_moe", (), {"sliding_windows": [64, 128, None] * 2}, {64: 1, 128: 2, 0: 3}),
    ("exaone_moe", (), {"sliding_windows": [1, 128, None] * 2}, {1: 1, 128: 2, 0: 3}),
    (SMOLLM, ("layer_types",), {"use_sliding_window": True, "sliding_window": 1024}, {0: 27, 1024: 9}),
    (SMOLLM, ("layer_types", "no_rope_layers"), {"sliding_window": 1024}, {0: 36}),
    (
        SMOLLM,
        ("layer_types", "no_rope_layers"),
        {"use_sliding_window": True, "sliding_window": 9, "no_rope_layer_interval": 2},
        {0: 18, 9: 18},
    ),
    ("qwen3", (), {"layer_types": ["sliding_attention"] * 6, "sliding_window": 4096}, {0: 6}),
    ("qwen3", ("layer_types",), {"use_sliding_window": True, "max_window_layers": 0}, {4096: 6}),
    ("qwen3", ("layer_types",), {"use_sliding_window": True}, {0: 6}),
    ("qwen3", (), {"layer_types": ["sliding_attention"] * 6, "use_sliding_window": True}, {4096: 6}),
    ("qwen3", (), {"layer_types": ["full_attention"] * 6, "use_sliding_window": True}, {0: 6}),
    (
        "qwen3",
        (),
        {"layer_types": ["sliding_attention", "full_attention"] * 3, "max_window_layers": 6},
        {0: 6},
    ),
    ("qwen3_moe", (), {"use_sliding_window": True, "max_window_layers": 3}, {4096: 6}),
    ("qwen2_moe", ("layer_types", "sliding_window"), {"use_sliding_window": True}, {0: 6}),
    ("mistral", ("sliding_window",), {}, {4096: 6}),
    ("mistral", (), {"sliding_window": None}, {0: 6}),
    ("llama4_text", ("no_rope_layers", "layer_types"), {"no_rope_layer_interval": 2}, {8192: 3, 0: 3}),
    ("llama4_text", ("attention_chunk_size", "no_rope_layers"), {}, {8192: 5, 0: 1}),
    ("llama4_text", (), {"attention_chunk_size": None}, {0: 6}),
]


@pytest.mark.parametrize(
    ("said", "width"),
    [
        ({"intermediate_size": 300, "block_auto_adjust_ff_dim": False}, 300),
        ({"intermediate_size": 300}, 200),
        ({"block_ff_dim": 301}, 200),  # two thirds of 301 are 200.67
        ({"intermediate_size": 300, "block_multiple_of": 64}, 256),
        ({"intermediate_size": 384, "block_multiple_of": 64}, 256),
        ({"intermediate_size": 300, "block_ffn_dim_multiplier": 1.3, "block_multiple_of": 1}, 260),
        ({"intermediate_size": 300, "block_ffn_dim_multiplier": MOST_FACTOR}, 200 * MOST_FACTOR),
    ],
)
def test_an_mlp_of_lfm2_is_adjusted_as_transformers_does(said: dict[str, object], width: int) -> None:
    fields = ModelFields(section_of(json_node(said), where="", file="f", error=ConfigError))  # type: ignore[arg-type]
    assert _width_of_mlp(fields) == width
    for wrong in (0, -1, MOST_FACTOR + 1, "x"):
        with pytest.raises(ConfigError, match="block_ffn_dim_multiplier"):
            _width_of_mlp(
                fields.replaced({"block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier": wrong})
            )


@pytest.mark.parametrize(("model", "without", "fields", "expected"), WINDOWS)
def test_windows_that_no_list_says_are_where_transformers_and_vllm_put_them(
    model: str, without: tuple[str, ...], fields: dict[str, object], expected: dict[int, int], tmp_path: Path
) -> None:
    shape = changed(tmp_path, model, without=without, **fields)
    assert {each.window: each.num_layers for each in shape.mixers} == expected


def test_a_nemotron_has_as_many_layers_as_its_pattern(tmp_path: Path) -> None:
    """transformers' NemotronHConfig does not read ``num_hidden_layers`` beside it; a list goes before the pattern."""
    short = changed(tmp_path, NEMOTRON, hybrid_override_pattern="MEM*EM-")
    assert (short.num_layers, short.num_moe_layers, short.num_dense_layers) == (7, 2, 1)
    assert [(each.kind, each.num_layers) for each in short.mixers] == [("state", 3), ("full", 1)]
    listed = changed(tmp_path, NEMOTRON, layers_block_type=["mamba", "attention", "moe"])
    assert [(each.kind, each.num_layers) for each in listed.mixers] == [("state", 1), ("full", 1)]
    assert (listed.num_layers, listed.num_moe_layers) == (3, 1)


def test_a_laguna_has_experts_in_every_layer_but_the_first(tmp_path: Path) -> None:
    assert changed(tmp_path, "laguna", without=("mlp_layer_types",)).num_moe_layers == 5


@pytest.mark.parametrize(
    ("model", "fields", "message"),
    [
        (
            "qwen3",
            {"layer_types": None, "use_sliding_window": True, "max_window_layers": 3},
            "max_window_layers: got 3 with windows in some layers, expected 6, all layers: vLLM does not serve",
        ),
        (
            "llama4_text",
            {"no_rope_layers": [1, 0]},
            "no_rope_layers: got 2 numbers, expected one for each of 6",
        ),
        ("muse_glimmer_text", {"layer_types": None, "no_rope_layers": [1]}, "no_rope_layers: got 1 numbers"),
        (
            "exaone_moe",
            {"sliding_windows": [4]},
            "sliding_windows: got 1 numbers, expected one for each of 6",
        ),
        ("exaone_moe", {"sliding_windows": [0] * 6}, "sliding_windows: got 0, expected the tokens"),
        (
            "llama",
            {"layer_types": ["chunked_attention"] * 6, "attention_chunk_size": 8192},
            "layer_types: got 'chunked_attention', which llama has not, expected .*blackbox coefficients",
        ),
        (
            "gemma4_text",
            {"per_layer_config": {"100000": {"head_dim": 64}}},
            "per_layer_config.100000: got .*, expected the number of a layer",
        ),
        (
            "gemma4_text",
            {"num_kv_shared_layers": 6},
            "num_kv_shared_layers: got 6, expected fewer than the 6 layers",
        ),
        (
            "hunyuan_v1_moe",
            {"use_cla": True},
            "use_cla: got true: layers that read the keys and values of the one",
        ),
    ],
)
def test_windows_and_kinds_that_are_not_known_are_refused_by_their_field(
    model: str, fields: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        changed(tmp_path, model, **fields)


@pytest.mark.parametrize(
    ("model", "fields", "states"),
    [
        ("qwen3_next", {"layer_types": None, "full_attention_interval": 3}, {0, 1, 3, 4}),
        (
            "kimi_linear",
            {"linear_attn_config": {"kda_layers": [1, 3], "num_heads": 8, "head_dim": 64}},
            {0, 2},
        ),
        ("nemotron_h", {"hybrid_override_pattern": "M*-MEM", "layers_block_type": None}, {0, 3, 5}),
    ],
)
def test_layers_with_states_have_their_numbers(
    model: str, fields: dict[str, object], states: set[int], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config_of(model) | fields | {"num_hidden_layers": 6}))
    text = read_model_fields(tmp_path / "config.json")
    attention = Attention(num_heads=8, num_kv_heads=8, head_dim=64, v_head_dim=64)
    assert HYBRIDS[model](text, attention, 6).states == states


def test_a_list_that_is_absent_is_what_transformers_makes_of_it(tmp_path: Path) -> None:
    """``full_attn_idxs`` of LFM2; every sixth of Gemma 4 and the last; all Mamba of Granite 4."""
    lfm2 = changed(tmp_path, "lfm2", without=("layer_types",), full_attn_idxs=[0, 5])
    assert [(each.kind, each.num_layers) for each in lfm2.mixers] == [("full", 2), ("state", 10)]
    gemma = changed(tmp_path, "google/gemma-4-26B-A4B", without=("layer_types",), num_hidden_layers=8)
    assert [(each.kind, each.num_layers) for each in gemma.mixers] == [("sliding", 6), ("full", 2)]
    granite = changed(tmp_path, "granitemoehybrid", without=("layer_types",))
    assert [(each.kind, each.num_layers) for each in granite.mixers] == [("state", 12)]


def test_mimo_v2_is_read_as_its_flash_version(tmp_path: Path) -> None:
    """vllm 0.32.0 mimo_v2.py: MiMoV2ForCausalLM is MiMoV2FlashForCausalLM."""
    model = "XiaomiMiMo/MiMo-V2-Flash"
    assert changed(tmp_path, model, model_type="mimo_v2").mixers == read_model_config(model).mixers


def test_the_text_model_is_found_inside(tmp_path: Path) -> None:
    text = {key: value for key, value in config_of("qwen2").items() if not key.endswith("dtype")}
    text |= {"model_type": "qwen2_5_omni_text"}
    path = tmp_path / "config.json"
    omni = {"model_type": "qwen2_5_omni", "torch_dtype": "float16", "thinker_config": {"text_config": text}}
    path.write_text(json.dumps(omni))
    found = read_model_config(path)
    assert found.mixers == changed(tmp_path, "qwen2").mixers
    assert found.dtype == "float16"
    inner = config_of(LITE)
    path.write_text(json.dumps({"model_type": "deepseek_vl_v2", "language_config": inner}))
    assert read_model_config(path).mixers == read_model_config(LITE).mixers


@pytest.mark.parametrize(
    ("model", "without", "fields", "message"),
    [
        (
            "llama",
            (),
            {"model_type": "bailing_hybrid"},
            "model_type: got 'bailing_hybrid': .* layer_group_size",
        ),
        ("llama", (), {"model_type": "minimax_m1"}, "model_type: got 'minimax_m1': .* attn_type_list"),
        ("llama", (), {"model_type": "plamo3"}, r"windows by layer \(interleaved_sliding_window\)"),
        ("llama", (), {"model_type": "step3_text"}, r"\(share_q_dim\), expected .*engine.kv_cache_groups"),
        (
            "llama",
            (),
            {"model_type": "iquestloopcoder"},
            "with a window of loop_window_size, expected .*blackbox",
        ),
        ("llama", (), {"model_type": "mistral4"}, r"got 'mistral4': latent attention \(kv_lora_rank\)"),
        (
            "llama",
            (),
            {"model_type": "new", "layer_group_size": 8},
            "layer_group_size: got 8: linear attention",
        ),
        (
            "llama",
            (),
            {"architectures": ["LlamaForCausalLMEagle3"]},
            "architectures: got 'LlamaForCausalLMEagle3'",
        ),
        ("llama", (), {"architectures": ["LlamaBidirectionalModel"]}, "expected a model that writes text"),
        (
            NEMOTRON,
            ("hybrid_override_pattern",),
            {},
            "hybrid_override_pattern: got nothing, expected M, .*blackbox",
        ),
        (
            "mimo_v2_flash",
            ("layer_types",),
            {},
            "hybrid_layer_pattern: got 0 entries, expected 0, full, .*blackbox",
        ),
        (
            "deepseek_v4",
            ("layer_types",),
            {},
            "compress_ratios: got 0 ratios, expected 0, 4 or 128 .*blackbox",
        ),
        ("gemma4_text", (), {"layer_types": ["full_attention"]}, "layer_types: got 1 kinds, .*blackbox"),
    ],
)
def test_a_file_of_an_unknown_kind_is_refused_with_the_kind_the_field_and_the_way_round(
    model: str, without: tuple[str, ...], fields: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        changed(tmp_path, model, without=without, **fields)
