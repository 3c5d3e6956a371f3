"""Profiles as a table, as a screen, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from replay.twin.fitted.fitted_range import NAMES
from replay.twin.fitted.held_out import ERRORS
from traces.facts import AlignedRows, AnswerPart, TermRows

if TYPE_CHECKING:
    from replay.profiles.fitted_profile import Profile
    from replay.twin.fitted.fitted_on import FittedLoad

UNKNOWN = "-"
HEAD = ("file", "model", "GPU", "tp", "vLLM", "loads", "E2E error", "date", "trust")
OF_LOADS = ("run", "", "requests", "req/s", "in flight", "prompt", "output", "TTFT", "TPOT", "E2E")
WIDTH = 14


def list_parts(profiles: Sequence[Profile]) -> list[AnswerPart]:
    """Return the table, a row per fitted twin."""
    if not profiles:
        return ["no fitted twin here: `vtwin calibrate … --fit --write-config twin.yaml` writes one"]
    rows = [HEAD, *(_row(each) for each in profiles)]
    widths = [-max(len(row[place]) for row in rows) - 2 for place in range(len(HEAD) - 1)] + [0]
    return [AlignedRows(rows, widths)]


def _row(each: Profile) -> tuple[str, ...]:
    on = each.on
    return (
        str(each.path),
        on.model or UNKNOWN,
        _times(on.num_gpus) + (on.gpu or UNKNOWN),
        str(on.tp or UNKNOWN),
        on.vllm_version or UNKNOWN,
        _loads(each),
        _percent(each.error),
        each.date or UNKNOWN,
        each.trust,
    )


def _times(number: int | None) -> str:
    return f"{number} x " if (number or 1) > 1 else ""


def _loads(profile: Profile) -> str:
    """Return the fitted loads in a few characters: their rates, else how many ran at once."""
    known = profile.fitted_range
    if known is None:
        return UNKNOWN
    for pair, unit in ((known.rate_per_s, "/s"), (known.concurrency, " at once")):
        if pair is not None:
            low, high = pair
            return f"{high:.3g}{unit}" if low == high else f"{low:.3g} to {high:.3g}{unit}"
    return UNKNOWN


def _percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{100 * value:.1f} %"


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.4g}"


def show_parts(profile: Profile) -> list[AnswerPart]:
    """Return a screen: what the twin was fitted on, and how it degrades."""
    loads = [_load_row(each) for each in profile.on.loads]
    shown: list[AnswerPart] = [TermRows(list(_terms(profile)), width=WIDTH)]
    if loads:
        rows = [OF_LOADS, *loads]
        widths = [
            -max(len(row[place]) for row in rows) - 2
            if place < len(OF_LOADS[:2])
            else max(len(row[place]) for row in rows) + 2
            for place in range(len(OF_LOADS))
        ]
        shown += ["", "mean error per request, by load:", AlignedRows(rows, widths)]
    return [*shown, "", *_how_it_degrades(profile)]


def _terms(profile: Profile) -> Iterator[tuple[str, str]]:
    on = profile.on
    yield "twin", f"{profile.path} ({profile.latency_model})"
    yield "fitted on", on.server
    if on.num_gpus is not None and on.num_gpus > 1:
        yield "GPUs", f"{on.num_gpus} of one engine"
    if on.carried_from is not None:
        yield "made from", f"the twin of {on.carried_from}, with few requests of its own"
    if profile.date is not None:
        yield "on", profile.date
    if on.flags:
        yield "flags", ", ".join(f"{name} {str(value).lower()}" for name, value in on.flags.items())
    if profile.fitted_range is not None:
        for name, (what, unit) in NAMES.items():
            pair = getattr(profile.fitted_range, name)
            if pair is not None:
                yield what, f"{pair[0]:.4g} to {pair[1]:.4g} {unit}"
    if on.noise:
        told = ", ".join(f"{name.upper()} {_percent(value)}" for name, value in on.noise.items())
        yield "noise", f"two runs of one load differ per request by {told}"


def _load_row(load: FittedLoad) -> tuple[str, ...]:
    errors = (_percent(getattr(load, name)) for name in ERRORS)
    numbers = (load.rate_per_s, load.concurrency, load.prompt_tokens, load.output_tokens)
    return (load.name, load.role, f"{load.num_requests:,}", *map(_number, numbers), *errors)


def _how_it_degrades(profile: Profile) -> Iterator[str]:
    """Yield what to expect inside of the fit, and beyond it."""
    if profile.held_out is not None and profile.held_out.errors:
        yield f"held out: {profile.held_out.text}"
        for statistic in ("mean", "p99"):
            known = {name: getattr(profile.held_out, f"{name}_{statistic}") for name in ERRORS}
            told = [f"{name.upper()} {_percent(value)}" for name, value in known.items() if value is not None]
            if told:
                yield f"from run to run the twin's error changes the {statistic} by up to {', '.join(told)}"
    if profile.pace is not None:
        yield (
            f"inside of the fit all steps together may be {_percent(profile.pace.within)} longer or shorter, beyond it "
            f"{_percent(profile.pace.beyond)}, nine times of ten"
        )
    doubt = "" if profile.held_out is None else profile.held_out.doubt
    yield doubt or f"trust: {profile.trust}"
