"""The report's first sentences: the twin's error, its comparison with run-to-run noise, where to trust it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from calibrate import number_format
from calibrate.compare.judged_errors import JUDGED, JudgedError, judged_errors
from calibrate.distinct_runs import has_lengths_of
from calibrate.flags.evidence import contradictions_of
from calibrate.misfit import without_missed
from replay.twin.fitted import FAR
from traces import fewest_beyond

if TYPE_CHECKING:
    from calibrate.findings import Calibration
    from calibrate.run_to_run.pace_today import PaceToday
    from replay.twin.fitted import FittedRange, Range

MOST_WORDS = 20
"""A page's title, and the sentence below it, have no more words."""
NAMED = (*JUDGED, "itl_us")
"""The order in which metrics are named."""
ALMOST = 0.9
"""A rate that lasts up to this share of the highest fitted one needs no word: draws of one load differ by more."""
OF_KIND = {"per request": "per request", "mean": "of the mean"}


def verdict_text(calibration: Calibration, *, has_warnings: bool) -> str:
    """Return the verdict: the worst error of E2E, TTFT and TPOT, the noise floor, and the loads and lengths fitted.

    What is not known is left out: the noise floor without a repeat run, the range of a twin whose file has none.
    """
    which = _which(calibration)
    if calibration.held_out.of_saturated:
        return _of_capacity(calibration, which)
    judged, is_unseen = _judged(calibration)
    if not is_unseen:
        which = ", in sample"
    if not judged:
        return "No error can be told: no latency is known on both sides."
    worst = judged[0]
    if calibration.pace_today is not None:
        return _of_pace(calibration.pace_today, worst)
    said = f"{_subject(calibration, number_format.percent(worst.error))} ({_what(worst)}{which}{_others(judged)})"
    if worst.floor is not None:
        own = number_format.percent(worst.floor)
        said += f", {_closer(worst.error, worst.floor)} the server repeats itself ({own})"
    if reasons := _clients(calibration):
        return " ".join([_doubt(reasons), f"{said}.", *_in_sample(calibration, worst)])
    far = far_of(judged)
    return " ".join(
        [
            f"{said}.",
            *_in_sample(calibration, worst),
            *_trust(calibration, far=far, has_warnings=has_warnings),
        ]
    )


def _judged(calibration: Calibration) -> tuple[tuple[JudgedError, ...], bool]:
    """Return the errors that the verdict is about, and whether of unseen requests: else of fitted ones."""
    unseen = judged_errors(calibration.holdout, calibration.noise_floor)
    return unseen or judged_errors(calibration.in_sample, calibration.noise_floor), bool(unseen)


def far_of(judged: Sequence[JudgedError]) -> list[str]:
    """Return the metrics of which an error is too large, and larger than the server's own."""
    return [name for name in NAMED if any(each.metric == name and each.exceeds(FAR) for each in judged)]


def far_in_file(calibration: Calibration) -> tuple[str, ...] | None:
    """Return those metrics as TWIN.yaml names them; None where the verdict is not about latencies."""
    judged, _ = _judged(calibration)
    if calibration.held_out.of_saturated or not judged:
        return None
    return tuple(name.removesuffix("_us").replace("itl", "tpot") for name in far_of(judged))


def far_p99_in_file(calibration: Calibration) -> tuple[str, ...] | None:
    """Return the metrics whose p99 over the held-out run is too far off, as TWIN.yaml names them; None: not known."""
    far = tuple(each.metric.removesuffix("_us").replace("itl", "tpot") for each in _far_p99(calibration))
    return None if calibration.held_out.of_saturated or not (far or _shows_p99(calibration)) else far


def _shows_p99(calibration: Calibration) -> bool:
    """Return whether the held-out requests are enough to have an upper end of their p99."""
    numbers = [found.n for name, found in calibration.holdout.items() if name in JUDGED]
    return bool(numbers) and fewest_beyond(min(numbers)) >= 1


def _far_p99(calibration: Calibration) -> list[JudgedError]:
    """Return the held-out errors of p99 that are too large, and larger than the server's own, in the usual order."""
    found = judged_errors(calibration.holdout, calibration.noise_floor, ("p99",))
    return sorted((each for each in found if each.exceeds(FAR)), key=lambda each: NAMED.index(each.metric))


def parted(text: str) -> tuple[str, str, list[str]]:
    """Return a verdict as a page begins with it: the title, the sentence below it (may be empty), what else there is.

    A first sentence of more than 20 words has its details, in brackets or behind a colon, in what else there is.
    """
    first, *others = re.split(r"(?<=\.) (?=[A-Z])", text)
    further = []
    if len(first.split()) > MOST_WORDS:
        further.append(first)
        first = re.split(r" \(|: ", first)[0] + "."
    if others and len(others[0].split()) > MOST_WORDS:
        return first, "", [*further, " ".join(others)]
    return first, " ".join(others[:1]), [*further, *([" ".join(others[1:])] if others[1:] else [])]


def _of_pace(today: PaceToday, worst: JudgedError) -> str:
    """Return the verdict on a server that has become slower or faster than its twin, which was good."""
    slower = today.factor > 1
    by = f"{100 * abs(today.factor - 1):.0f}{number_format.SPACE}%"
    of = f" of {today.then.date}" if today.then.date else ""
    then = number_format.percent(today.then.e2e)
    now = "; ".join(
        f"{number_format.METRIC_NAMES[name]} {number_format.percent(today.errors[name])}"
        for name in NAMED
        if name in today.errors
    )
    return (
        f"The server is {by} {'slower' if slower else 'faster'} than the twin{of}: with all steps {by} "
        f"{'longer' if slower else 'shorter'} the twin is as close as a good one ({now} per request). As it is, it is "
        f"off by up to {number_format.percent(worst.error)} ({_what(worst)}); when it was fitted, E2E was off by "
        f"{then}. "
        "Either side may have changed: the server (clocks, version, neighbours, load from others) or what the twin was "
        "fitted to. Measure again; if the pace stays, fit anew."
    )


def _what(judged: JudgedError) -> str:
    """Return the subject of an error."""
    metric = number_format.METRIC_NAMES[judged.metric]
    return (
        f"mean {metric} error per request" if judged.kind == "per request" else f"error of the mean {metric}"
    )


def _others(judged: Sequence[JudgedError]) -> str:
    """Return the largest error of each other metric and its kind, after a semicolon; nothing where there is none."""
    largest = {each.metric: each for each in reversed(judged)}
    del largest[judged[0].metric]
    named = [largest[name] for name in NAMED if name in largest]
    said = [
        f"{number_format.METRIC_NAMES[each.metric]} {number_format.percent(each.error)}" for each in named
    ]
    kinds = [OF_KIND[each.kind] for each in named]
    if len(set(kinds)) == 1:
        return f"; {' and '.join(said)} {kinds[0]}"
    return f"; {', '.join(f'{each} {kind}' for each, kind in zip(said, kinds, strict=True))}" if said else ""


def _which(calibration: Calibration) -> str:
    """Return which requests the error is of, after a comma; nothing for two traces."""
    if calibration.config is None:
        return ""
    if calibration.fit is None:
        return ", the twin as configured"
    if held_out := [each.source.trace for each in calibration.traces if each.role == "held out"]:
        fitted = [each.source.trace for each in calibration.traces if each.role == "fitted"]
        seen = any(has_lengths_of(one, other) for one in held_out for other in fitted)
        return ", held out, on lengths that were fitted" if seen else ", held out"
    return ", held out: the second half of the requests"


def _in_sample(calibration: Calibration, worst: JudgedError) -> list[str]:
    """Return the sentence about the fitted requests, where the twin is further off on them than held out."""
    if calibration.fit is None or calibration.fitted_on.of_saturated:
        return []
    own = judged_errors(calibration.in_sample, calibration.noise_floor)
    if not own or number_format.percent(own[0].error) == number_format.percent(worst.error):
        return []
    if own[0].error < worst.error:
        return []
    return [f"In sample it is further off: {number_format.percent(own[0].error)} ({_what(own[0])})."]


def _subject(calibration: Calibration, within: str) -> str:
    """Return the start of a sentence: the compared sides and their distance."""
    if calibration.config is not None:
        return f"The twin predicts this server within {within}"
    first = calibration.traces[0]
    other = "The simulation" if first.partner is None else first.partner.name
    return f"{other} is within {within} of {first.source.name}"


def _closer(error: float, floor: float) -> str:
    if number_format.percent(error) == number_format.percent(floor):
        return "as close as"
    return "closer than" if error < floor else "not as close as"


def _of_capacity(calibration: Calibration, which: str) -> str:
    """Return the verdict on runs that were all overloaded: their latencies only reflect how long they lasted."""
    rate = calibration.held_out.capacity.get("output_token_throughput")
    off = None if rate is None else rate.rel_error.value
    if off is None:
        return "No error can be told: every run was overloaded, and no throughput is known on both sides."
    within = number_format.percent(abs(off))
    metric = f"served output tokens/s, {number_format.percent(off, signed=True)}{which}"
    reasons = [*_far_means(calibration, which), *_clients(calibration)]
    first = _doubt(reasons) if reasons else "Only throughput was tested: every run was overloaded."
    why = ["TTFT and E2E depend on how long an overloaded run lasts."] if reasons else []
    return " ".join([first, f"{_subject(calibration, within)} ({metric}).", *why, *_refuted(calibration)])


def _doubt(reasons: Sequence[str]) -> str:
    return f"Do not trust this twin: {'; '.join(reasons)}."


def _far_means(calibration: Calibration, which: str) -> list[str]:
    """Return the reason that means of overloaded runs are too far off; none where they are not, or of two traces.

    TPOT does not depend on how long a request waits, and E2E is most of what an answer is asked for.
    """
    if calibration.config is None:
        return []
    unseen = calibration.holdout
    found = judged_errors(unseen, calibration.noise_floor, ("mean",))
    far = [each.metric for each in found if each.metric != "ttft_us" and each.exceeds(FAR)]
    told = [
        f"{number_format.METRIC_NAMES[name]} by "
        f"{number_format.percent(unseen[name].rel_error['mean'].value, signed=True)}"
        for name in reversed(NAMED)
        if name in far
    ]
    return (
        [f"the mean {', '.join(told).replace(' by ', ' is off by ', 1)} ({which.lstrip(', ')})"]
        if told
        else []
    )


def _clients(calibration: Calibration) -> list[str]:
    """Return the reason that the client limited every run that the verdict is about; none of two traces."""
    held_out = [each for each in calibration.traces if each.role == "held out"] or calibration.traces
    runs = [each for each in held_out if not each.is_saturated] or held_out
    if calibration.config is None or not all(each.is_client_limited for each in runs):
        return []
    names = " and ".join(each.source.name for each in runs)
    return [f"the client, not the server, set the pace of {names}"]


def _trust(calibration: Calibration, *, far: Sequence[str], has_warnings: bool) -> list[str]:
    """Return where the twin may be trusted: sentences, none for two traces or an unknown range.

    ``far``: the metrics whose errors are too large. A twin whose flags a run contradicts is not trusted at all.
    """
    config = calibration.config
    if config is None:
        return []
    range_ = "" if config.fitted is None else _range_text(_trusted_range(calibration, config.fitted))
    limit = f"{100 * FAR:.0f}{number_format.SPACE}%"
    if refuted := _refuted(calibration):
        return refuted
    if far and ("e2e_us" in far or "e2e_us" not in calibration.holdout):
        why = f"Do not trust it yet: the error exceeds {limit}."
        return [why, f"It was fitted {range_}."] if range_ else [why]
    first = ["Read the warnings first."] if has_warnings else []
    if calibration.fit is not None and calibration.fit.carried_from is not None and config.pace is not None:
        off = f"{100 * config.pace.within:.0f}{number_format.SPACE}%"
        return [
            f"{range_[:1].upper()}{range_[1:]} it rests on another server's twin: expect {off} there.",
            *first,
        ]
    off = ", ".join(
        f"{number_format.METRIC_NAMES[each.metric]} is off by {number_format.percent(each.error)}"
        for each in _far_p99(calibration)
        if each.metric not in far
    )
    which = "means and p99" if _shows_p99(calibration) and not off else "means"
    first = [*([f"Do not trust its p99: {off}."] if off else []), *_too_short(calibration), *first]
    if far:
        named = " and ".join(number_format.METRIC_NAMES[name] for name in far)
        trusted = f"Trust its E2E {range_}" if range_ else "Trust its E2E"
        return [f"{trusted}, not its {named}: the error exceeds {limit}.", *first]
    return [f"Trust its {which} {range_}.", *first] if range_ else first


def _too_short(calibration: Calibration) -> list[str]:
    """Return the sentence about a fitted rate that lasts no long run within the fit; none where all do."""
    fitted = None if calibration.config is None else calibration.config.fitted
    if calibration.fit is None or fitted is None or fitted.lasting is None or fitted.rate_per_s is None:
        return []
    highest = fitted.rate_per_s[1]
    if fitted.lasting[1] >= ALMOST * highest or any(each.is_saturated for each in calibration.traces):
        return []
    rate = f"{number_format.plain(highest)}{number_format.SPACE}req/s"
    return [f"The run at {rate} was too short to show how many requests such a rate brings at once."]


def has_small_errors(calibration: Calibration) -> bool:
    """Return whether the twin's held-out errors are small, at loads of its own, and no run contradicts its flags."""
    judged = judged_errors(calibration.holdout, calibration.noise_floor)
    is_carried = calibration.fit is not None and calibration.fit.carried_from is not None
    if is_carried or calibration.held_out.of_saturated or not judged:
        return False
    if _refuted(calibration) or _clients(calibration):
        return False
    return not far_of(judged)


def _refuted(calibration: Calibration) -> list[str]:
    """Return the sentence about a twin whose flags a run contradicts; none for any other."""
    if calibration.config is None:
        return []
    found = contradictions_of([each.source for each in calibration.traces], calibration.config)
    names = " and ".join(f"engine.{shown.name}" for shown, _ in found)
    return [f"Do not trust it: its {names} cannot be the server's."] if found else []


def _trusted_range(calibration: Calibration, fitted: FittedRange) -> FittedRange:
    """Return the twin's own range, its rates those that last: below loads that it misses, or that overload the server.

    Where some overload it, the concurrency is theirs, and is left out.
    """
    met = without_missed(fitted, calibration.traces)
    rates = fitted.lasting
    if rates is not None and met.rate_per_s != fitted.rate_per_s:
        most = None if met.rate_per_s is None else min(rates[1], met.rate_per_s[1])
        rates = None if most is None else (min(rates[0], most), most)
    runs = [each for each in calibration.traces if each.role != "held out"]
    if calibration.fit is not None and any(each.is_saturated for each in runs):
        return replace(met, rate_per_s=rates, concurrency=None)
    is_told = rates is not None or fitted.concurrency is not None
    return replace(met, rate_per_s=rates if is_told else met.rate_per_s)


def _range_text(fitted: FittedRange) -> str:
    """Return the fitted loads and lengths in words, empty where nothing is known."""
    parts = []
    if fitted.rate_per_s is not None:
        parts.append(f"up to {number_format.plain(fitted.rate_per_s[1])}{number_format.SPACE}req/s")
    elif fitted.concurrency is not None:
        parts.append(f"up to {number_format.plain(fitted.concurrency[1])} requests in flight")
    if fitted.prompt_tokens is not None:
        parts.append(f"for prompts of {_span(fitted.prompt_tokens)}{number_format.SPACE}tokens")
    return " ".join(parts)


def _span(span: Range) -> str:
    low, high = (f"{round(value):,}" for value in span)
    return low if low == high else f"{low}\u2013{high}"
