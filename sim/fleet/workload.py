"""A workload as formulas take it: lengths that are equally likely, and what a GPU does with them."""

from __future__ import annotations

from lazy_dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sim.config import InvalidConfig

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Prompt and output tokens, float64 [n], row by row of the same request; all rows are equally likely.

    ``arrival_s``: when each came, float64 [n] ascending seconds, where the rows are those of a recording; formulas look
    at no order. ``arrival_cv2``: variance of the gaps between arrivals over their mean squared, 1 for Poisson's.
    ``row``: int64 [n] ascending, the number of each row in a recording, which no formula reads. ``cached_tokens``:
    float64 [n], tokens at each prompt's beginning that an engine need not compute, since other requests had them;
    ``shared_tokens``: whose KV every engine holds once, for all. Raises InvalidConfig without a row, or on a request
    without output.
    """

    input_tokens: Floats
    output_tokens: Floats
    arrival_s: Floats | None = None
    arrival_cv2: float = 1.0
    row: NDArray[np.int64] | None = None
    cached_tokens: Floats | None = None
    shared_tokens: float = 0.0

    def __post_init__(self) -> None:
        """Check both columns."""
        if len(self.input_tokens) != len(self.output_tokens) or len(self.input_tokens) == 0:
            raise InvalidConfig("lengths: got columns of different or no length, expected a row per request")
        if float(self.output_tokens.min()) < 1 or float(self.input_tokens.min()) < 0:
            raise InvalidConfig("lengths: got a request without output, expected at least one token of each")
        if self.arrival_s is not None and (
            len(self.arrival_s) != len(self) or bool(np.any(np.diff(self.arrival_s) < 0))
        ):
            raise InvalidConfig("lengths: got arrivals that do not fit, expected one per request, ascending")
        if not 0 <= self.arrival_cv2 < np.inf:
            raise InvalidConfig(f"lengths: got an arrival cv2 of {self.arrival_cv2}, expected a number >= 0")

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self.input_tokens)

    @property
    def total_tokens(self) -> Floats:
        """Prompt and output together."""
        return self.input_tokens + self.output_tokens

    @property
    def new_tokens(self) -> Floats:
        """Prompt tokens that must be computed, one at least of a prompt that has any."""
        if self.cached_tokens is None:
            return self.input_tokens
        return np.maximum(self.input_tokens - self.cached_tokens, np.minimum(self.input_tokens, 1.0))

    @property
    def without_hits(self) -> Lengths:
        """The lengths for an engine that keeps no prefixes."""
        return replace(self, cached_tokens=None, shared_tokens=0.0)

    def where(self, keep: NDArray[np.bool_]) -> Lengths:
        """Return the rows of a mask.

        Where each request of a renewal process is kept with a chance p, the gaps' cv² becomes 1 + p·(cv² - 1).
        """
        return Lengths(
            input_tokens=self.input_tokens[keep],
            output_tokens=self.output_tokens[keep],
            arrival_s=None if self.arrival_s is None else self.arrival_s[keep],
            arrival_cv2=1 + float(keep.mean()) * (self.arrival_cv2 - 1),
            row=None if self.row is None else self.row[keep],
            cached_tokens=None if self.cached_tokens is None else self.cached_tokens[keep],
            shared_tokens=self.shared_tokens,
        )

    def at(self, rows: NDArray[np.int64]) -> Lengths:
        """Return these rows, one may come several times; they have no arrivals."""
        return Lengths(
            input_tokens=self.input_tokens[rows],
            output_tokens=self.output_tokens[rows],
            arrival_cv2=self.arrival_cv2,
        )

    def up_to(self, total_tokens: float) -> tuple[Lengths | None, Lengths | None, float]:
        """Return the requests of at most so many tokens, the longer ones, and the share of the first; None: none."""
        short = self.total_tokens <= total_tokens
        share = float(short.mean())
        return (self.where(short) if share > 0 else None, self.where(~short) if share < 1 else None, share)

    def compressed(self, total_tokens: float, *, factor: float) -> Lengths:
        """Return the lengths with the prompts of those up to ``factor`` times too long cut to fit ``total_tokens``.

        Answers keep their length; where even one prompt token would not fit, the request stays as it is.
        """
        total = self.total_tokens
        prompt = total_tokens - self.output_tokens
        cut = (total > total_tokens) & (total <= factor * total_tokens) & (prompt >= 1)
        return replace(self, input_tokens=np.where(cut, prompt, self.input_tokens))
