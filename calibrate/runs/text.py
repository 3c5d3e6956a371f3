"""Two runs as a JSON document and as lines for a terminal."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict

from calibrate import number_format
from calibrate.runs.two_runs import Difference, OneSide, TwoRuns
from traces.facts import AlignedRows, AnswerPart
from traces.statistics.bootstrap import LEVEL, Estimate
from traces.strict.escape import terminal

NAMES = {
    "ttft_us": "TTFT",
    "tpot_us": "TPOT",
    "e2e_us": "E2E",
    "queue_us": "queue time",
}
SHOWN = ("mean", "p50", "p99")
MOST_NAME = 13
CHANCE = f"~: the {LEVEL:.0%} interval holds 0, so the difference may be chance"
FACTOR = 1.0
"""Changes by more than this ratio are shown as a factor, others in per cent."""


def document(found: TwoRuns, *, tool_version: str) -> dict[str, object]:
    """Return the JSON document; times in µs, rates per second."""
    return {
        "schema_version": 1,
        "tool_version": tool_version,
        "a": _run(found.a),
        "b": _run(found.b),
        "is_paired": found.is_paired,
        "both_saturated": found.both_saturated,
        "noise_floors": [asdict(each) for each in found.noise_floors],
        "differences": [asdict(each) for each in found.differences],
        "notes": list(found.notes),
    }


def _run(run: OneSide) -> dict[str, object]:
    told = asdict(run)
    told["saturation"] = {"state": run.saturation.state, "reason": run.saturation.reason}
    return told


def table(found: TwoRuns, *, width: int | None = None) -> str:
    """Return the comparison for a terminal: it fits 80 columns; on a narrower one the intervals are left out."""
    rows = _rows(found)
    lines = [*_lines(rows), *_remarks(found, rows)]
    if width is None or max(map(len, lines[: len(rows)])) <= width:
        return "\n".join(lines)
    short = _lines([(*each[:3], re.sub(r" \(.*\)", "", each[3])) for each in rows])
    return "\n".join(
        [*short, *lines[len(rows) :], f"not shown, for want of width: the {LEVEL:.0%} intervals"]
    )


def table_parts(found: TwoRuns) -> list[AnswerPart]:
    """Return the comparison for readers."""
    rows = _rows(found)
    return [AlignedRows(rows), *_remarks(found, rows)]


def _remarks(found: TwoRuns, rows: Sequence[tuple[str, str, str, str]]) -> list[str]:
    """Return what is to know of the intervals."""
    said = [CHANCE] if any("~" in change for *_, change in rows) else []
    if found.noise_floors:
        runs = " and ".join(f"{each.num_runs}" for each in found.noise_floors)
        said.append(f"intervals: by how much {runs} repeated runs differed (`observe --repeat`)")
    return said


def _tokens(mean: float) -> str:
    return "-" if math.isnan(mean) else f"{mean:,.4g}"


def _rows(found: TwoRuns) -> list[tuple[str, str, str, str]]:
    """Return the rows, head first."""
    a, b = found.a, found.b
    return [
        ("", *_short_names(terminal(a.name), terminal(b.name)), "B against A"),
        ("what", _MODES.get(a.mode, a.mode), _MODES.get(b.mode, b.mode), ""),
        ("requests", f"{a.num_requests:,}", f"{b.num_requests:,}", ""),
        ("failed", f"{a.num_requests - a.num_ok:,}", f"{b.num_requests - b.num_ok:,}", ""),
        ("prompt tokens, mean", f"{a.mean_prompt_tokens:,.4g}", f"{b.mean_prompt_tokens:,.4g}", ""),
        ("output tokens, mean", _tokens(a.mean_output_tokens), _tokens(b.mean_output_tokens), ""),
        ("offered requests/s", _rate(a.offered_per_s), _rate(b.offered_per_s), ""),
        (_served("requests/s", found), *_pair(a.served_per_s, b.served_per_s)),
        (_served("tokens/s", found), *_pair(a.output_tokens_per_s, b.output_tokens_per_s)),
        *(_latency(each) for each in found.differences if each.statistic in SHOWN),
    ]


def _lines(rows: Sequence[tuple[str, str, str, str]]) -> list[str]:
    wide = [max(len(row[i]) for row in rows) for i in range(3)]
    return [
        f"{name:<{wide[0]}}  {one:>{wide[1]}}  {other:>{wide[2]}}   {change}".rstrip()
        for name, one, other, change in rows
    ]


_MODES = {"real": "measured", "replayed": "simulated", "generated": "not run"}


def _served(unit: str, found: TwoRuns) -> str:
    """Return the name of a throughput: capacity if both servers were saturated, else the served load."""
    return f"{'capacity' if found.both_saturated else 'served'}, {unit}"


def _latency(each: Difference) -> tuple[str, str, str, str]:
    name = f"{NAMES[each.metric]} {each.statistic}"
    return name, number_format.duration(each.a), number_format.duration(each.b), _change(each.change)


def _change(change: Estimate) -> str:
    """Return a relative change with its interval; an interval around 0 says that there may be none."""
    if change.value is None:
        return number_format.NONE
    is_factor = change.value >= FACTOR
    value = f"x {1 + change.value:.3g}" if is_factor else _signed(change.value) + " %"
    if change.low is None or change.high is None:
        return value
    unsure = "" if change.low > 0 or change.high < 0 else "  ~"
    ends = (f"{1 + end:.3g}" if is_factor else _signed(end) for end in (change.low, change.high))
    return f"{value} ({' to '.join(ends)}){unsure}"


def _signed(share: float) -> str:
    return f"{100 * share:+.1f}".replace("-", number_format.MINUS)


def _pair(a: float | None, b: float | None) -> tuple[str, str, str]:
    change = number_format.percent(b / a - 1, signed=True) if a and b is not None else ""
    return _rate(a), _rate(b), change


def _rate(value: float | None) -> str:
    return number_format.NONE if value is None else f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"


def _short_names(a: str, b: str) -> tuple[str, str]:
    """Return names that fit their columns: the last parts by which they differ, and their ends where they are long."""
    ones, others = a.split("/"), b.split("/")
    while len(ones) > 1 and len(others) > 1 and ones[-1] == others[-1]:  # aiperf's files all have one name
        ones, others = ones[:-1], others[:-1]
    return _short("/".join(ones)), _short("/".join(others))


def _short(name: str) -> str:
    """Return a name that fits its column, its end where it is too long."""
    return name if len(name) < MOST_NAME else "…" + name[-(MOST_NAME - 2) :]
