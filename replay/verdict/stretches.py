"""The stretches of a run in which more is sent than is answered: the backlog grows, and drains or does not.

A request waits from the moment it is sent until it is first scheduled. The backlog is the number of requests that wait,
without those that only wait for the step in progress. Whoever is lost while others wait still counts, until the queue
is empty again: a queue that is short because clients give up is no sign of a server that keeps up.

Where decoding binds, nobody waits: requests are admitted at once, and steps take ever longer. There the number in the
server is looked at instead, and a rise is a stretch if it has no end (``by_decoding``).

A rise of the backlog is a stretch if chance does not explain it and a reader would notice it. A queue at a load below 1
rises by chance, too. By large deviations, it gains ``G`` on ``n`` arrivals with the probability exp(-G² / n) at any
load, if arrivals are Poisson (Kingman's bound, in units of the drift); more uneven arrivals scale ``n``. While an
instance is down, where a queue is to be expected, less evidence is asked for than where a rise is searched for.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from lazy_dataclasses import dataclass, replace
from typing import NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from replay.verdict.by_decoding import has_no_end
from replay.verdict.queued import FOREVER, Queued

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]
ORDINARY_STEPS = 2.0
"""A request that waits for fewer steps than this waits for the step in progress, and is not in the backlog."""
CERTAIN = 4.0
"""A rise of this many times the root of the arrivals is no chance: exp(-16) per rise."""
CERTAIN_DOWN = 2.5
"""The same while an instance is down, a time that is known and not searched for: exp(-6.25)."""
MOSTLY_DOWN = 0.5
"""An instance is down in a rise if it is so for this share of it."""
DRAINED = 0.02
"""The backlog is gone where this share of its peak is left, and no more than chance piles up,"""
FEWEST_LEFT = 2.0
"""or this many requests."""
QUIET = 0.1
"""The share of the time with the fewest requests waiting: more than wait then is a backlog,"""
UNNOTICED = 0.25
"""but not fewer than wait at a time if each waits for this share of a noticed wait."""
AGAIN = 0.05
"""A backlog that has fallen by this share of its largest and rises by as much again may begin another stretch."""
SLACK = 0.25
"""Growth ends where the backlog rises at less than this share of its mean pace."""
MATERIAL_SHARE = 0.5
"""A wait is noticed if it is this share of the time that a request is served,"""
MATERIAL_US = 2e6
"""or this long."""
MOST = 50
"""Stretches that are looked for."""
MOST_UNEVEN = 100.0
"""The largest squared coefficient of variation of gaps that is believed."""
MOSTLY = 1 / 3
"""In a run that is overloaded for most of the time, no more than this share of the most served is quiet."""
LULL = 0.25
"""In a lull between stretches so few are lost that even this share of the stretch's losses would have shown."""


class OverloadedStretch(TypedDict):
    """From ``from_us`` to ``until_us`` more was sent than answered, and the backlog grew.

    ``sent_per_s`` requests were sent, and ``answered_per_s`` left the queue for a seat once there was one.
    ``waiting_most``: requests that waited at a time; ``wait_p90_us``: of those sent until the queue was gone.
    ``num_lost``: requests that were lost until then. ``recovered_us``: when the queue was gone, None if it was not
    while requests were sent. ``served_most``: where decoding bound the server and hardly anybody waited, the requests
    that it served at a time, None where they waited; ``answered_per_s`` then counts those that left. ``down``: names of
    the instances that were down for most of the growth.
    """

    from_us: int
    until_us: int
    sent_per_s: float
    answered_per_s: float
    waiting_most: int
    wait_p90_us: float
    num_lost: int
    recovered_us: int | None
    served_most: int | None
    down: list[str]


class Down(NamedTuple):
    """An instance that did not serve from a time to another, µs."""

    instance: str
    from_us: int
    to_us: int


def overloaded_stretches(
    queued: Queued,
    *,
    step_us: float,
    served_us: float,
    limit_us: float | None = None,
    downs: Sequence[Down] = (),
) -> list[OverloadedStretch]:
    """Return the stretches, in the order of their times; [] of a run that was sent at once.

    ``step_us``: a step's mean time; ``served_us``: how long a request is served, on average. ``limit_us``: the wait
    that an SLO allows, None without one. ``downs``: of the instances that served it.
    """
    came = queued.came_us
    if len(came) == 0 or came[-1] <= came[0]:
        return []
    noticed = min(max(MATERIAL_SHARE * served_us, ORDINARY_STEPS * step_us), MATERIAL_US)
    material_us = noticed if limit_us is None else min(noticed, max(limit_us, ORDINARY_STEPS * step_us))
    seen = _Seen.of(queued, ordinary_us=ORDINARY_STEPS * step_us, material_us=material_us, downs=downs)
    waited = [each for rises in _rises(seen) for each in _stretches(seen, rises, material_us=material_us)]
    found = _without_lulls(seen, _joined(waited, _by_decoding(seen)))
    return [_stretch(seen, each) for each in found]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A number of requests over time: ``counts`` from each of ``times_us`` on, float64 [T]."""

    times_us: Floats
    counts: Floats

    @classmethod
    def of(cls, came_us: Int64s, gone_us: Int64s, *, until_us: int) -> Curve:
        """Return how many had come and not gone, up to a time."""
        came, gone = np.sort(came_us), np.sort(gone_us)
        times = np.sort(np.concatenate([came, gone[: gone.searchsorted(until_us, side="right")]]))
        is_last = np.ones(len(times), np.bool_)
        is_last[:-1] = times[1:] != times[:-1]
        times = times[is_last]
        counts = came.searchsorted(times, side="right") - gone.searchsorted(times, side="right")
        return cls(times_us=times.astype(np.float64), counts=counts.astype(np.float64))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A run's curves: ``backlog`` and ``present`` with the lost ones, ``waiting`` without.

    ``level``: what waits in quiet times. ``few``: requests that wait for an unnoticed time, at the mean rate.
    ``unevenness``: of arrivals, 1 for a Poisson process.
    """

    queued: Queued
    backlog: Curve
    present: Curve
    waiting: Curve
    level: float
    few: float
    unevenness: float
    downs: Sequence[Down]

    @classmethod
    def of(cls, queued: Queued, *, ordinary_us: float, material_us: float, downs: Sequence[Down]) -> _Seen:
        """Return the curves of a run."""
        came, end = queued.came_us, int(queued.came_us[-1])
        waits = queued.began_us - came > np.maximum(ordinary_us, ORDINARY_STEPS * queued.step_us)
        until = int(max(end, queued.left_us[queued.left_us < FOREVER].max(initial=end)))
        waiting = Curve.of(came[waits], queued.began_us[waits], until_us=until)
        few = UNNOTICED * material_us * len(came) / (end - int(came[0]))
        level = min(_quiet_level(waiting, (int(came[0]), end)), few)
        counted_until = _until_empty(queued, waiting, level=max(level, FEWEST_LEFT))
        in_backlog = waits | queued.is_lost
        gone = np.where(queued.is_lost, counted_until, queued.began_us)
        return cls(
            queued=queued,
            backlog=Curve.of(came[in_backlog], gone[in_backlog], until_us=until),
            present=Curve.of(came, np.where(queued.is_lost, counted_until, queued.left_us), until_us=until),
            waiting=waiting,
            level=level,
            few=few,
            unevenness=min(_unevenness(came) + _of_service(queued), MOST_UNEVEN),
            downs=downs,
        )

    def down_in(self, from_us: float, to_us: float) -> list[Down]:
        """Return the times in which an instance was down that are most of the time between two times."""
        least = MOSTLY_DOWN * max(to_us - from_us, 1.0)
        return [each for each in self.downs if min(each.to_us, to_us) - max(each.from_us, from_us) >= least]


def _at_once(began_us: Int64s) -> float:
    """Return with how many a request begins at the same time, on average, itself included.

    Requests that came together and are served in step leave together: the backlog rises and falls by as many at any
    load.
    """
    if len(began_us) == 0:
        return 0.0
    _, numbers = np.unique(began_us, return_counts=True)
    return float((numbers.astype(np.float64) ** 2).sum() / numbers.sum())


def _quiet_level(curve: Curve, window: tuple[int, int]) -> float:
    """Return the count that is not exceeded in the quietest part of the time between two times."""
    if len(curve.times_us) == 0:
        return 0.0
    first, last = window
    times = np.clip(np.append(curve.times_us, float(last)), first, last)
    lengths, counts = np.append(np.diff(times), max(times[0] - first, 0.0)), np.append(curve.counts, 0.0)
    order = np.argsort(counts, kind="stable")
    passed = np.cumsum(lengths[order])
    return float(counts[order[np.searchsorted(passed, QUIET * passed[-1])]])


def _until_empty(queued: Queued, waiting: Curve, *, level: float) -> Int64s:
    """Return until when each request counts: a lost one until the queue is next at the level."""
    if len(waiting.times_us) == 0:
        return queued.left_us
    empty = waiting.times_us[waiting.counts <= level]
    lost = np.minimum(queued.left_us, FOREVER)
    place = np.searchsorted(empty, lost.astype(np.float64), side="left")
    before = np.searchsorted(waiting.times_us, lost.astype(np.float64), side="right") - 1
    is_empty = (before < 0) | (waiting.counts[np.maximum(before, 0)] <= level)
    later = np.append(empty, float(FOREVER))[place].astype(np.int64)
    return np.where(is_empty, queued.left_us, later)


def _unevenness(came_us: Int64s) -> float:
    """Return the squared coefficient of variation of the gaps, whatever slow changes of the rate, not below 1.

    From the local variation Lv = 3 ⟨((a - b) / (a + b))²⟩ of neighbouring gaps, which is 3 / (2k + 1) for gamma gaps of
    shape k (Shinomoto et al., "Differences in spiking patterns among cortical neurons", 2003). Requests sent at once
    say nothing.
    """
    gaps = np.diff(came_us).astype(np.float64)
    one, two = gaps[:-1], gaps[1:]
    known = (one + two) > 0
    if known.sum() < 10:
        return 1.0
    local = 3 * float((((one - two)[known] / (one + two)[known]) ** 2).mean())
    return float(np.clip(2 * local / max(3 - local, 1e-9), 1.0, MOST_UNEVEN))


def _of_service(queued: Queued) -> float:
    """Return the squared coefficient of variation of the answers' lengths.

    Long answers hold seats and KV blocks while others wait: the variances of arrivals and of service add up.
    """
    own = queued.num_steps[~queued.is_lost & (queued.num_steps > 0)]
    return float(own.var() / own.mean() ** 2) if len(own) else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rise:
    """Places in the backlog's curve: the last one before a rise, its peak, and the first one after (None: none).

    ``after_us``: when the rise before had drained, or the run began. ``is_gone``: whether the backlog is, at ``after``.
    """

    before: int
    peak: int
    after: int | None
    after_us: float
    is_gone: bool


def _rises(seen: _Seen) -> list[list[_Rise]]:
    """Return the largest rises, in the order of time, as far as requests were sent; those of one backlog together.

    The largest is taken out with all until the backlog is gone; what is left before and behind it is searched again.
    """
    counts, times = seen.backlog.counts, seen.backlog.times_us
    end = int(np.searchsorted(times, float(seen.queued.came_us[-1]), side="right"))
    open_parts, found = [(0, end)], list[list[_Rise]]()
    least = max(CERTAIN**2 * seen.unevenness, 2 * seen.level)
    while open_parts and len(found) < MOST:
        first, last = open_parts.pop()
        if last <= first:
            continue
        peak = first + int(counts[first:last].argmax())
        most = float(counts[peak])
        if most < least:
            continue
        if (narrower := _without_neighbours(counts, (first, last), peak, end=end)) is not None:
            open_parts.append(narrower)
            continue
        level = max(seen.level, FEWEST_LEFT, min(DRAINED * most, max(least, seen.few)))
        low_before = np.flatnonzero(counts[first:peak] <= level)
        low_after = np.flatnonzero(counts[peak:last] <= level)
        before = first + int(low_before[-1]) if len(low_before) else first - 1
        after = peak + int(low_after[0]) if len(low_after) else (None if last == end else last)
        parts = _parted(
            counts, (before + 1, last if after is None else after), least=max(least, AGAIN * most)
        )
        starts_us = [float(times[max(each - 1, 0)]) for each in (first, *(each for each, _ in parts[1:]))]
        found.append(
            [
                _Rise(
                    before=part[0] - 1,
                    peak=part[0] + int(counts[slice(*part)].argmax()),
                    after=after if part is parts[-1] else part[1],
                    after_us=start_us,
                    is_gone=after is not None and part is parts[-1],
                )
                for part, start_us in zip(parts, starts_us, strict=True)
            ]
        )
        open_parts.append((first, before + 1))
        if after is not None:
            open_parts.append((after, last))
    found.sort(key=lambda each: each[0].peak)
    for earlier, later in pairwise(found):
        drained = earlier[-1].after
        drained_us = later[0].after_us if drained is None else float(times[drained])
        later[0] = replace(later[0], after_us=max(later[0].after_us, drained_us))
    return found


def _parted(counts: Floats, part: tuple[int, int], *, least: float) -> list[tuple[int, int]]:
    """Return a rise in parts, at each place where the backlog has fallen by ``least`` and then rises by it again."""
    first, last = part
    here = counts[first:last]
    for values, is_mirrored in (
        (here[: int(here.argmax()) + 1], False),
        (here[int(here.argmax()) :][::-1], True),
    ):
        highest = np.maximum.accumulate(values)
        falls = highest - values
        if len(falls) and falls.max() >= least:
            place = int(falls.argmax())
            cut = last - 1 - place if is_mirrored else first + place
            if first < cut < last:
                return [
                    *_parted(counts, (first, cut), least=least),
                    *_parted(counts, (cut, last), least=least),
                ]
    return [part]


def _without_neighbours(
    counts: Floats, part: tuple[int, int], peak: int, *, end: int
) -> tuple[int, int] | None:
    """Return a part without the slope of a larger rise at its edge, None where its peak is no such slope."""
    first, last = part
    half = counts[first:last] <= counts[peak] / 2
    if first > 0 and not half[: peak - first].any():
        later = np.flatnonzero(half[peak - first :])
        return (peak + int(later[0]), last) if len(later) else (last, last)
    if last < end and not half[peak - first :].any():
        earlier = np.flatnonzero(half)  # none behind the peak
        return (first, first + int(earlier[-1]) + 1) if len(earlier) else (first, first)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grown:
    """From when to when the requests in the system grew in number, and from when on they queued, in it; µs."""

    from_us: float
    queue_us: float
    to_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A stretch; ``until_us``: when the backlog was gone, grew again, or nothing more was sent."""

    grown: _Grown
    until_us: float
    is_gone: bool
    by_decoding: bool = False


def _stretches(seen: _Seen, rises: list[_Rise], *, material_us: float, is_queue: bool = True) -> list[_Found]:
    """Return what the rises of one backlog were, without those that are chance, or in which hardly anybody waited."""
    grown = _merged(seen, [each for rise in rises for each in _growths(seen, rise, is_queue=is_queue)])
    if is_queue and len(rises) > 1:
        whole = _whole(seen, rises)
        if whole is not None and (not grown or seen.down_in(whole.from_us, whole.to_us)):
            grown = [whole]
    if not grown:
        return []
    after, end = rises[-1].after, float(seen.queued.came_us[-1])
    gone_us = end if after is None else float(seen.backlog.times_us[after])
    until = [*(each.from_us for each in grown[1:]), gone_us]
    found = [
        _Found(grown=each, until_us=until_us, is_gone=rises[-1].is_gone and each is grown[-1])
        for each, until_us in zip(grown, until, strict=True)
    ]
    return [each for each in found if _stretch(seen, each)["wait_p90_us"] >= material_us]


def _by_decoding(seen: _Seen) -> list[_Found]:
    """Return the stretches in which the number in the server grew without end, but not the queue.

    As many must have been sent: a queue whose requests begin all at once, when room is made, makes it grow, too.
    """
    queued = seen.queued
    began, left = _served(queued)
    window = (int(queued.came_us[0]), int(queued.came_us[-1]))
    until = int(left.max(initial=window[1], where=left < FOREVER))
    serving = Curve.of(began, left, until_us=until)
    level = min(_quiet_level(serving, window), MOSTLY * float(serving.counts.max(initial=0)))
    served = replace(seen, backlog=serving, present=serving, level=level)
    found = [
        each
        for rises in _rises(served)
        for each in _stretches(served, rises, material_us=0.0, is_queue=False)
    ]
    return [
        replace(each, by_decoding=True)
        for each in found
        if _num_in(queued.came_us, each.grown.from_us, each.grown.to_us)
        >= _at(serving, each.grown.to_us) - _at(serving, each.grown.from_us, before=True)
        and has_no_end(
            began, left, from_us=each.grown.from_us, to_us=each.grown.to_us, unevenness=seen.unevenness
        )
    ]


def _served(queued: Queued) -> tuple[Int64s, Int64s]:
    """Return when requests that were served began to be, in the order of that, and left."""
    rows = np.flatnonzero(queued.began_us < queued.left_us)
    rows = rows[np.argsort(queued.began_us[rows], kind="stable")]
    return queued.began_us[rows], queued.left_us[rows]


def _joined(waited: list[_Found], decoded: list[_Found]) -> list[_Found]:
    """Return all in the order of time; where a queue formed while the number in the server grew, they are one."""
    found: list[_Found] = []
    alone = list(decoded)
    for each in sorted(waited, key=lambda each: each.grown.from_us):
        around = [other for other in decoded if _overlap(each, other)]
        alone = [other for other in alone if other not in around]
        from_us = min(other.grown.from_us for other in (each, *around))
        if found and from_us <= found[-1].grown.to_us:
            from_us = min(from_us, found.pop().grown.from_us)
        found.append(replace(each, grown=replace(each.grown, from_us=from_us)))
    return sorted([*found, *alone], key=lambda each: each.grown.from_us)


def _overlap(one: _Found, other: _Found) -> bool:
    return other.grown.from_us < one.until_us and one.grown.from_us < other.until_us


def _without_lulls(seen: _Seen, found: list[_Found]) -> list[_Found]:
    """Return stretches with those as one between which requests were lost all the time: clients that give up.

    Whoever gives up makes room. So the queue of a steady overload falls by chance, and grows again.
    """
    merged: list[_Found] = []
    for each in found:
        if merged and not _has_lull(seen, merged[-1], each):
            last = merged[-1]
            grown = replace(last.grown, to_us=each.grown.to_us)
            merged[-1] = replace(last, grown=grown, until_us=each.until_us, is_gone=each.is_gone)
        else:
            merged.append(each)
    return merged


def _has_lull(seen: _Seen, first: _Found, second: _Found) -> bool:
    """Return whether so many were sent between two stretches, none of them lost, that chance does not explain it."""
    came, is_lost = seen.queued.came_us, seen.queued.is_lost
    inside = [(came >= each.grown.from_us) & (came <= each.grown.to_us) for each in (first, second)]
    share = float(is_lost[inside[0] | inside[1]].mean())
    lost = np.flatnonzero(is_lost)
    edges = np.searchsorted(came, [first.grown.to_us, second.grown.from_us])
    between = lost[(lost >= edges[0]) & (lost < edges[1])]
    longest = int(np.diff(np.concatenate([edges[:1], between, edges[1:]])).max())
    return longest * share * LULL >= CERTAIN**2 * seen.unevenness or share == 0.0


def _merged(seen: _Seen, grown: list[_Grown]) -> list[_Grown]:
    """Return growths with those as one between which the backlog only fell by chance, if together they are none.

    Over a long time chance may take away all that was gained: then they are two.
    """
    found: list[_Grown] = []
    for each in grown:
        if found:
            last = found[-1]
            fell = _at(seen.backlog, last.to_us) - _at(seen.backlog, each.from_us)
            gained = _at(seen.backlog, each.to_us) - _at(seen.backlog, last.queue_us, before=True)
            if fell < _by_chance(seen, last.to_us, each.from_us) and gained >= _by_chance(
                seen, last.queue_us, each.to_us
            ):
                found[-1] = replace(last, to_us=each.to_us)
                continue
        found.append(each)
    return found


def _by_chance(seen: _Seen, from_us: float, to_us: float) -> float:
    """Return by how many requests the backlog may rise or fall between two times at a load of 1, by chance.

    Where an instance was down for most of it, chance has the whole of that known time, and no other.
    """
    came = seen.queued.came_us
    rises = [CERTAIN * np.sqrt(max(_num_in(came, from_us, to_us), 1))]
    for each in seen.down_in(from_us, to_us):
        known = _num_in(came, min(each.from_us, from_us), max(each.to_us, to_us))
        rises.append(CERTAIN_DOWN * np.sqrt(known))
    return float(min(rises) * np.sqrt(seen.unevenness))


def _stretch(seen: _Seen, found: _Found) -> OverloadedStretch:
    """Return the figures of a stretch."""
    queued, grown, until_us = seen.queued, found.grown, found.until_us
    from_us, to_us, came = grown.from_us, grown.to_us, queued.came_us
    gone = np.sort((queued.left_us if found.by_decoding else queued.began_us)[~queued.is_lost])
    answered_per_s = _num_in(gone, grown.queue_us, to_us) / max(to_us - grown.queue_us, 1.0) * 1e6
    if _num_in(came, from_us, to_us) / (to_us - from_us) * 1e6 <= answered_per_s:
        from_us = min(grown.queue_us, to_us - 1)  # before it seats filled, for long
    here = (came >= from_us) & (came <= until_us)
    waited = np.minimum(queued.began_us, queued.left_us)[here] - came[here]
    return OverloadedStretch(
        from_us=int(from_us),
        until_us=int(to_us),
        sent_per_s=_num_in(came, from_us, to_us) / (to_us - from_us) * 1e6,
        answered_per_s=answered_per_s,
        waiting_most=_most(seen.waiting, from_us, until_us),
        wait_p90_us=float(np.quantile(waited, 0.9)) if len(waited) else 0.0,
        num_lost=int((queued.is_lost & (came <= until_us) & (queued.left_us >= from_us)).sum()),
        recovered_us=int(until_us) if found.is_gone else None,
        served_most=_most(seen.present, from_us, until_us) if found.by_decoding else None,
        down=sorted({each.instance for each in seen.down_in(from_us, to_us)}),
    )


def _most(curve: Curve, from_us: float, until_us: float) -> int:
    """Return the largest count between two times."""
    inside = (curve.times_us >= from_us) & (curve.times_us <= until_us)
    return int(curve.counts[inside].max(initial=0))


def _growths(seen: _Seen, rise: _Rise, *, is_queue: bool) -> list[_Grown]:
    """Return the growths within a rise of the backlog, in the order of time; [] where it is chance.

    What is left before the fastest and behind it may have grown at a slower pace: a queue that does is an overload,
    too, whereas the number that is served at once grows with the load at any load.
    """
    came, times = seen.queued.came_us, seen.backlog.times_us
    queue_us = (
        float(times[rise.before + 1]) if rise.before >= 0 else float(came[0])
    )  # the low count lasts until then
    until_us = float(came[-1]) if rise.after is None else float(times[rise.after])
    peak_us = max(float(times[rise.peak]), queue_us + 1)
    main = _growth(seen, (min(rise.after_us, queue_us), until_us), queue_us=queue_us, peak_us=peak_us)
    if main is None:
        return []
    if not is_queue:
        return [main]
    return [
        *_slower(seen, queue_us, main.from_us),
        main,
        *_slower(seen, main.to_us, until_us),
    ]


def _whole(seen: _Seen, rises: list[_Rise]) -> _Grown | None:
    """Return the growth over all rises of one backlog, None where it is chance: each by itself may be, all are not."""
    peak = max((each.peak for each in rises), key=lambda place: seen.backlog.counts[place])
    found = _growths(seen, replace(rises[0], peak=peak, after=rises[-1].after), is_queue=False)
    return found[0] if found else None


def _slower(seen: _Seen, from_us: float, until_us: float) -> list[_Grown]:
    """Return the growth of the backlog between two times, where it has one: at most a single one."""
    times = seen.backlog.times_us
    first, last = (int(each) for each in np.searchsorted(times, [from_us, until_us], side="right"))
    if last - first < 2:
        return []
    peak_us = float(times[first + int(seen.backlog.counts[first:last].argmax())])
    if peak_us <= from_us:
        return []
    found = _growth(seen, (from_us, until_us), queue_us=from_us, peak_us=peak_us)
    return [] if found is None or found.to_us <= found.from_us + 1 else [found]


def _growth(seen: _Seen, window: tuple[float, float], *, queue_us: float, peak_us: float) -> _Grown | None:
    """Return the growth of the backlog in a window, None where it is chance; ``queue_us``: when the queue forms.

    Seats fill before a queue forms: growth begins there. It is the stretch that gains the most beside a steady growth
    at ``SLACK`` of the mean pace.
    """
    queued, backlog = seen.queued, seen.backlog
    from_us, to_us, until_us = queue_us, peak_us, window[1]
    times = seen.present.times_us
    first = int(np.searchsorted(times, window[0], side="left"))
    last = int(np.searchsorted(times, until_us, side="right"))
    times, counts = times[first:last], seen.present.counts[first:last]
    if len(times) >= 2:
        before = np.concatenate([[_at(seen.present, times[0], before=True)], counts[:-1]])
        for _ in range(3):
            before_it = from_us, to_us, queue_us
            risen = _at(backlog, to_us) - _at(backlog, queue_us, before=True)
            drift = SLACK * max(risen, 1.0) / (to_us - from_us) * times
            top = int((counts - drift - np.minimum.accumulate(before - drift)).argmax())
            bottom = int((before - drift)[: top + 1].argmin())
            from_us, to_us = float(times[bottom]), max(float(times[top]), float(times[bottom]) + 1)
            queue_us = min(max(queue_us, from_us), to_us)
            if before_it == (from_us, to_us, queue_us):
                break
    gained = _at(backlog, to_us) - _at(backlog, queue_us, before=True)
    by_chance = _by_chance(seen, queue_us, to_us)
    if gained < by_chance:  # which is quickly told
        return None
    began = queued.began_us[~queued.is_lost]
    at_once = _at_once(began[(began >= queue_us) & (began <= until_us)])
    is_one = gained >= by_chance + at_once
    return _Grown(from_us=from_us, queue_us=queue_us, to_us=to_us) if is_one else None


def _at(curve: Curve, time_us: float, *, before: bool = False) -> float:
    """Return a curve's count at a time, or just before it."""
    place = int(curve.times_us.searchsorted(time_us, side="left" if before else "right")) - 1
    return float(curve.counts[place]) if place >= 0 else 0.0


def _num_in(times: Int64s, from_us: float, to_us: float) -> int:
    """Return how many times, ascending, lie between two."""
    return int(times.searchsorted(to_us, side="right") - times.searchsorted(from_us, side="left"))
