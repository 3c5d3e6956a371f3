"""Parameters and KV cache of every family, against vLLM's own models and those of transformers (``families.json``).

Each row is a config.json as transformers 5.19 writes it by default, with few layers. ``parameters``: of the language
model that vllm 0.32.0 made of it, or, where its CPU build could not (``layers`` null), that transformers did.
``layers``: kind, window, bytes of a token (of a state) and number, as ``get_kv_cache_spec`` of each layer says.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import vtwin
from replay.model import ModelShape, read_model_config
from replay.model.families import FAMILIES
from replay.model.layers.groups_of_layers import cached_layers

RECORDED: list[dict[str, Any]] = json.loads(Path(__file__).with_name("families.json").read_text())
NOT_COUNTED = 5e-4
"""Norms and biases; those of gpt-oss' experts are the most, but for the two that follow, and for small models."""
MANY_BIASES = ("opt", "gpt2")
SMALL = 10**8


def name_of(case: dict[str, Any]) -> str:
    return str(case["config"].get("text_config", case["config"])["model_type"])


def shape_of(case: dict[str, Any], folder: Path) -> ModelShape:
    path = folder / "config.json"
    path.write_text(json.dumps(case["config"]))
    return read_model_config(path)


@pytest.mark.parametrize("case", RECORDED, ids=name_of)
def test_parameters_are_those_of_the_model_itself(case: dict[str, Any], tmp_path: Path) -> None:
    missing = case["parameters"] - shape_of(case, tmp_path).num_parameters()
    has_many = name_of(case) in MANY_BIASES or case["parameters"] < SMALL
    assert 0 <= missing < (5 if has_many else 1) * NOT_COUNTED * case["parameters"]


def on_a_cpu(shape: ModelShape) -> ModelShape:
    """vLLM keeps states in float32 on a CPU (platforms/cpu.py), where the model's own type is taken on a GPU."""
    mixers = [
        replace(each, state=replace(each.state, dtype_bytes=4)) if each.state and each.state.key_dim else each
        for each in shape.mixers
    ]
    return replace(shape, mixers=tuple(mixers))


@pytest.mark.parametrize("case", [case for case in RECORDED if case["layers"] is not None], ids=name_of)
def test_a_layer_keeps_what_vllm_keeps_in_it(case: dict[str, Any], tmp_path: Path) -> None:
    kept: Counter[tuple[str, int, int]] = Counter()
    for each in cached_layers(on_a_cpu(shape_of(case, tmp_path))):
        size = each.state_bytes if each.kind == "state" else each.token_bytes
        kept[(each.kind, each.window or each.chunk, size)] += each.count
    assert dict(kept) == {(kind, window, size): number for kind, window, size, number in case["layers"]}


def test_shared_keys_are_read_and_not_kept(tmp_path: Path) -> None:
    case = next(each for each in RECORDED if each["config"].get("num_kv_shared_layers") == 10)
    shape = shape_of(case, tmp_path)
    own = shape.num_layers - 10
    assert sum(each.num_layers for each in shape.mixers) == shape.num_layers
    assert sum(each.count for each in cached_layers(shape)) == own
    alone = {**case, "config": {**case["config"], "num_kv_shared_layers": 0}}
    assert shape_of(alone, tmp_path).kv_bytes_per_token(1) > shape.kv_bytes_per_token(1)


def test_most_families_were_asked_of() -> None:
    asked = {name_of(case) for case in RECORDED}
    assert len(asked) >= 60
    assert asked <= set(FAMILIES) | {"qwen3_vl", "qwen2_5_vl"}


@pytest.mark.parametrize(
    ("name", "kind"), [("jamba", "Mamba-1"), ("falcon_mamba", "Mamba-1"), ("zamba2", "share")]
)
def test_memory_is_said_of_a_model_whose_time_is_not_known(
    name: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = next(each for each in RECORDED if name_of(each) == name)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(case["config"]))
    assert vtwin.main(["model", "info", "--model-config", str(path), "--gpu", "H200"]) == 0
    card = capsys.readouterr().out
    assert "num_gpu_blocks" in card
    what = "attention that layers" if kind == "share" else kind
    assert re.search(f"how long a step takes +not known: it has {what}", card)
    assert "B_sat" not in card
    assert vtwin.main(["model", "info", "--model-config", str(path), "--gpu", "H200", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert kind in said["not_timed"][0]
    assert said["num_gpu_blocks"] > 0
    assert "step_floor_us" not in said


def test_layers_that_share_attention_have_its_weights_once_and_keys_of_their_own(tmp_path: Path) -> None:
    one, two = (case for case in RECORDED if name_of(case) == "zamba2")
    shapes = [shape_of(case, tmp_path) for case in (one, two)]
    assert [case["config"]["num_mem_blocks"] for case in (one, two)] == [1, 2]
    assert shapes[1].num_parameters() - shapes[0].num_parameters() > 3 * 5120**2
    assert shapes[0].kv_bytes_per_token(1) == shapes[1].kv_bytes_per_token(1)


def test_an_mlp_s_experts_that_do_nothing_are_no_work(tmp_path: Path) -> None:
    case = next(each for each in RECORDED if name_of(each) == "longcat_flash")
    shape = shape_of(case, tmp_path)
    assert shape.experts is not None
    assert (shape.experts.num_experts, shape.experts.num_per_token) == (
        512,
        8,
    )  # of 12, a third of 768 are empty
    assert (shape.num_layers, shape.num_moe_layers, shape.num_dense_layers) == (4, 2, 4)
