"""YAML means the same to every reader: one rule for scalars, keys, lines."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from replay import load_config
from replay.model.config_json import read_model_fields
from traces.errors import ConfigError, TraceError, VtwinError
from traces.header import parse_header
from traces.strict.section import read_section
from traces.strict.yaml_nodes import (
    line_at,
    parse_json,
    parse_yaml,
    parse_yaml_documents,
    plain_value,
    scalar_of,
)
from traces.workload.spec.spec_read import parse_spec

SPEC = """\
aggregate_rate: 1
clients:
- id: a
  streaming: {}
  input_distribution: {{type: constant, params: {{value: 10}}}}
  output_distribution: {{type: constant, params: {{value: 10}}}}
"""


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("true", True), ("False", False), ("yes", "yes"), ("on", "on"), ("no", "no"), ('"true"', "true"),
        ("null", None), ("~", None), ("12", 12), ("-3", -3), ("1_000", 1000), ("010", 10), ('"12"', "12"),
        ("1.5", 1.5), ("1e6", 1e6), ("1.e-3", 1e-3), (".5", 0.5), (".inf", math.inf), ("-.INF", -math.inf),
        ("1:30", "1:30"), ("0x10", "0x10"), ("2026-01-01", "2026-01-01"), ("0.32.0", "0.32.0"), ("=", "="),
    ],
)  # fmt: skip
def test_a_scalar_is_what_yaml_1_2_says(written: str, expected: object) -> None:
    node = parse_yaml(written, file="f")
    assert isinstance(node, yaml.ScalarNode)
    assert scalar_of(node) == expected
    assert type(scalar_of(node)) is type(expected)


def header_boolean(text: str, _: Path) -> object:
    client = parse_header(f"client: {{limited: {text}}}", "h.yaml").client
    return None if client is None else client.limited


def twin_boolean(text: str, folder: Path) -> object:
    (folder / "t.yaml").write_text(
        f"engine: {{async_scheduling: {text}}}\nlatency: {{model: blackbox, coefficients: "
        "{alpha0: 0, alpha1: 0, alpha2: 0, beta0: 1, beta1: 1, beta2: 1}}\n"
    )
    return load_config(folder / "t.yaml").engine.async_scheduling


def spec_boolean(text: str, _: Path) -> object:
    return parse_spec(SPEC.format(text), source="s.yaml").clients[0].streaming


def json_boolean(text: str, folder: Path) -> object:
    (folder / "config.json").write_text(f'{{"tie_word_embeddings": {text}}}')
    return read_model_fields(folder / "config.json").flag("tie_word_embeddings")


READERS = [header_boolean, twin_boolean, spec_boolean, json_boolean]


@pytest.mark.parametrize("read", READERS)
def test_true_is_true_to_every_reader(read: Callable[[str, Path], object], tmp_path: Path) -> None:
    assert (read("true", tmp_path), read("false", tmp_path)) == (True, False)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("text", ["yes", "on", "off", "1", '"true"', "[true]"])
def test_yes_is_no_boolean_to_any_reader(
    text: str, read: Callable[[str, Path], object], tmp_path: Path
) -> None:
    with pytest.raises(VtwinError, match=r"^[^\n]*(expected true or false|JSON: got)[^\n]*$"):
        read(text, tmp_path)


def test_a_specifications_error_names_its_line() -> None:
    with pytest.raises(ConfigError) as refused:
        parse_spec(SPEC.format("yes"), source="s.yaml")
    assert str(refused.value) == "clients[0].streaming: got 'yes', expected true or false (s.yaml:4)"
    with pytest.raises(ConfigError, match=r"did you mean streaming\? \(s\.yaml:4\)$"):
        parse_spec(SPEC.format("true").replace("streaming", "streamng"), source="s.yaml")


def test_a_path_leads_to_the_line_of_as_much_of_it_as_there_is() -> None:
    root = parse_yaml("a:\n  - x: 1\n  - y:\n      z: 2\n", file="f")
    lines = [line_at(root, path) for path in ("a", "a[1]", "a[1].y.z", "a[1].y.nothing", "a[7].y", "b")]
    assert lines == [1, 3, 4, 3, 1, 1]
    assert line_at(None, "a") == 0


def test_a_merged_mapping_gives_way_to_what_stands_beside_it() -> None:
    text = "base: &b {x: 1, y: 2}\nmine: {<<: *b, y: 3}\n"
    assert plain_value(parse_yaml(text, file="f"), file="f") == {
        "base": {"x": 1, "y": 2},
        "mine": {"x": 1, "y": 3},
    }
    with pytest.raises(ConfigError, match=r"<<: got 5, expected a mapping \(f:1\)"):
        plain_value(parse_yaml("<<: 5", file="f"), file="f")


def test_a_document_without_an_end_is_refused() -> None:
    with pytest.raises(ConfigError, match="alias to what it stands in"):
        parse_yaml("a: &x [1, *x]", file="f")
    laughs = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
        f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
        for before, name in zip("abcdefg", "bcdefgh", strict=True)
    )
    with pytest.raises(TraceError, match="aliases that unfold to"):
        parse_yaml(laughs, file="f", error=TraceError)
    with pytest.raises(ConfigError, match=r"nested more than 200 deep, expected fewer \(f:1\)$"):
        parse_yaml("[" * 100_000, file="f")
    with pytest.raises(ConfigError, match=r"^YAML: got more than 300 values, expected fewer \(f\)$"):
        parse_yaml_documents(f"[{'1, ' * 300}]", file="f", nodes=300)
    (listed,) = parse_yaml_documents(f"[{'1, ' * 299}]", file="f", nodes=300)
    assert len(listed.value) == 299
    with pytest.raises(ConfigError, match=r"^[^\n]*expected JSON \(f\)$"):
        parse_json("[" * 100_000, file="f")


def test_json_needs_no_line_and_takes_null_as_absent(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"a": null, "b": {"c": "5", "d": 1e-5}, "e": [1, 2]}')
    fields = read_model_fields(tmp_path / "config.json")
    assert fields.integer("a", "x") is None
    assert fields.items("e") == (1, 2)
    inner = fields.mapping("b")
    assert inner is not None
    with pytest.raises(ConfigError, match=r'^b\.c: got "5", expected an integer >= 0 \(.*config\.json\)$'):
        inner.integer("c")


def test_a_number_keeps_its_digits(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("a: 0.10\nb: 1e-5\n")
    section = read_section(tmp_path / "s.yaml")
    assert [str(section.decimal(key, expected="a number")) for key in "ab"] == ["0.10", "0.00001"]
