"""A GPU as formulas take it: how many requests it holds, how long an iteration of the batch takes, what it draws."""

from __future__ import annotations

import math
from lazy_dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sim.config import InvalidConfig
from sim.fleet.workload import Lengths
from sim.held_blocks import HeldBlocks
from sim.kv_cache_groups import KVCacheGroup

Floats = NDArray[np.float64]
Number = TypeVar("Number", float, Floats)
POSITIVE = (
    *("w_s", "calibration_context", "chunk_tokens", "block_size", "num_blocks", "max_slots"),
    "max_concurrent_batches",
)


@dataclass(frozen=True, slots=True)
class GpuProfile:
    """What the formulas know of one GPU, or of one engine on several.

    An iteration of n requests of so many tokens on average takes
    ``w_s + h_s·(tokens / calibration_context)·n`` seconds: ``w_s`` reads the weights, ``h_s`` is what a request of
    ``calibration_context`` tokens adds. A prompt takes an iteration per ``chunk_tokens``. ``num_blocks`` of
    ``block_size`` tokens hold the KV cache; ``max_slots``: requests at once at the calibration context.
    ``cost_per_hour``: of all of it. Power: ``idle_w``, ``nominal_w`` and the logistic curve's ``power_k`` and
    ``power_x0`` between them.

    ``prefill_token_s``, ``prefill_pair_s``: compute of prompts, seconds per token and per (query, key) pair; 0: prompts
    take no longer than the iterations they are in. ``num_gpus``: behind the one engine. ``reserves_context``: a request
    holds blocks for the longest that a pool takes, as the fleet simulator has it; else, as in vLLM, for the tokens that
    it has, and ``max_slots`` (max_num_seqs) holds at every length.

    ``kv_cache_groups``: which layers keep what, () is one full group; ``max_concurrent_batches``: how many steps'
    tokens windows keep beside their own; ``num_speculative_tokens``: for each a state has a block more.

    Time outside of the engine, in which no seat is held: a request joins the queue ``frontend_s``, and
    ``frontend_token_s`` per token of its prompt, after it came; each token is seen ``output_token_s`` later, beside its
    iteration, and a first token ``handed_on_s`` for each output of its iteration (a latency model's alpha0 to alpha3,
    in seconds). Raises InvalidConfig.
    """

    w_s: float
    h_s: float
    calibration_context: int = 8192
    chunk_tokens: int = 512
    block_size: int = 16
    num_blocks: int = 65_536
    max_slots: int = 128
    cost_per_hour: float = 0.0
    idle_w: float = 0.0
    nominal_w: float = 0.0
    power_k: float = 1.0
    power_x0: float = 4.0
    prefill_token_s: float = 0.0
    prefill_pair_s: float = 0.0
    num_gpus: int = 1
    reserves_context: bool = True
    kv_cache_groups: tuple[KVCacheGroup, ...] = ()
    max_concurrent_batches: int = 1
    num_speculative_tokens: int = 0
    frontend_s: float = 0.0
    frontend_token_s: float = 0.0
    output_token_s: float = 0.0
    handed_on_s: float = 0.0

    def __post_init__(self) -> None:
        """Check the figures."""
        for number, group in enumerate(self.kv_cache_groups):
            fault = group.fault()
            if fault is not None:
                raise InvalidConfig(f"profile.kv_cache_groups[{number}].{fault[0]}: {fault[1]}")
        for name in self.__slots__:
            if name == "kv_cache_groups":
                continue
            value = float(getattr(self, name))
            if not math.isfinite(value) or value < 0 or (name in POSITIVE and value == 0):
                raise InvalidConfig(
                    f"profile.{name}: got {value}, expected a number {'> 0' if name in POSITIVE else '>= 0'}"
                )

    # -- how many requests --------------------------------------------------------------------------------------

    @property
    def held(self) -> HeldBlocks:
        """The blocks that a request holds, by its tokens."""
        return HeldBlocks(
            block_size=self.block_size,
            groups=self.kv_cache_groups,
            chunk_tokens=self.chunk_tokens,
            num_batches=self.max_concurrent_batches,
            tokens_per_decode=1 + self.num_speculative_tokens,
        )

    def kv_limit(self, context: int) -> int:
        """Return how many requests of ``context`` tokens the KV cache holds, each at its fullest."""
        return self.num_blocks // self.held.fullest(context)

    def num_slots(self, context: int) -> int:
        """Return how many requests run at once: what the KV cache holds, and no more than the bandwidth is good for.

        The second is ``max_slots`` at the calibration context, and in proportion more at shorter ones.
        """
        return min(self.kv_limit(context), self.max_slots * self.calibration_context // context)

    def slots_for(self, lengths: Lengths, context: int) -> int:
        """Return how many requests of a workload run at once: ``num_slots``, or, without a reserve, as many as fit.

        Those hold as many blocks as they have on average while they run; the longest must fit alone.
        """
        if self.reserves_context:
            return self.num_slots(context)
        if self.kv_limit(context) == 0:
            return 0
        if self.kv_cache_groups or not lengths.shared_tokens:
            fit = self.held.num_requests(self.num_blocks, lengths.input_tokens, lengths.output_tokens)
        else:  # what requests share is there once, their own tokens are there for each
            own = self.num_blocks - math.ceil(lengths.shared_tokens / self.block_size)
            fit = self.held.num_requests(max(own, 1), lengths.new_tokens, lengths.output_tokens)
        return max(1, min(self.max_slots, fit))

    # -- how long -----------------------------------------------------------------------------------------------

    def iteration_s(self, active: Number, mean_tokens: Number) -> Number:
        """Return the seconds of an iteration with so many requests of so many tokens on average."""
        return self.w_s + self.h_s * (mean_tokens / self.calibration_context) * active

    def iterations(self, lengths: Lengths) -> Floats:
        """Return the iterations of each request: one per chunk of its prompt, one per output token."""
        return self.prefill_iterations(lengths) + lengths.output_tokens

    def prefill_iterations(self, lengths: Lengths) -> Floats:
        """Return the iterations of each prompt, one at least."""
        return np.maximum(np.ceil(lengths.new_tokens / self.chunk_tokens), 1.0)

    def prefill_compute_s(self, lengths: Lengths) -> Floats:
        """Return the seconds of compute of each prompt: per token, and per pair of tokens that attend to each other.

        Where a prompt's first c tokens are cached, n - c tokens are computed, and attend to all before them.
        """
        n, new = lengths.input_tokens, lengths.new_tokens
        cached = n - new
        pairs = (n * (n + 1) - cached * (cached + 1)) / 2
        return np.asarray(self.prefill_token_s * new + self.prefill_pair_s * pairs)

    def frontend_delay_s(self, lengths: Lengths) -> Floats:
        """Return the seconds outside of the engine of each request's first token."""
        whole = self.frontend_s + self.output_token_s
        return np.asarray(whole + self.frontend_token_s * lengths.input_tokens)

    def handing_on_s(self, decoding: float) -> float:
        """Return how long a first token waits for so many others' outputs of its step, its own handing on with it."""
        return self.handed_on_s * (1.0 + decoding)

    def busy(self, lengths: Lengths) -> Busy:
        """Return what a mix of requests does to an iteration."""
        iterations = self.iterations(lengths)
        whole = float(iterations.sum())
        resident = float((iterations * lengths.total_tokens).sum()) / whole
        compute = float(self.prefill_compute_s(lengths).sum()) / whole
        return Busy(
            w_s=self.w_s,
            decode_s=self.h_s * resident / self.calibration_context,
            prefill_s=compute,
            mean_iterations=float(iterations.mean()),
            decoding_frac=float(lengths.output_tokens.sum()) / whole,
            cv2=float(iterations.var() / iterations.mean() ** 2),
        )

    def service_s(self, input_tokens: float, output_tokens: float, context: int) -> float:
        """Return how long a request holds its seat on a full GPU whose other requests are like it, seconds."""
        busy = self.busy(one_request(input_tokens, output_tokens))
        return busy.mean_iterations * busy.iteration_s(self.num_slots(context))

    def throughput(self, input_tokens: float, output_tokens: float, context: int) -> float:
        """Return the requests per second of a full GPU: seats over service time; 0 where none fits."""
        slots = self.num_slots(context)
        return slots / self.service_s(input_tokens, output_tokens, context) if slots else 0.0

    # -- power --------------------------------------------------------------------------------------------------

    def power_w(self, active: float) -> float:
        """Return the watts with so many requests at once: idle + (nominal - idle) / (1 + exp(-k·(log2 b - x0)))."""
        if active <= 0:
            return self.idle_w
        rise = 1.0 / (1.0 + math.exp(-self.power_k * (math.log2(active) - self.power_x0)))
        return self.idle_w + (self.nominal_w - self.idle_w) * rise

    def active_at_power(self, watts: float) -> float:
        """Return how many requests at once draw so many watts: the inverse of ``power_w``; infinite at nominal."""
        if watts >= self.nominal_w:
            return math.inf
        share = (watts - self.idle_w) / (self.nominal_w - self.idle_w)
        if share <= 0:
            return 0.0
        return float(2.0 ** (self.power_x0 - math.log(1.0 / share - 1.0) / self.power_k))


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """What a mix of requests does to an iteration of n of them: ``w_s + n·(decode_s + prefill_s)`` seconds.

    ``decode_s``: a request's own tokens, weighted by how long it stays. ``prefill_s``: the compute of prompts, of which
    n / mean_iterations begin per iteration. ``mean_iterations`` and ``cv2``: of how long requests stay;
    ``decoding_frac``: the share of them that bring an output.
    """

    w_s: float
    decode_s: float
    prefill_s: float
    mean_iterations: float
    cv2: float
    decoding_frac: float = 1.0

    def iteration_s(self, active: float) -> float:
        """Return the seconds of an iteration of so many requests."""
        return self.w_s + active * (self.decode_s + self.prefill_s)

    def active(self, rate_per_s: float) -> float:
        """Return how many requests are there on average at a rate, by Little's law; infinite where they pile up.

        n = rate x iterations x (w + n·s), so n = rate·K·w / (1 - rate·K·s).
        """
        load = rate_per_s * self.mean_iterations
        spare = 1.0 - load * (self.decode_s + self.prefill_s)
        return load * self.w_s / spare if spare > 0 else math.inf


def one_request(input_tokens: float, output_tokens: float) -> Lengths:
    """Return lengths of a single request."""
    return Lengths(
        input_tokens=np.array([float(input_tokens)]), output_tokens=np.array([float(output_tokens)])
    )
