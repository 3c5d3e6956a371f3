"""What ``vtwin model info`` says, of every known config.json on the GPUs that ship."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import vtwin
from replay.model.card import card, document
from replay.model.gpu_memory import Serving, kv_cache_size
from replay.model.gpus import Gpu, shipped_gpus
from replay.model.hf_config import read_model_config
from replay.model.kernels.latent_kernels import served_on, usual_block_size
from replay.model.matmuls.measured_times import measured_gpus
from replay.model.shape import ModelShape
from replay.model.shipped_models import shipped_models
from replay.twin.engine_defaults import batch_limits
from tests.examples import THOROUGH
from traces import ConfigError

FAMILIES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("families.json").read_text())
VERSION = "0.32.0"
BATCH = 31
"""Configurations in one test."""


def said_of(shape: ModelShape, gpu: Gpu, *, tp: int) -> None:
    """Make the document and the card, as the command does; what does not fit is refused."""
    shape = served_on(shape, gpu, tp=tp, version=VERSION)
    seqs, tokens = batch_limits(gpu, vllm_version=VERSION)
    serving = Serving(
        block_size=usual_block_size(shape, gpu, version=VERSION),
        max_num_batched_tokens=tokens,
        max_num_seqs=seqs,
        vllm_version=VERSION,
    )
    capacity = kv_cache_size(shape, gpu, tp=tp, pp=1, serving=serving)
    json.dumps(document(shape, gpu, capacity, tp=tp, pp=1), allow_nan=False)
    assert list(card(shape, gpu, capacity, tp=tp, pp=1))


def configs(folder: Path) -> list[str]:
    """Return the names of models that ship, and files of one model of every family."""
    files = []
    for number, family in enumerate(FAMILIES):
        files.append(folder / f"{number}.json")
        files[-1].write_text(json.dumps(family["config"]))
    return [*shipped_models(), *map(str, files)]


def gpus_of(number: int) -> list[tuple[Gpu, int]]:
    """Return GPUs and how many share a layer: of those whose products were measured, and of others, some in turn."""
    measured = [gpu for gpu in shipped_gpus() if gpu.name.lower() in measured_gpus()]
    others = [gpu for gpu in shipped_gpus() if gpu not in measured]
    both = [(gpu, tp) for gpu in others for tp in (1, 8)]
    if not THOROUGH:
        return [
            (measured[number % len(measured)], (1, 8)[number // len(measured) % 2]),
            both[number % len(both)],
        ]
    turn = [both[(number * 6 + place) % len(both)] for place in range(6)]
    return [*((gpu, (1, 8)[number % 2]) for gpu in measured), *turn]


@pytest.mark.parametrize("batch", range(6))
def test_every_known_model_on_every_gpu_is_shown_or_refused(batch: int, tmp_path: Path) -> None:
    names = configs(tmp_path)
    assert BATCH * 5 < len(names) <= BATCH * 6
    shown = 0
    for number in range(batch * BATCH, min((batch + 1) * BATCH, len(names))):
        shape = read_model_config(names[number])
        for gpu, tp in gpus_of(number):
            try:
                said_of(shape, gpu, tp=tp)
                shown += 1
            except ConfigError:
                continue
    assert shown > (3 * BATCH if THOROUGH else BATCH)


@pytest.mark.parametrize("gpu", ["H100", "H200", "B200"])
def test_a_model_without_products_by_tokens_is_shown_where_products_were_measured(
    gpu: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = next(each["config"] for each in FAMILIES if each["config"]["model_type"] == "mamba2")
    (tmp_path / "config.json").write_text(json.dumps(plain))
    for tail in ([], ["--json"]):
        asked = ["model", "info", "--model-config", str(tmp_path / "config.json"), "--gpu", gpu, *tail]
        assert vtwin.main(asked) == 0, capsys.readouterr().err
