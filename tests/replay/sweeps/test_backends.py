"""A scheduler that is not there, a process that is killed: one line, and the other runs have their results."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from replay.sweeps import backends
from replay.sweeps.grid import SweepRun
from replay.sweeps.one_run import Row
from traces import ConfigError


def closed_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def nothing_to_ask(**_: object) -> None:
    raise AssertionError("the library was asked")


@pytest.mark.parametrize("backend", ["dask", "ray"])
@pytest.mark.parametrize("scheme", ["", "tcp://", "ray://"])
def test_a_scheduler_that_does_not_answer_is_one_line(
    backend: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = SimpleNamespace(Client=nothing_to_ask, init=nothing_to_ask)
    monkeypatch.setattr(backends, "cluster_library", lambda *_, **__: library)
    address = f"{scheme}127.0.0.1:{closed_port()}"
    with pytest.raises(ConfigError, match=f"--address: got '{address}', expected a scheduler that answers"):
        list(backends.rows_of([], backend=backend, jobs=1, address=address))  # type: ignore[arg-type] # both are one


@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_what_a_library_cannot_begin_with_is_one_line(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise RuntimeError("no such place\n" + "x" * 500)

    monkeypatch.setattr(backends, "cluster_library", lambda *_, **__: SimpleNamespace(Client=fail, init=fail))
    with pytest.raises(
        ConfigError, match="--address: got 'auto', expected a scheduler that answers"
    ) as error:
        list(backends.rows_of([], backend=backend, jobs=1, address="auto"))  # type: ignore[arg-type] # both are one
    assert len(str(error.value)) < 200


def killed(run: SweepRun) -> Row:
    """Stand for a simulation in a process that is killed: always, or as long as a file is not there."""
    if run.workload == "always" or not Path(run.config).exists():
        Path(run.config).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"run": run.digest, "error": None}


def test_a_run_whose_process_is_killed_is_tried_again_and_costs_the_others_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(workload: str, config: Path) -> SweepRun:
        return SweepRun(
            config_name="",
            config=str(config),
            settings=(),
            workload=workload,
            load=(),
            seed=1,
            slo=None,
            warmup_frac=None,
            gpu_prices=(),
            config_digest="",
            digest=workload,
        )

    monkeypatch.setattr(backends, "row_of", killed)
    asked = [
        run("always", tmp_path),
        run("once", tmp_path / "once"),
        run("fine", tmp_path),
        run("well", tmp_path),
    ]
    rows = {str(row["run"]): row["error"] for row in backends.rows_of(asked, backend="processes", jobs=2)}
    assert rows == {"always": backends.KILLED, "once": None, "fine": None, "well": None}
