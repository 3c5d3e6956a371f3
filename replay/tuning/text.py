"""A search's outcome as lines for a terminal and as a JSON document."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from replay.capacity.capacity import Capacity
from replay.capacity.text import SHORT_NAMES, interval_method, marked
from replay.tuning.candidates import Candidate, Candidates
from replay.tuning.flags import flags_of
from replay.tuning.live import Confirmation
from replay.tuning.search import ALIKE, Tuned
from replay.variants.side_by_side import side_by_side
from traces import ConfigError, RunLimit, or_null, shown_time

SCHEMA_VERSION = 1
Confirmed = Mapping[int, Confirmation]
"""By place among the best, from 0."""


def lines(
    tuned: Tuned,
    candidates: Candidates,
    limits: Sequence[RunLimit],
    *,
    confirmed: Confirmed,
    width: int | None,
) -> list[str]:
    """Return what a terminal shows: the best side by side with the file's own server, and the flags of the first."""
    keys = sorted({each.key for candidate, _ in tuned.best for each in candidate.settings})
    columns = [{"": "as it is", **_column(tuned.own, tuned, keys, limits, None)}]
    columns += [
        {"": f"best {place + 1}", **_column(each, tuned, keys, limits, confirmed.get(place))}
        for place, each in enumerate(tuned.best)
    ]
    rows = {name for column in columns for name in column}
    full = [{name: column.get(name, "-") for name in _in_order(columns, rows)} for column in columns]
    return [*side_by_side(full, width=width).splitlines(), "", *_told(tuned, candidates, confirmed, limits)]


def _in_order(columns: Sequence[Mapping[str, str]], rows: set[str]) -> list[str]:
    """Return the rows' names in the order of the column that has most of them."""
    longest = max(columns, key=len)
    return [*longest, *sorted(rows - set(longest))]


def _column(
    found: tuple[Candidate, Capacity],
    tuned: Tuned,
    keys: Sequence[str],
    limits: Sequence[RunLimit],
    live: Confirmation | None,
) -> dict[str, str]:
    candidate, capacity = found
    changed = {each.key: each.value for each in candidate.settings}
    cells = {key.rpartition(".")[2]: changed.get(key, _own_value(tuned.own[0], key)) for key in keys}
    rate = capacity.rate_per_s
    cells["capacity, requests/s"] = "none" if rate is None else f"{rate:.4g}"
    cells["  from"] = "-" if capacity.low is None else f"{capacity.low:.4g}"
    cells["  to"] = "-" if capacity.high is None else f"{capacity.high:.4g}"
    if tuned.is_per_gpu:
        gpus = candidate.num_gpus or 1
        cells["GPUs"] = str(gpus)
        cells["requests/s per GPU"] = "none" if rate is None else f"{rate / gpus:.4g}"
    cells["breaks first"] = SHORT_NAMES.get(capacity.limiting, capacity.limiting)
    cells |= {each.name: marked(capacity.at_capacity, each) for each in limits}
    if live is not None:
        for each in limits:
            value = live.values_us[each.name]
            cells[f"live {each.name}"] = f"{shown_time(value)} {'✓' if value <= each.limit_us else '✗'}"
        cells["live failed"] = f"{live.failed_frac:.1%}"
    return cells


def _own_value(own: Candidate, key: str) -> str:
    """Return what the file's own server has, as a file would say it."""
    value = getattr(own.twin.engine, key.removeprefix("engine."), None)
    return "-" if value is None else str(value).lower()


def _told(
    tuned: Tuned, candidates: Candidates, confirmed: Confirmed, limits: Sequence[RunLimit]
) -> list[str]:
    """Return the sentences under the table."""
    said = [
        f"{'tried':<12}{tuned.num_tried} servers, {len(candidates.impossible)} more that vLLM would refuse"
    ]
    if candidates.impossible:
        name, reason = candidates.impossible[0]
        said.append(f"{'refused':<12}{name}: {reason}")
    if candidates.unanswered:
        name, reason = candidates.unanswered[0]
        said.append(f"{'no answer':<12}{len(candidates.unanswered)} combinations are not tried: {reason}")
    if not tuned.best:
        return [*said, f"{'best':<12}none: no server meets the limits at any rate"]
    place = _recommended(tuned, confirmed, limits)
    if place is None:
        return [*said, f"{'best':<12}none of the confirmed servers met the limits live"]
    candidate, _ = tuned.best[place]
    if tuned.num_alike > 1:
        said.append(
            f"{'alike':<12}{tuned.num_alike} servers, within {ALIKE:.0%} of the best; of these, best 1 changes least"
        )
    if not candidate.settings:
        return [*said, f"{'best':<12}the server as it is"]
    if tuned.gain is not None and place == 0:
        of = " per GPU" if tuned.is_per_gpu else ""
        said.append(
            f"{'gain':<12}{tuned.gain:+.1%}{_between(tuned)} requests/s{of}, against the server as it is"
        )
    return [*said, f"{'flags':<12}{flags_text(candidate)}"]


def _between(tuned: Tuned) -> str:
    interval = tuned.gain_interval
    return "" if interval is None else f" ({interval[0]:+.1%} to {interval[1]:+.1%})"


def _recommended(tuned: Tuned, confirmed: Confirmed, limits: Sequence[RunLimit]) -> int | None:
    """Return the place of the best candidate; of those tried live, of the best that met the limits there."""
    if not confirmed:
        return 0 if tuned.best else None
    return next((place for place, live in sorted(confirmed.items()) if live.meets(limits)), None)


def flags_text(candidate: Candidate) -> str:
    """Return the flags of ``vllm serve``; where a setting has none, the keys of TWIN.yaml."""
    try:
        return shlex.join(flags_of(candidate.settings))
    except ConfigError:
        return ", ".join(str(each) for each in candidate.settings)


def document(
    tuned: Tuned,
    candidates: Candidates,
    limits: Sequence[RunLimit],
    *,
    confirmed: Confirmed,
    tool_version: str,
    warnings: Sequence[str],
) -> dict[str, object]:
    """Return the JSON document; rates in requests/s, times in µs, null where nothing is known."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool_version": tool_version,
        "slo_us": {each.name: each.limit_us for each in limits},
        "objective": "requests_per_s_per_gpu" if tuned.is_per_gpu else "requests_per_s",
        "own": _entry(tuned.own, None, limits),
        "best": [_entry(each, confirmed.get(place), limits) for place, each in enumerate(tuned.best)],
        "recommended": _recommended(tuned, confirmed, limits),
        "gain": tuned.gain,
        "gain_interval": tuned.gain_interval,
        "num_alike": tuned.num_alike,
        "num_tried": tuned.num_tried,
        "refused": [{"name": name, "reason": reason} for name, reason in candidates.impossible],
        "unanswered": [{"name": name, "reason": reason} for name, reason in candidates.unanswered],
        "warnings": list(warnings),
    }


def _entry(
    found: tuple[Candidate, Capacity], live: Confirmation | None, limits: Sequence[RunLimit]
) -> dict[str, object]:
    candidate, capacity = found
    at = capacity.at_capacity
    return {
        "set": {each.key: each.value for each in candidate.settings},
        "flags": flags_text(candidate),
        "gpus": candidate.num_gpus,
        "rate": capacity.rate_per_s,
        "low": capacity.low,
        "high": capacity.high,
        "interval": interval_method(capacity),
        "limiting": capacity.limiting,
        "values_us": {each.name: or_null(at.values_us[each.name]) for each in limits},
        "live": None
        if live is None
        else {
            "met": live.meets(limits),
            "rate": live.rate_per_s,
            "num_requests": live.num_requests,
            "values_us": {name: or_null(value) for name, value in live.values_us.items()},
            "failed_frac": live.failed_frac,
            "trace": str(live.stem),
        },
    }
