"""Which servers have a table of step times that ships, and which of them a TWIN.yaml describes."""

from __future__ import annotations

import csv
from functools import lru_cache
from lazy_dataclasses import asdict, dataclass, fields
from pathlib import Path

from replay.model.gpus import find_gpu
from replay.model.kernels.latent_kernels import served_on
from replay.model.layout import Hardware, Layout
from replay.model.shape import ModelShape
from replay.twin.profiled_table import StepTableFile
from replay.twin.recorded_coefficients import made_as
from replay.twin.step_tables.packed_table import read_packed

FOLDER = Path(__file__).with_name("measured")
SERVERS = FOLDER / "servers.csv"
KERNELS = "0.24.0"
"""The vLLM whose kernels were measured."""
AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedTable:
    """A server with a table, as ``servers.csv`` has it: ``quantization`` and ``kv_cache_dtype`` are vLLM's flags.

    ``points``: measured loads of this very server; ``ttft_error`` and ``tpot_error``: medians of the absolute errors
    there, fractions; None where there is no point.
    """

    model: str
    gpu: str
    tp: int
    quantization: str = AUTO
    kv_cache_dtype: str = AUTO
    points: int = 0
    ttft_error: float | None = None
    tpot_error: float | None = None

    @property
    def name(self) -> str:
        """What ``latency.table`` calls it, and its file."""
        flags = [self.quantization, "" if self.kv_cache_dtype == AUTO else f"kv_{self.kv_cache_dtype}"]
        model = self.model.replace("/", "--")
        return "-".join(
            [model, self.gpu, f"tp{self.tp}", *(flag for flag in flags if flag not in ("", AUTO))]
        )

    def document(self) -> dict[str, object]:
        """Return the table's entry in what ``vtwin predictor list --json`` prints."""
        return {"table": self.name, **asdict(self)}

    @property
    def server(self) -> str:
        """The server in words."""
        flags = {"quantization": self.quantization, "kv_cache_dtype": self.kv_cache_dtype}
        told = "".join(f", {key} {value}" for key, value in flags.items() if value != AUTO)
        return f"{self.model} on {self.gpu}, tp {self.tp}{told}"

    @property
    def shape(self) -> ModelShape:
        """The model as this server has it."""
        from replay.model.hf_config import read_model_config

        return read_model_config(
            self.model, quantization=self.quantization, kv_cache_dtype=self.kv_cache_dtype
        )

    def read(self) -> StepTableFile:
        """Return the table."""
        return read_packed(FOLDER / f"{self.name}.npz")

    @property
    def note(self) -> str:
        """What a run is told of it."""
        errors = "no such server was measured"
        if self.ttft_error is not None and self.tpot_error is not None:
            errors = (
                f"of {self.points} measured loads of it the median errors are {self.ttft_error:.0%} in TTFT and "
                f"{self.tpot_error:.0%} in TPOT"
            )
        return f"latency.table: {self.name}, which ships (kernels of vLLM {KERNELS}); {errors}"


@lru_cache(maxsize=1)
def shipped_tables() -> tuple[ShippedTable, ...]:
    """Return the servers with a table, by model, GPU and tp."""
    with SERVERS.open(newline="") as lines:
        return tuple(_of_row(row) for row in csv.DictReader(lines))


def _of_row(row: dict[str, str]) -> ShippedTable:
    def error(name: str) -> float | None:
        return float(row[name]) if row[name] else None

    return ShippedTable(
        model=row["model"],
        gpu=row["gpu"],
        tp=int(row["tp"]),
        quantization=row["quantization"],
        kv_cache_dtype=row["kv_cache_dtype"],
        points=int(row["points"]),
        ttft_error=error("ttft_error"),
        tpot_error=error("tpot_error"),
    )


def row_of(table: ShippedTable) -> list[str]:
    """Return the row of ``servers.csv``, in the order of ``HEAD``."""
    values = [getattr(table, name) for name in HEAD]
    return [
        "" if each is None else f"{each:.4f}" if isinstance(each, float) else str(each) for each in values
    ]


HEAD = tuple(field.name for field in fields(ShippedTable))


def table_called(name: str) -> ShippedTable | None:
    """Return the table of a name."""
    return next((each for each in shipped_tables() if each.name == name), None)


def table_for(
    shape: ModelShape | None, hardware: Hardware | None, *, vllm_version: str
) -> ShippedTable | None:
    """Return the table of a server: the same model in the same numbers, on the same GPUs, in one engine; else None."""
    if shape is None or hardware is None or hardware.pp != 1 or hardware.layout.dp != 1:
        return None
    tp = hardware.tp
    return next(
        (
            each
            for each in shipped_tables()
            if each.tp == tp
            and find_gpu(each.gpu) == hardware.gpu
            and _is_alike(each.shape, shape, hardware, vllm_version=vllm_version)
        ),
        None,
    )


def _is_alike(known: ModelShape, asked: ModelShape, hardware: Hardware, *, vllm_version: str) -> bool:
    """Return whether a model is the one asked for: step by step the same work, experts shared out alike."""
    served = served_on(known, hardware.gpu, tp=hardware.tp, version=vllm_version)
    shared = Layout().served(known, tp=hardware.tp).enable_expert_parallel
    asked_to_share = hardware.layout.served(asked, tp=hardware.tp).enable_expert_parallel
    return made_as(served) == made_as(asked) and shared == asked_to_share
