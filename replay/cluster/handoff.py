"""Requests whose prompts other instances computed: how long each part of their time to first token took."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from numpy.typing import NDArray

from replay.numbers.distribution import Distribution, distribution
from sim import Status
from sim.cluster import BYTES_PER_US_OF_ONE_GBPS
from traces.facts import AlignedRows, AnswerPart, Fact, TermRows, four_digits_ms

if TYPE_CHECKING:
    from replay.cluster.simulate import FleetRun
    from sim.cluster import ClusterConfig


class HandoffSummary(TypedDict):
    """Prompts computed by one instance and decoded by another.

    ``num_requests``: such requests; ``num_transfers``: whose KV was moved; ``transferred_bytes``: all of it;
    ``num_cut_off``: transfers of the whole run that the failure of an end cut off, those of lost attempts too;
    ``bandwidth_gb_per_s``: mean over transfers. Of those that finished, the four parts of the time to the first token,
    µs: ``prefill_us`` from the arrival to the prefill instance's answer, ``transfer_wait_us`` until the decode instance
    asks for the KV, ``transfer_us``, and ``join_us`` until the first token is seen. They add up to it.
    """

    decider: str
    num_requests: int
    num_transfers: int
    num_cut_off: int
    transferred_bytes: int
    bandwidth_gb_per_s: float | None
    prefill_us: Distribution
    transfer_wait_us: Distribution
    transfer_us: Distribution
    join_us: Distribution


def summarize_handoff(
    run: FleetRun, cluster: ClusterConfig, counted: NDArray[np.bool_]
) -> HandoffSummary | None:
    """Return what the hand-over from prefill to decode took, over the ``counted`` requests; None without any."""
    split, outcomes, settings = run.result.split, run.result.outcomes, cluster.disaggregation
    if split is None or settings is None:
        return None
    moved = counted & (split.transfer_end_us >= 0)
    done = moved & (outcomes.status == Status.OK)
    chain = (
        outcomes.arrival_us,
        split.prefilled_us,
        split.transfer_start_us,
        split.transfer_end_us,
        outcomes.first_token_us,
    )
    parts = [distribution((later - earlier)[done].astype(np.float64)) for earlier, later in pairwise(chain)]
    block_bytes = (settings.kv_bytes_per_token or 0) * cluster.pools[0].engine.block_size
    num_bytes = split.transfer_blocks[moved] * block_bytes
    lasted_us = np.maximum((split.transfer_end_us - split.transfer_start_us)[moved], 1)
    rates = num_bytes / lasted_us / BYTES_PER_US_OF_ONE_GBPS
    return HandoffSummary(
        decider=settings.decider,
        num_requests=int((counted & (split.prefill_instance >= 0)).sum()),
        num_transfers=int(moved.sum()),
        num_cut_off=split.num_cut_off,
        transferred_bytes=int(num_bytes.sum()),
        bandwidth_gb_per_s=float(rates.mean()) if len(rates) else None,
        prefill_us=parts[0],
        transfer_wait_us=parts[1],
        transfer_us=parts[2],
        join_us=parts[3],
    )


def handoff_parts(summary: HandoffSummary | None) -> list[AnswerPart]:
    """Return what people read: how many were handed over, and the parts of their first token."""
    if summary is None:
        return []
    parts = {
        "prefill": summary["prefill_us"],
        "wait for blocks": summary["transfer_wait_us"],
        "transfer": summary["transfer_us"],
        "join and decode": summary["join_us"],
    }
    moved = f"{summary['transferred_bytes'] / 1e9:,.2f} GB of KV moved"
    rows = [["of TTFT, ms", "mean", "p50", "p99"]]
    for name, part in parts.items():
        figures = [Fact("", name, each, four_digits_ms) for each in (part["mean"], part["p50"], part["p99"])]
        rows.append([name, *(each.text for each in figures)])
    prompts = f"{summary['num_requests']:,} prompts computed elsewhere, {moved}"
    return ["", TermRows([("prefill", prompts)]), AlignedRows(rows, [-18, 12, 12, 12])]
