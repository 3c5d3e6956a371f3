"""How much a server's pace differs from run to run: measured by repeats, shown by runs, or stated."""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from calibrate.compare.pair import Pairs
from calibrate.run_to_run.normal_quantiles import half_width

if TYPE_CHECKING:
    from traces import RunSpread, Trace

PACE = "tpot_us.mean"
"""The figure that is the server's pace."""

STATED = 0.005
"""A server's pace differs by this much from one run of the same requests to the next (90 %, one H100)."""
STATED_COUNTS = 4
"""The stated pace has the weight of this many repeated runs: a single one shows little of a spread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunToRun:
    """The fraction around its usual pace that contains nine of ten runs of a server.

    ``num_repeats``: the runs from which ``bound`` was measured; 0: it is stated, not measured.
    """

    bound: float = STATED
    num_repeats: int = 0

    @property
    def deviation(self) -> float:
        """The standard deviation of a run's log pace."""
        return self.bound / half_width()

    def text(self) -> str:
        """Return it as a sentence of a report."""
        if self.num_repeats == 0:
            origin = "stated, not measured; repeat a run to measure it (--repeat)"
        else:
            runs = "run" if self.num_repeats == 1 else "runs"
            origin = f"from {self.num_repeats} repeated {runs} and the stated {STATED:.1%}"
        return f"intervals have the server's pace from run to run in them: {self.bound:.2%} either way ({origin})"


def recorded_spreads(traces: Sequence[Trace]) -> list[RunSpread]:
    """Return what `observe --repeat` wrote into the traces' headers, each load's once."""
    found = [trace.header.noise_floor for trace in traces]
    return [each for place, each in enumerate(found) if each is not None and each not in found[:place]]


def run_to_run(couples: Sequence[Pairs], *, stated: RunToRun, recorded: Sequence[RunSpread] = ()) -> RunToRun:
    """Return the pace from runs that repeat another one: each the two runs' requests side by side; else as ``stated``.

    ``recorded``: the spreads that headers have, each worth one run less than it was measured over.
    Two runs' log paces differ by the square root of 2 times one run's deviation. The measured value is shrunk towards
    the stated one, as a scaled inverse chi-squared prior of ``STATED_COUNTS`` degrees of freedom does (Gelman et al.,
    Bayesian Data Analysis, 3rd ed., section 2.6). A run whose answers have one token has no pace.
    """
    known = [(each**2 / 2, 1) for each in map(_difference, couples) if each is not None]
    for each in recorded:
        if PACE in each.spread:
            known.append(((each.num_runs - 1) * each.spread[PACE] ** 2, each.num_runs - 1))
    number = sum(worth for _, worth in known)
    if number < 1:
        return stated
    seen = sum(square for square, _ in known)
    variance = (STATED_COUNTS * stated.deviation**2 + seen) / (STATED_COUNTS + number)
    return RunToRun(bound=float(half_width() * np.sqrt(variance)), num_repeats=number)


def _difference(pairs: Pairs) -> float | None:
    """Return the log ratio of the two runs' mean time per token; None where either has none."""
    one, other = (side["tpot_us"].to_numpy(float) for side in (pairs.observed, pairs.simulated))
    known = np.isfinite(one) & np.isfinite(other)
    if not known.any() or min(one[known].mean(), other[known].mean()) <= 0:
        return None
    return float(np.log(other[known].mean() / one[known].mean()))
