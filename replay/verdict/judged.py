"""A verdict on a run, its figures, and the line that explains it."""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import Literal, TypedDict

from replay.verdict.sentences import Verdict, apart, stretches_told
from replay.verdict.stretches import OverloadedStretch
from traces import in_unit, unit_of

MARGIN = 0.05
"""A typical error of the twin's capacity."""
UNANSWERED = 0.05
"""Where more than this share is never answered, the server does not keep up."""


class LoadFacts(TypedDict):
    """The figures behind the verdict; rates per second, of ``counts``: sessions if rounds wait for answers.

    Where a stretch of the run was overloaded, ``sent_per_s`` and ``served_per_s`` are those of the one in which the
    most waited, in requests.

    ``late_frac``: the share of the requests that wait 1 s or more before they are served; ``waits_most``: whether they
    wait longer than they are served, on average. The time in which a grammar compiles is no wait.

    ``served_per_s``: in the second half of the sending, None where too few had left by then to say. ``in_system``: when
    the last one came, out of ``num_sent``. ``growth_frac``: the share that piles up. ``num_simulated``: requests of the
    run that showed it, repeats included. ``num_requests_to_tell``: how many a run should have, None if this one is
    enough. ``ttft_mean_us``, also with 5 % more load: of the run's first
    ``num_at_more`` requests; ``after_burst_per_s``: what is answered while a burst is cleared;
    None where that was not asked.
    """

    counts: Literal["requests", "sessions"]
    sent_per_s: float
    served_per_s: float | None
    in_system: int
    num_sent: int
    growth_frac: float
    num_simulated: int
    num_requests_to_tell: int | None
    late_frac: float
    waits_most: bool
    num_at_more: int | None
    ttft_mean_us: float | None
    ttft_mean_us_at_more: float | None
    after_burst_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A verdict, its figures, and the share of requests that are never answered.

    ``stretches``: the parts of the run in which more was sent than answered. ``is_whole``: whether one of them is most
    of the run. Beside another verdict than overloaded the stretches are bursts.
    """

    verdict: Verdict
    facts: LoadFacts
    unanswered_frac: float = 0.0
    keeps_up_repeated: bool = False
    stretches: tuple[OverloadedStretch, ...] = ()
    is_whole: bool = False

    def text(self, ttft_p50_us: float | None = None, *, is_recorded: bool = False) -> str | None:
        """Return the line that explains the verdict; None for a stable run. The median TTFT decides the unit.

        ``is_recorded``: the requests are a recording's, of which there are no more.
        """
        facts = self.facts
        if self.verdict == "stable":
            return None
        if self.verdict == "overloaded":
            parts = () if self.is_whole else self.stretches
            return _overloaded_in(parts) if parts else _overloaded(facts, self.unanswered_frac)
        if self.verdict == "too short to tell":
            return _too_short(facts, keeps_up=self.keeps_up_repeated, is_recorded=is_recorded)
        if self.verdict == "metastable":
            return (
                f"metastable: the server keeps up with {facts['sent_per_s']:.3g} {facts['counts']}/s; after a burst it "
                f"would clear {facts['after_burst_per_s']:.3g}/s and not recover until less is sent"
            )
        own, more = facts["ttft_mean_us"], facts["ttft_mean_us_at_more"]
        unit = unit_of(ttft_p50_us or 0.0)
        if own is None or more is None:
            return "near saturation: do not trust TTFT here, small differences in speed decide it"
        number = facts["num_at_more"]
        of_part = "" if number is None else f" over the first {number:,} requests"
        return (
            f"near saturation: do not trust TTFT here. {MARGIN:.0%} more load moves its mean{of_part} from "
            f"{in_unit(own, unit)} to {in_unit(more, unit)} {unit}"
        )


def _overloaded_in(stretches: tuple[OverloadedStretch, ...]) -> str:
    whole = "Latencies of the whole run mix this time with the rest"
    return f"overloaded{stretches_told(stretches)}. {whole}"


def _overloaded(facts: LoadFacts, unanswered: float) -> str:
    served = facts["served_per_s"]
    sent_per_s, served_per_s = apart(facts["sent_per_s"], 0.0 if served is None else served)
    sent = f"{sent_per_s} {facts['counts']}/s are sent"
    if unanswered > UNANSWERED:
        return f"overloaded: {sent}, {unanswered:.1%} of the requests are never answered"
    answered = "" if served is None else f", {served_per_s}/s answered"
    return f"overloaded: {sent}{answered}. Do not trust TTFT and E2E: what is under way grows as long as the run lasts"


def _too_short(facts: LoadFacts, *, keeps_up: bool, is_recorded: bool) -> str:
    told = (
        f"too short to tell: {facts['in_system']:,} of {facts['num_sent']:,} {facts['counts']} were under way when the "
        "last one came"
    )
    if keeps_up:
        told += ". When they are repeated, the same requests are served as fast as they arrive"
    more = f"--num-requests {facts['num_requests_to_tell']}"
    if is_recorded:
        more = f"A longer recording, or requests drawn like it (vtwin run --like TRACE {more}),"
    return f"{told}. {more} would tell"


def why_undecided(*, num_refused: int, num_sent: int) -> str | None:
    """Return why a run whose requests came at their own times has no verdict, None where its lengths are not why.

    ``num_refused``: requests that are too long for the server.
    """
    if num_refused <= UNANSWERED * num_sent:
        return None
    return (
        f"none: {num_refused:,} of {num_sent:,} requests are too long for the server (engine.max_model_len, or its KV "
        "cache), and the others are another load"
    )
