"""Prometheus's text format, as far as a vLLM server writes it.

Source of the grammar: Prometheus exposition format 0.0.4 (``name{label="value",…} number [timestamp]``). Why not
prometheus_client's parser: docs/decisions/0013-prometheus-client.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from lazy_dataclasses import dataclass

# Each pattern matches at one place only and has one way to match: time is linear in the line, whatever it holds.
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*+(?=[\s{])")
_LABEL = re.compile(r'\s*+([a-zA-Z_][a-zA-Z0-9_]*+)\s*+=\s*+"((?:[^"\\]|\\.)*+)"\s*+(,|(?=\}))')
_NUMBER = re.compile(r"\s*+(\S++)(?:\s++-?\d++)?\s*+")
_ESCAPE = re.compile(r"\\[\\\"n]")
_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One line: a name, its labels, a value that is finite."""

    name: str
    labels: Mapping[str, str]
    value: float

    @property
    def key(self) -> str:
        """Name and labels as one text; the model's name, the same everywhere, left out."""
        shown = ",".join(f'{name}="{self.labels[name]}"' for name in self.labels if name != "model_name")
        return f"{self.name}{{{shown}}}" if shown else self.name


def parse_metrics(text: str) -> list[Sample]:
    """Return the samples of ``text`` in order; comments, malformed lines and values not finite are left out."""
    return [sample for line in text.split("\n") if (sample := _sample(line)) is not None]


def _sample(line: str) -> Sample | None:
    name = _NAME.match(line)
    if name is None:
        return None
    labels, end = _labels(line, name.end())
    number = None if labels is None else _NUMBER.fullmatch(line, end)
    if labels is None or number is None:
        return None
    try:
        value = float(number[1])
    except ValueError:
        return None
    return Sample(name=name[0], labels=labels, value=value) if math.isfinite(value) else None


def _labels(line: str, start: int) -> tuple[dict[str, str] | None, int]:
    """Return the labels that open at ``start``, None where they are malformed, and where the value begins."""
    labels: dict[str, str] = {}
    if not line.startswith("{", start):
        return labels, start
    end = start + 1
    while (label := _LABEL.match(line, end)) is not None:
        labels[label[1]] = _unescaped(label[2])
        end = label.end()
    return (labels, end + 1) if line.startswith("}", end) else (None, end)


def _unescaped(value: str) -> str:
    return _ESCAPE.sub(lambda escape: _ESCAPES[escape.group()], value) if "\\" in value else value
