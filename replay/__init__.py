"""Replay: a trace and a configuration in, a simulated trace out; and the same engine answering HTTP.

The Python API of this room (everything is imported when first used):

- ``load_config(path)`` reads TWIN.yaml into a ``TwinConfig``, ``dump_config(config)`` is its text again.
- ``simulate_trace(trace, config)`` simulates the requests of a trace; ``summarize(simulation, trace)`` is the
  JSON document that ``vtwin replay --json`` prints.
- ``requests_from_trace(trace, block_size=16)`` is the trace as the columns that ``sim.simulate`` takes;
  ``pacing_of(trace)`` says whether answers set its pace, ``paced_requests(trace, pacing, block_size=16)`` heeds it.
- ``lookup_defaults(model, gpu, tp=1)`` finds coefficients on record, ``write_defaults_entry(path, entry)``
  puts them there.
- ``serving(config)`` is an OpenAI-compatible server around the engine, as an async context manager.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replay.config import TwinConfig, check_fits, dump_config, load_config
    from replay.defaults import DefaultsEntry, Provenance, lookup_defaults, read_defaults
    from replay.defaults_write import write_defaults_entry
    from replay.requests import requests_from_trace
    from replay.serve import serving
    from replay.simulate import Pacing, paced_requests, pacing_of, simulate_trace
    from replay.summary import summarize

_HOMES = {
    "DefaultsEntry": "replay.defaults",
    "Provenance": "replay.defaults",
    "TwinConfig": "replay.config",
    "check_fits": "replay.config",
    "dump_config": "replay.config",
    "load_config": "replay.config",
    "lookup_defaults": "replay.defaults",
    "read_defaults": "replay.defaults",
    "Pacing": "replay.simulate",
    "paced_requests": "replay.simulate",
    "pacing_of": "replay.simulate",
    "requests_from_trace": "replay.requests",
    "serving": "replay.serve",
    "simulate_trace": "replay.simulate",
    "summarize": "replay.summary",
    "write_defaults_entry": "replay.defaults_write",
}

__all__ = [
    "DefaultsEntry",
    "Pacing",
    "Provenance",
    "TwinConfig",
    "check_fits",
    "dump_config",
    "load_config",
    "lookup_defaults",
    "paced_requests",
    "pacing_of",
    "read_defaults",
    "requests_from_trace",
    "serving",
    "simulate_trace",
    "summarize",
    "write_defaults_entry",
]


def __getattr__(name: str) -> object:
    """Import a public name from its module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'replay' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
