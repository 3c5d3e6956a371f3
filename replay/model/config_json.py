"""A Hugging Face config.json, whose fields have several names: the first one that is there counts."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping
from lazy_dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import yaml

from traces import cut
from traces.strict.section import Section, read_json_section
from traces.strict.yaml_nodes import json_node, plain_value, scalar_of

SIZE = "hidden_size"
MOST_SIZE = 2**31 - 1
MOST_SIZES = {"num_hidden_layers": 10_000, "num_layers": 10_000, "n_layer": 10_000, "n_layers": 10_000}
"""Sizes of a model: nothing is larger, and layers are gone through one by one."""


@dataclass(frozen=True, slots=True)
class ModelFields:
    """One object of a config.json; absent fields and null read as None. Every method raises ConfigError."""

    section: Section

    def __contains__(self, key: str) -> bool:
        """Return whether the field is there."""
        return key in self.section

    @property
    def values(self) -> Mapping[str, object]:
        """The fields as dicts, lists and scalars."""
        section = self.section
        return {key: plain_value(node, file=section.file) for key, node in section.nodes.items()}

    def completed(self, defaults: Mapping[str, object]) -> ModelFields:
        """Return the object with ``defaults`` for the fields that it lacks."""
        nodes = {**{key: json_node(value) for key, value in defaults.items()}, **self.section.nodes}
        return ModelFields(replace(self.section, nodes=nodes))

    def replaced(self, values: Mapping[str, object]) -> ModelFields:
        """Return the object with ``values`` in place of the fields that it has."""
        nodes = {**self.section.nodes, **{key: json_node(value) for key, value in values.items()}}
        return ModelFields(replace(self.section, nodes=nodes))

    def is_null(self, key: str) -> bool:
        """Return whether a field is there and is null."""
        return key in self.section.key_lines and key not in self.section.nodes

    def fail(self, key: str, *, got: str, expected: str, nearest: Iterable[str] = ()) -> NoReturn:
        """Raise ConfigError about one field."""
        names = difflib.get_close_matches(got.strip("'\""), list(nearest), n=3, cutoff=0.0)
        hint = f" (nearest: {', '.join(names)})" if names else ""
        self.section.fail(key, got=got, expected=f"{expected}{hint}")

    def integer(self, *keys: str) -> int | None:
        """Return the whole number under the first of these keys that is there."""
        key = self._first(keys)
        return (
            None if key is None else self.section.integer(key, least=0, most=MOST_SIZES.get(key, MOST_SIZE))
        )

    def needed(self, *keys: str) -> int:
        """Return the same; raise ConfigError, naming the most alike field of the file, where none is there."""
        value = self.integer(*keys)
        if not value:
            alike = [key for key in self.section.nodes if key not in keys]
            near = difflib.get_close_matches(keys[0], alike, n=1, cutoff=0.5)
            hint = f"; the file has {near[0]}" if near else ""
            got = "nothing" if value is None else "0"
            self.fail(keys[0], got=got, expected=f"an integer >= 1{hint}")
        return value

    def text(self, *keys: str) -> str | None:
        """Return the text under the first of these keys that is there."""
        key = self._first(keys)
        return None if key is None else self.section.text(key)

    def flag(self, key: str) -> bool | None:
        """Return true, false or None."""
        return self.section.boolean(key)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts; an absent one is empty."""
        return self.section.texts(key)

    def items(self, key: str) -> tuple[object, ...]:
        """Return a list of scalars; an absent one is empty."""
        return tuple(
            scalar_of(item) if isinstance(item, yaml.ScalarNode) else None for item in self.section.items(key)
        )

    def integers(self, key: str) -> tuple[int, ...]:
        """Return a list of whole numbers from 0 on; an absent one is empty."""
        found: list[int] = []
        for item in self.items(key):
            if type(item) is not int or not 0 <= item <= MOST_SIZE:
                self.fail(key, got=shown(item), expected=f"a list of whole numbers from 0 to {MOST_SIZE:,}")
            found.append(item)
        return tuple(found)

    def is_list(self, key: str) -> bool:
        """Return whether there is a list under a key."""
        return isinstance(self.section.nodes.get(key), yaml.SequenceNode)

    def mapping(self, key: str) -> ModelFields | None:
        """Return the object under a key."""
        inner = self.section.section(key, expected="an object")
        return None if inner is None else ModelFields(inner.without_nulls())

    @property
    def language_model(self) -> ModelFields:
        """What a multimodal model's file says of its language model; of another model, the file.

        A part that is there and says no sizes, where the file itself does, is a remnant: the file counts.
        """
        inner = (self.mapping(key) for key in ("text_config", "llm_config", "language_config"))
        found = next((each for each in inner if each is not None), None)
        return self if found is None or (SIZE in self and SIZE not in found) else found

    @property
    def thinker(self) -> ModelFields:
        """What the file of a model that also speaks says of the part that vLLM serves; of another model, the file."""
        inner = self.mapping("thinker_config")
        beside = {
            key: value
            for key, value in self.values.items()
            if key.endswith("dtype") or key.startswith("quant")
        }
        return self if inner is None else inner.completed(beside)

    def mappings(self) -> Iterator[ModelFields]:
        """Yield every value that is an object."""
        for key, node in self.section.nodes.items():
            if isinstance(node, yaml.MappingNode):
                inner = self.mapping(key)
                assert inner is not None  # noqa: S101 - it was just seen
                yield inner

    def _first(self, keys: Iterable[str]) -> str | None:
        return next((key for key in keys if key in self.section), None)


def read_model_fields(path: Path) -> ModelFields:
    """Return the object that a config.json holds. Raises ConfigError."""
    return ModelFields(read_json_section(path, expected="a config.json"))


def shown(value: object) -> str:
    """Return a value as a message quotes it."""
    return cut(json.dumps(value))
