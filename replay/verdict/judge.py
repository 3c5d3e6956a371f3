"""The verdict on a run: stable, near saturation, metastable, overloaded, or too short to tell.

The run itself decides, by how many requests pile up in the server while they are sent (``growth``). Only if that is not
enough is more simulated: a short run's requests repeated, and, near saturation, a part of them 5 % faster or after a
burst. All of it takes no more requests than the run had, or ``FEW`` if it had fewer. A run is overloaded, too, if
a stretch of it was (``stretches``), at whatever time, and whether it recovered or not.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, log10
from typing import TYPE_CHECKING

import numpy as np

from replay.verdict.again import Repeatable, after_a_burst, again, faster, first_part
from replay.verdict.growth import Growth, customers_of, growth_of, piles_up
from replay.verdict.judged import MARGIN, UNANSWERED, Judged, LoadFacts
from replay.verdict.sentences import LATE_US, is_material, is_whole, longest
from sim import Outcomes, Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from replay.verdict.stretches import OverloadedStretch

FEW = 4000
"""A run of fewer requests may be repeated until it has this many."""
SHORT = 2000
"""In a run of fewer, chance makes the number in the server rise and fall as an overload does: repeating tells."""
FEWEST = 20
"""Fewer requests, or sessions, show nothing, however often they are repeated."""
AMPLIFIED = 0.5
"""A mean TTFT that moves by this share with 5 % more load, up or down, depends on small differences."""
UNDER_WAY = 0.2
"""At most this share is in flight when a run that keeps up sends its last request; else it is too short."""
LIGHT = 0.1
"""If less is in flight then, and nothing grows or waits, a short run need not be repeated."""
QUEUEING = 2.0
"""Where nine of ten requests wait less than this many steps to be scheduled, there is no queue."""
WAITING = 0.1
"""The share of requests that may pile up in the queue of a server that keeps up."""
CACHED = 0.1
"""With fewer prompt tokens from the cache, a burst cannot cost a server its capacity."""
GROWING = 0.02
"""After a burst, a server that does not recover piles up at least this share of what comes."""
SETTLED = 3
"""Generations after which the rate at which customers leave tells how fast a server is."""
LASTING = 6
"""A run is long enough if it has this many times the requests that are in the server at once."""


def judge_load(
    run: Repeatable,
    outcomes: Outcomes,
    *,
    unanswered: NDArray[np.bool_],
    stretches: Sequence[OverloadedStretch] = (),
) -> Judged | None:
    """Return the verdict on a run whose load has a rate; None if all arrived at once, or it cannot be decided.

    ``unanswered``: requests without an answer because of the load, not of their own length. ``stretches``: those of the
    run in which more was sent than answered (``overloaded_stretches``).
    """
    judged = _judge(run, outcomes, unanswered=unanswered)
    if judged is None:
        return None
    if run.session is not None:
        judged.facts["counts"] = "sessions"
    judged.facts["late_frac"], judged.facts["waits_most"] = _late_frac(outcomes), _waits_most(outcomes)
    return (
        _by_stretches(judged, stretches, sending_us=int(outcomes.arrival_us.max()), num_sent=len(run))
        if stretches
        else judged
    )


def _by_stretches(
    judged: Judged, stretches: Sequence[OverloadedStretch], *, sending_us: int, num_sent: int
) -> Judged:
    """Return the verdict on a run some of which was overloaded, whether it recovered or not."""
    if not is_material(stretches, sending_us=sending_us, num_sent=num_sent):
        return judged if judged.verdict == "overloaded" else replace(judged, stretches=tuple(stretches))
    worst = longest(stretches)
    whole = judged.verdict == "overloaded" and is_whole(stretches, sending_us)
    if not whole:
        facts = judged.facts
        facts["counts"], facts["num_requests_to_tell"] = "requests", None
        facts["sent_per_s"], facts["served_per_s"] = worst["sent_per_s"], worst["answered_per_s"]
    return replace(judged, verdict="overloaded", stretches=tuple(stretches), is_whole=whole)


def _judge(run: Repeatable, outcomes: Outcomes, *, unanswered: NDArray[np.bool_]) -> Judged | None:
    """Return the verdict with facts that count requests; the caller corrects that for sessions."""
    own = growth_of(customers_of(outcomes, run.session))
    share = float(unanswered.mean()) if len(unanswered) else 0.0
    num_refused = int(((outcomes.status == Status.REJECTED) & ~unanswered).sum())
    if num_refused > UNANSWERED * len(run):
        return None
    if share > UNANSWERED:
        return None if share == 1.0 or own is None else _turned_away(run, own, share)
    if own is None:
        return None
    if len(run) >= SHORT or _is_light(own, outcomes):
        judged = _of_growth(run, own, len(run))
        if judged.verdict != "too short to tell" or 2 * len(run) > FEW:
            return _looked_at_closely(run, outcomes, judged)
    return _repeated(run, outcomes, own)


def _turned_away(run: Repeatable, own: Growth, share: float) -> Judged:
    """Return the verdict on a run that leaves many requests without an answer; rates are of all that were sent."""
    came = run.requests.arrival_us[run.first]
    sent = (len(came) - 1) / max(int(came.max()) - int(came.min()), 1) * 1e6
    facts = _facts(own, len(run))
    facts["sent_per_s"], facts["served_per_s"] = sent, sent * (1 - share)
    return Judged(verdict="overloaded", facts=facts, unanswered_frac=share)


def _of_growth(run: Repeatable, growth: Growth, num_simulated: int) -> Judged:
    """Return the verdict by growth alone."""
    facts = _facts(growth, num_simulated)
    if is_overloaded(growth):
        return Judged(verdict="overloaded", facts=facts)
    if growth.in_system > UNDER_WAY * growth.num_sent:
        facts["num_requests_to_tell"] = _num_to_tell(run, 2 * num_simulated, growth.in_system)
        return Judged(verdict="too short to tell", facts=facts)
    if growth.growth_frac > MARGIN and (num_simulated >= SHORT or not growth.falls_back):
        return Judged(verdict="near saturation", facts=facts)
    return Judged(verdict="stable", facts=facts)


def is_overloaded(growth: Growth) -> bool:
    """Return whether more arrives than is served: the queue grows, or the server fills as no stable one does."""
    if growth.waiting_frac > WAITING and not growth.waiting_falls_back:
        return True
    if growth.falls_back or growth.generations < 1:
        return False
    load = 1 + max(MARGIN, min(UNDER_WAY, 1 / growth.generations))
    return growth.growth_frac > piles_up(load, growth.generations)


def _is_light(growth: Growth, outcomes: Outcomes) -> bool:
    """Return whether a short run shows by itself that the server keeps up."""
    few = growth.in_system <= LIGHT * growth.num_sent
    return few and growth.falls_back and not _is_queueing(outcomes)


def _num_customers(run: Repeatable) -> int:
    """Return how many come by themselves: sessions where there are any, else requests."""
    if run.session is None:
        return len(run)
    return len(np.unique(np.where(run.session < 0, -1 - np.arange(len(run)), run.session)))


def _repeated(run: Repeatable, outcomes: Outcomes, own: Growth) -> Judged:
    """Return the verdict on a short run, its requests sent again and again."""
    laps = max(FEW // len(run), 2)
    if _num_customers(run) < FEWEST:
        facts = _facts(own, len(run))
        facts["num_requests_to_tell"] = SHORT
        return Judged(verdict="too short to tell", facts=facts)
    repeated, session, period = again(run, laps)
    longer = growth_of(customers_of(repeated, session), period_us=period)
    if longer is None:
        return _of_growth(run, own, len(run))
    judged = _of_growth(run, longer, laps * len(run))
    if judged.verdict == "overloaded":
        facts = judged.facts
        facts["sent_per_s"], facts["in_system"], facts["num_sent"] = (
            own.sent_per_s,
            own.in_system,
            own.num_sent,
        )
        facts["served_per_s"] = _at_least(facts["served_per_s"], run, _served_per_s(outcomes))
        return judged
    if judged.verdict == "too short to tell":
        facts = _facts(own, len(run))
        facts["num_requests_to_tell"] = judged.facts["num_requests_to_tell"]
        return Judged(verdict="too short to tell", facts=facts)
    if own.in_system > UNDER_WAY * own.num_sent:
        facts = _facts(own, len(run))
        facts["num_requests_to_tell"] = _num_to_tell(run, 2 * len(run), longer.in_system)
        return Judged(verdict="too short to tell", facts=facts, keeps_up_repeated=True)
    facts = _facts(own, laps * len(run))
    return _looked_at_closely(run, outcomes, replace(judged, facts=facts))


def _looked_at_closely(run: Repeatable, outcomes: Outcomes, judged: Judged) -> Judged:
    """Return the verdict on a run that keeps up: whether by a small margin, or only as long as no burst comes."""
    if judged.verdict == "overloaded":
        facts = judged.facts
        facts["served_per_s"] = _at_least(facts["served_per_s"], run, _served_per_s(outcomes))
        return judged
    if judged.verdict == "too short to tell" or not _is_queueing(outcomes):
        return judged
    facts = judged.facts
    part = first_part(run, max(len(run) // 2, min(len(run), FEW)))
    cleared = _cleared_per_s(part, outcomes, facts)
    if cleared is not None:
        facts["after_burst_per_s"] = cleared
        return replace(judged, verdict="metastable")
    more = _mean_ttft(faster(part, 1 + MARGIN))
    own = _mean_ttft(outcomes, rows=np.argsort(run.requests.arrival_us, kind="stable")[: len(part)])
    facts["ttft_mean_us"], facts["ttft_mean_us_at_more"] = own, more
    facts["num_at_more"] = len(part) if len(part) < len(run) else None
    moves = own is not None and more is not None and abs(more - own) > AMPLIFIED * own
    return replace(judged, verdict="near saturation") if moves or _waits_most(outcomes) else judged


def _cleared_per_s(part: Repeatable, outcomes: Outcomes, facts: LoadFacts) -> float | None:
    """Return how many leave per second while a burst is cleared, None where the server recovers from it.

    Only caches that a burst empties can make a server slower: without hits nothing is simulated, nor for a run so short
    that a burst is most of it.
    """
    if len(part) < SHORT:
        return None
    scheduled = outcomes.scheduled_us >= 0
    prompts = float(part.requests.prompt_tokens.sum()) * len(outcomes.status) / max(len(part), 1)
    if float(outcomes.num_cached_tokens[scheduled].sum()) < CACHED * prompts:
        return None
    growth = growth_of(customers_of(after_a_burst(part), part.session))
    if growth is None or growth.falls_back or growth.in_system <= 2 * max(facts["in_system"], FEWEST):
        return None
    return growth.served_per_s if growth.growth_frac > GROWING else None


def _at_least(rate: float | None, run: Repeatable, served: float) -> float | None:
    """Return a rate of service, not below the whole run's; a rate of sessions is returned unchanged."""
    return rate if rate is None or run.session is not None else max(rate, served)


def _served_per_s(outcomes: Outcomes) -> float:
    """Return how many requests were answered per second of the run."""
    ok = outcomes.status == Status.OK
    if not ok.any():
        return 0.0
    span = int(outcomes.last_token_us[ok].max()) - int(outcomes.arrival_us[ok].min())
    return float(ok.sum()) / max(span, 1) * 1e6


def _is_queueing(outcomes: Outcomes) -> bool:
    """Return whether a good part of the requests waits for longer than for the step in progress."""
    ok = outcomes.status == Status.OK
    if not ok.any():
        return False
    waited = (outcomes.scheduled_us - outcomes.queued_us)[ok]
    return bool(np.quantile(waited, 0.9) > QUEUEING * max(step_time_us(outcomes), 1.0))


def step_time_us(outcomes: Outcomes) -> float:
    """Return the mean time between the tokens of finished requests, µs: about that of a step."""
    ok = outcomes.status == Status.OK
    gaps = np.maximum(outcomes.num_output_tokens[ok] - 1, 1)
    return float(((outcomes.last_token_us - outcomes.first_token_us)[ok] / gaps).mean())


def _late_frac(outcomes: Outcomes) -> float:
    """Return the share of the answered requests that wait for ``LATE_US`` or longer until they are scheduled."""
    ok = outcomes.status == Status.OK
    return float(((outcomes.scheduled_us - outcomes.queued_us)[ok] >= LATE_US).mean()) if ok.any() else 0.0


def _waits_most(outcomes: Outcomes) -> bool:
    """Return whether requests wait longer to be scheduled than they are then served, on average."""
    ok = outcomes.status == Status.OK
    waited = (outcomes.scheduled_us - outcomes.queued_us)[ok]
    return bool(ok.any() and 2 * waited.mean() > (outcomes.last_token_us - outcomes.queued_us)[ok].mean())


def _mean_ttft(outcomes: Outcomes, *, rows: NDArray[np.int64] | None = None) -> float | None:
    ok = outcomes.status == Status.OK
    if rows is not None:
        ok = ok & np.isin(np.arange(len(ok)), rows)
    return float((outcomes.first_token_us - outcomes.arrival_us)[ok].mean()) if ok.any() else None


def _facts(growth: Growth, num_simulated: int) -> LoadFacts:
    return LoadFacts(
        counts="requests",
        sent_per_s=growth.sent_per_s,
        served_per_s=growth.served_per_s if tells_rate(growth) else None,
        in_system=growth.in_system,
        num_sent=growth.num_sent,
        growth_frac=growth.growth_frac,
        num_simulated=num_simulated,
        num_requests_to_tell=None,
        late_frac=0.0,
        waits_most=False,
        num_at_more=None,
        ttft_mean_us=None,
        ttft_mean_us_at_more=None,
        after_burst_per_s=None,
    )


def tells_rate(growth: Growth) -> bool:
    """Return whether departures tell how fast the server is: a queue formed, or several generations passed."""
    return growth.waiting_frac > WAITING or growth.generations >= SETTLED


def _num_to_tell(run: Repeatable, least: int, in_system: int) -> int:
    """Return how many requests are needed: ``least``, or ``LASTING`` times the customers present at once."""
    rounds = len(run) / max(int(run.first.sum()), 1)
    return _rounded_up(max(least, LASTING * in_system * rounds))


def _rounded_up(value: float) -> int:
    """Return a number of requests with two digits, not below."""
    unit = int(10 ** max(int(log10(max(value, 1))) - 1, 0))
    return int(ceil(value / unit) * unit)
