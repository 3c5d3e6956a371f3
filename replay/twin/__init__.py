"""What the simulator is configured from: TWIN.yaml, defaults.yaml, a server's command line."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replay.twin.config_read import read_config_text, twin_of
    from replay.twin.config_write import name_of
    from replay.twin.defaults import COEFFICIENTS, FittedModel, version_number
    from replay.twin.keys.latency_keys import EXTENDED_MEANINGS
    from replay.twin.keys.overlay import Setting
    from replay.twin.latency import physics_covers, usual_physics
    from replay.twin.own.own_code import with_code_option
    from replay.twin.placeholder import placeholder_notes
    from replay.twin.profiled_table import AFTER, StepTableFile, write_step_tables
    from replay.twin.server.cuda_graphs import without_derived_launch
    from replay.twin.step_tables.shipped_tables import ShippedTable, shipped_tables

__all__ = [
    "AFTER",
    "COEFFICIENTS",
    "EXTENDED_MEANINGS",
    "FittedModel",
    "Setting",
    "ShippedTable",
    "StepTableFile",
    "name_of",
    "physics_covers",
    "placeholder_notes",
    "read_config_text",
    "shipped_tables",
    "twin_of",
    "usual_physics",
    "version_number",
    "with_code_option",
    "without_derived_launch",
    "write_step_tables",
]

_HOMES = {
    "AFTER": "replay.twin.profiled_table",
    "COEFFICIENTS": "replay.twin.defaults",
    "EXTENDED_MEANINGS": "replay.twin.keys.latency_keys",
    "FittedModel": "replay.twin.defaults",
    "Setting": "replay.twin.keys.overlay",
    "ShippedTable": "replay.twin.step_tables.shipped_tables",
    "StepTableFile": "replay.twin.profiled_table",
    "name_of": "replay.twin.config_write",
    "physics_covers": "replay.twin.latency",
    "placeholder_notes": "replay.twin.placeholder",
    "read_config_text": "replay.twin.config_read",
    "shipped_tables": "replay.twin.step_tables.shipped_tables",
    "twin_of": "replay.twin.config_read",
    "usual_physics": "replay.twin.latency",
    "version_number": "replay.twin.defaults",
    "with_code_option": "replay.twin.own.own_code",
    "without_derived_launch": "replay.twin.server.cuda_graphs",
    "write_step_tables": "replay.twin.profiled_table",
}


def __getattr__(name: str) -> object:
    """Import a public name from its module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'replay.twin' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return what this room offers, for whoever looks around in a shell."""
    return sorted(__all__)
