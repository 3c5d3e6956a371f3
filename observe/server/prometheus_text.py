"""Prometheus's text format, as far as a vLLM server writes it.

Source of the grammar: Prometheus exposition format 0.0.4 (``name{label="value",…} number [timestamp]``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*$")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One line: a name, its labels, a value."""

    name: str
    labels: Mapping[str, str]
    value: float

    @property
    def key(self) -> str:
        """Name and labels as one text; the model's name, the same everywhere, left out."""
        shown = ",".join(f'{name}="{self.labels[name]}"' for name in self.labels if name != "model_name")
        return f"{self.name}{{{shown}}}" if shown else self.name


def parse_metrics(text: str) -> list[Sample]:
    """Return the samples of ``text`` in order; comments and lines that are none are passed over."""
    samples: list[Sample] = []
    for line in text.splitlines():
        match = None if line.startswith("#") else _SAMPLE.match(line)
        if match is None:
            continue
        name, labels, number = match.groups()
        try:
            value = float(number)
        except ValueError:
            continue
        samples.append(Sample(name=name, labels=_labels(labels or ""), value=value))
    return samples


def _labels(text: str) -> dict[str, str]:
    return {
        name: re.sub(r"\\[\\\"n]", lambda escape: _ESCAPES[escape.group()], value)
        for name, value in _LABEL.findall(text)
    }
