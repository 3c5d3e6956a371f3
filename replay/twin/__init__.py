"""What the simulator is configured from: TWIN.yaml, defaults.yaml, a server's command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traces.strict.lazy_door import homes_of, opened

if TYPE_CHECKING:
    from replay.twin.config_read import read_config_text as read_config_text
    from replay.twin.config_read import twin_of as twin_of
    from replay.twin.config_write import name_of as name_of
    from replay.twin.defaults import COEFFICIENTS as COEFFICIENTS
    from replay.twin.defaults import FittedModel as FittedModel
    from replay.twin.defaults import version_number as version_number
    from replay.twin.keys.latency_keys import EXTENDED_MEANINGS as EXTENDED_MEANINGS
    from replay.twin.keys.overlay import Setting as Setting
    from replay.twin.latency import physics_covers as physics_covers
    from replay.twin.latency import usual_physics as usual_physics
    from replay.twin.own.own_code import with_code_option as with_code_option
    from replay.twin.placeholder import placeholder_notes as placeholder_notes
    from replay.twin.profiled_table import AFTER as AFTER
    from replay.twin.profiled_table import StepTableFile as StepTableFile
    from replay.twin.profiled_table import write_step_tables as write_step_tables
    from replay.twin.server.cuda_graphs import without_derived_launch as without_derived_launch
    from replay.twin.step_tables.shipped_tables import ShippedTable as ShippedTable
    from replay.twin.step_tables.shipped_tables import shipped_tables as shipped_tables

_HOMES = homes_of(
    {
        "replay.twin.config_read": "read_config_text twin_of",
        "replay.twin.config_write": "name_of",
        "replay.twin.defaults": "COEFFICIENTS FittedModel version_number",
        "replay.twin.keys.latency_keys": "EXTENDED_MEANINGS",
        "replay.twin.keys.overlay": "Setting",
        "replay.twin.latency": "physics_covers usual_physics",
        "replay.twin.own.own_code": "with_code_option",
        "replay.twin.placeholder": "placeholder_notes",
        "replay.twin.profiled_table": "AFTER StepTableFile write_step_tables",
        "replay.twin.server.cuda_graphs": "without_derived_launch",
        "replay.twin.step_tables.shipped_tables": "shipped_tables ShippedTable",
    }
)
"""Where each name of the door is at home."""
__all__ = list(_HOMES)
__getattr__, __dir__ = opened(__name__, _HOMES)
