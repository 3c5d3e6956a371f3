"""``vtwin calibrate models``: latency models on the same traces, a report each and a table of all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from calibrate.commands.question import score_models
from traces.facts import say_json

if TYPE_CHECKING:
    from calibrate.command import Traces
    from calibrate.findings import Calibration, Options


def compare_models(
    asked: str,
    traces: Traces,
    config: Path,
    report: Path,
    *,
    fit: bool,
    options: Options,
    as_json: bool,
) -> None:
    """Write a report per latency model and a table of all; print the table."""
    from calibrate.command import write_all
    from calibrate.latency_table import models_in
    from calibrate.report.terminal import console_of, print_table
    from traces import write_folder

    def written(model: str, calibration: Calibration) -> None:
        write_all(
            calibration,
            report / model,
            verdict=None,
            config=None,
            defaults=None,
            server=(None, None, None),
            form="vtwin",
        )

    found = score_models(models_in(asked), traces, config, fit=fit, options=options, done=written)
    text = json.dumps(found.document(), indent=2, allow_nan=False) + "\n"
    write_folder(report, {"latency-models.json": text}, option="--report")
    print_table(console_of(stderr=as_json), found.table())
    if as_json:
        say_json(found.document())
