"""How large an engine's first arrays are."""

from __future__ import annotations

from typing import NamedTuple

from sim.config import EngineConfig
from sim.engine.records.feature import Records
from sim.versions import VersionRules


class FirstShape(NamedTuple):
    """What the first arrays of an engine follow from. ``settings``: SETTINGS[1]. ``width``: blocks of a sequence.

    ``num_hashes``: contents that its requests will name.
    """

    config: EngineConfig
    rules: VersionRules
    settings: Records
    num_blocks: int
    width: int
    num_hashes: int

    @property
    def num_rows(self) -> int:
        """Rows of ``State.hashes``: each content in each group."""
        return self.config.num_kv_cache_groups * (self.num_hashes + 1)

    @property
    def num_table_rows(self) -> int:
        """Rows of ``State.block_table``."""
        return self.config.max_num_seqs * self.config.num_kv_cache_groups


def group_sizes(config: EngineConfig) -> list[int]:
    """Return the tokens per block of each KV cache group."""
    return config.group_block_sizes or [config.block_size]
