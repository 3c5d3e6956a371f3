"""A workload drawn from ServeGen's production data."""

from __future__ import annotations

from pathlib import Path

from traces.header import Source
from traces.trace import Trace
from traces.workload.model import OpenLoop, Workload
from traces.workload.spec.servegen_data import Cut, servegen_clients
from traces.workload.synthesis import synth


def read_servegen(folder: Path, cut: Cut | None = None) -> Trace:
    """Return a workload drawn from the data in ``folder``: a client per chunk, times from the cut's start.

    Raises TraceError that names file and line for content that the format does not allow, ConfigError for a cut in
    which no client sends.
    """
    cut = cut or Cut()
    found = servegen_clients(folder, cut)
    workload = Workload(
        clients=found.clients,
        load=OpenLoop(rate_per_s=None),
        duration_us=round(found.span_s * 1_000_000),
        source=f"servegen:{folder.name}",
    )
    drawn = synth(workload, seed=cut.seed)
    return drawn.with_header(source=Source(format="servegen", file=folder.name, notes=found.notes))
