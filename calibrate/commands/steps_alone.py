"""``vtwin calibrate --steps FILE`` without a trace: the steps fitted, shown and written; the way in stays as it is."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from calibrate import number_format
from traces import ConfigError, ServerInfo, check_place, make_folder, write_text
from traces.strict.tell import say_text, tell

if TYPE_CHECKING:
    from calibrate.commands.options import CalibrateOptions
    from calibrate.steps.step_fit import StepFit
    from calibrate.steps.step_logs import StepLogs
    from replay import TwinConfig

WITHOUT_TRACE = (
    "alpha0 to alpha3 stay as configured: steps do not show the way into the engine; a trace beside them does"
)


def fit_steps_alone(asked: CalibrateOptions) -> StepFit:
    """Fit the steps of a twin to a server's log of them, print the coefficients, and write what was asked for."""
    from calibrate.command import StepLogPaths
    from calibrate.fit.objective.known_server import known_server
    from calibrate.fit.objective.priors import known_priors
    from calibrate.steps.fitted_to_steps import steps_of
    from replay import load_config

    config, server = _checked(asked), asked.server
    twin = load_config(config, allows_cluster=False)
    for note in twin.notes:
        tell(f"note: {note}")
    logs = StepLogPaths(asked=asked.twin.steps or []).read(twin)
    known = known_server(ServerInfo(), twin, model_config=server.model_config, gpu=server.gpu, tp=server.tp)
    found = steps_of(logs, twin, priors=known_priors(known), seed=asked.result.seed)
    document = document_of(found, logs)
    text = json.dumps(document, indent=2, allow_nan=False)
    if (folder := asked.traces.report) is not None:
        make_folder(folder, option="--report")
        write_text(folder / "steps.json", text + "\n", option="--report")
    say_text(text if asked.result.as_json else table_of(found))
    tell(WITHOUT_TRACE)
    if asked.write.write_config is not None:
        _write(asked.write.write_config, replace(twin, latency=found.model), found, logs)
    return found


def _checked(asked: CalibrateOptions) -> Path:
    """Return the twin's file. Raises ConfigError on options that need a trace, and on places that cannot be written."""
    needing = {
        "--simulated": asked.simulated,
        "--holdout": asked.twin.holdout,
        "--repeat": asked.twin.repeat,
        "--thresholds": asked.gate.thresholds,
        "--write-defaults": asked.write.write_defaults,
    }
    for option, given in needing.items():
        if given:
            raise ConfigError(f"{option}: got no trace, expected one beside --steps")
    if asked.twin.config is None:
        raise ConfigError(
            "--config: got none, expected the twin whose steps to fit: steps do not say a server's flags"
        )
    check_place(asked.traces.report, option="--report")
    check_place(asked.write.write_config, option="--write-config")
    return asked.twin.config


def document_of(found: StepFit, logs: StepLogs) -> dict[str, object]:
    """Return the fit for machines; times in µs, errors as fractions."""
    return {
        "schema_version": 1,
        "files": list(logs.names),
        "num_steps": found.num_steps,
        "num_known_times": found.num_known,
        "coefficients": {
            each.name: {
                "value": each.value,
                "low": each.low,
                "high": each.high,
                "identifiable": each.identifiable,
                "reason": each.reason,
            }
            for each in found.coefficients
        },
        "errors": {
            "decode": {"time": found.decode_off, "mape": found.decode_mape},
            "prefill": {"time": found.prefill_off, "mape": found.prefill_mape},
        },
        "converged": found.converged,
        "seconds": round(found.seconds, 3),
        "notes": list(logs.remarks),
    }


def table_of(found: StepFit) -> str:
    """Return the fit as lines for a terminal."""
    from calibrate.fit.objective.coefficients import UNITS

    lines = [
        f"{found.num_steps:,} steps fitted in {found.seconds:.1f} s. All their time together: steps that only decode "
        f"{number_format.percent(found.decode_off, signed=True)}, steps with prompts "
        f"{number_format.percent(found.prefill_off, signed=True)}; a single one is off by "
        f"{number_format.percent(found.decode_mape)} and {number_format.percent(found.prefill_mape)}"
    ]
    for each in found.coefficients:
        value, low, high = (number_format.coefficient(part) for part in (each.value, each.low, each.high))
        why = "" if each.identifiable else f"  not determined: {each.reason}"
        lines.append(f"{each.name:<10}{value:>12}  ({low} to {high}) {UNITS[each.name]}{why}")
    return "\n".join(lines)


def _write(path: Path, twin: TwinConfig, found: StepFit, logs: StepLogs) -> None:
    from replay import dump_config

    head = [
        f"# Steps fitted by vtwin calibrate --steps on {datetime.now(UTC).date()}, {found.num_steps:,} steps of:",
        *(f"#   {name}" for name in logs.names),
        f"# {WITHOUT_TRACE}",
    ]
    write_text(path, "\n".join(head) + "\n" + dump_config(twin), option="--write-config")
    tell(f"twin: {path}")
