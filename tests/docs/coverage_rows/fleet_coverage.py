"""What ``vtwin fleet`` does with every column of TraceV2, as data: for the page of coverage.

Formulas take lengths, arrivals and what the prefix cache saves; the simulation is sent whole requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from traces import FIELDS

Use = Literal["both", "simulation", "not used"]


@dataclass(frozen=True, slots=True)
class FleetUse:
    """Who uses a column, formulas and simulation or the simulation alone, and how."""

    use: Use
    how: str


def _each(use: Use, how: str, *names: str) -> dict[str, FleetUse]:
    return {name: FleetUse(use, how) for name in names}


_USED: Final[Mapping[str, FleetUse]] = {
    **_each("both", "length of the prompt", "input_tokens", "server_input_tokens"),
    **_each("both", "length of the answer", "output_tokens", "max_tokens"),
    **_each("both", "of a failed request `max_tokens` counts", "status"),
    **_each("both", "warm-up is left out", "phase"),
    **_each(
        "both", "blocks that sessions share; the formulas' rule: explanation/fleet-models.md", "prefix_hashes"
    ),
    **_each("both", "as prefix_hashes; the prefix counts in the length", "prefix_group", "prefix_length"),
    "arrival_time_us": FleetUse("both", "with `--arrival trace`; else --rate decides"),
    **_each("simulation", "a session is one draw, its rounds come in order", "session_id", "round_index"),
    "think_time_us": FleetUse("simulation", "the pause after the simulated answer"),
    "new_input_tokens": FleetUse("simulation", "rounds share what was said before"),
    **_each(
        "simulation",
        "requests that follow another wait for answers, as rounds in a row",
        *("parent_request_id", "awaited_request_ids"),
    ),
    "adapter": FleetUse("simulation", "told in a note: formulas do not know adapters"),
    "guided": FleetUse("simulation", "told in a note: formulas do not know grammars"),
    "images": FleetUse("simulation", "told in a note: formulas know their tokens alone"),
    **_each("simulation", "as images", "image_tokens", "audio_tokens", "video_tokens"),
    "deadline_us": FleetUse("simulation", "as long after the arrival; told in a note"),
    **_each("simulation", "where the policy goes by priority", "vllm_priority", "slo_class"),
    "model": FleetUse("simulation", "no prefix is shared between models; `fleet size --router model`"),
    **_each("simulation", "added to the clients' times", "network_rtt_us", "network_bandwidth_mbps"),
    "finish_reason": FleetUse("simulation", "an answer that ends by itself decodes once more"),
    "request_id": FleetUse("not used", "but by `fleet size --labels`"),
}
_OTHERWISE: Final = FleetUse("not used", "an outcome, or of no effect on a server")

FLEET_COVERAGE: Final[Mapping[str, FleetUse]] = {name: _USED.get(name, _OTHERWISE) for name in FIELDS}
"""What ``fleet`` does with a column."""
