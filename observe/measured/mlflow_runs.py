"""Runs to MLflow: a server, or a folder that its library writes by itself. The library is an extra."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from observe.measured.logged_run import LoggedRun
from traces import ConfigError, ServerError
from traces.strict.secrets import redact_url

EXPERIMENT: Final = "vtwin"
"""Unless MLFLOW_EXPERIMENT_NAME says another."""
_FEW_TRIES: Final = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "30"}
"""Unless the environment says otherwise: MLflow's own seven retries take minutes to say that there is no server."""


def log_to_mlflow(runs: Sequence[LoggedRun], store: str) -> list[str]:
    """Log each run to ``store``, a folder or a tracking URI, and return the runs' ids.

    A run that breaks off is marked FAILED. Raises ConfigError without the library, ServerError where the store refuses.
    """
    for name, value in _FEW_TRIES.items():
        os.environ.setdefault(name, value)
    try:
        import mlflow
    except ImportError as error:
        raise ConfigError(
            "--mlflow: got no library mlflow, expected the extra: pip install 'vtwin[mlflow]'"
        ) from error
    place = store if ":" in store else Path(store).resolve().as_uri()
    if place.startswith("file:"):
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    try:
        client = mlflow.MlflowClient(tracking_uri=place)
        experiment = _experiment(client, os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT)
        return [_log(client, experiment, run) for run in runs]
    except (mlflow.exceptions.MlflowException, OSError) as fault:
        said = redact_url(" ".join(str(fault).split()))[:300]
        raise ServerError(
            f"--mlflow {redact_url(store)}: got {said}, expected a store that takes runs"
        ) from fault


def _experiment(client: Any, name: str) -> str:  # noqa: ANN401 - the library ships no types
    found = client.get_experiment_by_name(name)
    return str(client.create_experiment(name) if found is None else found.experiment_id)


def _log(client: Any, experiment: str, run: LoggedRun) -> str:  # noqa: ANN401 - the library ships no types
    from mlflow.entities import Metric, Param

    begun = client.create_run(experiment, start_time=run.start_ms, run_name=run.name)
    number: str = begun.info.run_id
    status = "FAILED"
    try:
        client.log_batch(
            number,
            metrics=[
                Metric(name, value, run.start_ms or begun.info.start_time, 0)
                for name, value in run.metrics.items()
            ],
            params=[Param(name, value) for name, value in run.params.items()],
        )
        for file in run.files:
            client.log_artifact(number, str(file))
        status = "FINISHED"
    finally:
        client.set_terminated(number, status=status)
    return number
