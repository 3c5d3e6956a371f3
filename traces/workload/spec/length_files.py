"""Lengths that a specification takes from a file: a trace's requests, drawn whole, or one side of them alone."""

from __future__ import annotations

from collections.abc import Mapping
from lazy_dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from traces.errors import TraceError
from traces.strict.json_text import finite, parse_value
from traces.workload.basics import InvalidWorkload
from traces.workload.lengths import Distribution, Empirical, Recorded, Separate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class FromFile:
    """Lengths to be read from ``path``, which counts from the specification's folder."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthFiles:
    """The files that a specification in ``folder`` names, each read once."""

    folder: Path
    _read: dict[str, Recorded] = field(default_factory=dict)

    def lengths(
        self, prompt: Distribution | FromFile, output: Distribution | FromFile
    ) -> Separate | Recorded:
        """Return whole requests if both sides name one trace, else two distributions.

        Raises InvalidWorkload for a file that cannot be read or has no lengths.
        """
        if isinstance(prompt, FromFile) and prompt == output and not _is_histogram(prompt):
            return self._recorded(prompt)
        return Separate(
            prompt=self._one_side(prompt, side="prompt"), output=self._one_side(output, side="output")
        )

    def _one_side(self, given: Distribution | FromFile, *, side: str) -> Distribution:
        if not isinstance(given, FromFile):
            return given
        if _is_histogram(given):
            return _histogram(self.folder / given.path)
        from traces.metrics import prompt_tokens

        trace = self._recorded(given).requests
        column = trace.column("output_tokens").to_numpy(dtype="int64")
        return _counted(prompt_tokens(trace) if side == "prompt" else column)

    def _recorded(self, given: FromFile) -> Recorded:
        from traces.importers.recorded import read_recorded
        from traces.workload.recorded.resampling import requests_to_draw

        if given.path not in self._read:
            path = self.folder / given.path
            try:
                self._read[given.path] = requests_to_draw(read_recorded(path), str(path))
            except TraceError as error:
                raise InvalidWorkload(f"file: {error}") from error
        return self._read[given.path]


def _is_histogram(given: FromFile) -> bool:
    return given.path.endswith(".json")


def _counted(tokens: NDArray[np.int64]) -> Empirical:
    """Return the lengths as often as they come; an empty prompt counts as one token."""
    import numpy as np

    values, counts = np.unique(np.maximum(tokens, 1), return_counts=True)
    return Empirical(tokens=tuple(values.tolist()), weights=tuple(counts.astype(float).tolist()))


def _histogram(path: Path) -> Empirical:
    """Return a JSON file of token counts and their weights, in the form of ``params``."""
    try:
        document = parse_value(path.read_bytes())
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InvalidWorkload(f"file: got {reason}, expected a JSON file of token counts ({path})") from error
    if not isinstance(document, Mapping):
        raise InvalidWorkload(f"file: got no mapping, expected token count: weight, … ({path})")
    try:
        pairs = sorted((int(name), finite(weight)) for name, weight in document.items())
    except (TypeError, ValueError) as error:
        raise InvalidWorkload(f"file: got {error}, expected token count: weight, … ({path})") from error
    return Empirical(tokens=tuple(count for count, _ in pairs), weights=tuple(weight for _, weight in pairs))
