"""What the layers of known config.json files are read as, whole, beside what was read before (``shapes.jsonl``).

The numbers' own oracles are elsewhere: parameters and caches of vLLM's models (``families.json``), published sizes.
This says which of a model's numbers a change has moved.
``python -m tests.replay.model.layers.test_shapes`` writes it anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from replay.model import ModelShape, read_model_config
from replay.model.layers.drafter import mtp_drafter
from tests.replay.model.test_families import RECORDED, name_of, shape_of

KNOWN = Path(__file__).with_name("shapes.jsonl")
OF_LAYERS = (
    *("experts", "num_moe_layers", "num_plain_mlps", "plain_width", "other_parameters", "lookup_parameters"),
    *("residual_streams", "not_timed", "left_out", "mixers", "mtp"),
)
SHIPPED = (
    *(
        "Qwen3.5-397B-A17B",
        "MiMo-V2-Flash",
        "DeepSeek-V3",
        "DeepSeek-V3.2",
        "DeepSeek-V4-Pro",
        "gemma-2-2b-it",
    ),
    *(
        "gemma-3-4b-it",
        "gemma-4-26B-A4B",
        "Llama-4-Scout-17B-16E-Instruct",
        "DeepSeek-V4-Flash-NVFP4",
        "gpt-oss-20b",
    ),
    *("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", "Step-3.7-Flash"),
    *("Nemotron-H-56B-Base-8K", "GLM-5", "GLM-5.2"),
)


def told(value: Any) -> Any:  # noqa: ANN401 - any field of a shape
    """Return a value as JSON has it, fields that are as by default left out."""
    if is_dataclass(value):
        known = {each.name: (getattr(value, each.name), each.default) for each in fields(value)}
        return {name: told(own) for name, (own, usual) in known.items() if own != usual}
    return [told(each) for each in value] if isinstance(value, list | tuple) else value


def layers_of(shape: ModelShape) -> dict[str, Any]:
    found = told(shape)
    return {key: found[key] for key in OF_LAYERS if key in found}


def line_of(name: str, shape: ModelShape) -> dict[str, Any]:
    drafter = mtp_drafter(shape)
    drafts = {} if drafter is None else {"a draft of 2 GPUs": layers_of(drafter.one_draft(2))}
    return {"model": name, **layers_of(shape), **drafts}


def read_again() -> Iterator[dict[str, Any]]:
    with TemporaryDirectory() as folder:
        for case in RECORDED:
            yield line_of(name_of(case), shape_of(case, Path(folder)))
    for name in SHIPPED:
        yield line_of(name, read_model_config(name))


def test_layers_are_read_as_before() -> None:
    known = [json.loads(line) for line in KNOWN.read_text().splitlines()]
    for before, now in zip(known, read_again(), strict=True):
        assert json.loads(json.dumps(now)) == before


if __name__ == "__main__":
    KNOWN.write_text("".join(json.dumps(each) + "\n" for each in read_again()))
