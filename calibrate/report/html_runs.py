"""The page's sections on runs: the load over time, where errors come from, the worst requests, and provenance."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from calibrate import number_format
from calibrate.compare.phases import BASES
from calibrate.compare.served import RateCurve
from calibrate.findings import Calibration
from calibrate.report import pictures_runs, report_tables
from calibrate.report.html_errors import BOTH_SIDES, OBSERVED, SIMULATED
from traces import pages

MOST_LOADS = 4
MOST_SERVED = 8
"""Runs in the table of absolute numbers, the held-out ones first."""


def server(calibration: Calibration) -> pages.PageSection:
    """Return the server's absolute numbers, on both sides, and the twin's latency over the rate."""
    held_out = calibration.held_out_traces
    runs = list({id(each): each for each in [*held_out, *calibration.traces]}.values())
    head, rows, groups = report_tables.served_table(runs[:MOST_SERVED])
    more = f" The {MOST_SERVED} first of {len(runs)} runs." if len(runs) > MOST_SERVED else ""
    parts: list[pages.Part] = [
        pages.PageTable(head=head, rows=rows, align="ll" + "r" * (len(head) - 2), groups=groups)
    ]
    curve = calibration.rate_curve
    if curve is not None:
        parts.append(pages.Figures(figures=pictures_runs.rate_curves(curve), caption=_on_the_curve(curve)))
    return pages.PageSection(
        title="The server",
        anchor="server",
        lead=pages.inline(
            "Each run in absolute numbers, ", BOTH_SIDES, f": medians and 99th percentiles.{more}"
        ),
        parts=parts,
    )


def _on_the_curve(curve: RateCurve) -> pages.Markup:
    """Return how to read the curve."""
    capacity = number_format.rate(curve.capacity_per_s)
    said: list[str] = [
        pages.inline("Line: the ", SIMULATED, f" median of the requests of {curve.trace} at other rates;"),
        pages.inline("thin: the 99th percentile. Dots: ", OBSERVED, ", the paler ones the 99th percentile."),
        f"Blue upright: the most that the twin serves, {capacity} requests/s.",
    ]
    if curve.fitted_to_per_s is not None:
        fitted = number_format.plain(curve.fitted_to_per_s)
        said.append(
            f"Dashed upright: the highest fitted load, {fitted} requests/s; beyond it the curve is a forecast."
        )
    others = [f"{name}: {why}" for name, why in curve.elsewhere.items()]
    if others:
        said.append(f"Not drawn: {'; '.join(others)}.")
    return pages.listed(said, " ")


def load(calibration: Calibration) -> pages.PageSection:
    """Return requests in flight and finished over time, and whether the server served the load."""
    held_out = calibration.held_out_traces[:MOST_LOADS]
    figures = pictures_runs.loads({each.source.name: each.pairs for each in held_out})
    return pages.PageSection(
        title="Load over time",
        anchor="load",
        lead=pages.inline(
            "Compared requests between arrival and last token, and how many finish, ", BOTH_SIDES, "."
        ),
        parts=[
            pages.Figures(figures=figures, columns=1),
            pages.PageTable(
                head=report_tables.SATURATION_HEAD,
                rows=report_tables.saturation_rows(calibration),
                align="lnrrrl",
            ),
        ],
    )


def origin(calibration: Calibration) -> pages.PageSection:
    """Return the error of a mean request by phase, and the worst requests with their timelines."""
    parts: list[pages.PageTable | pages.Prose] = []
    found = calibration.origin
    if found is not None:
        head, rows = report_tables.origin_table(calibration)
        picture = pictures_runs.mean_request(found)
        drawn = pages.inline("A mean request, ", OBSERVED, " above ", SIMULATED, ": ", picture)
        parts += [pages.Prose(markup=pages.legend(pictures_runs.PART_NAMES)), pages.Prose(markup=drawn)]
        parts.append(pages.PageTable(head=head, rows=rows, align="lrrrrr"))
    if calibration.worst:
        parts.append(_worst(calibration))
    basis = "" if found is None else f"{BASES[found.basis]}; {found.n:,} requests."
    return pages.PageSection(
        title="Where the error comes from",
        anchor="origin",
        lead=f"The error of E2E by phase: {basis}" if basis else "",
        parts=parts,
    )


def _worst(calibration: Calibration) -> pages.PageTable:
    head, rows = report_tables.worst_table(calibration)
    places = [head.index("observed"), head.index("simulated")]
    drawn: list[list[str | pages.Cell]] = []
    unit, columns = number_format.in_one_unit(
        [each.observed_e2e_us for each in calibration.worst],
        [each.simulated_e2e_us for each in calibration.worst],
    )
    both = zip(*columns, strict=True)
    for row, each, times in zip(rows, calibration.worst, both, strict=True):
        kept: list[str | pages.Cell] = [cell for i, cell in enumerate(row) if i not in places]
        drawn.append([*kept[:-1], *times, kept[-1], pages.Cell(svg=pictures_runs.timeline(each))])
    names = [name for i, name in enumerate(head) if i not in places]
    return pages.PageTable(
        head=[*names[:-1], *report_tables.sides(unit)[:2], names[-1], "observed above simulated"],
        rows=drawn,
        align="l" + "r" * (len(names) + 1) + "l",
        caption=f"The {len(rows)} worst requests by relative error of E2E, each on its own scale",
    )


def traces(calibration: Calibration) -> pages.PageSection:
    """Return which requests were compared and which were left out, with the notes."""
    rows: list[list[str | pages.Cell]] = [
        [
            each.source.name,
            each.role,
            f"{len(each.source.trace):,}",
            f"{len(each.pairs):,}",
            ", ".join(
                f"{count:,} {number_format.reason(name)}" for name, count in each.pairs.excluded.items()
            )
            or "none",
        ]
        for each in calibration.traces
    ]
    notes = [
        *calibration.notes,
        *(f"{t.source.name}: {note}" for t in calibration.traces for note in t.notes),
    ]
    parts: list[pages.PageTable | pages.Prose] = [
        pages.PageTable(head=["trace", "role", "requests", "compared", "left out"], rows=rows, align="llrrl")
    ]
    parts += [pages.Prose(markup=f"{note}.") for note in dict.fromkeys(notes)]
    return pages.PageSection(title="Traces and exclusions", anchor="traces", parts=parts)


def provenance(document: Mapping[str, Any], *, command: str) -> pages.PageSection:
    """Return how to reproduce the report: command, versions, inputs, configuration."""
    provenance = document["provenance"]
    libraries = ", ".join(f"{name} {version}" for name, version in provenance["libraries"].items())
    intervals = provenance["intervals"]
    terms = [
        ("command", command),
        ("made", f"by vtwin {provenance['tool_version']}"),
        ("with", f"Python {provenance['python']}, {libraries}"),
        (
            "intervals",
            f"{intervals['method']}; {intervals['replicates']:,} replicates, level "
            f"{intervals['level']:.0%}, seed {intervals['seed']}".replace("%", " %"),
        ),
        ("paired by", provenance["pair_by"]),
        *(
            (f"trace {each['name']}", f"{each['mode'] or 'mode not stated'}; SHA-256 {each['digest']}")
            for each in document["traces"]
        ),
    ]
    if document["network"] is not None:
        terms.append(("network", json.dumps(document["network"])))
    parts: list[pages.Terms | pages.FoldedText] = [pages.Terms(terms=terms)]
    if document["config"] is not None:
        parts.append(pages.FoldedText(title="Configuration", text=json.dumps(document["config"], indent=2)))
    return pages.PageSection(title="Configuration and provenance", anchor="provenance", parts=parts)
