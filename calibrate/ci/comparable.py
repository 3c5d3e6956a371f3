"""Whether two sides are of the same server: a trace's header against the twin, or another header."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from calibrate.findings import Calibration, Compared
from calibrate.flags.evidence import contradictions_of
from calibrate.gate.verdict import Baseline

if TYPE_CHECKING:
    from replay import TwinConfig
    from traces import ServerInfo

NOT_COMPARED = ("num_gpu_blocks", "url", "type", "sources", "system_fingerprint")
"""Keys of two headers: the KV capacity may be left out, the fingerprint is compared over all traces."""


def obstacles_of(calibration: Calibration, *, require_kv_capacity: bool = True) -> tuple[str, ...]:
    """Return, a line each, why the two sides are not one server and its twin; empty: they are."""
    lines: list[str] = []
    for each in calibration.traces:
        server, name = each.source.trace.header.server, each.source.name
        if calibration.config is not None:
            found = _against_twin(server, calibration.config, kv=require_kv_capacity)
        elif each.partner is not None:
            found = _against_server(server, each.partner.trace.header.server, kv=require_kv_capacity)
        else:
            found = []
        lines += [f"{name}: {line}" for line in found]
    if calibration.config is not None:
        sources = [each.source for each in calibration.traces]
        lines += [line for _, line in contradictions_of(sources, calibration.config)]
    return (*lines, *_fingerprints(calibration.traces))


def changed_since(calibration: Calibration, baseline: Baseline) -> tuple[str, ...]:
    """Return a line where the server's fingerprint is another one than in the baseline; empty: it is not."""
    now = fingerprints_of(calibration.traces)
    if not now or not baseline.fingerprints or now == baseline.fingerprints:
        return ()
    then = ", ".join(sorted(baseline.fingerprints))
    return (f"system_fingerprint: the traces name {', '.join(sorted(now))}, the baseline's {then}",)


def fingerprints_of(traces: Sequence[Compared]) -> frozenset[str]:
    """Return the fingerprints that observed traces name."""
    return frozenset({each.source.trace.header.server.system_fingerprint or "" for each in traces} - {""})


def _against_twin(server: ServerInfo, twin: TwinConfig, *, kv: bool) -> list[str]:
    """Return the server's known flags that differ from the twin's."""
    from replay.twin import version_number
    from sim import UNBOUNDED

    lines = []
    if server.version and version_number(server.version) != version_number(twin.vllm_version):
        lines.append(f"vllm_version: the server has {server.version}, the twin {twin.vllm_version}")
    for field in fields(twin.engine):
        there, here = getattr(server, field.name, None), getattr(twin.engine, field.name)
        if field.name != "num_gpu_blocks" and there is not None and there != here:
            lines.append(f"{field.name}: the server has {_said(there)}, the twin {_said(here)}")
    blocks = None if twin.engine.num_gpu_blocks == UNBOUNDED else twin.engine.num_gpu_blocks
    if kv and (blocks is None or blocks != server.num_gpu_blocks):
        there, here = _blocks(server.num_gpu_blocks, "not known"), _blocks(blocks, "unbounded")
        is_known = blocks is not None and server.num_gpu_blocks is not None
        way_out = (
            "" if is_known else "; with `require_kv_capacity: false` the gate compares them all the same"
        )
        lines.append(f"KV capacity unmatched: the server's is {there}, the twin's {here}{way_out}")
    return lines


def _against_server(one: ServerInfo, other: ServerInfo, *, kv: bool) -> list[str]:
    """Return where two headers differ; a value that only one of them has is not a contradiction."""
    names = [field.name for field in fields(one) if field.name not in NOT_COMPARED]
    lines = []
    for name in [*names, *(["num_gpu_blocks"] if kv else [])]:
        a, b = getattr(one, name), getattr(other, name)
        if a is not None and b is not None and a != b:
            what = f"KV capacity unmatched: {name}" if name == "num_gpu_blocks" else name
            lines.append(f"{what}: one server has {_said(a)}, the other {_said(b)}")
    return lines


def _fingerprints(traces: Sequence[Compared]) -> list[str]:
    sources = [source for each in traces for source in (each.source, each.partner) if source is not None]
    known = sorted({s.trace.header.server.system_fingerprint or "" for s in sources} - {""})
    return [f"system_fingerprint: the traces name {', '.join(known)}, expected one"] if len(known) > 1 else []


def _blocks(number: int | None, otherwise: str) -> str:
    return otherwise if number is None else f"{number} blocks"


def _said(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
