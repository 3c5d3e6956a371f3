"""Recorded steps of an 8B model on an H100 around 1,024 tokens.

``python -m tests.studies.validation.tile_edge [PICTURE.svg]``.

The measured products of the model take longer from 1,025 tokens on, where a round of tiles ends. Beside them: what
the steps of a real server with one prefilling request took there (``tests/studies/validation/h100``). A step is the
products and attention, launches and all else; it depends on the clock and on how many requests decode beside it. So
the jump is that of a median regression on both sides of the edge, with terms for these two, and the same is asked
where the products have no edge: what comes out there is chance.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import eye_array, hstack

from calibrate.number_format import signed
from replay.model import find_gpu, read_model_config
from replay.model.matmuls.tiles import Tiles, smooth, tiles_of
from tests.studies.validation.h100_clock import RUNS, decode_and_prefill, read_steps, with_clock
from traces.pages.chart import chart
from traces.pages.marks import Dots, Line, Rule
from traces.pages.markup import Markup, element, inline
from traces.pages.scale import linear

Floats = NDArray[np.float64]

HERE = Path(__file__).parent / "h100"
MODEL, GPU = "meta-llama/Llama-3.1-8B", "H100"
EDGE = 1024
REACH = 128
"""Tokens on either side of an edge that a jump is estimated from."""
ELSEWHERE = (800, 840, 880, 1160, 1200, 1240, 1320, 1360, 1400, 1440, 1480)
"""Where the products have no edge, and no window of ``REACH`` holds that of 1,024."""
BIN = 32
SHOWN = (832, 1280)
FULL_MHZ = 1980.0
USUAL_DECODES = 30
DRAWS = 300
LEVEL = 0.9
STYLE = (
    "text{font-family:Helvetica,Arial,sans-serif;fill:#57606a;font-size:11.5px}.title{fill:#111;font-size:13px;"
    "font-weight:600}path{fill:none}.grid{stroke:#ddd}.axis{stroke:#57606a}.dots{stroke:#1f5f99;stroke-width:3;"
    "stroke-linecap:round;opacity:.35}.line.median{stroke:#111;stroke-width:2}.line.table{stroke:#d2571f;"
    "stroke-width:2}.line.smooth{stroke:#d2571f;stroke-dasharray:4 3}.rule{stroke:#57606a;stroke-dasharray:3 3}"
    ".hint{fill:transparent}"
)
"""A picture in a page of docs has no style sheet but its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Jump:
    """By how many ms a step of ``edge`` + 1 tokens takes longer than one of ``edge``, and its 90 % interval."""

    edge: int
    ms: float
    low: float
    high: float
    num_steps: int


def steps_of(work: Path) -> pd.DataFrame:
    """Return the steps with one prefilling request: ``tokens``, ``decodes``, ``slower`` (the clock's share), ``ms``.

    ``work``: where the recorded traces are unpacked. ``ms`` is as ``h100_clock.decode_and_prefill`` has it.
    """
    gpu = pd.read_csv(HERE / "gpu.csv.xz")
    _, prefill = decode_and_prefill([with_clock(read_steps(work / f"{run}.steps.csv"), gpu) for run in RUNS])
    one = prefill[prefill["num_prefill_requests"] == 1].dropna(subset=["sm_mhz"])
    return pd.DataFrame(
        {
            "tokens": one["num_prefill_tokens"] + one["num_decode_tokens"],
            "decodes": one["num_decode_tokens"],
            "slower": FULL_MHZ / one["sm_mhz"] - 1,
            "ms": one["alone_ms"],
        }
    ).astype(float)


def jump_at(steps: pd.DataFrame, edge: int, *, seed: int = 0) -> Jump:
    """Return the jump of the median step at an edge; its interval is of a bootstrap over steps."""
    near = steps[(steps["tokens"] > edge - REACH) & (steps["tokens"] <= edge + REACH)]
    away = (near["tokens"] - edge).to_numpy()
    beyond = (away > 0).astype(float)
    terms = np.column_stack([beyond, np.ones(len(near)), away, beyond * away, *_others(near)])
    took = near["ms"].to_numpy()
    generator = np.random.default_rng(seed)
    drawn = [_median_fit(terms[rows], took[rows])[0] for rows in _resamples(len(near), generator)]
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    found = float(_median_fit(terms, took)[0])
    return Jump(edge=edge, ms=found, low=float(low), high=float(high), num_steps=len(near))


def misses(steps: pd.DataFrame, products_ms: Floats) -> float:
    """Return by how many ms steps are off a line in their products, clock and decodes: the mean of the absolutes."""
    terms = np.column_stack([products_ms, np.ones(len(steps)), *_others(steps)])
    took = steps["ms"].to_numpy()
    return float(np.abs(took - terms @ _median_fit(terms, took)).mean())


def _others(steps: pd.DataFrame) -> list[Floats]:
    return [steps["decodes"].to_numpy() - USUAL_DECODES, steps["slower"].to_numpy()]


def _resamples(number: int, generator: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    for _ in range(DRAWS):
        yield generator.integers(number, size=number)


def _median_fit(terms: Floats, took: Floats) -> Floats:
    """Return coefficients of the least sum of absolute residuals, by linear programming (Koenker and Bassett 1978)."""
    number, num_terms = terms.shape
    over = eye_array(number)
    found = linprog(
        np.concatenate([np.zeros(num_terms), np.ones(2 * number)]),
        A_eq=hstack([terms, over, -over], format="csc"),
        b_eq=took,
        bounds=[(None, None)] * num_terms + [(0, None)] * (2 * number),
    )
    assert found.success, found.message
    return np.asarray(found.x[:num_terms], np.float64)


def products_ms(tiles: Tiles, tokens: Floats) -> tuple[Floats, Floats]:
    """Return what the shipped table says of the products of steps, ms: as measured, and its smooth curve."""
    at, us = np.array(tiles.measured).T
    return np.interp(tokens, at, us) / 1e3, np.interp(tokens, at, smooth(at, us)) / 1e3


def shown_steps(steps: pd.DataFrame) -> pd.DataFrame:
    """Return the steps of the picture, with ``bin`` (its last token) and ``alike_ms``.

    That is the time less what the decodes beside it and the clock made of it, by a median regression with a level per
    bin: as with ``USUAL_DECODES`` decodes at the median clock.
    """
    shown = steps[(steps["tokens"] > SHOWN[0]) & (steps["tokens"] <= SHOWN[1])]
    ends = (np.ceil(shown["tokens"] / BIN) * BIN).astype(int)
    levels = (ends.to_numpy()[:, None] == np.unique(ends)).astype(float)
    others = np.column_stack(_others(shown))
    found = _median_fit(np.column_stack([others, levels]), shown["ms"].to_numpy())[: others.shape[1]]
    usual = np.array([0.0, shown["slower"].median()])
    return shown.assign(bin=ends, alike_ms=shown["ms"] - (others - usual) @ found)


def bins_of(steps: pd.DataFrame) -> pd.DataFrame:
    """Return the steps by their tokens, ``BIN`` wide and ending at the edge: number, tokens, medians, quartiles."""
    by = shown_steps(steps).groupby("bin")
    quarters = by["alike_ms"].quantile([0.25, 0.5, 0.75]).unstack().set_axis(["low", "alike", "high"], axis=1)
    return quarters.assign(number=by.size(), tokens=by["tokens"].median(), median=by["ms"].median())


def tables(steps: pd.DataFrame, tiles: Tiles) -> Iterator[str]:
    """Yield the lines of both tables: steps by tokens beside the products, and jumps where and where not expected."""
    yield "| tokens in the step | steps | median, ms | made alike | quartiles | products, ms | their smooth curve |"
    yield "|---|---|---|---|---|---|---|"
    bins = bins_of(steps)
    for (end, row), table, curve in zip(
        bins.iterrows(), *products_ms(tiles, bins["tokens"].to_numpy()), strict=True
    ):
        yield (
            f"| {int(str(end)) - BIN + 1:,} to {end:,} | {row['number']:.0f} | {row['median']:.1f} | "
            f"{row['alike']:.1f} | {row['low']:.1f} to {row['high']:.1f} | {table:.2f} | {curve:.2f} |"
        )
    yield ""
    yield "| jump at | steps | of the median step, ms | 90 % interval | of the products, ms |"
    yield "|---|---|---|---|---|"
    for edge in (EDGE, *ELSEWHERE):
        found = jump_at(steps, edge)
        table, _ = products_ms(tiles, np.array([edge, edge + 1.0]))
        yield (
            f"| {edge:,} | {found.num_steps} | {signed(found.ms)} | {signed(found.low)} to {signed(found.high)} | "
            f"{signed(float(np.diff(table)[0]))} |"
        )
    yield ""
    yield "| steps of | steps | off a line in the products, ms | in their smooth curve |"
    yield "|---|---|---|---|"
    for low, high in ((EDGE - REACH, EDGE + REACH), SHOWN, (512, 3072)):
        part = steps[(steps["tokens"] > low) & (steps["tokens"] <= high)]
        off = [misses(part, each) for each in products_ms(tiles, part["tokens"].to_numpy())]
        yield f"| {low + 1:,} to {high:,} tokens | {len(part):,} | {off[0]:.3f} | {off[1]:.3f} |"


def picture(steps: pd.DataFrame, tiles: Tiles) -> str:
    """Return the SVG: every step, the medians of bins, and the products moved up by what else a step takes."""
    shown, bins = shown_steps(steps), bins_of(steps)
    at = np.arange(SHOWN[0] + 1.0, SHOWN[1] + 1)
    else_ms = float(np.median(shown["alike_ms"] - products_ms(tiles, shown["tokens"].to_numpy())[0]))
    table, curve = (each + else_ms for each in products_ms(tiles, at))
    y = linear(18.0, 34.0, label="ms")
    kept = shown[shown["alike_ms"].between(y.low, y.high)]
    marks = (
        Rule(start=(EDGE + 0.5, y.low), end=(EDGE + 0.5, y.high), label=f"{EDGE:,} | {EDGE + 1:,}"),
        Dots(x=kept["tokens"].to_numpy(), y=kept["alike_ms"].to_numpy(), name="steps"),
        Line(x=at, y=curve, name="smooth", label="smooth curve of the products"),
        Line(x=at, y=table, name="table", label="products"),
        Line(
            x=bins.index.to_numpy(float) - BIN / 2,
            y=bins["alike"].to_numpy(),
            name="median",
            label="steps, median",
        ),
    )
    drawn = chart(
        title=f"Steps with one prompt, their medians; the products + {else_ms:.1f} ms, smooth dashed",
        x=linear(float(SHOWN[0]), float(SHOWN[1]), label="tokens in the step"),
        y=y,
        marks=marks,
        width=720,
        height=360,
    )
    return _standalone(drawn) + "\n"


def _standalone(svg: Markup) -> str:
    """Return a page's picture as a file: with its name space, a white ground and a style of its own."""
    head, rest = svg.split(">", 1)
    own = inline(
        element("style", {}, Markup(STYLE)),
        element("rect", {"width": "100%", "height": "100%", "fill": "#fff"}),
    )
    return f'{head} xmlns="http://www.w3.org/2000/svg">{own}{rest}'


def main(arguments: Sequence[str]) -> None:
    """Print the tables; write the picture where a file is named."""
    tiles = tiles_of(read_model_config(MODEL), find_gpu(GPU))
    with tempfile.TemporaryDirectory() as work, tarfile.open(HERE / "traces.tar.xz") as archive:
        archive.extractall(work, filter="data")
        steps = steps_of(Path(work))
    print("\n".join(tables(steps, tiles)))
    for file in arguments:
        Path(file).write_text(picture(steps, tiles))


if __name__ == "__main__":
    main(sys.argv[1:])
