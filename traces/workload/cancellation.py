"""Clients that go before their answer is whole: which requests are cut, and after what, drawn before the run.

Nothing heavy is imported: a command's ``--help`` needs the options.
"""

from __future__ import annotations

import math
from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from traces.errors import ConfigError, quoted
from traces.strict.limits import MOST_S, MOST_TOKENS
from traces.strict.option_table import option_table
from traces.units import parse_seconds

if TYPE_CHECKING:
    from traces.trace import Trace

COLUMNS: Final = ("cancel_after_us", "cancel_after_tokens")
_TOKENS: Final = "tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancellation:
    """A ``share`` of the requests is cut after a value drawn evenly from ``low`` to ``high``: µs, or tokens."""

    share: float
    unit: Literal["us", "tokens"]
    low: int
    high: int


@option_table
class CancelOptions:
    """Requests that their client cuts before the answer is whole."""

    cancel_share: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="Cut this share of the requests (10%), drawn by the seed, by closing their connections after "
            "--cancel-after. They are in no latency. 0: none, where a trace has some.",
        ),
    ] = None
    cancel_after: Annotated[
        str | None,
        typer.Option(
            metavar="AFTER",
            help="When to cut, from the sending: a time (2s), a number of tokens (50tokens), or one drawn from a range "
            "(1s:5s, 20:80tokens). An answer that is whole before is not cut.",
        ),
    ] = None

    def asked(self) -> Cancellation | None:
        """Return what is asked for, None where the options are not given. Raises ConfigError on invalid ones."""
        if self.cancel_share is None and self.cancel_after is None:
            return None
        share = None if self.cancel_share is None else _share(self.cancel_share)
        if share == 0 and self.cancel_after is None:
            return Cancellation(share=0.0, unit="us", low=0, high=0)
        if share is None or self.cancel_after is None:
            raise ConfigError("--cancel-share, --cancel-after: got one of them, expected both")
        return _after(self.cancel_after, share)


def _share(text: str) -> float:
    number = text.strip()
    try:
        share = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        share = math.nan
    if not 0 <= share <= 1:
        raise ConfigError(f"--cancel-share: got {quoted(text)}, expected a share from 0 to 100% (10%, 0.1)")
    return share


def _after(text: str, share: float) -> Cancellation:
    """Return the cancellation of ``2s``, ``1s:5s``, ``50tokens`` or ``20:80tokens``."""
    wanted = f"--cancel-after: got {quoted(text)}, expected 2s, 1s:5s, 50tokens or 20:80tokens"
    by_tokens = text.strip().endswith(_TOKENS)
    ends = [end.strip().removesuffix(_TOKENS).strip() for end in text.split(":")]
    if len(ends) > 2:
        raise ConfigError(wanted)
    try:
        values = [int(end) if by_tokens else round(parse_seconds(end) * 1e6) for end in ends]
    except (ValueError, OverflowError, typer.BadParameter, ConfigError) as fault:
        raise ConfigError(wanted) from fault
    low, high, most = values[0], values[-1], MOST_TOKENS if by_tokens else int(MOST_S * 1e6)
    if not 1 <= low <= high <= most:
        raise ConfigError(f"{wanted}: above 0, the smaller end first")
    return Cancellation(share=share, unit="tokens" if by_tokens else "us", low=low, high=high)


def with_cancellations(trace: Trace, asked: Cancellation | None, *, seed: int) -> Trace:
    """Return ``trace`` with ``asked`` in place of its own cancellations; None: as it is.

    Whether request i is cut, and after what, is a function of seed and i.
    """
    if asked is None:
        return trace
    import numpy as np

    from traces.tables.cells import cells_where
    from traces.workload.draw import uniforms

    drawn = uniforms(seed, "cancellation", n=len(trace), each=2)
    is_cut = drawn[:, 0] < asked.share
    trace = trace.without_columns(*COLUMNS)
    if not is_cut.any():
        return trace
    after = np.minimum(asked.low + drawn[:, 1] * (asked.high - asked.low + 1), asked.high).astype(np.int64)
    return trace.with_columns(**{f"cancel_after_{asked.unit}": cells_where(after, is_cut)})
