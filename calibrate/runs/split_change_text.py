"""A split change as lines for a terminal and as JSON values."""

from __future__ import annotations

from dataclasses import asdict

from calibrate import number_format
from calibrate.runs.split_change import LEAST, SplitChange, SplitPart
from traces.statistics.bootstrap import LEVEL, Estimate

NOTES = (
    f"change = load x server; in brackets {LEVEL:.0%} intervals; ~: may be chance, or the twin's own error",
    "server: what the twin does not explain, its own error in one of the two runs included",
)


def split_json(split: SplitChange) -> dict[str, object]:
    """Return the split as JSON values: fractions, by metric and statistic."""
    return {
        "twin": split.twin,
        "client_late": list(split.late),
        "verdict": verdict_of(split),
        "parts": [
            {**asdict(each), "is_loads": each.is_loads, "is_servers": each.is_servers} for each in split.parts
        ],
    }


def verdict_of(split: SplitChange) -> str | None:
    """Return what changed, by the mean E2E: load, server, both or neither; None where it is not known."""
    part = _deciding(split)
    if part is None or part.server.low is None:
        return None
    names = [name for name, changed in (("load", part.is_loads), ("server", part.is_servers)) if changed]
    return " and ".join(names) or "neither"


def split_lines(split: SplitChange) -> list[str]:
    """Return a sentence, a line for each statistic, and what they mean."""
    rows = [
        (
            f"{number_format.METRIC_NAMES[each.metric]} {each.statistic}",
            _text(each.change),
            _text(each.load) + ("" if each.is_loads else "  ~"),
            _text(each.server) + ("" if each.is_servers else "  ~"),
        )
        for each in split.parts
    ]
    rows = [("", "change", "load", "server"), *rows]
    wide = [max(len(row[i]) for row in rows) for i in range(3)]
    table = [
        f"{name:<{wide[0]}}  {change:<{wide[1]}}  {load:<{wide[2]}}  {server}".rstrip()
        for name, change, load, server in rows
    ]
    own: dict[str, list[str]] = {}
    for each in split.parts:
        if each.own_error > LEAST:
            said = f"{each.statistic} {number_format.percent(each.own_error)}"
            own.setdefault(number_format.METRIC_NAMES[each.metric], []).append(said)
    errors = "; ".join(f"{name} {', '.join(parts)}" for name, parts in own.items())
    return [
        _sentence(split),
        *table,
        *NOTES,
        *([f"the twin's own error, by its fit: {errors}"] if errors else []),
        *(
            [f"TTFT: no part is told, the client was late or limited in {' and '.join(split.late)}"]
            if split.late
            else []
        ),
    ]


def _deciding(split: SplitChange) -> SplitPart | None:
    return next((each for each in split.parts if (each.metric, each.statistic) == ("e2e_us", "mean")), None)


def _sentence(split: SplitChange) -> str:
    part, verdict = _deciding(split), verdict_of(split)
    if part is None or verdict is None:
        return "load or server: not known, too few requests have both a measured and a simulated E2E"
    changed, load, server = (_signed(each.value) for each in (part.change, part.load, part.server))
    figures = f"mean E2E {changed}, load {load}, server {server}"
    said = {
        "load": "the load changed the mean E2E, the server did not",
        "server": "the server changed the mean E2E, the load did not",
        "load and server": "load and server both changed the mean E2E",
        "neither": "neither load nor server changed the mean E2E by more than chance",
    }
    others = [
        f"{number_format.METRIC_NAMES[each.metric]} {each.statistic}"
        for each in split.parts
        if each.is_servers and not part.is_servers
    ]
    more = f"; the server changed {', '.join(others)}" if others else ""
    return f"load or server: {said[verdict]} ({figures}){more}"


def _text(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return _signed(estimate.value)
    return (
        f"{_signed(estimate.value)} ({_signed(estimate.low, unit='')} to {_signed(estimate.high, unit='')})"
    )


def _signed(share: float | None, *, unit: str = " %") -> str:
    if share is None:
        return number_format.NONE
    return f"{100 * share:+.1f}{unit}".replace("-", number_format.MINUS)
