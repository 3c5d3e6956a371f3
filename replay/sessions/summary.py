"""Sessions in numbers: for the document that ``--json`` prints, and for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import numpy as np

from replay.distribution import Distribution, distribution
from replay.sessions.results import SessionResults, session_results
from traces import four_digits
from traces.strict.escape import terminal

if TYPE_CHECKING:
    from traces import Trace

MOST_LISTED = 10
"""Sessions that are listed, the slowest first."""
MOST_SHOWN = 3
"""And those of them in a terminal."""


class SlowSession(TypedDict):
    """One session; times in µs."""

    session_id: str
    num_requests: int
    duration_us: float
    model_us: float
    tool_us: float
    cached_frac: float | None
    recomputed_tokens: int


class SessionsSummary(TypedDict):
    """Sessions as wholes. ``num_complete``: every request finished.

    Times are over complete sessions: ``duration_us`` from the first request to the last answer; of it ``model_us`` with
    a request under way, ``tool_us`` without one. Shares are of all prompt tokens: ``cached_frac`` found in the cache;
    of it ``cached_own_frac`` in blocks of the session alone, ``cached_shared_frac`` in blocks that others have, too;
    ``recomputed_frac`` an unlimited cache would have had. ``slowest``: the longest complete sessions.
    """

    num_sessions: int
    num_complete: int
    num_requests: Distribution
    duration_us: Distribution
    model_us: Distribution
    tool_us: Distribution
    cached_frac: float | None
    cached_own_frac: float | None
    cached_shared_frac: float | None
    recomputed_frac: float | None
    slowest: list[SlowSession]


def summarize_sessions(trace: Trace, *, block_size: int) -> SessionsSummary | None:
    """Return what a simulated trace's sessions came to, None where it has none."""
    found = session_results(trace, block_size=block_size)
    if found is None:
        return None
    total = int(found.prompt_tokens.sum())

    def frac(tokens: int) -> float | None:
        return tokens / total if total else None

    return SessionsSummary(
        num_sessions=len(found.names),
        num_complete=int(found.is_complete.sum()),
        num_requests=distribution(found.num_requests.astype(np.float64)),
        duration_us=distribution(found.duration_us[found.is_complete]),
        model_us=distribution(found.model_us[found.is_complete]),
        tool_us=distribution(found.tool_us[found.is_complete]),
        cached_frac=frac(int(found.cached.sum())),
        cached_own_frac=frac(int(found.own.sum())),
        cached_shared_frac=frac(int(found.shared.sum())),
        recomputed_frac=frac(int(found.recomputed.sum())),
        slowest=_slowest(found),
    )


def _slowest(found: SessionResults) -> list[SlowSession]:
    complete = np.flatnonzero(found.is_complete)
    order = complete[np.argsort(-found.duration_us[complete], kind="stable")][:MOST_LISTED]
    return [
        SlowSession(
            session_id=found.names[row],
            num_requests=int(found.num_requests[row]),
            duration_us=float(found.duration_us[row]),
            model_us=float(found.model_us[row]),
            tool_us=float(found.tool_us[row]),
            cached_frac=float(found.cached[row] / found.prompt_tokens[row])
            if found.prompt_tokens[row]
            else None,
            recomputed_tokens=int(found.recomputed[row]),
        )
        for row in order.tolist()
    ]


def session_lines(sessions: SessionsSummary) -> list[str]:
    """Return the sessions as lines for a terminal."""
    counted = f"{sessions['num_complete']:,} of {sessions['num_sessions']:,} complete"
    lasted, model = _seconds(sessions["duration_us"]["mean"]), _seconds(sessions["model_us"]["mean"])
    lines = [f"{'sessions':<12}{counted}"]
    if not sessions["num_complete"]:
        return lines
    lines[0] += f", {lasted} on average from first request to last answer"
    tools = _seconds(sessions["tool_us"]["mean"])
    lines.append(f"{'':<12}of it {model} for the model, {tools} for tools and people")
    if sessions["cached_frac"]:
        own, shared = sessions["cached_own_frac"], sessions["cached_shared_frac"]
        lines.append(
            f"{'':<12}prompt tokens: {own:.1%} cached from their own rounds, {shared:.1%} from what sessions share, "
            f"{sessions['recomputed_frac']:.1%} computed again"
        )
    for place, each in enumerate(sessions["slowest"][:MOST_SHOWN]):
        took, waited = _seconds(each["duration_us"]), _seconds(each["model_us"])
        name = terminal(each["session_id"])
        head = "  slowest" if place == 0 else ""
        lines.append(f"{head:<12}{name}: {took}, {each['num_requests']:,} requests, {waited} for the model")
    return lines


def _seconds(value_us: float | None) -> str:
    return "-" if value_us is None else f"{four_digits(value_us / 1e6)} s"
