"""The server's model and GPU in a calibration, and which candidates of a fit are absent if they are not known."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from calibrate.fit.objective.known_server import KnownServer, known_physics, known_server, known_tiles
from replay.twin.start import is_emulated, known_text, model_of, what_helps
from sim.latency import Fitting
from traces import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from replay import TwinConfig
    from traces import Trace


class Named(Protocol):
    """The server's model, GPU and latency model as the user names them; None: not given."""

    @property
    def latency_model(self) -> str | None:
        """``auto``, a model's name, or as configured."""

    @property
    def model_config(self) -> str | Path | None:
        """A config.json, or the name of a model that ships."""

    @property
    def gpu(self) -> str | None:
        """The GPU's name."""

    @property
    def tp(self) -> int | None:
        """How many GPUs share each layer."""

    @property
    def from_twin(self) -> Path | None:
        """Another server's twin, from which this one's is made."""


def known_of(trace: Trace, config: TwinConfig, options: Named) -> KnownServer:
    """Return what is known of the server; nothing for the fit of a model whose coefficients are its priors.

    Raises ConfigError if an option is given for such a fit.
    """
    if config.latency.fitting is Fitting.NEARBY and options.latency_model is None:
        kind = type(config.latency).__name__.lower()
        if any(value is not None for value in (options.model_config, options.gpu, options.tp)):
            raise ConfigError(
                f"--model-config, --gpu, --tp: cannot be combined with latency.model {kind}, expected blackbox or "
                f"extended: {kind} is fitted from its configured coefficients"
            )
        return KnownServer()
    server = trace.header.server
    return known_server(
        replace(server, model=model_of(server)),
        config,
        model_config=options.model_config,
        gpu=options.gpu,
        tp=options.tp,
    )


def absent_candidates(trace: Trace, config: TwinConfig, options: Named) -> tuple[str, ...]:
    """Return which candidates of the fit are absent, and why: a line per reason, with what would help.

    ``trace``: its header describes the server. None are absent if the user has chosen the latency model.
    """
    if options.latency_model != "auto" or options.from_twin is not None:
        return ()
    known = known_of(trace, config, options)
    names_of: dict[str, list[str]] = {}
    reasons = {
        "physics": known_physics(known, config)[1],
        "attention, floor, tiles": known_tiles(known, config).reason,
    }
    for name, reason in reasons.items():
        if reason:
            names_of.setdefault(reason, []).append(name)
    server = trace.header.server
    if known.reason in names_of:
        model = _model_named(config, options)
        said = known_text(server, gpu=known.gpu_name, model_config=model)
        helps = (
            "" if is_emulated(server) else f". {what_helps(server, gpu=known.gpu_name, model_config=model)}"
        )
        names_of[f"{said}{helps}"] = names_of.pop(known.reason)
    return tuple(
        f"not among the latency models to choose from: {'; '.join(names)}: {reason}"
        for reason, names in names_of.items()
    )


def _model_named(config: TwinConfig, options: Named) -> str | None:
    """Return the user's name of the model, in an option or in the twin's file."""
    if options.model_config is not None:
        return str(options.model_config)
    return None if config.shape is None else config.shape.name


def version_told(traces: Iterable[Trace], config: TwinConfig) -> str | None:
    """Return the version that the servers told, else the twin's file; None where nobody did."""
    for trace in traces:
        if trace.header.server.version is not None:
            return trace.header.server.version
    return config.vllm_version if config.has_version else None
