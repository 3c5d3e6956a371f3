"""A search's outcome as lines for a terminal and as a JSON document."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType

from replay.capacity.capacity import Capacity
from replay.capacity.text import RESOURCE_NAMES, capacity_facts, interval_method
from replay.capacity.value import value_facts
from replay.tuning.candidate_search import ALIKE, Tuned
from replay.tuning.candidates import Candidate, Candidates, border_text
from replay.tuning.flags import flags_of
from replay.tuning.live import Confirmation
from traces import ConfigError, RunLimit, tool_version
from traces.facts import AnswerPart, Fact, SideBySide, TermRows, columns_of, document, frac, of_limit, per_s

SCHEMA_VERSION = 1
GAINED = {
    "requests_per_s": "requests/s",
    "requests_per_s_per_gpu": "requests/s per GPU",
    "requests_per_price": "requests for the price",
}
Confirmed = Mapping[int, Confirmation]
"""What the real server said of a candidate, by its place among the best, from 0."""


def tuning_parts(
    tuned: Tuned,
    candidates: Candidates,
    limits: Sequence[RunLimit],
    *,
    confirmed: Confirmed,
) -> list[AnswerPart]:
    """Return the terminal's text: the best side by side with the file's own server, and the flags of the first."""
    keys = sorted({each.key for candidate, _ in tuned.best for each in candidate.settings})
    records = [[Fact("", "", "as it is"), *_facts(tuned.own, tuned, keys, limits, None)]]
    records += [
        [Fact("", "", f"best {place + 1}"), *_facts(each, tuned, keys, limits, confirmed.get(place))]
        for place, each in enumerate(tuned.best)
    ]
    return [SideBySide(columns_of(records)), "", TermRows(_told(tuned, candidates, confirmed, limits))]


def _facts(
    found: tuple[Candidate, Capacity],
    tuned: Tuned,
    keys: Sequence[str],
    limits: Sequence[RunLimit],
    live: Confirmation | None,
) -> list[Fact]:
    candidate, capacity = found
    changed = {each.key: each.value for each in candidate.settings}
    own, gpus, rate = tuned.own[0], candidate.num_gpus or 1, capacity.rate_per_s
    per_gpu = [
        Fact("", "GPUs", gpus),
        Fact("", "requests/s per GPU", rate and rate / gpus, per_s, none="none"),
    ]
    return [
        *(Fact("", key.rpartition(".")[2], changed.get(key, _own_value(own, key))) for key in keys),
        *capacity_facts(capacity),
        *(per_gpu if tuned.objective == "requests_per_s_per_gpu" else []),
        *value_facts(capacity, candidate.price_per_hour),
        *_limited(capacity, limits),
        *([] if live is None else _live_facts(live, limits)),
    ]


def _limited(capacity: Capacity, limits: Sequence[RunLimit]) -> list[Fact]:
    """Return what breaks first, and the limited latencies at the capacity."""
    binding = RESOURCE_NAMES.get(capacity.limiting, capacity.limiting)
    return [
        Fact("limiting", "breaks first", capacity.limiting, lambda _: binding),
        *(of_limit(capacity.at_capacity.values_us[each.name], each) for each in limits),
    ]


def _live_facts(live: Confirmation, limits: Sequence[RunLimit]) -> list[Fact]:
    return [
        Fact("met", None, live.meets(limits)),
        Fact("rate", None, live.rate_per_s),
        Fact("num_requests", None, live.num_requests),
        *(of_limit(live.values_us[each.name], each, term=f"live {each.name}") for each in limits),
        Fact("failed_frac", "live failed", live.failed_frac, frac),
        Fact("trace", None, str(live.stem)),
    ]


def _own_value(own: Candidate, key: str) -> str:
    """Return the settings of the file's own server, as a file would have them."""
    value = getattr(own.twin.engine, key.removeprefix("engine."), None)
    return "-" if value is None else str(value).lower()


def _told(
    tuned: Tuned, candidates: Candidates, confirmed: Confirmed, limits: Sequence[RunLimit]
) -> list[tuple[str, str]]:
    """Return the lines under the table, as terms with their texts."""
    said = [("tried", tried_text(tuned, candidates))]
    if candidates.impossible:
        said.append(("refused", ": ".join(candidates.impossible[0])))
    if candidates.unanswered:
        number, (_, reason) = len(candidates.unanswered), candidates.unanswered[0]
        said.append(("no answer", f"{number} combinations are not tried: {reason}"))
    if not tuned.best:
        return [*said, ("best", "none: no server meets the limits at any rate")]
    place = _recommended(tuned, confirmed, limits)
    if place is None:
        return [*said, ("best", "none of the confirmed servers met the limits live")]
    candidate, _ = tuned.best[place]
    if tuned.num_alike > 1:
        alike = f"{tuned.num_alike} servers, within {ALIKE:.0%} of the best; of these, best 1 changes least"
        said.append(("alike", alike))
    if tuned.border and place == 0:
        said.append(("border", border_text(tuned.border)))
    if not candidate.settings:
        return [*said, ("best", "the server as it is")]
    if tuned.gain is not None and place == 0:
        gained = (
            f"{_more(tuned.gain)}{_between(tuned)} {GAINED[tuned.objective]}, against the server as it is"
        )
        said += [("gain", gained), *_paces(tuned)]
    return [*said, ("flags", flags_text(candidate))]


def tried_text(tuned: Tuned, candidates: Candidates) -> str:
    """Return how many combinations there were, and what became of them; the numbers add up."""
    first, beyond = tuned.num_tried - tuned.num_beyond, tuned.num_beyond
    more = f" ({first} of the grid and {beyond} beyond its border)" if beyond else ""
    others = (
        (len(candidates.impossible), "vLLM would refuse"),
        (len(candidates.unanswered), "have no answer"),
    )
    left = [f"{number} {what}" for number, what in others if number]
    if not left:
        return f"{tuned.num_tried} servers simulated{more}"
    whole = tuned.num_tried + sum(number for number, _ in others)
    return f"{whole} combinations: {tuned.num_tried} simulated{more}, {', '.join(left)}"


def _paces(tuned: Tuned) -> list[tuple[str, str]]:
    """Return what the pace of both servers does to the gain; nothing where the twin does not say its pace."""
    at = tuned.at_paces
    if at is None or tuned.gain is None:
        return []
    low, high = ((1 + tuned.gain) * math.exp(each) - 1 for each in (-at.down, at.up))
    told = (
        f"with all steps of both servers {at.pace_frac:.1%} longer or shorter {_more(low)} to {_more(high)}"
    )
    return [("", f"{told}, which the interval has in it")]


def _between(tuned: Tuned) -> str:
    interval = tuned.gain_interval
    return "" if interval is None else f" ({_more(interval[0])} to {_more(interval[1])})"


def _more(gain: float) -> str:
    """Return a gain in per cent, one of more than the double as a factor."""
    return f"{gain:+.1%}" if gain <= 1 else f"x{1 + gain:.3g}"


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


def tuning_document(tuned: Tuned, confirmed: Confirmed = MappingProxyType({})) -> dict[str, object]:
    """Return the JSON document; rates in requests/s, times in µs, null where nothing is known."""
    asked = tuned.asked
    assert asked is not None, "only of a search that a user asked for"  # noqa: S101
    candidates, limits = asked.candidates, asked.limits
    return {
        "schema_version": SCHEMA_VERSION,
        "tool_version": tool_version(),
        "slo_us": {each.name: each.limit_us for each in limits},
        "objective": tuned.objective,
        "own": _entry(tuned.own, None, limits),
        "best": [_entry(each, confirmed.get(place), limits) for place, each in enumerate(tuned.best)],
        "recommended": _recommended(tuned, confirmed, limits),
        "gain": tuned.gain,
        "gain_interval": tuned.gain_interval,
        "num_alike": tuned.num_alike,
        "num_tried": tuned.num_tried,
        "num_beyond_grid": tuned.num_beyond,
        "num_ranked_with": tuned.num_ranked_with,
        "gain_at_paces": None if tuned.at_paces is None else asdict(tuned.at_paces),
        "at_border": [asdict(each) for each in tuned.border],
        "refused": [{"name": name, "reason": reason} for name, reason in candidates.impossible],
        "unanswered": [{"name": name, "reason": reason} for name, reason in candidates.unanswered],
        "warnings": list(asked.warnings),
    }


def _entry(
    found: tuple[Candidate, Capacity], live: Confirmation | None, limits: Sequence[RunLimit]
) -> dict[str, object]:
    candidate, capacity = found
    return {
        "set": {each.key: each.value for each in candidate.settings},
        "flags": flags_text(candidate),
        "gpus": candidate.num_gpus,
        **document([*capacity_facts(capacity), *value_facts(capacity, candidate.price_per_hour)]),
        "interval": interval_method(capacity),
        **document(_limited(capacity, limits)),
        "live": None if live is None else document(_live_facts(live, limits)),
    }
