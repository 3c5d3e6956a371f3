"""``vtwin calibrate --fit-guided``, ``--fit-host`` and ``--compare-latency``: subcommands now, options for one release.

Each prints its new spelling on stderr, and calls the subcommand.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from calibrate.commands.options import CalibrateOptions, CostOptions
from traces import ConfigError
from traces.strict.tell import tell

if TYPE_CHECKING:
    from calibrate.command import Traces
    from calibrate.findings import Options


def fit_cost(asked: CalibrateOptions) -> None:
    """Fit a cost to a pair of runs. Raises ConfigError on options that request another fit."""
    from calibrate.commands.pair_costs import fit_guided_cost, fit_host_cost

    is_guided = asked.old.fit_guided is not None
    option, name = ("--fit-guided", "guided") if is_guided else ("--fit-host", "host")
    _check_pair(option, asked)
    if (config := asked.twin.config) is None:
        of = "cost" if is_guided else "time"
        raise ConfigError(f"{option}: needs --config, the twin whose engine has the {of}")
    pair = (asked.traces.paths[0], asked.old.fit_guided or asked.old.fit_host or Path())
    _tell_new(option, [name, *map(str, pair), "--config", str(config)])
    of_cost = CostOptions(
        config=config,
        report=asked.traces.folder,
        write_config=asked.write.write_config,
        seed=asked.result.seed,
        as_json=asked.result.as_json,
    )
    (fit_guided_cost if is_guided else fit_host_cost)(pair, of_cost)


def compare_latency(asked: CalibrateOptions, traces: Traces, options: Options) -> None:
    """Compare latency models. Raises ConfigError without a twin."""
    from calibrate.commands.models import compare_models

    names = asked.old.compare_latency or ""
    if (config := asked.twin.config) is None:
        raise ConfigError("--compare-latency: needs --config, the twin whose latency models to compare")
    observed = map(str, asked.traces.paths)
    _tell_new("--compare-latency", ["models", *observed, "--config", str(config), "--models", names])
    compare_models(
        names,
        traces,
        config,
        asked.traces.folder,
        fit=asked.twin.fit,
        options=options,
        as_json=asked.result.as_json,
    )


def check_alone(asked: CalibrateOptions) -> None:
    """Raise ConfigError if an option that needs one twin and one verdict is given with ``--compare-latency``."""
    given = {
        "--thresholds": asked.gate.thresholds,
        "--junit": asked.gate.junit,
        "--baseline": asked.gate.baseline,
        "--latency-model": asked.fitting.latency_model,
        "--write-config": asked.write.write_config,
        "--write-defaults": asked.write.write_defaults,
        "--format": None if asked.form == "vtwin" else asked.form,
    }
    for option, value in given.items():
        if value is not None:
            raise ConfigError(
                f"{option}: cannot be combined with --compare-latency: there are as many twins and reports as models "
                "(choose one with --latency-model)"
            )


def _check_pair(option: str, asked: CalibrateOptions) -> None:
    observed = asked.traces.paths
    others = {"--fit": asked.twin.fit, "--simulated": asked.simulated, "--holdout": asked.twin.holdout}
    given = [name for name, value in others.items() if value]
    if given or len(observed) != 1:
        got = ", ".join(given) or f"{len(observed)} traces"
        raise ConfigError(f"{option}: cannot be combined with {got}, expected one trace and --config alone")


def _tell_new(option: str, words: Sequence[str]) -> None:
    command = shlex.join(["vtwin", "calibrate", *words])
    tell(f"note: {option} is `{command} …` now; the option goes with the next release")
