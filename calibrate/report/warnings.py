"""Warnings to read before the numbers: assumed flags, a poor fit, a client that was too slow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calibrate.distinct_runs import has_lengths_of
from calibrate.flags.evidence import contradictions_of
from calibrate.misfit import is_probe, largest_misfit, missed_load
from calibrate.not_measured import cautions
from sim.latency import Fitting
from traces import MOST_FAILED

if TYPE_CHECKING:
    from calibrate.findings import Calibration

BAD_LOSS = 1.5
"""A normal spread of one noise has a mean loss of 0.7. Twice that says that the noise, measured at the middle of the
errors, does not describe their tails: some of the traces are not explained."""

MUCH = 0.05
"""A mean E2E that may be off by less at 1.5 times the highest fitted load is no warning; the fit's section says it."""


def warnings_of(calibration: Calibration) -> tuple[str, ...]:
    """Return the warnings, a line each."""
    return (
        *cautions([each.source for each in calibration.traces]),
        *_contradicted(calibration),
        *_assumed(calibration),
        *_carried(calibration),
        *_misfit(calibration),
        *_missed(calibration),
        *_alike(calibration),
        *_failed(calibration),
        *_limited(calibration),
        *_extrapolated(calibration),
        *_load(calibration),
        *_beyond(calibration),
    )


def unknown_flags(calibration: Calibration) -> tuple[str, ...]:
    """Return the flags that neither the twin's file nor all traces' headers have, so that they are guesses."""
    if calibration.config is None:
        return ()
    servers = [each.source.trace.header.server for each in calibration.traces]
    return tuple(
        name
        for name in calibration.config.assumed
        if any(getattr(server, name, None) is None for server in servers)
    )


def _assumed(calibration: Calibration) -> list[str]:
    names = unknown_flags(calibration)
    if calibration.config is None or not names:
        return []
    engine = calibration.config.engine
    said = ", ".join(f"{name} ({getattr(engine, name)} assumed)" for name in names)
    return [
        f"flags unknown: {said}. Neither the server nor the configuration states them, and a fit with wrong flags is "
        "wrong under load. Set them in the configuration (`vtwin config from-serve`)"
    ]


def _carried(calibration: Calibration) -> list[str]:
    """Return the line on a twin that was made from another server's."""
    fit = calibration.fit
    if fit is None or fit.carried_from is None or fit.config.pace is None:
        return []
    off = f"{fit.config.pace.within:.0%}"
    return [
        f"carried from the twin of {fit.carried_from}: under load, which {fit.num_requests} requests of this server do "
        f"not show, all steps may be {off} longer or shorter. A fit to loads of this server's own tells"
    ]


def _contradicted(calibration: Calibration) -> list[str]:
    """Return a line per flag of the twin that cannot be the server's, by what a run shows of it."""
    if calibration.config is None:
        return []
    found = contradictions_of([each.source for each in calibration.traces], calibration.config)
    return [line for _, line in found]


def _missed(calibration: Calibration) -> list[str]:
    """Return a line per load whose mean latency the twin misses grossly."""
    if calibration.config is None:
        return []
    return [missed.text() for each in calibration.traces if (missed := missed_load(each)) is not None]


def _misfit(calibration: Calibration) -> list[str]:
    """Return a line where the errors are larger than the typical one explains.

    The loss of a model that is known before the fit is on another scale.
    """
    fit = calibration.fit
    if fit is None or fit.config.latency.fitting is Fitting.NEARBY or fit.loss <= BAD_LOSS:
        return []
    worst = largest_misfit(calibration)
    where = "not known" if worst is None else worst.text()
    return [
        f"poor fit: the twin misses by {fit.loss:.1f}x the typical error of a request. The largest error is "
        f"{where}. The coefficients' intervals are too narrow. Compare the flags with the server's"
    ]


def _alike(calibration: Calibration) -> list[str]:
    """Return a line per held-out trace that repeats the lengths of a fitted one."""
    fitted = [each.source for each in calibration.traces if each.role == "fitted"]
    lines = []
    for each in calibration.traces:
        if each.role != "held out":
            continue
        other = next((one for one in fitted if has_lengths_of(each.source.trace, one.trace)), None)
        if other is not None:
            lines.append(
                f"hold-out: {each.source.name} has the same lengths as {other.name}, which was fitted, so it tests "
                "less than other requests would. Draw them with another --seed"
            )
    return lines


def _failed(calibration: Calibration) -> list[str]:
    """Return a line per trace of which more than a hundredth of the requests failed."""
    lines = []
    for each in calibration.traces:
        status = each.source.trace.column("status")
        num_failed = int((status.notna() & ~status.isin(("ok", "cancelled"))).sum())
        if num_failed > MOST_FAILED * len(status):
            lines.append(
                f"failures: {num_failed:,} of the {len(status):,} requests of {each.source.name} failed. Only the "
                "others are compared, and what failed loaded the server less than the twin"
            )
    return lines


def _limited(calibration: Calibration) -> list[str]:
    """Return a line per trace in which the client, not the server, set the pace."""
    lines = []
    for each in calibration.traces:
        client = each.source.trace.header.client
        if client is not None and each.is_client_limited:
            why = f" ({client.reason})" if client.reason else ""
            lines.append(
                f"client-limited: the client that sent {each.source.name} did not keep up{why}, so its latencies are "
                "partly the client's"
            )
    return lines


def _extrapolated(calibration: Calibration) -> list[str]:
    """Return a line per trace that goes beyond the loads and lengths that the twin was fitted on."""
    from replay.twin.fitted import extrapolation_note, range_of

    config = calibration.config
    if config is None or config.fitted is None:
        return []
    seats = config.engine.max_num_seqs
    notes = [
        (
            each.source.name,
            extrapolation_note(config.fitted, range_of([each.source.trace], [None]).within(seats)),
        )
        for each in calibration.traces
        if each.role in ("compared", "held out") and not is_probe(each.source.trace)
    ]
    return [f"{name}: {note}" for name, note in notes if note is not None]


def _beyond(calibration: Calibration) -> list[str]:
    """Return the line on a slowdown's possible effect beyond the highest fitted load, if that is large."""
    beyond = calibration.beyond
    return [] if beyond is None or max(-beyond.low, beyond.high) < MUCH else [beyond.text()]


def _load(calibration: Calibration) -> list[str]:
    """Return a line per trace whose twin comes close to saturation, where a queue amplifies every error."""
    return [
        f"{each.source.name}: {each.judged.text()}"
        for each in calibration.traces
        if each.judged is not None and each.judged.verdict not in ("stable", "too short to tell")
    ]
