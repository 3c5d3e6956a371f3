"""The error of an unfitted latency model on servers it was not tuned on, by class of model and GPU."""

from __future__ import annotations

from functools import lru_cache
from lazy_dataclasses import dataclass, replace
from pathlib import Path

import yaml

from replay.model.shape import ModelShape
from replay.twin.config_write import name_of
from replay.twin.twin_config import TwinConfig
from sim import LatencyModel

SHIPPED = Path(__file__).with_name("known_errors.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownError:
    """Absolute errors in per cent of the measured mean, over ``n`` points. ``is_of_this_gpu``: measured on that GPU."""

    points: str
    n: int
    model: str
    tpot_median: float
    tpot_p90: float
    ttft_median: float
    ttft_p90: float
    is_of_this_gpu: bool = False

    def text(self, metric: str) -> str:
        """Return the error of ``ttft`` or ``tpot`` as median and 90th percentile."""
        return f"{getattr(self, f'{metric}_median'):.0f} / {getattr(self, f'{metric}_p90'):.0f} %"

    @property
    def sentence(self) -> str:
        """How far figures of such step times were off."""
        return (
            f"{self.model} was off by {self.text('ttft')} in TTFT and {self.text('tpot')} in TPOT on measured servers "
            f"that it was not fitted to ({self.points}, {self.n} points): on half of them less than the first figure, "
            "on nine of ten less than the second"
        )

    def document(self) -> dict[str, object]:
        """Return it as JSON has it, errors as shares."""
        return {
            "points": self.points,
            "n": self.n,
            "is_of_this_gpu": self.is_of_this_gpu,
            "ttft": {"median": self.ttft_median / 100, "p90": self.ttft_p90 / 100},
            "tpot": {"median": self.tpot_median / 100, "p90": self.tpot_p90 / 100},
        }


@lru_cache(maxsize=1)
def known_errors() -> tuple[KnownError, ...]:
    """Return the table."""
    document = yaml.safe_load(SHIPPED.read_text())
    return tuple(KnownError(**row) for row in document["errors"])


def known_error(shape: ModelShape, gpu: str, model: str, latency: LatencyModel) -> KnownError | None:
    """Return what is known of a latency model on a GPU for a class of model; of other GPUs where nothing is.

    ``latency``: the model itself: physics has other errors where nobody measured such experts on such a GPU. None for a
    latency model that was not judged, and for layers of kinds that no measured server had: states, an index,
    entries for several tokens.
    """
    if any(each.state or each.indexer or each.compression for each in shape.mixers):
        return None
    kind = "dense" if shape.experts is None else "MoE, MLA" if shape.attention.is_mla else "MoE"
    if model == "physics" and latency.describes("expert_compute"):
        model = "physics, silicon-2026"
    rows = {each.points: each for each in known_errors() if each.model == model}
    own = rows.get(f"{kind}, {gpu}")
    return replace(own, is_of_this_gpu=True) if own is not None else rows.get(kind)


def known_error_of(twin: TwinConfig) -> KnownError | None:
    """Return what is known of the error of a twin whose step times follow from model and GPU; None of a fitted one."""
    if not hasattr(twin.latency, "peak") or twin.shape is None or len(twin.gpus_of_pools) != 1:
        return None
    return known_error(twin.shape, twin.gpus_of_pools[0][0], name_of(twin.latency), twin.latency)
