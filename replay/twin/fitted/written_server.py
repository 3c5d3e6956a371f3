"""The GPU and the model that a fit knew, written beside its coefficients: cost, power and KV bytes follow from them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from lazy_dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from replay.twin.keys.cluster_settings import plain_section
from traces import ConfigError
from traces.strict.section import read_section
from traces.strict.whole_file import is_a_file

OF_MODEL = ("model_config", "dtype", "quantization", "kv_cache_dtype", "mamba_ssm_cache_dtype")
"""Keys of ``latency`` that say which model is served, whatever its steps take."""
IN_COEFFICIENTS = ("nccl_launch_us",)
"""Keys of ``hardware`` that a fitted file has as a coefficient."""
NOT_WRITTEN = "# Not all that is known of GPU and model is written: here it would change the simulation"


class LoadedTwin(Protocol):
    """A twin as far as it is compared: equal to another one, with its notes and with what keeps it from starting."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines to tell the user before a run."""

    @property
    def will_not_start(self) -> tuple[str, ...]:
        """Why vLLM would refuse to start it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedServer:
    """Keys of ``hardware`` and of ``latency`` that name a server's GPUs and its model; a file as an absolute path."""

    hardware: Mapping[str, object]
    latency: Mapping[str, object]

    def within(self, text: str, *, folder: Path) -> str:
        """Return TWIN.yaml text with these keys; a config.json below ``folder`` by its path from there."""
        hardware = [f"  {name}: {json.dumps(value)}" for name, value in self.hardware.items()]
        latency = [f"  {name}: {json.dumps(_from(folder, value))}" for name, value in self.latency.items()]
        lines = text.splitlines()
        at = lines.index("latency:")
        head = ["hardware:", *hardware] if hardware else []
        return "\n".join([*lines[:at], *head, *lines[at : at + 2], *latency, *lines[at + 2 :]]) + "\n"

    def fewer(self) -> Iterator[NamedServer]:
        """Yield the same with all keys, with the GPUs and the model alone, and with the GPUs alone."""
        yield self
        gpus = {name: value for name, value in self.hardware.items() if name in ("gpu", "tp", "pp")}
        yield NamedServer(hardware=gpus, latency=self.latency)
        yield NamedServer(hardware=gpus, latency={})


def named_server(
    source: Path | None, *, gpu: str | None = None, model_config: str | None = None, tp: int | None = None
) -> NamedServer:
    """Return what a twin's file says of its server, and what options say in its place; no keys if nothing does."""
    hardware: dict[str, object] = {}
    latency: dict[str, object] = {}
    if source is not None and is_a_file(source):
        root = read_section(source)
        values = plain_section(root)
        own, section = values.get("hardware"), values.get("latency")
        hardware = dict(own) if isinstance(own, dict) else {} if own is None else {"gpu": own}
        if isinstance(section, dict):
            latency = {name: section[name] for name in OF_MODEL if section.get(name) is not None}
        file = source.parent / str(latency.get("model_config"))
        if "model_config" in latency and is_a_file(file):
            latency["model_config"] = str(file.resolve())
    if gpu is not None and gpu != hardware.get("gpu"):
        hardware = {"gpu": gpu, **({"tp": hardware["tp"]} if "tp" in hardware else {})}
    if tp is not None and (hardware or tp > 1):
        hardware["tp"] = tp
    if model_config is not None:
        file = Path(model_config)
        latency["model_config"] = str(file.resolve()) if is_a_file(file) else model_config
    kept = {name: value for name, value in hardware.items() if name not in IN_COEFFICIENTS}
    return NamedServer(hardware=kept, latency=latency)


def text_with_server(
    text: str,
    server: NamedServer,
    *,
    path: Path,
    notes: Sequence[str],
    read: Callable[[str, Path], LoadedTwin],
) -> str:
    """Return TWIN.yaml text with as many of the server's keys as leave its simulation as it is.

    ``path``: where the text will stand. ``notes``: those that the fit itself has shown; there may be no others.
    ``read``: reads such a text.
    """
    if not server.hardware and not server.latency:
        return text
    for each in server.fewer():
        with suppress(ConfigError):
            alone = read(text, path)
            written = each.within(text, folder=path.parent)
            found = read(written, path)
            faults = set(found.will_not_start) - set(alone.will_not_start)
            if found == alone and not faults and set(found.notes) <= {*alone.notes, *notes}:
                is_whole = (each.hardware.get("gpu"), each.latency) == (
                    server.hardware.get("gpu"),
                    server.latency,
                )
                return written if is_whole else f"{NOT_WRITTEN}\n{written}"
    return f"{NOT_WRITTEN}\n{text}"


def _from(folder: Path, value: object) -> object:
    """Return a path below a folder from there; anything else as it is."""
    if not isinstance(value, str) or not Path(value).is_absolute():
        return value
    file, root = Path(value), folder.resolve()
    return str(file.relative_to(root)) if file.is_relative_to(root) else value
