"""The page of models that ship and ``model info`` say the same."""

from __future__ import annotations

import re

from replay.model.card import card, document
from replay.model.gpu_memory import Serving, kv_cache_size
from replay.model.gpus import find_gpu
from replay.model.hf_config import read_model_config
from replay.model.shipped_models import shipped_models
from tests.docs.reference_pages.models_page import models_page
from traces import ConfigError
from traces.facts import terminal_lines

B300 = find_gpu("B300")


def test_every_model_s_row_says_what_model_info_says() -> None:
    rows = {
        cells[0].strip("`"): cells[1:]
        for line in models_page().splitlines()
        if len(cells := [cell.strip() for cell in line.strip("|").split("|")]) == 7
    }
    assert set(shipped_models()) <= set(rows)
    num_compared = 0
    for name in shipped_models():
        parameters, _, _, _, kv, _ = rows[name]
        assert not re.match(r"0(\.0)? ", kv), name
        shape = read_model_config(name)
        try:
            capacity = kv_cache_size(shape, B300, tp=1, pp=1, serving=Serving())
        except ConfigError:  # too large for one GPU
            continue
        num_compared += 1
        said = document(shape, B300, capacity, tp=1, pp=1)
        assert kv == f"{float(str(said['kv_bytes_per_token'])) / 1024:.1f} KiB", name
        lines = terminal_lines(card(shape, B300, capacity, tp=1, pp=1), width=None)
        assert f"{parameters} parameters, {shape.num_layers} layers" in lines[0]
        assert any(line.startswith("KV per token and GPU") and line.endswith(kv) for line in lines)
    assert num_compared > 40
