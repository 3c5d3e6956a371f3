"""A server's own steps as columns, read from any of the forms in which servers write them."""

from __future__ import annotations

import io
from lazy_dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from traces.errors import TraceError
from traces.steps.forward_passes import forward_pass_columns
from traces.steps.vllm_log import EngineStep, parse_engine_log
from traces.strict.json_text import read_bytes
from traces.strict.limits import MOST_US

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

NEEDED: Final = ("num_prefill_tokens", "num_decode_tokens", "duration_us")
"""The columns of ``.steps.csv`` that every reader needs."""
AVERAGES: Final = "Avg prompt throughput"
"""What vLLM's usual log says every ten seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedSteps:
    """Steps as columns [n] in the order of the file, float64; NaN, or no column, where it does not say.

    ``engine``: a number for each engine. ``number``: its own count of steps. Requests and tokens that it prefilled and
    decoded. ``prefill_cached``: KV entries that its prompts had before it, ``decode_context``: those that its decodes
    read. ``prompt_variance``: of its prompts' lengths. ``duration_us``: how long it took; where not ``is_whole``, how
    long the engine waited for its result, which is less on a GPU. ``end_us``: when it was done, µs since 1970.
    """

    engine: Floats
    number: Floats
    prefill_requests: Floats
    prefill_tokens: Floats
    decode_requests: Floats
    decode_tokens: Floats
    duration_us: Floats
    end_us: Floats
    prefill_cached: Floats | None = None
    decode_context: Floats | None = None
    prompt_variance: Floats | None = None
    is_whole: bool = False

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self.engine)

    @property
    def has_ends(self) -> bool:
        """Whether the end of every step is known."""
        return bool(np.isfinite(self.end_us).all())


def read_logged_steps(path: Path) -> LoggedSteps:
    """Return the steps in a file: ``.steps.csv``, a log of vLLM's, or Dynamo's forward-pass metrics (JSON lines).

    Raises TraceError, one line, for a file that cannot be read, or has no steps.
    """
    content = read_bytes(path, expected="a file of a server's steps")
    start = content.lstrip()[:4096]
    if start.startswith(b"{"):
        return LoggedSteps(**forward_pass_columns(content, name=path.name), is_whole=True)
    if path.suffix == ".csv":
        return _of_table(content, name=path.name)
    return _of_log(content.decode("utf-8", "replace"), path=path)


def _of_log(text: str, *, path: Path) -> LoggedSteps:
    rows = parse_engine_log(text.splitlines())
    if not rows:
        got = "only averages over seconds (Avg prompt throughput)" if AVERAGES in text else "no engine steps"
        raise TraceError(
            f"{path.name}: got {got}, expected a line for each step (vllm: --enable-logging-iteration-details) ({path})"
        )
    return _of_rows(rows)


def _of_rows(rows: list[EngineStep]) -> LoggedSteps:
    def column(name: str) -> Floats:
        return np.array([_known(getattr(row, name)) for row in rows], np.float64)

    return LoggedSteps(
        engine=column("engine"),
        number=column("step"),
        prefill_requests=column("num_prefill_requests"),
        prefill_tokens=column("num_prefill_tokens"),
        decode_requests=column("num_decode_requests"),
        decode_tokens=column("num_decode_tokens"),
        duration_us=column("duration_us"),
        end_us=column("end_unix_us"),
    )


def _known(value: int | None) -> float:
    return float("nan") if value is None else float(value)


def _of_table(content: bytes, *, name: str) -> LoggedSteps:
    """Return the steps of a ``.steps.csv``; columns beyond ``NEEDED`` may be missing."""
    import pandas as pd

    try:
        found = _of_columns(pd.read_csv(io.BytesIO(content)))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise TraceError(f"{name}: got {error}, expected columns {', '.join(NEEDED)}") from error
    if not len(found):
        raise TraceError(f"{name}: got no row, expected one for each step")
    return found


def _of_columns(table: pd.DataFrame) -> LoggedSteps:
    """Return a table's steps. Raises KeyError, TypeError or ValueError."""

    def other(column: str, otherwise: Floats) -> Floats:
        return _numbers(table, column) if column in table else otherwise

    prefill, decode, duration = (_numbers(table, column) for column in NEEDED)
    ends = np.full(len(table), np.nan)
    if "end_unix_us" in table and not table["end_unix_us"].isna().any():
        # Without the engine, the end of the step before is not known.
        ends, _ = _numbers(table, "end_unix_us"), _numbers(table, "engine")
    return LoggedSteps(
        engine=other("engine", np.zeros(len(table))),
        number=other("step", np.arange(len(table), dtype=np.float64)),
        prefill_requests=other("num_prefill_requests", np.minimum(prefill, 1.0)),
        prefill_tokens=prefill,
        decode_requests=other("num_decode_requests", decode),
        decode_tokens=decode,
        duration_us=duration,
        end_us=ends,
    )


def _numbers(table: pd.DataFrame, name: str) -> Floats:
    """Return a column of numbers >= 0. Raises KeyError, TypeError or ValueError."""
    values: Floats = table[name].to_numpy(dtype=np.float64)
    if not np.all((values >= 0) & (values <= MOST_US)):
        raise ValueError(f"{name} that is not in [0, {MOST_US}]")
    return values
