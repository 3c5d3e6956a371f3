"""What the parts of a step take one GPU at its peak rates: all that the analytic models know of model and hardware."""

from __future__ import annotations

from lazy_dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.config import InvalidConfig

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakTimes:
    """Microseconds of one GPU of the group, each at the peak of compute, memory or link, for all its layers.

    With T the step's tokens, S those that are sampled from, C the KV entries that decodes read, A the (query, key)
    pairs of prefills:

    - ``matmul`` x T: products with all weights but the routed experts'; ``expert_matmul`` x T: with theirs;
      ``head_matmul`` x S: the LM head's.
    - ``weights``, ``head_weights``: reading those weights once; ``expert_weights``: all experts', of which a step
      reads the touched ones. ``num_experts`` 0: there are none.
    - ``prefill_pair`` x A, ``decode_entry`` x C: attention's products; ``kv_entry`` x entries: reading the cache.
      The ``windowed_`` ones are those of layers that see the last ``window`` tokens only.
    - ``recurrence`` x P, ``chain`` x L, ``state`` x requests: layers that keep a state compute a prompt in chunks, as
      many heads and prompts at a time as the GPU holds, but one chunk behind the other; and read and write the state.
      ``per_token`` x T: kernels with a row per token (top-k). These four are what kernels take, not peaks.
    - ``kv_write`` x T: writing the cache; ``activation`` x T: vectors in and out between the products.
    - ``all_reduce`` x T: the bytes of ``num_all_reduces`` over the link; ``send_recv`` x T: from each pipeline stage
      to the next, all ``pp`` - 1 of them. ``tp``: GPUs that share each layer.
    - ``all_to_all`` x T: the bytes of ``num_all_to_alls``, that bring tokens to the GPUs with their experts and back.
      ``dp``: engines in step that share the experts, of which this is one, the others taken to have as many tokens.
      ``ep``: GPUs that each have whole experts; 1: every GPU has a slice of each.
    - ``experts_us``: what one layer's routed experts took this GPU, measured at the tokens ``experts_tokens``; none:
      nobody measured them. It is what kernels take, reading included, and in place of the two above (``Physics``).
    - ``block_layers``: layers whose products cut their inputs to FP8 in blocks first, which is a kernel of its own.
      ``latent_layers``: those with latent attention, whose projections are twice as many kernels. ``norm_layers``:
      those whose GPUs add up squares for a norm over all heads.
    - ``waiting``: what all collectives of a step take beside launch and bytes: skew, hops between nodes.
    """

    matmul: float
    weights: float
    head_matmul: float
    head_weights: float
    prefill_pair: float
    decode_entry: float
    kv_entry: float
    kv_write: float
    activation: float
    num_layers: int
    expert_matmul: float = 0.0
    expert_weights: float = 0.0
    num_experts: int = 0
    num_experts_per_token: int = 0
    num_moe_layers: int = 0
    windowed_prefill_pair: float = 0.0
    windowed_decode_entry: float = 0.0
    windowed_kv_entry: float = 0.0
    window: int = 0
    recurrence: float = 0.0
    chain: float = 0.0
    state: float = 0.0
    per_token: float = 0.0
    all_reduce: float = 0.0
    num_all_reduces: int = 0
    send_recv: float = 0.0
    all_to_all: float = 0.0
    num_all_to_alls: int = 0
    waiting: float = 0.0
    dp: int = 1
    ep: int = 1
    tp: int = 1
    pp: int = 1
    is_grouped: bool = False
    block_layers: int = 0
    latent_layers: int = 0
    norm_layers: int = 0
    experts_tokens: tuple[float, ...] = ()
    experts_us: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Check all; raises InvalidConfig."""
        for field in fields(self):
            values = np.atleast_1d(getattr(self, field.name))
            if not (np.isfinite(values) & (values >= 0)).all():
                got = getattr(self, field.name)
                raise InvalidConfig(f"{field.name}: got {got!r}, expected a finite number >= 0")
        self._check_measured()

    def _check_measured(self) -> None:
        tokens, times = self.experts_tokens, self.experts_us
        if len(tokens) != len(times):
            raise InvalidConfig(
                f"experts_us: got {len(times)} times, expected one for each of the {len(tokens)} experts_tokens"
            )
        if any(low >= high for low, high in zip((0.0, *tokens), tokens, strict=False)):
            raise InvalidConfig(
                "experts_tokens: got numbers that do not rise, expected each above the one before"
            )
        if any(time <= 0 for time in times):
            raise InvalidConfig("experts_us: got 0, expected times > 0")

    def of_states(self) -> dict[str, Any]:
        """Return what layers that keep a state take, by the names of ``StepTable``."""
        return {name: getattr(self, name) for name in ("recurrence", "chain", "state")}

    def experts_touched_frac(self, tokens: Floats) -> Floats:
        """Return which share of the routed experts a step of so many tokens reads, each token choosing at random.

        An expert is passed over by all T tokens, those of the other engines in step with it, with probability
        (1 - k/N)^(T·dp).
        """
        if self.num_experts == 0:
            return np.zeros_like(tokens)
        return np.asarray(1.0 - (1.0 - self.num_experts_per_token / self.num_experts) ** (tokens * self.dp))

    def experts_read_frac(self, tokens: Floats) -> Floats:
        """Return which share of its experts' weights the busiest GPU reads; where each has slices, all are as busy.

        It touches n of its N/ep experts on average, with the variance n(1 - n·ep/N) of independent choices; the most
        of ``ep`` such numbers is about √(2 ln ep) standard deviations above (the expected maximum of normal variables).
        """
        touched = self.experts_touched_frac(tokens)
        if self.ep == 1 or self.num_experts == 0:
            return touched
        own = self.num_experts / self.ep
        most = touched + np.sqrt(2.0 * np.log(self.ep) * touched * (1.0 - touched) / own)
        return np.asarray(np.minimum(most, 1.0))

    def expert_imbalance(self, tokens: Floats) -> Floats:
        """Return how many times its share of the experts' work the busiest GPU has, at most ``ep`` times.

        Each GPU has m = T·dp·k/ep of the T·dp·k choices on average, with the variance m; the most as above. A router
        that prefers some experts makes it worse.
        """
        if self.ep == 1 or self.num_experts == 0:
            return np.ones_like(tokens)
        mean = np.maximum(tokens * self.dp * self.num_experts_per_token / self.ep, 1e-9)
        return np.asarray(np.minimum(1.0 + np.sqrt(2.0 * np.log(self.ep) / mean), float(self.ep)))

    def experts_touched_frac_of(self, num_tokens: int) -> float:
        """Return the same for one number of tokens."""
        return float(self.experts_touched_frac(np.array([num_tokens], np.float64))[0])

    def expert_tokens(self, tokens: Floats, *, tile: float) -> Floats:
        """Return how many tokens' worth of experts a step of so many computes: each touched one fills its last tile.

        On average half a tile per touched expert is computed for no token; a token is ``num_experts_per_token`` rows.
        """
        if self.num_experts == 0:
            return tokens
        wasted = self.experts_touched_frac(tokens) * self.num_experts / self.dp * tile / 2
        return np.asarray(tokens * self.expert_imbalance(tokens) + wasted / self.num_experts_per_token)

    def measured_experts(self, tokens: Floats) -> Floats:
        """Return what the experts of all layers took, µs, by tokens of a step: lines between logs of the points.

        Beyond the last point time grows as tokens do; below the first it is the first's.
        """
        known = np.array(self.experts_tokens)
        inside = np.log(np.clip(tokens, known[0], known[-1]))
        each = np.exp(np.interp(inside, np.log(known), np.log(self.experts_us)))
        beyond = np.maximum(tokens / known[-1], 1.0)
        return np.asarray(np.where(tokens > 0, self.num_moe_layers * each * beyond, 0.0))

    def weights_read(self, tokens: Floats) -> Floats:
        """Return how long reading takes of what a step of so many tokens needs, the LM head aside."""
        return np.asarray(self.weights + self.expert_weights * self.experts_read_frac(tokens))

    def saturation_batch(self, *, most: int = 65536) -> int:
        """Return the smallest number of tokens whose products take longer than reading the weights (B_sat)."""
        tokens = np.arange(1, most + 1, dtype=np.float64)
        compute = (self.matmul + self.expert_matmul + self.head_matmul) * tokens
        is_bound = compute >= self.weights_read(tokens) + self.head_weights
        return int(tokens[np.argmax(is_bound)]) if is_bound.any() else most
