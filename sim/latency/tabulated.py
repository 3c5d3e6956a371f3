"""Steps by table: what depends on the number of tokens is looked up, attention is added, in a few operations.

Roofline and physics are converted to this form once, before the engine starts; so can any other model that is too slow
to evaluate at every step.
"""

from __future__ import annotations

import math
from lazy_dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.jit.compile import part, phase
from sim.latency.batch import StepBatch, StepSums

Floats = NDArray[np.float64]

PREFILL, DECODE, EXPOSED, SAMPLE, SAMPLE_FLOOR, SEQUENCE, CPU_STEP, CPU_SEQUENCE, CPU_EXPOSED = range(9)
SIGMA, SEED, BATCHING, PAIR, PAIR_WINDOWED, KEYS, KEYS_WINDOWED, ENTRY, ENTRY_WINDOWED = range(9, 18)
WINDOW, LENGTH, STAGES, LAST, RECURRENCE, CHAIN, STATE, SHARED, EXCHANGE, CAPTURED = range(18, 28)
"""Where the numbers stand in ``State.terms``; SIGMA and SEED where Extended has them, too."""

NAMES = (
    *("prefill", "decode", "exposed", "sample", "sample_floor", "sequence", "cpu_step", "cpu_sequence"),
    *("cpu_exposed", "sigma", "seed", "batching", "pair", "pair_windowed", "keys", "keys_windowed", "entry"),
    *("entry_windowed", "window", "length", "stages", "last", "recurrence", "chain", "state", "shared"),
    *("exchange", "captured"),
)
"""What they are called, in this order."""
PLACES = {place: name for place, name in enumerate(NAMES) if place not in (SIGMA, SEED, LENGTH, SHARED)}
"""Those that are numbers of a ``StepTable``."""

TABLE = 28
"""Where the table begins: compute, reading and rest of 0 tokens, of 1 token, …; behind it, where ranks share experts,
SHARED says where their part of compute is."""

COMPUTE, READING, REST, COLUMNS = 0, 1, 2, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTable:
    """A latency model as the engine takes it; all in µs.

    A step of T = P + D tokens and S = D + Q requests, with P, D, C, A, Q and K as in ``StepBatch``, takes the GPU

        √(x² + y² + 2·exposed·x·y) + rest[T] + max(sample·S, sample_floor) + sequence·S + prefills + decodes

    with x = compute[T] + prefill·P + decode·D and y = reading[T]: products hide the reading of the weights as a
    triangle's sides hide each other; with ``exposed`` 1 nothing is hidden and they add up. ``prefills``: pair·A or, if
    that is longer, keys·K for the K KV entries that they read; ``decodes``: entry·C. The same again for layers with a
    window, that see at most ``window`` keys per query. Both take 1 + ``batching`` times as long where they have
    company. Layers that keep a state: max(recurrence·P, chain·L) + state·Q for prefills, a prompt's chunks being
    computed one behind the other, and state·D for decodes. L = min(P - Q + 1, √(2·A - P)): no prompt of the step has
    more tokens, and one alone has as many. The CPU takes cpu_step + cpu_sequence·S; the step lasts as long as the
    longer of GPU and CPU and the share ``cpu_exposed`` of the shorter. Beyond the table's end straight lines go on.

    Data-parallel ranks in step share experts. For a rank alone T is what each of them has; among ranks of which one has
    more tokens than CUDA graphs were captured for, ``captured``, the experts compute and read E, the mean of all ranks'
    tokens: shared[T] of compute[T] becomes shared[E], reading[T] reading[E], and exchange·(E - T) is added to rest[T].
    With fewer tokens every rank is padded to as many as the fullest has (vllm 0.32.0 v1/worker/dp_utils.py).

    With ``stages`` pipeline stages that is a batch's time through all of them: max(sample·S, sample_floor) +
    sequence·S + ``last`` is the last one's alone, the rest of the GPU's time is divided evenly, and each stage has the
    CPU's time.
    """

    compute: Floats
    reading: Floats
    rest: Floats
    prefill: float = 0.0
    decode: float = 0.0
    exposed: float = 0.0
    sample: float = 0.0
    sample_floor: float = 0.0
    sequence: float = 0.0
    cpu_step: float = 0.0
    cpu_sequence: float = 0.0
    cpu_exposed: float = 0.0
    batching: float = 0.0
    pair: float = 0.0
    pair_windowed: float = 0.0
    keys: float = 0.0
    keys_windowed: float = 0.0
    entry: float = 0.0
    entry_windowed: float = 0.0
    window: int = 0
    stages: int = 1
    last: float = 0.0
    recurrence: float = 0.0
    chain: float = 0.0
    state: float = 0.0
    shared: Floats | None = None
    exchange: float = 0.0
    captured: int = 0

    def terms(self, *, sigma: float = 0.0, seed: int = 0) -> Floats:
        """Return it as ``State.terms``."""
        head = np.zeros(TABLE, np.float64)
        for place, name in PLACES.items():
            head[place] = getattr(self, name)
        head[SIGMA], head[SEED], head[LENGTH] = sigma, seed, len(self.rest)
        columns = np.stack([self.compute, self.reading, self.rest], axis=1).ravel()
        if self.shared is None:
            return np.concatenate([head, columns])
        head[SHARED] = TABLE + len(columns)
        return np.concatenate([head, columns, self.shared])

    def durations(self, batch: StepBatch, *, expert_tokens: NDArray[np.int64] | None = None) -> Floats:
        """Return what steps take, float64 µs, by the formula above in numpy.

        ``expert_tokens``: E of each step, int64 [n], where ranks differ.
        """
        p, d = batch.num_prefill_tokens.astype(np.float64), batch.num_decode_tokens.astype(np.float64)
        requests = d + batch.num_prefill_seqs
        tokens = batch.num_prefill_tokens + batch.num_decode_tokens
        x = looked_up_column(self.compute, tokens) + self.prefill * p + self.decode * d
        y, rest = looked_up_column(self.reading, tokens), looked_up_column(self.rest, tokens)
        if expert_tokens is not None and self.shared is not None:
            x += looked_up_column(self.shared, expert_tokens) - looked_up_column(self.shared, tokens)
            y = looked_up_column(self.reading, expert_tokens)
            rest = rest + self.exchange * (expert_tokens - tokens)
        dense = np.sqrt(x * x + y * y + 2.0 * self.exposed * x * y) + rest
        ends = np.maximum(self.sample * requests, self.sample_floor) + self.sequence * requests
        if self.stages == 1:
            return self._beside_the_cpu(dense + ends + self.prefills(batch) + self.decodes(batch), requests)
        each = (dense + self.prefills(batch) + self.decodes(batch)) / self.stages
        last = self._beside_the_cpu(each + ends + self.last, requests)
        return np.asarray((self.stages - 1.0) * self._beside_the_cpu(each, requests) + last)

    def _beside_the_cpu(self, gpu: Floats, requests: Floats) -> Floats:
        """Return how long steps, or their stages, take that the GPU takes ``gpu`` for."""
        cpu = self.cpu_step + self.cpu_sequence * requests
        return np.asarray(np.maximum(gpu, cpu) + self.cpu_exposed * np.minimum(gpu, cpu))

    def prefills(self, batch: StepBatch) -> Floats:
        """Return what the attention of prefills takes, float64 µs."""
        p, pairs = batch.num_prefill_tokens.astype(np.float64), batch.prefill_pairs.astype(np.float64)
        q, keys = batch.num_prefill_seqs.astype(np.float64), batch.prefill_context_tokens.astype(np.float64)
        full = np.maximum(self.pair * pairs, self.keys * keys)
        seen = np.minimum(pairs, p * self.window)
        read = np.minimum(keys, q * self.window + p)
        windowed = np.maximum(self.pair_windowed * seen, self.keys_windowed * read)
        longest = np.minimum(p - np.maximum(q - 1.0, 0.0), np.sqrt(np.maximum(2.0 * pairs - p, 0.0)))
        chained = np.maximum(self.recurrence * p, self.chain * longest) + self.state * q
        return np.asarray((full + windowed) * (1.0 + self.batching * (q > 1)) + chained)

    def decodes(self, batch: StepBatch) -> Floats:
        """Return what the attention of decodes takes, float64 µs."""
        context, d = (
            batch.decode_context_tokens.astype(np.float64),
            batch.num_decode_tokens.astype(np.float64),
        )
        near = np.minimum(context, d * self.window)
        company = 1.0 + self.batching * (d > 1)
        return np.asarray((self.entry * context + self.entry_windowed * near) * company + self.state * d)


def looked_up_column(column: Floats, tokens: NDArray[np.int64]) -> Floats:
    """Return a column's values for so many tokens; beyond its end a straight line goes on."""
    last = len(column) - 1
    beyond = np.maximum(tokens - last, 0)
    return np.asarray(column[np.minimum(tokens, last)] + beyond * (column[last] - column[last - 1]))


@part
def looked_up(c: Floats, column: int, tokens: int) -> float:
    """Return a column's value for so many tokens; beyond its end a straight line goes on."""
    last = int(c[LENGTH]) - 1
    at = TABLE + COLUMNS * min(tokens, last) + column
    if tokens <= last:
        return c[at]
    return c[at] + (tokens - last) * (c[at] - c[at - COLUMNS])


@part
def prefills_us(c: Floats, sums: StepSums) -> float:
    """Return what the attention of prefills takes."""
    p, _, _, pairs, q, keys = sums
    full = max(c[PAIR] * pairs, c[KEYS] * keys)
    seen = min(float(pairs), p * c[WINDOW])
    read = min(float(keys), q * c[WINDOW] + p)
    windowed = max(c[PAIR_WINDOWED] * seen, c[KEYS_WINDOWED] * read)
    longest = min(p - max(q - 1.0, 0.0), math.sqrt(max(2.0 * pairs - p, 0.0)))
    chained = max(c[RECURRENCE] * p, c[CHAIN] * longest) + c[STATE] * q
    return (full + windowed) * (1.0 + c[BATCHING] * (1.0 if q > 1 else 0.0)) + chained


@part
def beside_the_cpu_us(c: Floats, gpu: float, requests: float) -> float:
    """Return how long a step, or a stage of it, takes that the GPU takes ``gpu`` for."""
    cpu = c[CPU_STEP] + c[CPU_SEQUENCE] * requests
    return max(gpu, cpu) + c[CPU_EXPOSED] * min(gpu, cpu)


@part
def gpu_parts_us(c: Floats, sums: StepSums) -> tuple[float, float, float, float]:
    """Return what the GPU takes for (products and what hangs on tokens, the ends, prefills, decodes)."""
    p, d = sums.num_prefill_tokens, sums.num_decode_tokens
    x = looked_up(c, COMPUTE, p + d) + c[PREFILL] * p + c[DECODE] * d
    y = looked_up(c, READING, p + d)
    dense = math.sqrt(x * x + y * y + 2.0 * c[EXPOSED] * x * y) + looked_up(c, REST, p + d)
    ends, prefills, decodes = parts_of_requests_us(c, sums)
    return dense, ends, prefills, decodes


@part
def parts_of_requests_us(c: Floats, sums: StepSums) -> tuple[float, float, float]:
    """Return what the GPU takes for (the ends, prefills, decodes)."""
    _, d, context, _, q, _ = sums
    requests = float(d + q)
    ends = max(c[SAMPLE] * requests, c[SAMPLE_FLOOR]) + c[SEQUENCE] * requests
    near = min(float(context), d * c[WINDOW])
    company = 1.0 + c[BATCHING] * (1.0 if d > 1 else 0.0)
    decodes = (c[ENTRY] * context + c[ENTRY_WINDOWED] * near) * company + c[STATE] * d
    return ends, prefills_us(c, sums), decodes


@phase
def stages_us(c: Floats, sums: StepSums) -> tuple[float, float]:
    """Return what (every stage but the last, the last) takes of a step."""
    requests = float(sums.num_decode_tokens + sums.num_prefill_seqs)
    dense, ends, prefills, decodes = gpu_parts_us(c, sums)
    each = (dense + prefills + decodes) / c[STAGES]
    return beside_the_cpu_us(c, each, requests), beside_the_cpu_us(c, each + ends + c[LAST], requests)


@phase
def tabulated_us(c: Floats, sums: StepSums) -> float:
    """Return what a step takes: ``StepTable.durations`` of one step, its operations in the same order."""
    if c[STAGES] > 1.0:
        each, last = stages_us(c, sums)
        return (c[STAGES] - 1.0) * each + last
    requests = float(sums.num_decode_tokens + sums.num_prefill_seqs)
    dense, ends, prefills, decodes = gpu_parts_us(c, sums)
    return beside_the_cpu_us(c, dense + ends + prefills + decodes, requests)


@part
def shared_compute(c: Floats, tokens: int) -> float:
    """Return what the products of experts that ranks share take for so many tokens of each rank."""
    last, first = int(c[LENGTH]) - 1, int(c[SHARED])
    at = first + min(tokens, last)
    return c[at] + max(tokens - last, 0) * (c[at] - c[at - 1])


@phase
def among_ranks_us(c: Floats, sums: StepSums, expert_tokens: int) -> float:
    """Return what a step takes a rank whose experts see ``expert_tokens`` of each rank in the mean: ``durations``."""
    p, d = sums.num_prefill_tokens, sums.num_decode_tokens
    x = looked_up(c, COMPUTE, p + d) + c[PREFILL] * p + c[DECODE] * d
    x += shared_compute(c, expert_tokens) - shared_compute(c, p + d)
    y = looked_up(c, READING, expert_tokens)
    rest = looked_up(c, REST, p + d) + c[EXCHANGE] * (expert_tokens - (p + d))
    dense = math.sqrt(x * x + y * y + 2.0 * c[EXPOSED] * x * y) + rest
    ends, prefills, decodes = parts_of_requests_us(c, sums)
    requests = float(d + sums.num_prefill_seqs)
    return beside_the_cpu_us(c, dense + ends + prefills + decodes, requests)


@phase
def stage_frac(c: Floats, sums: StepSums, num_stages: int) -> float:
    """Return which share of a step each of ``num_stages`` stages takes but the last; evenly, where it has others."""
    if c[STAGES] != num_stages:
        return 1.0 / num_stages
    each, last = stages_us(c, sums)
    total = (num_stages - 1.0) * each + last
    return each / total if total > 0.0 else 0.0
