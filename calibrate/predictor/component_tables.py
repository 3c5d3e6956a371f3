"""From operators to the tables of a step: each component's time over the engine's range, times how often it runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from lazy_dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibrate.predictor.cache import PredictedOperator, learn
from calibrate.predictor.components import CPU, MATMULS, WINDOWED, Axis, Component, needed
from calibrate.predictor.measured import Floats, OperatorTable, ProfileQuery
from calibrate.predictor.prefill import prefill_points, prefill_times
from calibrate.predictor.profiles.sources import Sources
from calibrate.predictor.standins import STEP_US, reduced_bytes, stand_in
from calibrate.predictor.training import RegressionReport
from replay.model import Gpu, ModelShape
from sim.latency import axis_knots

MOST_TOKENS = 32_768
"""Tokens of a step up to which tables are made; the engine goes on along the last two knots."""
MOST_SEQUENCES = 2_048
MOST_CHUNKS = 1_024
"""Prompts of a step up to which tables of layers with a state are made."""
MOST_KEYS = 131_072
"""KV entries per sequence up to which tables are made."""
TILE_TOKENS, FIRST_EDGE = 256, 512
"""Products may jump after each multiple of the first number of tokens, from the second on (a tile is 128 by 256)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """The knots of every axis; at 0, where nothing is looked up, stands what 1 takes."""

    tokens: Floats
    sequences: Floats
    keys: Floats
    chunks: Floats

    def of(self, axis: Axis) -> tuple[Floats, Floats]:
        """Return the rows and columns of a table of two axes."""
        if axis == "chunks":
            return self.chunks, self.tokens
        return (self.tokens if axis == "prefill" else self.sequences), self.keys


def all_axes() -> Axes:
    """Return the axes of every table that is made here."""
    return Axes(
        tokens=axis_knots(MOST_TOKENS),
        sequences=axis_knots(MOST_SEQUENCES),
        keys=axis_knots(MOST_KEYS),
        chunks=axis_knots(MOST_CHUNKS),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentTable:
    """One component: µs of one run on its axes, how often it runs, and how that is known (None: a stand-in).

    ``after_us``: of a matrix product, what it takes of a little more than each knot of tokens; None: no more.
    """

    component: Component
    count: float
    time_us: Floats
    report: RegressionReport | None
    after_us: Floats | None = None
    was_cached: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTables:
    """A step's times, in µs by the axes of ``sim.Profiled``; and the components that are summed."""

    tokens_us: Floats
    sequences_us: Floats
    decode_us: Floats
    prefill_us: Floats
    step_us: float
    components: tuple[ComponentTable, ...]
    tokens_after_us: Floats | None = None
    chunks_us: Floats | None = None


def build_tables(
    sources: Sources,
    wanted: ProfileQuery,
    gpu: Gpu,
    *,
    names: Collection[str] = (),
    cache: Path | None = None,
    tell: Callable[[str, int, int], None] = lambda *_: None,
) -> StepTables:
    """Return the tables of a step: operators trained where they were measured, stand-ins where they were not.

    ``tell`` is called with (component, its number, of how many) before each.
    """
    axes = all_axes()
    components = needed(wanted)
    made = []
    for number, component in enumerate(components):
        tell(component.name, number, len(components))
        table = sources.tables.get(component.name)
        after_us: Floats | None = None
        if table is None:
            time_us, report, was_cached = _standing_in(component, axes, wanted, gpu), None, False
        else:
            time_us, learned = _measured(component, sources.tables, axes, wanted, names=names, cache=cache)
            report, was_cached = learned.report, learned.was_cached
        if report is not None and component.axis == "tokens" and component.base in MATMULS:
            time_us, after_us = _with_jumps(axes.tokens, *np.split(time_us, 2))
        else:
            time_us = never_falling(time_us)
        made.append(
            ComponentTable(
                component=component,
                count=component.count(component.query(wanted)),
                time_us=time_us,
                after_us=after_us,
                report=report,
                was_cached=was_cached,
            )
        )
    has_cpu = any(name in sources.tables for name in CPU)
    return StepTables(
        tokens_us=_sum(made, "tokens"),
        sequences_us=_sum(made, "sequences"),
        decode_us=_sum(made, "decode"),
        prefill_us=_sum(made, "prefill", shape=(len(axes.tokens), len(axes.keys))),
        chunks_us=_sum(made, "chunks") if any(each.component.axis == "chunks" for each in made) else None,
        step_us=0.0 if has_cpu else STEP_US,
        components=tuple(made),
        tokens_after_us=_sum_after(made),
    )


def _with_jumps(knots: Floats, at: Floats, one_more: Floats) -> tuple[Floats, Floats]:
    """Return a product's times at the knots and just after them; only at edges of tiles do these differ."""
    is_edge = (knots >= FIRST_EDGE) & (knots % TILE_TOKENS == 0)
    along = np.stack([at, np.where(is_edge, one_more, at)], axis=1).ravel()
    risen = never_falling(along).reshape(-1, 2)
    return risen[:, 0], risen[:, 1]


def _sum_after(made: list[ComponentTable]) -> Floats | None:
    """Return what all components of the tokens' axis take just after its knots; None where none jumps."""
    tables = [
        (each.time_us if each.after_us is None else each.after_us) * each.count
        for each in made
        if each.component.axis == "tokens"
    ]
    total: Floats = np.sum(tables, axis=0)
    return None if np.array_equal(total, _sum(made, "tokens")) else total


def never_falling(times: Floats) -> Floats:
    """Return the mean of the lowest table above that never falls along an axis, and of the highest below.

    Where a measured curve dips - another kernel, noise - it becomes flat at about the dip's middle.
    """
    above, below = times, times
    for axis in range(times.ndim):
        above = np.maximum.accumulate(above, axis=axis)
        below = np.flip(np.minimum.accumulate(np.flip(below, axis=axis), axis=axis), axis=axis)
    mean: Floats = (above + below) / 2
    return mean


def _sum(made: list[ComponentTable], axis: Axis, *, shape: tuple[int, ...] = ()) -> Floats:
    """Return what the components of an axis take together; zeros of a ``shape`` where a model has none."""
    tables = [each.time_us * each.count for each in made if each.component.axis == axis]
    total: Floats = np.sum(tables, axis=0) if tables else np.zeros(shape)
    return total


def _grid(rows: Floats, columns: Floats) -> Floats:
    """Return every pair of a row and a column, row by row, each at least 1."""
    pairs = np.stack(np.meshgrid(np.maximum(rows, 1.0), np.maximum(columns, 1.0), indexing="ij"), axis=-1)
    return pairs.reshape(-1, 2)


def _standing_in(component: Component, axes: Axes, wanted: ProfileQuery, gpu: Gpu) -> Floats:
    """Return what stands in for an operator, on its axes."""
    wanted = component.query(wanted)
    shape = wanted.shape
    if component.axis in ("tokens", "sequences"):
        return stand_in(component.base, _single(component, axes), wanted, gpu)
    rows, columns = axes.of(component.axis)
    points = _grid(rows, columns)
    times = stand_in(component.base, points, wanted, gpu)
    if shape.num_windowed_layers:
        cut = np.column_stack([points[:, 0], np.minimum(points[:, 1], shape.window)])
        share = shape.num_windowed_layers / shape.num_layers
        times = times * (1 - share) + stand_in(component.base, cut, wanted, gpu) * share
    return times.reshape(len(rows), len(columns))


def _single(component: Component, axes: Axes) -> Floats:
    knots = axes.tokens if component.axis == "tokens" else axes.sequences
    return np.maximum(knots, 1.0)[:, None]


def _measured(
    component: Component,
    tables: Mapping[str, OperatorTable],
    axes: Axes,
    wanted: ProfileQuery,
    *,
    names: Collection[str],
    cache: Path | None,
) -> tuple[Floats, PredictedOperator]:
    """Return an operator's times on its axes, and how they were learned.

    Of a matrix product along tokens the times at every knot, then at one token more. Attention within the model's
    window is what was measured with it; else attention to all keys, of which there are as many.
    """
    table = tables[component.name]
    is_product = component.base in MATMULS
    if is_product and not names:
        names = ("grid",)  # the others smooth over the edges of tiles
    if component.axis in ("tokens", "sequences"):
        points = _single(component, axes)
        if is_product and component.axis == "tokens":
            points = np.vstack([points, points + 1])
        if table.features == ("bytes",):
            points = points * reduced_bytes(component.base, wanted)
        learned = learn(table, points, names=names, cache=cache)
        return learned.time_us, learned
    rows, columns = axes.of(component.axis)
    if table.features == ("batch",):
        learned = learn(table, np.maximum(rows, 1.0)[:, None], names=names, cache=cache)
        return np.repeat(learned.time_us[:, None], len(columns), axis=1), learned
    points = _grid(rows, columns)
    if component.axis == "chunks":
        learned = learn(table, points, names=names, cache=cache)
        times = learned.time_us
    else:
        windowed = tables.get(component.name + WINDOWED)
        times, learned = _with_windows(
            component, table, windowed, points, component.query(wanted).shape, names=names, cache=cache
        )
    return times.reshape(len(rows), len(columns)), learned


def _with_windows(
    component: Component,
    table: OperatorTable,
    windowed: OperatorTable | None,
    points: Floats,
    shape: ModelShape,
    *,
    names: Collection[str],
    cache: Path | None,
) -> tuple[Floats, PredictedOperator]:
    """Return the mean of layers with a window and without at rows of (sequences or tokens, keys)."""
    share = shape.num_windowed_layers / shape.num_layers
    cut = np.column_stack([points[:, 0], np.minimum(points[:, 1], shape.window)])
    is_cut = share > 0 and windowed is None
    if windowed is not None and share == 1:
        return _attention(component, windowed, points, names, cache)
    times, learned = _attention(
        component, table, np.vstack([points, cut]) if is_cut else points, names, cache
    )
    if is_cut:
        full, within = np.split(times, 2)
        times = full * (1 - share) + within * share
    elif windowed is not None:
        within, _ = _attention(component, windowed, points, names, cache)
        times = times * (1 - share) + within * share
    return times, learned


def _attention(
    component: Component, table: OperatorTable, points: Floats, names: Collection[str], cache: Path | None
) -> tuple[Floats, PredictedOperator]:
    """Return attention's times at rows of (sequences or tokens, keys)."""
    asked = prefill_points(table, points) if component.axis == "prefill" else points
    learned = learn(table, asked, names=names, cache=cache)
    times = learned.time_us
    return prefill_times(table, points, times) if component.axis == "prefill" else times, learned
