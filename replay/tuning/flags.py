"""Settings of TWIN.yaml as flags of ``vllm serve``."""

from __future__ import annotations

from collections.abc import Sequence

from replay.twin.keys.overlay import Setting
from replay.twin.start.flag_table import FLAGS
from traces import ConfigError


def flags_of(settings: Sequence[Setting]) -> list[str]:
    """Return the words of the command line that start a server with these settings. Raises ConfigError."""
    by_key = {flag.key: (name, flag) for name, flag in FLAGS.items() if flag.key}
    words: list[str] = []
    for each in settings:
        if each.key not in by_key:
            raise ConfigError(
                f"{each.key}: cannot be combined with a live server: vllm serve has no flag for it"
            )
        name, flag = by_key[each.key]
        if flag.kind == "switch":
            words.append(f"--{name}" if each.value.lower() == "true" else f"--no-{name}")
        else:
            words += [f"--{name}", each.value]
    return words
