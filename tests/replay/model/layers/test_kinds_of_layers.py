"""Which layer is of which kind, by every field that vLLM and transformers read it from; a file that says it otherwise
is read so or refused.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from replay.model import ModelShape, read_model_config
from replay.model.hf_config import find_config
from traces import ConfigError

OF_FAMILIES: list[dict[str, Any]] = [
    each["config"] for each in json.loads(Path(__file__).parents[1].joinpath("families.json").read_text())
]
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
