"""A candidate on a real server: start it with the flags, send the simulated requests, compare, and stop it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from lazy_dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from replay.search.evaluation import SETTLING
from replay.tuning.candidates import Candidate
from replay.tuning.flags import flags_of
from traces import (
    MOST_FAILED,
    ConfigError,
    ExitCode,
    RunLimit,
    ServerError,
    cut,
    make_folder,
    read_trace,
    request_metrics,
    select_rows,
    write_text,
    write_trace,
)
from traces.console.process import ONE_THREAD
from traces.strict.escape import terminal
from traces.strict.secrets import Secrets, command_secrets, key_of, redact_command
from traces.strict.tell import tell

if TYPE_CHECKING:
    from traces import Trace

LEAST_REQUESTS = 50
"""Fewer requests give no 99th percentile."""
POLL_S = 0.5
GRACE_S = 30.0
"""A server that has been asked to end and has not after this long is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """Where and how to try. ``command``: the words that start a server, without the flags that are tried.

    ``duration_s``: how long each load lasts; ``start_timeout_s``: how long a server may take until ``/health`` answers.
    """

    url: str
    command: tuple[str, ...]
    folder: Path
    duration_s: float
    start_timeout_s: float
    arguments: tuple[str, ...] = ()

    @property
    def secrets(self) -> Secrets:
        """The secrets in the server's command line and in the environment, which must not be shown."""
        return command_secrets(self.command, os.environ)


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """A live server's result at a candidate's rate: each limit's value, µs, and the share of failed requests."""

    rate_per_s: float
    num_requests: int
    values_us: Mapping[str, float]
    failed_frac: float
    stem: Path

    def meets(self, limits: Sequence[RunLimit]) -> bool:
        """Say whether every limit is met."""
        kept = all(self.values_us[each.name] <= each.limit_us for each in limits)
        return kept and self.failed_frac <= MOST_FAILED


def confirm(
    candidate: Candidate,
    trace: Trace,
    rate_per_s: float,
    limits: Sequence[RunLimit],
    *,
    live: Live,
    name: str,
) -> Confirmation:
    """Start a candidate's server, send it the requests at a rate, and return its result. Raises ServerError."""
    make_folder(live.folder, option="--output")
    load = at_rate(trace, rate_per_s, duration_s=live.duration_s)
    requests, stem = live.folder / f"{name}.requests", live.folder / name
    write_trace(load, requests)
    with _server([*live.command, *flags_of(candidate.settings)], live=live, log=live.folder / f"{name}.log"):
        _observe(
            [
                "--url",
                live.url,
                "--trace",
                str(requests),
                "--output",
                str(stem),
                "--overwrite",
                *live.arguments,
            ],
            key=key_of(live.command),
        )
    return judged(read_trace(stem), rate_per_s, limits, stem=stem)


def at_rate(trace: Trace, rate_per_s: float, *, duration_s: float) -> Trace:
    """Return the first requests of a trace, as many as arrive in ``duration_s`` at a rate."""
    number = min(len(trace), max(LEAST_REQUESTS, round(rate_per_s * duration_s)))
    arrival = trace.column("arrival_time_us").to_numpy(dtype=np.float64)
    kept = select_rows(trace, _ranks(arrival) < number)
    times = kept.column("arrival_time_us").to_numpy(dtype=np.float64)
    span_us = float(np.ptp(times))
    scaled = (times - times.min()) * ((number - 1) / rate_per_s * 1e6 / span_us if span_us > 0 else 0.0)
    return kept.with_columns(arrival_time_us=np.rint(scaled).astype(np.int64))


def judged(observed: Trace, rate_per_s: float, limits: Sequence[RunLimit], *, stem: Path) -> Confirmation:
    """Return the figures of an observed run; as in a simulation, the first tenth of the requests is not measured."""
    arrival = observed.column("arrival_time_us").to_numpy(dtype=np.float64)
    measured = select_rows(observed, _ranks(arrival) >= int(SETTLING * len(arrival)))
    metrics = request_metrics(measured)
    columns = {"ttft": "ttft_us", "tpot": "tpot_us", "e2e": "e2e_us", "itl": "itl_mean_us"}
    ok = (measured.column("status") == "ok").to_numpy(dtype=bool)
    values = {
        each.name: each.of(metrics[columns[each.metric]].to_numpy(dtype=np.float64, na_value=np.nan)[ok])
        for each in limits
    }
    return Confirmation(
        rate_per_s=rate_per_s,
        num_requests=len(measured),
        values_us=values,
        failed_frac=float(1 - ok.mean()) if len(ok) else 1.0,
        stem=stem,
    )


def _ranks(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return each value's place in ascending order, equal ones in their own order."""
    ranks = np.empty(len(values), np.int64)
    ranks[np.argsort(values, kind="stable")] = np.arange(len(values))
    return ranks


def _observe(arguments: Sequence[str], *, key: str | None) -> None:
    """Run ``vtwin observe`` in a process of its own, so that the search does not delay the client.

    The server's API key ``key`` is passed in the environment, so that no list of processes shows it.
    """
    command = [sys.executable, "-m", "vtwin", "observe", *arguments]
    tell("", f"$ {redact_command(['vtwin', *command[3:]], os.environ)}")
    environment = {**os.environ} if key is None else {**os.environ, "OPENAI_API_KEY": key}
    done = subprocess.run(  # noqa: S603 - vtwin itself
        command, check=False, stdout=subprocess.DEVNULL, env=environment
    )
    if done.returncode == ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    if done.returncode not in (0, 1):
        raise ServerError(
            f"vtwin observe: got exit code {done.returncode}, expected 0 (its reason stands above)"
        )


def _users_environment() -> dict[str, str]:
    """Return the environment as the user gave it, without what this process has set for itself."""
    return {name: value for name, value in os.environ.items() if (name, value) != ONE_THREAD}


@contextmanager
def _server(command: Sequence[str], *, live: Live, log: Path) -> Iterator[None]:
    """Start a server, wait until it answers, and always end it with all its processes on leaving."""
    if _answers(live.url):
        raise ConfigError(
            f"--url: got {live.url}, where a server answers already, expected a free address to start one at"
        )
    tell("", f"$ {redact_command(command, os.environ)}")
    with log.open("wb") as out:
        try:
            process = subprocess.Popen(  # noqa: S603 - the user's own command
                command,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=_users_environment(),
            )
        except OSError as error:
            raise ConfigError(
                f"--serve: got {command[0]}, expected a command that starts a server ({error.strerror})"
            ) from error
        try:
            _wait_for(process, live=live, log=log)
            yield
        finally:
            _end(process)
            _redact_log(log, live.secrets)


def _redact_log(log: Path, secrets: Secrets) -> None:
    """Remove the secrets from the server's log: vLLM logs its arguments, the key among them."""
    said = log.read_text(encoding="utf-8", errors="surrogateescape")
    shown = secrets.redact(said)
    if shown != said:
        write_text(log, shown.encode("utf-8", "replace").decode(), option="--output")


def _wait_for(process: subprocess.Popen[bytes], *, live: Live, log: Path) -> None:
    until = time.monotonic() + live.start_timeout_s
    while time.monotonic() < until:
        if process.poll() is not None:
            raise ServerError(
                f"--serve: the server ended with exit code {process.returncode}{_last_line(log, live.secrets)}"
            )
        if _answers(live.url):
            return
        time.sleep(POLL_S)
    raise ServerError(
        f"--serve: no answer at {live.url}/health within {live.start_timeout_s:g} s{_last_line(log, live.secrets)}"
    )


def _last_line(log: Path, secrets: Secrets) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return f": {terminal(cut(secrets.redact(lines[-1])))} ({log})" if lines else f" ({log})"


def _answers(url: str) -> bool:
    with (
        suppress(urllib.error.URLError, OSError, ValueError),
        urllib.request.urlopen(f"{url}/health", timeout=2) as answer,  # noqa: S310 - checked: http or https
    ):
        return bool(answer.status == 200)
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a server and its child processes: by SIGTERM first, then killed."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
