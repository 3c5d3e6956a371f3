"""Where the time of steps goes, operator by operator, by the models that follow from ``PeakTimes``.

``matmul`` and ``weights``, products and what reading the weights adds to them, ``experts`` and ``expert_weights``
likewise, ``vectors`` through memory between them, ``lm_head``, ``prefill_attention``, ``decode_attention``,
``collectives``, ``requests`` (per request of the step), ``overhead`` (per layer and step) and ``cpu``, what of the
scheduling process is not hidden behind the GPU. Parts add up to the step. Where products hide the reading of weights,
their common time √(x² + y² + 2·exposed·x·y) is divided as x·(x + exposed·y) to y·(y + exposed·x), which add up to its
square.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from sim.latency.batch import StepBatch
from sim.latency.peak import PeakTimes
from sim.latency.tabulated import StepTable, looked_up_column

Floats = NDArray[np.float64]
Operators = dict[str, Floats]

COLLECTIVES: Final = (
    "all_reduce",
    "send_recv",
    "all_to_all",
    "num_all_reduces",
    "num_all_to_alls",
    "waiting",
)


class AtPeak(Protocol):
    """A latency model that follows from ``PeakTimes``: a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def peak(self) -> PeakTimes:
        """What each part takes at the GPU's peak."""

    def step_table(self) -> StepTable:
        """Return the model as the engine takes it."""


def operators_at_peak(model: AtPeak, batch: StepBatch) -> Operators:
    """Return what each operator takes of each step [n], float64 µs, without scatter and unrounded."""
    table = model.step_table()
    tokens = batch.num_prefill_tokens + batch.num_decode_tokens
    has_tokens = tokens > 0
    requests = batch.num_decode_tokens.astype(np.float64) + batch.num_prefill_seqs
    products, reading, rest = _columns(model, table)
    x = {name: looked_up_column(column, tokens) for name, column in products.items()}
    x["matmul"] = (
        x["matmul"] + table.prefill * batch.num_prefill_tokens + table.decode * batch.num_decode_tokens
    )
    y = {name: looked_up_column(column, tokens) for name, column in reading.items()}
    parts = _shared(x, y, exposed=table.exposed)
    parts |= {name: looked_up_column(column, tokens) for name, column in rest.items()}
    parts["lm_head"] = np.maximum(table.sample * requests, table.sample_floor)
    parts["prefill_attention"] = table.prefills(batch)
    parts["decode_attention"] = table.decodes(batch)
    parts["requests"] = table.sequence * requests
    if table.stages > 1:
        parts["overhead"] = parts["overhead"] + table.last
    parts["cpu"] = np.maximum(table.durations(batch) - np.sum(list(parts.values()), axis=0), 0.0)
    return {name: np.where(has_tokens, part, 0.0) for name, part in parts.items()}


def _columns(model: AtPeak, table: StepTable) -> tuple[Operators, Operators, Operators]:
    """Return the columns of a model's table, each divided among the operators in it.

    The columns are linear in ``PeakTimes``, so that a part is what goes when its times at the peak are taken away.
    """
    peak = model.peak
    no_experts = replace(peak, expert_matmul=0.0, expert_weights=0.0, experts_tokens=(), experts_us=())
    without_experts = replace(model, peak=no_experts).step_table()
    silent = replace(peak, **dict.fromkeys(COLLECTIVES, 0))  # type: ignore[arg-type]  # numbers all
    without_collectives = replace(model, peak=silent, all_reduce_us=0.0).step_table()
    without_vectors = replace(model, peak=replace(peak, activation=0.0, kv_write=0.0)).step_table()
    collectives = table.rest - without_collectives.rest
    vectors = table.rest - without_vectors.rest
    rest = {"vectors": vectors, "collectives": collectives}
    if peak.experts_us:  # nothing hides behind them
        rest["experts"] = table.rest - without_experts.rest
    rest["overhead"] = table.rest - np.sum(list(rest.values()), axis=0)
    return (
        {"matmul": without_experts.compute, "experts": table.compute - without_experts.compute},
        {"weights": without_experts.reading, "expert_weights": table.reading - without_experts.reading},
        rest,
    )


def _shared(x: Operators, y: Operators, *, exposed: float) -> Operators:
    """Return products and reading, as much of each as their common time has."""
    products, reading = np.sum(list(x.values()), axis=0), np.sum(list(y.values()), axis=0)
    square = products**2 + reading**2 + 2.0 * exposed * products * reading
    both = np.sqrt(square)
    per_product = np.divide(products + exposed * reading, both, out=np.zeros_like(both), where=both > 0)
    per_reading = np.divide(reading + exposed * products, both, out=np.zeros_like(both), where=both > 0)
    return {name: part * per_product for name, part in x.items()} | {
        name: part * per_reading for name, part in y.items()
    }
