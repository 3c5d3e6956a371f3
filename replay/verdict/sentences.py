"""The sentence that a run's table and page begin with: it agrees with the SLO beside it, and with the waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from traces import shown_time

if TYPE_CHECKING:
    from replay.verdict.stretches import OverloadedStretch

Verdict = Literal["stable", "near saturation", "metastable", "overloaded", "too short to tell"]

GOOD = 0.99
"""With a smaller share of requests within the SLO, no sentence says that a server keeps up."""
BRIEF_US = 1e6
"""More that is sent within this time is a burst."""
WHOLE = 0.8
"""A stretch of this share of the sending is the run: the figures are the whole run's."""
SHORT_FRAC = 0.02
"""Stretches that take less than this share of the sending, all together,"""
FEW_FRAC = 0.05
"""and less than this share of the requests, are bursts: the server keeps up but for them."""
LATE_US = 1e6
"""A user notices a wait of this time,"""
OFTEN_LATE = 0.1
"""and where this share of the requests waits so long, no sentence says no more than that the server keeps up."""
MOST_NAMED = 3
"""Instances that are named one by one."""
MINUTES_US = 300e6
"""From this time on, a run's times are told in minutes."""


def verdict_sentence(
    verdict: Verdict,
    stretches: Sequence[OverloadedStretch] = (),
    *,
    good_frac: float | None = None,
    waits: str | None = None,
    sending_us: float | None = None,
) -> str:
    """Return the verdict in words.

    ``stretches``: where more was sent than answered; beside another verdict than overloaded they are bursts.
    ``sending_us``: how long requests were sent. ``good_frac``: the share of requests within the SLO, None without one.
    ``waits``: how many requests wait for long (``long_waits``), None where few do.
    """
    said = _said(verdict, stretches, good_frac=good_frac, waits=waits, sending_us=sending_us)
    return said if verdict == "overloaded" or not stretches else f"{said}; {bursts_told(stretches)}"


def _said(
    verdict: Verdict,
    stretches: Sequence[OverloadedStretch],
    *,
    good_frac: float | None,
    waits: str | None,
    sending_us: float | None,
) -> str:
    missed = good_frac is not None and good_frac < GOOD
    also = f"only {good_frac:.1%} of the requests meet the SLO" if missed else ""
    if verdict == "overloaded":
        is_part = bool(stretches) and not is_whole(stretches, sending_us)
        said = (
            f"OVERLOADED{stretches_told(stretches)}"
            if is_part
            else "OVERLOADED: more is sent than is answered"
        )
        return f"{said}; {also}" if also else said
    if verdict == "too short to tell":
        said = "too short to tell whether the server keeps up (see the note)"
        return f"{said}; {also}" if also else said
    if missed:
        return f"{verdict}, and the SLO is missed: {also}. {_NO_GROWTH[verdict]}"
    if waits is not None:
        return f"{verdict}, but {waits}. {_NO_GROWTH[verdict]}"
    return _SAID[verdict]


_SAID: dict[Verdict, str] = {
    "stable": "stable: the server keeps up",
    "near saturation": "near saturation: the server just keeps up, and TTFT depends on small differences in speed",
    "metastable": "metastable: the server keeps up, and after a burst it would not recover",
}
_NO_GROWTH: dict[Verdict, str] = {
    "stable": "The queue does not grow",
    "near saturation": "The queue hardly grows, and TTFT depends on small differences in speed",
    "metastable": "The queue does not grow; after a burst it would not recover",
}


def long_waits(*, late_frac: float, waits_most: bool) -> str | None:
    """Return that requests wait for long, in words; None where few do.

    ``late_frac``: the share that waits ``LATE_US`` or more. ``waits_most``: requests wait longer than they are served.
    """
    if waits_most:
        return "requests wait longer than they are served"
    if late_frac < OFTEN_LATE:
        return None
    return f"{late_frac:.0%} of the requests wait {shown_time(LATE_US)} or more until they are served"


def is_material(stretches: Sequence[OverloadedStretch], *, sending_us: float, num_sent: int) -> bool:
    """Return whether stretches are an overload: a share of the time, or of the requests, that matters. Else: bursts."""
    lasted = sum(each["until_us"] - each["from_us"] for each in stretches)
    sent = sum(num_sent_in(each) for each in stretches)
    return lasted >= SHORT_FRAC * sending_us or sent >= FEW_FRAC * num_sent


def num_sent_in(stretch: OverloadedStretch) -> int:
    """Return how many requests were sent while the backlog grew."""
    return round(stretch["sent_per_s"] * max(stretch["until_us"] - stretch["from_us"], 1) / 1e6)


def bursts_told(bursts: Sequence[OverloadedStretch], *, counts: str = "requests") -> str:
    """Return when a burst came, how large it was and how long it waited; of several, the longest of them."""
    worst = longest(bursts)
    told = (
        f"a burst of {num_sent_in(worst):,} {counts} {moment(worst['from_us'])} waited up to "
        f"{shown_time(worst['wait_p90_us'])} (p90)"
    )
    return told if len(bursts) == 1 else f"{len(bursts)} bursts, the longest: {told}"


def is_whole(stretches: Sequence[OverloadedStretch], sending_us: float | None) -> bool:
    """Return whether stretches, the last without recovery, are most of the time in which requests were sent.

    What has not recovered by then is overloaded until the end.
    """
    if not stretches or sending_us is None or stretches[-1]["recovered_us"] is not None:
        return False
    before = sum(_end(each) - each["from_us"] for each in stretches[:-1])
    return before + sending_us - stretches[-1]["from_us"] > WHOLE * sending_us


def stretches_told(stretches: Sequence[OverloadedStretch], *, counts: str = "requests") -> str:
    """Return " for 3 min from minute 10: …", of the longest stretch, behind the number of all if there are several."""
    worst = longest(stretches)
    told = _one(worst, counts=counts, is_last=worst == stretches[-1])
    if len(stretches) == 1:
        return told
    total = shown_time(float(sum(each["until_us"] - each["from_us"] for each in stretches)))
    return f" in {len(stretches)} stretches, {total} in all; the longest{told}"


def longest(stretches: Sequence[OverloadedStretch]) -> OverloadedStretch:
    """Return the stretch in which requests waited longest, all together; where decoding binds, in which they stayed."""
    return max(
        stretches,
        key=lambda each: (each["served_most"] or each["waiting_most"]) * (_end(each) - each["from_us"]),
    )


def _end(stretch: OverloadedStretch) -> int:
    return stretch["until_us"] if stretch["recovered_us"] is None else stretch["recovered_us"]


def _one(stretch: OverloadedStretch, *, counts: str, is_last: bool) -> str:
    """Return the figures of one stretch."""
    lasted = stretch["until_us"] - stretch["from_us"]
    most = f"{stretch['waiting_most']:,} waited at most"
    if stretch["served_most"] is not None:
        most = f"no queue: up to {stretch['served_most']:,} were served at once, ever more slowly"
    lost = f", {stretch['num_lost']:,} were never answered" if stretch["num_lost"] else ""
    if lasted < BRIEF_US:
        told = f" {moment(stretch['from_us'])}: a burst of {num_sent_in(stretch):,} {counts}, {most}{lost}"
    else:
        sent, answered = apart(stretch["sent_per_s"], stretch["answered_per_s"])
        rates = f"{sent} {counts}/s sent, {answered} answered"
        start = moment(stretch["from_us"], is_start=True)
        down = f" while {instances_told(stretch['down'])} down" if stretch["down"] else ""
        told = f" for {shown_time(float(lasted))} from {start}{down}: {rates}, {most}{lost}"
    if stretch["recovered_us"] is None:
        return f"{told}, not recovered {'when the last one was sent' if is_last else 'before the next one'}"
    return f"{told}, recovered {shown_time(float(stretch['recovered_us'] - stretch['until_us']))} later"


def instances_told(names: Sequence[str]) -> str:
    """Return "instance 0 was", "instances 0 and 1 were" or "4 instances were"."""
    if len(names) == 1:
        return f"instance {names[0]} was"
    if len(names) > MOST_NAMED:
        return f"{len(names)} instances were"
    return f"instances {', '.join(names[:-1])} and {names[-1]} were"


def apart(one: float, other: float) -> tuple[str, str]:
    """Return two rates with three digits, or as many as it takes to tell them apart."""
    for digits in range(3, 7):
        told = (f"{one:.{digits}g}", f"{other:.{digits}g}")
        if told[0] != told[1]:
            break
    return told


def moment(time_us: float, *, is_start: bool = False) -> str:
    """Return a time of a run: at minute 10.2, or at second 3.4; ``is_start``: without "at"."""
    at = "" if is_start else "at "
    if time_us >= MINUTES_US:
        return f"{at}minute {time_us / 6e7:.3g}"
    return f"{at}second {time_us / 1e6:.3g}"


def page_title(
    verdict: Verdict,
    stretches: Sequence[OverloadedStretch] = (),
    *,
    subject: str,
    is_slo_missed: bool,
    waits: str | None,
    sending_us: float | None = None,
) -> str:
    """Return the headline of a page, to be followed by the rate; ``subject``: server or fleet."""
    if verdict == "overloaded" and stretches and not is_whole(stretches, sending_us):
        worst = longest(stretches)
        lasted = shown_time(float(worst["until_us"] - worst["from_us"]))
        return f"The {subject} is overloaded for {lasted} from {moment(worst['from_us'], is_start=True)}; it is sent"
    if verdict in ("stable", "near saturation", "metastable") and is_slo_missed:
        return f"The {subject} misses the SLO at"
    if verdict == "stable" and waits is not None:
        return f"{waits[0].upper()}{waits[1:]}: the {subject} is sent"
    return {
        "stable": f"The {subject} keeps up with",
        "near saturation": f"The {subject} is near saturation at",
        "metastable": f"The {subject} keeps up until a burst comes, with",
        "overloaded": f"The {subject} is overloaded at",
        "too short to tell": f"Too short to tell whether the {subject} keeps up with",
    }[verdict]
