"""Calibrate: how much two traces of the same requests differ, and the twin that agrees with the observed one.

The Python API of this room (everything is imported when first used):

    from calibrate import Options, NamedTrace, calibrate_twin, write_report
    from replay import load_config
    from traces import read_trace

    sources = [NamedTrace(name=stem, trace=read_trace(stem)) for stem in ("low", "high")]
    holdout = [NamedTrace(name="other", trace=read_trace("other"))]
    found = calibrate_twin(sources, load_config("twin.yaml"), Options(), holdout=holdout)
    found.fit.config                      # the fitted TwinConfig
    found.holdout["ttft_us"].mape         # Estimate(value=…, low=…, high=…)
    write_report(found, "report", command="my script")

- ``pair_traces(observed, simulated)`` pairs two traces and counts the requests left out; ``compare_pairs(pairs)`` are
  the errors by metric, each with its interval.
- ``compare_with_simulated``, ``compare_with_twin`` and ``calibrate_twin`` are ``vtwin calibrate`` with
  ``--simulated``, with ``--config``, and with ``--config --fit``.
- ``fit_twin(traces, config)`` is the fit alone, of traces prepared by ``fit_trace``.
- ``fit_known([ServedTrace(trace=…, config=…), …])`` fits one set of physics' coefficients to traces of several servers.
- ``write_report(calibration, folder)`` writes report.json, report.md and report.html.
- ``compare_files(a, b)`` is ``vtwin compare``; ``fit_guided``, ``fit_host`` and ``score_models`` are the subcommands of
  ``vtwin calibrate``, ``train_step_tables`` is ``vtwin predictor train``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from calibrate.calibration_run import calibrate as calibrate_twin
    from calibrate.calibration_run import compare_with_simulated, compare_with_twin
    from calibrate.command import read_traces
    from calibrate.commands.question import ModelScores, score_models
    from calibrate.compare.metric_errors import Bootstrap, MetricErrors
    from calibrate.compare.metric_errors import compare as compare_pairs
    from calibrate.compare.pair import Pairs
    from calibrate.compare.pair import pair as pair_traces
    from calibrate.findings import Calibration, NamedTrace, Options
    from calibrate.fit.known_models import ServedTrace, fit_known
    from calibrate.fit.objective.fit_trace import fit_trace
    from calibrate.fit.paired_runs import fit_guided, fit_host
    from calibrate.fit.pipeline import fit as fit_twin
    from calibrate.fit.result import Fit
    from calibrate.fit.uncertainty import Coefficient
    from calibrate.predictor.build import train as train_step_tables
    from calibrate.predictor.measured import ProfileQuery
    from calibrate.report.report_folder import write_report
    from calibrate.runs.question import ComparedRuns, compare_files
    from calibrate.written.save import defaults_entry, write_config, write_defaults
    from traces.statistics.bootstrap import Estimate

__all__ = [
    "Bootstrap",
    "Calibration",
    "Coefficient",
    "ComparedRuns",
    "Estimate",
    "Fit",
    "MetricErrors",
    "ModelScores",
    "NamedTrace",
    "Options",
    "Pairs",
    "ProfileQuery",
    "ServedTrace",
    "calibrate_twin",
    "compare_files",
    "compare_pairs",
    "compare_with_simulated",
    "compare_with_twin",
    "defaults_entry",
    "fit_guided",
    "fit_host",
    "fit_known",
    "fit_trace",
    "fit_twin",
    "pair_traces",
    "read_traces",
    "score_models",
    "train_step_tables",
    "write_config",
    "write_defaults",
    "write_report",
]

_HOMES = {
    "ProfileQuery": ("calibrate.predictor.measured", "ProfileQuery"),
    "train_step_tables": ("calibrate.predictor.build", "train"),
    "read_traces": ("calibrate.command", "read_traces"),
    "score_models": ("calibrate.commands.question", "score_models"),
    "ModelScores": ("calibrate.commands.question", "ModelScores"),
    "fit_host": ("calibrate.fit.paired_runs", "fit_host"),
    "fit_guided": ("calibrate.fit.paired_runs", "fit_guided"),
    "compare_files": ("calibrate.runs.question", "compare_files"),
    "ComparedRuns": ("calibrate.runs.question", "ComparedRuns"),
    "Bootstrap": ("calibrate.compare.metric_errors", "Bootstrap"),
    "Calibration": ("calibrate.findings", "Calibration"),
    "Coefficient": ("calibrate.fit.uncertainty", "Coefficient"),
    "Estimate": ("traces.statistics.bootstrap", "Estimate"),
    "Fit": ("calibrate.fit.result", "Fit"),
    "MetricErrors": ("calibrate.compare.metric_errors", "MetricErrors"),
    "Options": ("calibrate.findings", "Options"),
    "Pairs": ("calibrate.compare.pair", "Pairs"),
    "ServedTrace": ("calibrate.fit.known_models", "ServedTrace"),
    "NamedTrace": ("calibrate.findings", "NamedTrace"),
    "calibrate_twin": ("calibrate.calibration_run", "calibrate"),
    "compare_pairs": ("calibrate.compare.metric_errors", "compare"),
    "compare_with_simulated": ("calibrate.calibration_run", "compare_with_simulated"),
    "compare_with_twin": ("calibrate.calibration_run", "compare_with_twin"),
    "defaults_entry": ("calibrate.written.save", "defaults_entry"),
    "fit_known": ("calibrate.fit.known_models", "fit_known"),
    "fit_trace": ("calibrate.fit.objective.fit_trace", "fit_trace"),
    "fit_twin": ("calibrate.fit.pipeline", "fit"),
    "pair_traces": ("calibrate.compare.pair", "pair"),
    "write_config": ("calibrate.written.save", "write_config"),
    "write_defaults": ("calibrate.written.save", "write_defaults"),
    "write_report": ("calibrate.report.report_folder", "write_report"),
}


def __getattr__(name: str) -> object:
    """Import a public name from its module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'calibrate' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name][0]), _HOMES[name][1])
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return what this room offers, for whoever looks around in a shell."""
    return sorted(__all__)
