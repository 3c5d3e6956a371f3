"""Knowledge of coefficients before any trace: from the roofline, from a GPU's kind, from any transformer.

A workload of equal lengths shows only a sum of two coefficients, and a quiet one shows no GPU slowing down.
Coefficients that the traces leave open are then not zero but those of usual hardware, with a width, and the report says
so.
"""

from __future__ import annotations

from collections.abc import Mapping
from lazy_dataclasses import dataclass, replace

from calibrate.fit.objective.known_server import KnownServer

USUAL_WEIGHT = 4.0
"""The weight of priors that hold for any transformer, or any GPU of a kind."""
OWN_WEIGHT = 40.0
"""The weight of priors that follow from model and GPU. With 4 a fit gave up the floor of an H100's 8B server, which the
roofline knows, for a little noise, and was 10 % short at 1.5 times the load (docs/validation.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """A coefficient is expected at ``centre``, give or take ``width`` (a standard deviation, the same unit).

    ``weight``: a prior that is one width off weighs as much as so many requests that are one noise off: neighbours
    share their queues, and no model is exact.
    """

    centre: float
    width: float
    source: str
    weight: float = USUAL_WEIGHT

    def text(self) -> str:
        """Return the prior as text for a report."""
        return f"{self.centre:.4g} ± {self.width:.2g} ({self.source})"


WAY_IN = {"alpha0": 20_000.0, "alpha1": 20.0, "alpha3": 200.0}
"""The plausible size (µs) of the way into the queue, HTTP, tokenizing, hand-over, and of handing on one output. It
weighs as much as a single request: it has no effect if the traces say anything, and prevents that part of an overloaded
trace's queue is attributed to the way in."""

POWER_LIMITED = ("A100", "A800", "H20", "H100", "H200", "H800", "B200", "B300", "L40", "GH200", "MI3")
"""GPUs whose clock falls when large products run all the time: the power limit is below what those would draw."""
SLOWDOWN = Prior(centre=0.65, width=0.2, source="power-limited data-centre GPUs")
"""The slowdown expected of such a GPU: 0.64 to 0.76 above 0.54 to 0.58 by an H100's own steps (docs/validation.md)."""
SLOWDOWN_UNKNOWN = Prior(
    centre=0.0, width=0.25, source="a GPU that is not known: no slowdown that nothing shows"
)
THRESHOLD = Prior(centre=0.55, width=0.1, source="power-limited data-centre GPUs")
"""Decoding draws 0.5 to 0.7 of the power limit and large products would draw 1.1 to 1.4: their average reaches the
limit if products take 0.4 to 0.6 of the time."""
THRESHOLD_UNKNOWN = Prior(centre=0.4, width=0.3, source="a GPU that is not known")
MEMORY = Prior(centre=0.034, width=0.015, source="an H100's clock follows its power within a long step")

CONCAVITY = Prior(centre=0.5, width=0.25, source="measured servers, 4 to 512 users")
CONCAVITY_UNKNOWN = Prior(centre=0.3, width=0.3, source="a GPU that is not known")
ATTENTION_SHARE = 4e-5
"""A (query, key) pair costs 4·layers·width products, a token 2·weights: from 2e-5 (70B) to 9e-5 (0.5B) of it."""
READING_SHARE = 8e-6
"""KV bytes of a token per byte of weights: 2e-6 (70B, grouped heads) to 4e-5 (7B, a key for every query)."""
FLOOR_SHARE = 0.7
"""How much of a quiet step's time goes into reading the weights: 0.5 for small models, 0.9 for large ones."""


def proportions(*, beta1: float, step_us: float) -> dict[str, Prior]:
    """Return the priors that hold for any transformer, from the cost of a prefill token and of a quiet step."""
    origin = "proportions of any transformer"
    pair, entry, floor = ATTENTION_SHARE * beta1, READING_SHARE * step_us, FLOOR_SHARE * step_us
    return {
        "beta3": Prior(centre=entry, width=entry, source=origin),
        "beta4": Prior(centre=pair, width=pair, source=origin),
        "floor": Prior(centre=floor, width=0.4 * step_us, source=origin),
        "concavity": CONCAVITY_UNKNOWN,
        "kappa": SLOWDOWN_UNKNOWN,
        "u0": THRESHOLD_UNKNOWN,
        "tau_s": MEMORY,
    }


def known_priors(known: KnownServer) -> dict[str, Prior]:
    """Return the priors on the extended model's coefficients that follow from model and GPU, if they are known."""
    from replay.model import expected_coefficients

    priors: dict[str, Prior] = {}
    if known.gpu_name is not None and any(kind in known.gpu_name.upper() for kind in POWER_LIMITED):
        priors |= {"kappa": SLOWDOWN, "u0": THRESHOLD, "tau_s": MEMORY, "concavity": CONCAVITY}
    if known.shape is None or known.gpu is None:
        return of_this_server(priors)
    for name, prior in expected_coefficients(known.shape, known.gpu, tp=known.tp).items():
        width = prior.value * prior.relative_width
        priors[name] = Prior(centre=prior.value, width=width, source=prior.source)
    return of_this_server(priors)


def of_this_server(priors: Mapping[str, Prior]) -> dict[str, Prior]:
    """Return priors of this very server's model and GPU, which weigh more than what is usual somewhere."""
    return {name: replace(prior, weight=OWN_WEIGHT) for name, prior in priors.items()}


def with_priors(*parts: Mapping[str, Prior]) -> dict[str, Prior]:
    """Return all priors, a later part's before an earlier one's."""
    together: dict[str, Prior] = {}
    for part in parts:
        together.update(part)
    return together
