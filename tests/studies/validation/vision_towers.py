"""Vision towers: the formula's sum of kernels against the sum of measured ones, and three numbers against the sum.

``python -m tests.studies.validation.vision_towers``, with VTWIN_DATA. Products are those of
``replay/model/matmuls/measured``, put together from the shapes around where theirs was not measured; attention is the
table of vLLM's vision encoders at the tower's own heads. Both were measured with vLLM 0.24. What is elementwise was
measured nowhere, and is left out on both sides.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from replay.model import find_gpu
from replay.model.config_json import read_model_fields
from replay.model.matmuls.curves import between
from replay.model.matmuls.measured_times import measured_products
from replay.model.matmuls.products import Matmul
from replay.model.shipped_models import shipped_config
from replay.model.towers.tower_kernels import (
    OnGpus,
    attention_us,
    encoding_us,
    on_gpus,
    product_us,
    windows_us,
)
from replay.model.towers.tower_times import tower_times, usual_sizes
from replay.model.vision.read_tower import read_tower
from replay.model.vision.tower import VisionTower

GPUS = ("H100", "B200", "H200")
TABLE = "encoder_attention/vllm/0.24.0/encoder_attention_perf.parquet"
TOWERS = (
    *("Qwen/Qwen3-VL-8B-Instruct", "google/gemma-3-4b-it", "google/gemma-4-26B-A4B"),
    *("mistralai/Mistral-Small-3.1-24B-Instruct-2503", "moonshotai/Kimi-K2.5", "Qwen/Qwen2.5-VL-7B-Instruct"),
)
NOT_SHIPPED: Mapping[str, object] = {
    "model_type": "qwen2_5_vl",
    "vision_config": {"hidden_size": 1280, "out_hidden_size": 3584},
    "hidden_size": 3584,
}
"""Qwen2.5-VL 7B's; the rest is its class's."""
SIZES = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
"""Tokens of an image."""


def tower_of(name: str) -> VisionTower:
    """Return a tower by its model's name."""
    path = shipped_config(name)
    if path is None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "config.json"
            path.write_text(json.dumps(NOT_SHIPPED))
            tower, _ = read_tower(read_model_fields(path))
    else:
        tower, _ = read_tower(read_model_fields(path))
    assert tower is not None
    return tower


@lru_cache(maxsize=8)
def attention_table(root: Path, gpu: str) -> pd.DataFrame:
    """Return the measured attention of a GPU, µs by heads, width, batch and patches."""
    rows = pd.read_parquet(root / "aiconfigurator_ops" / f"{gpu.lower()}_sxm" / TABLE)
    return rows.groupby(["num_heads", "head_dim", "batch_size", "isl"])["latency"].median().mul(1e3)


def measured_attention_us(table: pd.Series, tower: VisionTower, *, batch: int, length: float) -> float:
    """Return what sequences of so many patches took: between lengths linear in their logarithms; the nearest batch."""
    known = table.loc[(tower.num_heads, tower.head_dim)]
    sizes = known.index.get_level_values("batch_size").unique().to_numpy()
    taken = int(sizes[np.argmin(np.abs(np.log(sizes / batch)))])
    one = known.loc[taken]
    us = np.exp(np.interp(np.log(length), np.log(one.index.to_numpy(float)), np.log(one.to_numpy())))
    return float(us) * batch / taken


def measured_product_us(gpu: str, rows: int, inputs: int, outputs: int) -> float:
    """Return what a product took, of shapes around it where it was not measured."""
    curves = measured_products(gpu, ("bfloat16",))
    product = Matmul(operator="", n=outputs, k=inputs, mix=((("bfloat16",), 1.0),))
    tokens, times = curves.get((outputs, inputs)) or between(product, curves)[0]
    if rows > tokens[-1]:
        return float(times[-1] * rows / tokens[-1])
    return float(np.exp(np.interp(np.log(rows), np.log(tokens), np.log(times))))


def measured_us(root: Path, server: OnGpus, num_tokens: int) -> float:
    """Return the sum of the measured kernels of one image on one GPU."""
    tower, gpu = server.tower, server.gpu.name
    patches, table = tower.num_patches(num_tokens), attention_table(root, gpu)
    layers = sum(measured_product_us(gpu, patches, *each) for each in tower.layer_products())
    batch, length = tower.sequences(num_tokens)
    seen = (tower.num_layers - tower.num_windowed_layers) * measured_attention_us(
        table, tower, batch=batch, length=length
    )
    if tower.num_windowed_layers:
        windows = -(-patches // tower.window_patches)
        seen += tower.num_windowed_layers * measured_attention_us(
            table, tower, batch=windows, length=tower.window_patches
        )
    ends = sum(measured_product_us(gpu, num_tokens, *each) for each in tower.projector)
    return tower.num_layers * layers + seen + ends


def formula_us(server: OnGpus, num_tokens: int) -> float:
    """Return the same kernels by the formula."""
    tower, patches = server.tower, server.tower.num_patches(num_tokens)
    layers = sum(product_us(server, patches, *each) for each in tower.layer_products())
    seen = (tower.num_layers - tower.num_windowed_layers) * attention_us(server, [num_tokens])
    seen += tower.num_windowed_layers * windows_us(server, [num_tokens]) if tower.num_windowed_layers else 0.0
    return (
        tower.num_layers * layers
        + seen
        + sum(product_us(server, num_tokens, *each) for each in tower.projector)
    )


def sizes_of(tower: VisionTower) -> list[int]:
    """Return the images that are compared."""
    tile = tower.tile_tokens
    return (
        [tile * number for number in (1, 2, 4, 8)]
        if tile
        else [size for size in SIZES if size <= tower.max_tokens_per_item]
    )


def rows(root: Path) -> Iterator[str]:
    """Yield the lines of the table."""
    yield (
        "| tower of | "
        + " | ".join(f"{gpu}: formula / measured kernels" for gpu in GPUS)
        + " | three numbers |"
    )
    yield "|---|" + "--:|" * (len(GPUS) + 1)
    for name in TOWERS:
        tower, cells, off = tower_of(name), [], []
        for gpu in GPUS:
            server = on_gpus(tower, find_gpu(gpu), tp=1)
            ratios = [formula_us(server, size) / measured_us(root, server, size) for size in sizes_of(tower)]
            cells.append(
                f"{100 * np.median(np.abs(np.array(ratios) - 1)):.0f} ({min(ratios):.2f} to {max(ratios):.2f})"
            )
            times = tower_times(server)
            off += [times.one_us(size) / encoding_us(server, [size]) - 1 for size in usual_sizes(tower)]
        yield f"| {name} | {' | '.join(cells)} | {100 * np.median(np.abs(off)):.1f} / {100 * max(map(abs, off)):.1f} |"


def main() -> None:
    """Print the table of the page on latency models."""
    for line in rows(Path(os.environ["VTWIN_DATA"])):
        print(line, flush=True)


if __name__ == "__main__":
    main()
