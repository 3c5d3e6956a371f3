"""Several variants as a page: their latencies and throughput side by side, and every figure in a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from replay.simulation.variants.simulated import columns_of, notes_of
from replay.simulation.variants.variant import VariantResult
from traces import pages, request_latencies, tool_version, write_text
from traces.pages.request_figures import METRICS, cdf_of, limit_across, unit_of

Floats = NDArray[np.float64]

MOST_KEYS = 3
"""A title names no more keys."""
MOST_CURVES = 5
"""Variants whose distributions are drawn over each other; more have no colours of their own."""
STATISTICS = (("p50", "median"), ("p99", "simulated"))
"""What is drawn of each latency, with the mark's CSS class."""
GOOD, BAD = ("stable",), ("overloaded", "metastable")
"""The colours of verdicts: good or bad."""


def write_variants_page(
    path: Path,
    results: Sequence[VariantResult],
    *,
    slo_us: Mapping[str, float],
    warnings: Sequence[str],
    command: str,
    overwrite: bool = False,
) -> None:
    """Write the page; ``overwrite``: over any file. Raises ConfigError where the file cannot be written."""
    page = page_of_variants(results, slo_us=slo_us, warnings=warnings, command=command)
    write_text(path, page, option="--report", overwrite=overwrite)


def page_of_variants(
    results: Sequence[VariantResult],
    *,
    slo_us: Mapping[str, float],
    warnings: Sequence[str],
    command: str,
) -> str:
    """Return the page as one HTML document that needs no other file."""
    keys = list(results[0].variant.varied)
    page = pages.Page(
        name="vtwin run",
        eyebrow="vtwin: simulated variants",
        title=f"{len(results)} variants of {' and '.join(keys) if len(keys) <= MOST_KEYS else f'{len(keys)} keys'}",
        lead=f"{results[0].summary['num_requests']:,} requests each, the same ones unless the load is what varies.",
        headlines=[],
        sections=[
            _pictures(results, slo_us),
            *([_distributions(results, slo_us)] if len(results) <= MOST_CURVES else []),
            _table(results),
            pages.PageSection(
                title="How it came about", anchor="origin", parts=[pages.Terms(terms=[("command", command)])]
            ),
        ],
        footer=f"vtwin {tool_version()} · --json prints every number on this page",
        warnings=warnings,
    )
    return pages.render(page)


# -- over the variants ----------------------------------------------------------------------------------------


def _pictures(results: Sequence[VariantResult], slo_us: Mapping[str, float]) -> pages.PageSection:
    """Return the latencies and the throughput over the variants."""
    places, x = _across(results)
    figures = [
        pages.Figure(svg=_latency(results, places, x, metric=name, limit_us=slo_us.get(name)))
        for name in METRICS
    ]
    tokens = np.array([each.summary["output_token_throughput"] or np.nan for each in results])
    y = pages.linear(0.0, 1.1 * float(np.nanmax(tokens, initial=1.0)), label="tokens/s")
    figures.append(
        pages.Figure(
            svg=pages.chart(
                title="Output tokens per second", x=x, y=y, marks=_joined(places, tokens, "simulated")
            )
        )
    )
    figures += _hits(results, places, x)
    return pages.PageSection(
        title="Over the variants",
        anchor="variants",
        lead="Dark: the median; orange: the 99th percentile.",
        parts=[pages.Figures(figures=figures)],
    )


def _hits(results: Sequence[VariantResult], places: Floats, x: pages.Scale) -> list[pages.Figure]:
    """Return the share of prompt tokens found in a cache, nothing where no variant has a second tier."""
    if all(each.summary["kv_offload"] is None for each in results):
        return []
    on_gpu, anywhere = [], []
    for each in results:
        tier, found = each.summary["kv_offload"], each.summary["prefix_hit_frac"]
        on_gpu.append(100 * ((found if tier is None else tier["gpu_hit_frac"]) or 0.0))
        anywhere.append(100 * (found or 0.0))
    marks = [
        *_joined(places, np.array(anywhere), "simulated", label="host memory, too"),
        *_joined(places, np.array(on_gpu), "median", label="on the GPU"),
    ]
    title = "Prompt tokens found in a cache"
    picture = pages.chart(title=title, x=x, y=pages.linear(0.0, 100.0, label="%"), marks=marks)
    return [pages.Figure(svg=picture, caption="Dark: on the GPU; orange: there or in host memory.")]


def _across(results: Sequence[VariantResult]) -> tuple[Floats, pages.Scale]:
    """Return where each variant stands, and the axis: of numbers where one key varies and has them, else of names."""
    keys = list(results[0].variant.varied)
    names = [", ".join(each.variant.varied.values()) for each in results]
    numbers = [_number(name) for name in names] if len(keys) == 1 else [None]
    if all(number is not None for number in numbers):
        places = np.array(numbers, np.float64)
        axis = pages.scale_of(places, label=keys[0])
        return places, axis if axis.is_log else pages.linear(0.0, 1.05 * float(places.max()), label=keys[0])
    last = len(results) - 1
    axis = pages.Scale(
        low=-0.5,
        high=last + 0.5,
        ticks=tuple((float(number), name) for number, name in enumerate(names)),
        label=", ".join(keys),
        write=lambda at: names[min(max(round(at), 0), last)],
    )
    return np.arange(len(results), dtype=np.float64), axis


def _number(text: str) -> float | None:
    """Return a text as a positive number, None if it is not one."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 < number < float("inf") else None


def _latency(
    results: Sequence[VariantResult], places: Floats, x: pages.Scale, *, metric: str, limit_us: float | None
) -> pages.Markup:
    key, title = METRICS[metric]
    curves = {
        stat: np.array([each.summary[key][stat] or np.nan for each in results])  # type: ignore[literal-required]
        for stat, _ in STATISTICS
    }
    known = np.concatenate([*curves.values()])
    divisor, unit = unit_of(known[np.isfinite(known)])
    y = pages.scale_of(known / divisor, label=unit, limit=None if limit_us is None else limit_us / divisor)
    marks: list[pages.Mark] = []
    for stat, name in STATISTICS:
        marks += _joined(places, curves[stat] / divisor, name, label="median" if stat == "p50" else stat)
    return pages.chart(title=title, x=x, y=y, marks=[*marks, *limit_across(x, y, limit_us, divisor=divisor)])


def _joined(places: Floats, values: Floats, name: str, *, label: str = "") -> list[pages.Mark]:
    """Return the variants' values as dots, joined in the order of their places."""
    order = np.argsort(places, kind="stable")
    at, shown = places[order], values[order]
    known = np.isfinite(shown)
    return [
        pages.Line(x=at[known], y=shown[known], name=name, label=label),
        pages.Dots(x=at, y=shown, name=f"run {name}"),
    ]


# -- distributions --------------------------------------------------------------------------------------------


def _distributions(results: Sequence[VariantResult], slo_us: Mapping[str, float]) -> pages.PageSection:
    """Return the share of requests up to each time, a line per variant."""
    latencies = [request_latencies(each.simulated) for each in results]
    figures = []
    for metric, (key, title) in METRICS.items():
        values = [each[key][np.isfinite(each[key])] for each in latencies]
        named = [(f"pool-{number}", each) for number, each in enumerate(values)]
        figures.append(pages.Figure(svg=cdf_of(named, title, slo_us.get(metric)).svg()))
    names = [(f"pool-{number}", _told(each)) for number, each in enumerate(results)]
    return pages.PageSection(
        title="Distributions",
        anchor="distributions",
        lead="The share of requests up to each time.",
        parts=[pages.Figures(figures=figures, caption=pages.legend(names))],
    )


def _told(result: VariantResult) -> str:
    return ", ".join(f"{key} {value}" for key, value in result.variant.varied.items())


# -- numbers --------------------------------------------------------------------------------------------------


def _table(results: Sequence[VariantResult]) -> pages.PageSection:
    """Return every figure, a column per variant."""
    columns = columns_of(results)
    keys = list(results[0].variant.varied)
    head = [keys[0], *(each[keys[0]] for each in columns)]
    rows: list[list[str | pages.Cell]] = []
    for name in list(columns[0])[1:]:
        cells = [_cell(name, each[name]) for each in columns]
        rows.append([name, *cells])
    parts: list[pages.Part] = [pages.PageTable(head=head, rows=rows, align="l" + "r" * len(columns))]
    parts += [pages.Prose(markup=f"{note}.") for note in notes_of(results)]
    return pages.PageSection(title="Numbers", anchor="numbers", parts=parts)


def _cell(name: str, text: str) -> str | pages.Cell:
    if name != "verdict":
        return text
    return pages.Cell(text=text, verdict="pass" if text in GOOD else "fail" if text in BAD else "")
