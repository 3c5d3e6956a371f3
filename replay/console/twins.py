"""The twins of a command's options: with settings in place of the file's, and only those that would start."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from traces.strict.tell import tell

if TYPE_CHECKING:
    from replay.twin.keys.overlay import Setting
    from replay.twin.twin_config import TwinConfig

AnywayOption = Annotated[
    bool, typer.Option("--anyway", help="Simulate a server that vLLM would refuse to start.")
]

InstancesOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=100_000,
        metavar="N",
        help="Simulate N such servers behind a router, in place of the file's number.",
    ),
]
RoutingOption = Annotated[
    str | None,
    typer.Option(
        metavar="POLICY",
        help="How the router chooses, in place of the file's cluster.routing: round-robin, least-loaded, "
        "power-of-two, weighted, … (docs/reference/config.md).",
    ),
]


def load_twins(
    config: Path,
    defaults: Path | None,
    settings: Sequence[str] | None,
    *,
    instances: int | None = None,
    routing: str | None = None,
    anyway: bool = False,
    base: bool = False,
    text: str | None = None,
) -> list[tuple[tuple[Setting, ...], TwinConfig]]:
    """Return a configuration for every combination of ``--set`` values, with its notes printed once.

    ``base``: also the file as it is, first. ``text``: in place of the file's. Raises ConfigError, also where vLLM would
    not start the model on its GPU, unless ``anyway``.
    """
    from replay.twin.config_read import load_config
    from replay.twin.keys.overlay import Setting, notes_of_variants, parse_settings, variants_of
    from replay.twin.twin_config import with_cluster
    from traces import ConfigError

    found = []
    changed = variants_of(parse_settings(settings or ()))
    if base and changed == [()]:
        raise ConfigError("--base: got it without --set, expected settings to compare with the file as it is")
    for each in [(), *changed] if base else changed:
        keys = [one.key for one in each]
        first = []  # options that a setting is checked against
        if instances is not None and any(key.startswith("cluster.") for key in keys):
            first.append(Setting("cluster.instances", str(instances)))
        if routing is not None and any(key.startswith("cluster.routing.") for key in keys):
            first.append(Setting("cluster.routing.policy", routing))
        twin = load_config(config, defaults=defaults, settings=[*first, *each], text=text)
        if not anyway:
            check_starts(twin)
        found.append((each, with_cluster(twin, instances=instances, routing=routing)))
    for note in notes_of_variants(twin.notes for _, twin in found):
        tell(f"note: {note}")
    return found


CURES = {
    "engine.max_num_batched_tokens": "larger engine.max_num_batched_tokens",
    "engine.max_num_seqs": "smaller engine.max_num_seqs",
}
"""What is to be set where a key of a server is at fault."""


def check_starts(twin: TwinConfig) -> None:
    """Raise ConfigError if vLLM would not start: too little GPU memory, or flags that cannot be combined."""
    from traces import ConfigError

    if twin.will_not_start:
        fault = twin.will_not_start[0]
        wanted = next(
            (cure for key, cure in CURES.items() if fault.startswith(key)), "smaller engine.max_model_len"
        )
        raise ConfigError(f"{fault} ({twin.source}). Set a {wanted}, or simulate it --anyway")


def load_twin(
    config: Path,
    defaults: Path | None,
    *,
    instances: int | None = None,
    routing: str | None = None,
    anyway: bool = False,
) -> TwinConfig:
    """Return the configuration, after printing its notes."""
    from replay.twin.config_read import load_config
    from replay.twin.twin_config import with_cluster

    twin = load_config(config, defaults=defaults)
    if not anyway:
        check_starts(twin)
    twin = with_cluster(twin, instances=instances, routing=routing)
    for note in twin.notes:
        tell(f"note: {note}")
    return twin
