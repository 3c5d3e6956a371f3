"""What each request's time was spent on: steps, prefill tokens and decode tokens between two moments.

A server that is busy spends its time in steps, so the time between two moments of a request is ``beta0 *
steps + beta1 * prefill tokens + beta2 * decode tokens`` of all requests in between. These exposures are the
regressors of the initial guess and the derivatives of a latency by the coefficients while the schedule stays
as it is.
"""

from __future__ import annotations

from lazy_dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traces.statistics.bootstrap import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The times at which n requests reached each stage, µs; NaN where they never did.

    ``joined``: entered the queue. ``prefill``: their prefill began. ``first``, ``last``: first and last
    output token. ``prefill_tokens``: computed, cache hits left out. ``output_tokens``: generated.
    """

    joined: Floats
    prefill: Floats
    first: Floats
    last: Floats
    prefill_tokens: Floats
    output_tokens: Floats

    def finished(self) -> NDArray[np.bool_]:
        """Return which requests have all their times."""
        return np.asarray(np.isfinite((self.joined, self.prefill, self.first, self.last)).all(axis=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """Per request [n], of the wait for the first token and of the time from first to last."""

    prefill_before: Floats
    prefill_after: Floats
    decode_before: Floats
    decode_after: Floats
    context_before: Floats
    context_after: Floats
    pairs_before: Floats
    pairs_after: Floats


def exposures(timeline: Timeline, prompt_tokens: Floats) -> Exposure:
    """Return what the engine computed for all requests, before each request's first token and after it.

    Prefill tokens and the (query, key) pairs they attend to, decode tokens and the context tokens they read; each
    request's own spread evenly over its prefill, or from its first token to its last.
    """
    done = timeline.finished()
    prompt, new = prompt_tokens[done], timeline.prefill_tokens[done]
    decoded = np.maximum(timeline.output_tokens[done] - 1, 0)
    pairs = new * (prompt - new) + new * (new + 1) / 2
    context = decoded * (prompt + (decoded + 1) / 2)
    spans = {
        "prefill": (timeline.prefill[done], timeline.first[done]),
        "decode": (timeline.first[done], timeline.last[done]),
    }
    moments = (timeline.joined, timeline.first, timeline.last)
    seen = {}
    for name, span, amount in (
        ("prefill", "prefill", new),
        ("pairs", "prefill", pairs),
        ("decode", "decode", decoded),
        ("context", "decode", context),
    ):
        total = _accumulated(*spans[span], amount=amount)
        at = [np.interp(moment, *total) for moment in moments]
        seen[f"{name}_before"], seen[f"{name}_after"] = at[1] - at[0], at[2] - at[1]
    return Exposure(**seen)


def step_rate(timeline: Timeline) -> tuple[Floats, Floats]:
    """Return steps per µs as a piecewise constant function: from ``times[i]`` on it is ``rates[i]``.

    A decoding request gets one token a step, so the decoding requests give the rate: their mean, by time.
    0 where no request decodes.
    """
    done = timeline.finished() & (timeline.last > timeline.first) & (timeline.output_tokens > 1)
    first, last = timeline.first[done], timeline.last[done]
    own = (timeline.output_tokens[done] - 1) / (last - first)
    times = np.concatenate([first, last])
    order = np.argsort(times, kind="stable")
    rate = np.cumsum(np.concatenate([own, -own])[order])
    count = np.cumsum(np.concatenate([np.ones(len(own)), -np.ones(len(own))])[order])
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(count > 0.5, rate / count, 0.0)
    return times[order], mean


def decoding_at(timeline: Timeline, moment: Floats) -> Floats:
    """Return how many requests get a token at each moment [n], those that get their first or last one then included."""
    done = timeline.finished()
    first, last = np.sort(timeline.first[done]), np.sort(timeline.last[done])
    begun, ended = np.searchsorted(first, moment, side="right"), np.searchsorted(last, moment, side="left")
    return np.asarray(np.maximum(begun - ended, 1), np.float64)


def steps_between(timeline: Timeline, begin: Floats, end: Floats) -> Floats:
    """Return how many steps were taken between two moments, by the decoding requests."""
    times, rates = step_rate(timeline)
    if len(times) == 0:
        return np.zeros(len(begin))
    reached = np.concatenate([[0.0], np.cumsum(rates[:-1] * np.diff(times))])
    return np.asarray(np.interp(end, times, reached) - np.interp(begin, times, reached))


def _accumulated(begin: Floats, end: Floats, *, amount: Floats) -> tuple[Floats, Floats]:
    """Return (times, total by then) when each amount arrives evenly between its begin and its end."""
    span = np.maximum(end - begin, 1.0)
    if len(begin) == 0:
        return np.zeros(1), np.zeros(1)
    slope = amount / span
    times = np.concatenate([begin, begin + span])
    order = np.argsort(times, kind="stable")
    rate = np.cumsum(np.concatenate([slope, -slope])[order])
    times = times[order]
    return times, np.concatenate([[0.0], np.cumsum(rate[:-1] * np.diff(times))])


def exposure_columns(timeline: Timeline, prompt_tokens: Floats) -> dict[str, Floats]:
    """Return, per coefficient, d latency / d coefficient of ``LOSS_METRICS``, [4, n], in units of each.

    Those of the floor, the slowdown and the concavity cannot be computed this way: 0, as those of completions are.

    The steps are not counted but follow from the time: the part that prefill and decode tokens leave is ``beta0``'s.
    Their number needs no log of steps, but a rate of steps: that of the decoding requests, and at least the
    one step that every request's prefill takes.
    """
    seen = exposures(timeline, prompt_tokens)
    n = len(prompt_tokens)
    gaps = np.maximum(timeline.output_tokens - 1, 1)
    before = np.maximum(steps_between(timeline, timeline.joined, timeline.first), 1.0)
    after = timeline.output_tokens - 1
    one, zero, beside = np.ones(n), np.zeros(n), decoding_at(timeline, timeline.first)
    return {
        "alpha0": np.stack([one, one, zero, zero]),
        "alpha1": np.stack([prompt_tokens, prompt_tokens, zero, zero]),
        "alpha2": np.stack([one, timeline.output_tokens, one, zero]),
        "alpha3": np.stack([beside, zero, -beside / gaps, zero]),
        "beta0": np.stack([before, before + after, after / gaps, zero]),
        "beta1": _before_and_after(seen.prefill_before, seen.prefill_after, gaps),
        "beta2": _before_and_after(seen.decode_before, seen.decode_after, gaps),
        "beta3": _before_and_after(seen.context_before, seen.context_after, gaps),
        "beta4": _before_and_after(seen.pairs_before, seen.pairs_after, gaps),
        **{name: np.zeros((4, n)) for name in ("floor", "concavity", "kappa", "u0", "tau_s")},
    }


def _before_and_after(before: Floats, after: Floats, gaps: Floats) -> Floats:
    """Return an exposure's share in TTFT, E2E and TPOT, and none in completions."""
    return np.stack([before, before + after, after / gaps, np.zeros(len(before))])
