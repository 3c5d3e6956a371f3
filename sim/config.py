"""The engine's configuration: settings that it can run with."""

from __future__ import annotations

from lazy_dataclasses import dataclass

from sim.engine_settings import UNBOUNDED, Compatibility, EngineSettings, Record
from sim.setting_faults import InvalidConfig, check_by_version, check_each, check_together
from sim.versions import engine_defaults, is_known

__all__ = ["UNBOUNDED", "Compatibility", "EngineConfig", "InvalidConfig", "Record"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig(EngineSettings):
    """The scheduler's and the KV cache's settings, checked: ``EngineSettings`` has them with what they mean.

    A setting that ``vllm_version`` does not know is refused; ``for_version`` has the defaults that go with it. Raises
    InvalidConfig on a value the engine cannot run with.
    """

    @classmethod
    def for_version(cls, version: str, **settings: object) -> EngineConfig:
        """Return the configuration of a version: ``settings``, and its own defaults for what they do not say.

        Raises InvalidConfig.
        """
        stages = settings.get("pipeline_parallel_size", 1)
        num_stages = stages if isinstance(stages, int) else 1
        defaults = engine_defaults(version, num_stages=num_stages) if is_known(version) else {}
        return cls(**{**defaults, "vllm_version": version, **settings})  # type: ignore[arg-type]  # checked there

    def __post_init__(self) -> None:
        """Check every field; the error names the first that is not valid."""
        check_each(self)
        check_by_version(self)
        object.__setattr__(self, "kv_cache_groups", self.needed_groups)
        check_together(self)
