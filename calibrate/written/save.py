"""Keeping a fit: as a TWIN.yaml, and as an entry of defaults.yaml with where it comes from."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from lazy_dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from calibrate import number_format
from calibrate.findings import Calibration
from calibrate.fit.objective.coefficients import decimals_of
from calibrate.fit.pipeline import SPARE_DECIMALS
from calibrate.fit.result import Fit
from calibrate.report.report_tables import is_of_gaps_only
from calibrate.report.warnings import unknown_flags, warnings_of
from calibrate.verdict_text import far_in_file, far_p99_in_file
from calibrate.written.fitted_server import fitted_on
from sim import UNBOUNDED, Blackbox
from sim.latency import Fitting
from traces import ConfigError, tool_version, write_text
from traces.strict.arguments import PATH, takes

if TYPE_CHECKING:
    from replay import DefaultsEntry
    from replay.twin.fitted import HeldOut, NamedServer


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerName:
    """What an entry is found by; None is taken from the first trace's header."""

    model: str | None = None
    gpu: str | None = None
    tp: int | None = None


@takes(path=PATH)
def write_config(calibration: Calibration, path: Path) -> None:
    """Write the fitted twin as a TWIN.yaml whose head says where it comes from, and with the server that is known."""
    from replay import dump_config
    from replay.twin import read_config_text
    from replay.twin.fitted import text_with_server

    fit = _fit_of(calibration)
    profile = fitted_on(calibration, _server_of(calibration))
    twin = replace(fit.config, held_out=_held_out(calibration), fitted_on=profile)
    text = dump_config(twin, assumed=unknown_flags(calibration))
    text = text_with_server(
        text, _server_of(calibration), path=path, notes=fit.config.notes, read=read_config_text
    )
    write_text(path, "\n".join(_head(calibration, fit)) + "\n" + text, option="--write-config")


def _server_of(calibration: Calibration) -> NamedServer:
    """Return what the twin's file, the options and the first trace's header say of the server's GPUs and model."""
    from calibrate.flags.known_model_and_gpu import known_of
    from replay.twin.fitted import named_server
    from replay.twin.start import is_at_hand, model_of

    fit, options, trace = _fit_of(calibration), calibration.options, calibration.traces[0].source.trace
    own = named_server(fit.config.source)
    known = known_of(trace, replace(fit.config, latency=Blackbox()), options)
    model, of_header = options.model_config, model_of(trace.header.server)
    if model is None and "model_config" not in own.latency and is_at_hand(of_header):
        model = of_header
    has_gpu = known.gpu is not None and not own.hardware
    return named_server(
        fit.config.source,
        gpu=options.gpu or (known.gpu_name if has_gpu else None),
        model_config=model,
        tp=options.tp or (known.tp if has_gpu else None),
    )


def _held_out(calibration: Calibration) -> HeldOut:
    """Return the errors on unseen requests, the largest of whole runs, and the day, for a later comparison.

    Overloaded runs count where only they were held out: what the file says of unseen requests is then of them.
    """
    from calibrate.run_to_run.run_errors import own_errors
    from replay.twin.fitted import HeldOut

    found = {
        name: float(f"{errors.mape.value:.4g}")
        for name in ("ttft", "tpot", "e2e")
        if (errors := calibration.holdout.get(f"{name}_us")) is not None and errors.mape.value is not None
    }
    served = own_errors([each.pairs for each in calibration.traces if not each.is_saturated])
    unseen = own_errors([calibration.held_out.pairs] if calibration.held_out.of_saturated else [])
    found |= {name: max(served.get(name, 0.0), unseen.get(name, 0.0)) for name in [*served, *unseen]}
    day, far_p99 = datetime.now(UTC).date().isoformat(), far_p99_in_file(calibration)
    return HeldOut(date=day, far=far_in_file(calibration), far_p99=far_p99, **found)


@takes(path=PATH)
def write_defaults(calibration: Calibration, path: Path, *, server: ServerName) -> None:
    """Put the fit into a defaults file, with the entry that it replaces as its history."""
    from replay import write_defaults_entry

    write_defaults_entry(path, defaults_entry(calibration, server=server))


def defaults_entry(calibration: Calibration, *, server: ServerName) -> DefaultsEntry:
    """Return the fit as an entry on record. Raises ConfigError where model, GPU or TP are not known."""
    from replay import DefaultsEntry, Provenance
    from replay.twin import FittedModel

    chosen = _fit_of(calibration)
    fit = _that_defaults_hold(chosen)
    if fit.model not in get_args(FittedModel):
        raise ConfigError(
            f"--write-defaults: got a fit of {fit.model}, expected one of {', '.join(get_args(FittedModel))}, which "
            "are what defaults hold; --write-config writes every term"
        )
    recorded = calibration.traces[0].source.trace.header.server
    model, gpu = server.model or recorded.model, server.gpu or recorded.gpu
    tp = server.tp or recorded.tensor_parallel
    for option, value in (("--model", model), ("--gpu", gpu), ("--tp", tp)):
        if value is None:
            raise ConfigError(
                f"{option}: got nothing, and the trace does not say; expected it for --write-defaults"
            )
    engine = fit.config.engine
    blocks = None if engine.num_gpu_blocks == UNBOUNDED else engine.num_gpu_blocks
    return DefaultsEntry(
        model=model or "",
        gpu=gpu or "",
        tp=tp or 1,
        vllm_version=recorded.version or fit.config.vllm_version,
        coefficients=_on_record(fit),
        latency_model="extended" if fit.model == "extended" else "blackbox",
        blackbox=_blackbox_of(fit),
        num_gpu_blocks=blocks,
        block_size=None if blocks is None else engine.block_size,
        tiles=fit.config.latency.tile_factors,
        provenance=Provenance(
            source="vtwin calibrate",
            date=datetime.now(UTC).date().isoformat(),
            identification=_identification(fit),
            traces=tuple(each.source.name for each in calibration.traces),
            digests=_digests(calibration),
            low={each.name: _short(each.low) for each in fit.coefficients if each.low is not None},
            high={each.name: _short(each.high) for each in fit.coefficients if each.high is not None},
            async_scheduling=engine.async_scheduling,
            system_fingerprint=recorded.system_fingerprint,
            tool_version=tool_version(),
            errors=_errors(calibration) if fit is chosen else {},
            note=_note(fit)
            if fit is chosen
            else f"{_note(fit)}; {chosen.model} was chosen, blackbox is kept",
        ),
    )


def _that_defaults_hold(fit: Fit) -> Fit:
    """Return the fit, or the blackbox beside it where defaults cannot hold what was chosen."""
    if fit.config.latency.fitting is not Fitting.NEARBY or not fit.blackbox:
        return fit
    latency = Blackbox(**{name: float(value) for name, value in (_blackbox_of(fit) or {}).items()})
    return replace(fit, config=replace(fit.config, latency=latency), coefficients=fit.blackbox, blackbox=())


def _digests(calibration: Calibration) -> tuple[str, ...]:
    """Return the traces' digests in their order, none unless all have one."""
    found = [each.source.digest for each in calibration.traces]
    return tuple(digest for digest in found if digest) if all(found) else ()


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def _fit_of(calibration: Calibration) -> Fit:
    if calibration.fit is None:
        raise ConfigError("--write-config, --write-defaults: got no fit to write, expected --fit")
    return calibration.fit


def _on_record(fit: Fit) -> dict[str, Decimal]:
    """Return every coefficient of the fitted model, those that were held included."""
    from replay.twin import COEFFICIENTS, EXTENDED_MEANINGS

    names = (*COEFFICIENTS, *(EXTENDED_MEANINGS if fit.model == "extended" else ()))
    return {name: Decimal(str(getattr(fit.config.latency, name))) for name in names}


def _blackbox_of(fit: Fit) -> dict[str, Decimal] | None:
    """Return blackbox's coefficients where they were found beside the chosen model's."""
    decimals = {each.name: decimals_of(each.name) - SPARE_DECIMALS for each in fit.blackbox}
    return {each.name: Decimal(str(round(each.value, decimals[each.name]))) for each in fit.blackbox} or None


def _identification(fit: Fit) -> Literal["weak", "partial", "good"]:
    """Return how well the traces determine the fitted coefficients: all, the step's, or not even those."""
    seen = {each.name: each.identifiable for each in fit.coefficients if each.fitted}
    if all(seen.values()):
        return "good"
    return "partial" if seen.get("beta0", False) else "weak"


def _errors(calibration: Calibration) -> dict[str, float]:
    """Return the held-out errors that an entry states."""
    return {
        f"{name.removesuffix('_us')}_{kind}": float(f"{value:.4g}")
        for name, found in calibration.holdout.items()
        if not is_of_gaps_only(calibration.holdout, name)
        for kind, value in (("mape", found.mape.value), ("bias", found.bias.value))
        if value is not None
    }


def _note(fit: Fit) -> str:
    unseen = [each.name for each in fit.coefficients if each.fitted and not each.identifiable]
    way = "async" if fit.config.engine.async_scheduling else "sync"
    return f"fitted with {way} scheduling" + (f"; not identifiable: {', '.join(unseen)}" if unseen else "")


def _head(calibration: Calibration, fit: Fit) -> list[str]:
    """Return the comment that a written TWIN.yaml begins with."""
    lines = [f"# Fitted by vtwin calibrate on {datetime.now(UTC).date()}, {fit.num_requests:,} requests of:"]
    lines += [f"#   {each.source.name} ({each.role})" for each in calibration.traces]
    lines += [f"# {line}" for line in warnings_of(calibration)]
    lines.append(f"# Held-out errors ({calibration.unseen}):")
    lines += [
        f"#   {number_format.METRIC_NAMES[name]}: MAPE {number_format.percent(found.mape.value)}, "
        f"bias {number_format.percent(found.bias.value, signed=True)}, n {found.num_ratios:,}"
        for name, found in calibration.holdout.items()
        if not is_of_gaps_only(calibration.holdout, name)
    ]
    lines += [
        f"# {each.name}: {number_format.coefficient(each.low)} … {number_format.coefficient(each.high)}"
        + ("" if each.identifiable else f", not identifiable: {each.reason}")
        for each in fit.coefficients
        if each.fitted
    ]
    return lines
