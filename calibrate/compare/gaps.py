"""Inter-token gaps of many requests in three columns, so that a bootstrap can redraw requests with all their gaps."""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from traces import Trace

Basis = Literal["events", "request means"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """Gap ``gap_us[i]`` (µs, float64) occurs ``weight[i]`` times in the request in row ``request[i]``.

    ``basis``: "events", every gap as it was; "request means", a request's mean gap as often as it had gaps.
    """

    request: NDArray[np.int64]
    gap_us: NDArray[np.float64]
    weight: NDArray[np.float64]
    basis: Basis

    def take(self, rows: NDArray[np.intp], *, num_requests: int) -> Gaps:
        """Return the gaps of the requests in these rows, renumbered in the order of ``rows``."""
        place = np.full(num_requests, -1, dtype=np.int64)
        place[rows] = np.arange(len(rows))
        request = place[self.request]
        kept = request >= 0
        return Gaps(
            request=request[kept], gap_us=self.gap_us[kept], weight=self.weight[kept], basis=self.basis
        )

    def means(self, num_requests: int) -> Gaps:
        """Return the same requests with every gap replaced by its request's mean."""
        total = np.bincount(self.request, self.gap_us * self.weight, minlength=num_requests)
        count = np.bincount(self.request, self.weight, minlength=num_requests).astype(np.float64)
        rows = np.flatnonzero(count > 0)
        return Gaps(request=rows, gap_us=total[rows] / count[rows], weight=count[rows], basis="request means")

    @staticmethod
    def join(parts: Sequence[Gaps], *, offsets: NDArray[np.int64]) -> Gaps:
        """Return the gaps of several traces, those of part i numbered from ``offsets[i]``."""
        basis: Basis = "events" if all(part.basis == "events" for part in parts) else "request means"
        if basis == "request means":
            sizes = np.diff(offsets)
            parts = [part.means(int(size)) for part, size in zip(parts, sizes, strict=True)]
        return Gaps(
            request=np.concatenate(
                [part.request + start for part, start in zip(parts, offsets, strict=False)]
            ),
            gap_us=np.concatenate([part.gap_us for part in parts]),
            weight=np.concatenate([part.weight for part in parts]),
            basis=basis,
        )


def one_basis(left: Gaps, right: Gaps) -> tuple[Gaps, Gaps]:
    """Return both sides' gaps on their common basis: a mean hides the tail that single gaps show."""
    if left.basis == right.basis:
        return left, right
    num_requests = 1 + max(
        (int(gaps.request.max()) for gaps in (left, right) if len(gaps.request)), default=0
    )
    return left.means(num_requests), right.means(num_requests)


def gaps_of(trace: Trace) -> Gaps:
    """Return a trace's gaps: from its events where it has them, else from each request's mean."""
    from traces import token_gaps

    if trace.events is None or len(trace.events) == 0:
        return _from_means(trace)
    gaps = token_gaps(trace)
    return Gaps(
        request=gaps.request, gap_us=gaps.gap_us, weight=gaps.num_tokens.astype(np.float64), basis="events"
    )


def _from_means(trace: Trace) -> Gaps:
    """Return each request's mean gap, as often as it has gaps."""
    from traces import request_metrics

    mean = request_metrics(trace)["itl_mean_us"].to_numpy(dtype=np.float64)
    count = trace.column("output_tokens").fillna(0).to_numpy(dtype=np.float64) - 1
    rows = np.flatnonzero(np.isfinite(mean) & (count > 0))
    return Gaps(request=rows, gap_us=mean[rows], weight=count[rows], basis="request means")
