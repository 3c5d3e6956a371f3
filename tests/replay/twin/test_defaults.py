from __future__ import annotations

import threading
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from replay.twin.config_read import load_config
from replay.twin.defaults import (
    COEFFICIENTS,
    DefaultsEntry,
    Provenance,
    read_defaults,
    shipped_defaults,
    version_number,
    version_text,
)
from replay.twin.defaults_write import number, render_entry, scalar, write_defaults_entry
from replay.twin.recorded_coefficients import lookup_defaults
from sim.latency import Extended
from traces.errors import ConfigError


def entry(
    *, model: str = "acme/tiny", version: str = "0.32.0", beta0: str = "12000.5", source: str = "calibrated"
) -> DefaultsEntry:
    return DefaultsEntry(
        model=model,
        gpu="RTX 4090",
        tp=1,
        vllm_version=version,
        coefficients={name: Decimal(beta0) if name == "beta0" else Decimal(1) for name in COEFFICIENTS},
        num_gpu_blocks=2588,
        block_size=16,
        provenance=Provenance(
            source=source,
            date="2026-11-21",
            identification="partial",
            traces=("low", "high load"),
            errors={"ttft_mape": 0.125},
        ),
    )


def test_the_shipped_file_holds_every_historic_server_marked_as_weakly_identified() -> None:
    entries = [e for e in shipped_defaults() if e.provenance.source.startswith("historic")]
    assert len(entries) == 91
    assert {e.provenance.identification for e in entries} == {"weak"}


def test_every_historic_row_is_kept_as_an_entry_or_in_the_history_of_one() -> None:
    text = Path(__file__).parents[3].joinpath("replay", "twin", "defaults.yaml").read_text()
    raw = yaml.safe_load(text)["entries"]
    rows = [
        r for e in raw for r in (e, *e.get("history", [])) if r["provenance"]["source"].startswith("historic")
    ]
    assert len(rows) == 98


def test_lookup_ignores_case_and_image_tags() -> None:
    found = lookup_defaults(
        "Meta-Llama/Llama-3.1-8B-Instruct", "h100", tp=1, vllm_version="vllm/vllm-openai:v0.8.4"
    )
    assert found.coefficients["alpha0"] == Decimal("10326.268122")


def test_lookup_without_a_version_takes_the_newest_version() -> None:
    assert lookup_defaults("meta-llama/llama-3.1-8b-instruct", "H100", tp=1).vllm_version == "0.11.0"


@pytest.mark.parametrize(
    ("model", "gpu", "version"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "H100", None),
        ("Llama-3.1-8B-Instruct", "h100-80", "0.11"),
        ("meta-llama/Llama-3.1-8B", "H100", "0.11.9"),
    ],
)
def test_defaults_and_auto_find_the_same_entry(
    model: str, gpu: str, version: str | None, tmp_path: Path
) -> None:
    """By a short name, an alias of the GPU, the same architecture, or the first two numbers of the version."""
    wanted = f"{{model: {model}, gpu: {gpu}{'' if version is None else f', vllm_version: {version}'}}}"
    found = []
    for name in ("blackbox", "auto"):
        path = tmp_path / f"{name}.yaml"
        path.write_text(f"latency: {{model: {name}, defaults: {wanted}}}\nengine: {{max_num_seqs: 8}}\n")
        found.append(load_config(path))
    assert found[0].latency == found[1].latency
    is_other = not model.endswith("Instruct")
    assert any("a model of the same architecture" in note for note in found[0].notes) == is_other


def test_a_miss_names_the_three_nearest_entries() -> None:
    with pytest.raises(
        ConfigError,
        match=r"qwen3-14b on H200 tp=1.*nearest: qwen/qwen3-14b on H100 tp=1.*; .*; .*\(defaults.yaml\)",
    ) as caught:
        lookup_defaults("qwen/qwen3-14b", "H200", tp=1)
    assert "\n" not in str(caught.value)
    assert str(caught.value).count(";") == 3


def test_the_users_file_comes_before_the_shipped_one_even_with_an_older_version(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    write_defaults_entry(path, entry(model="qwen/qwen3-14b", version="0.1.0"))
    assert lookup_defaults("qwen/qwen3-14b", "RTX 4090", tp=1, path=path).vllm_version == "0.1.0"
    assert lookup_defaults("qwen/qwen3-14b", "H100", tp=1, path=path).gpu == "H100"


def test_an_entry_written_is_the_entry_read(tmp_path: Path) -> None:
    path = tmp_path / "d.yaml"
    write_defaults_entry(path, entry())
    assert read_defaults(path) == (entry(),)


def test_writing_keeps_comments_order_and_the_previous_entry_as_history(tmp_path: Path) -> None:
    path = tmp_path / "d.yaml"
    for name in ("a/one", "b/two", "c/three"):
        write_defaults_entry(path, entry(model=name))
    text = (
        path.read_text()
        .replace("  - model: b/two\n", "# about two\n  - model: b/two\n")
        .replace("    tp: 1\n", "    # a note\n    tp: 1\n")
    )
    path.write_text(text)
    for beta0 in ("7", "8"):
        write_defaults_entry(path, entry(model="b/two", beta0=beta0))

    assert [e.model for e in read_defaults(path)] == ["a/one", "b/two", "c/three"]
    second = yaml.safe_load(path.read_text())["entries"][1]
    assert second["coefficients"]["beta0"] == 8
    assert [old["coefficients"]["beta0"] for old in second["history"]] == [7, 12000.5]
    for line in text.splitlines():
        assert line.strip() in path.read_text()
    untouched = text.index("# about two")
    assert path.read_text()[:untouched] == text[:untouched]
    write_defaults_entry(path, entry(model="a/one", beta0="9"))
    assert "\n# about two\n  - model: b/two\n" in path.read_text()


def test_writing_reindents_a_history_that_was_written_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "d.yaml"
    item = [line[2:] for line in render_entry(entry())]
    old = [line[2:] for line in render_entry(entry(beta0="3"), column=4)]
    path.write_text(
        "\n".join(["schema_version: 1", "entries:", *item, "  history:", *old, "# the end"]) + "\n"
    )
    write_defaults_entry(path, entry(beta0="9"))
    data = yaml.safe_load(path.read_text())["entries"]
    assert [old["coefficients"]["beta0"] for old in data[0]["history"]] == [12000.5, 3]
    assert path.read_text().endswith("# the end\n")


def test_a_file_that_is_not_a_defaults_file_is_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "d.yaml"
    path.write_text("entries: [{model: a}]\nschema_version: 1\n")
    with pytest.raises(ConfigError, match=r"entries: got a list in brackets"):
        write_defaults_entry(path, entry())
    path.write_text("schema_version: 2\nentries:\n")
    with pytest.raises(ConfigError, match=r"schema_version: got 2, expected 1"):
        write_defaults_entry(path, entry())
    assert path.read_text() == "schema_version: 2\nentries:\n"
    assert list(tmp_path.iterdir()) == [path]


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "d.yaml"
    threads = [
        threading.Thread(target=write_defaults_entry, args=(path, entry(model=f"m/{i}"))) for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {e.model for e in read_defaults(path)} == {f"m/{i}" for i in range(8)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("    tp: 1", "    tp: 0"), r"entries\[0\]\.tp: got 0, expected an integer >= 1 \(.*d\.yaml:6\)"),
        (("    gpu:", "    gpus:"), r"entries\[0\]\.gpus: unknown key, did you mean entries\[0\]\.gpu\?"),
        (("alpha2: 1, ", ""), r"coefficients\.alpha2: got nothing"),
        (
            ("identification: partial", "identification: excellent"),
            r"got \"excellent\", expected one of weak, partial, good",
        ),
    ],
)
def test_a_bad_entry_is_named_by_key_and_line(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    path = tmp_path / "d.yaml"
    write_defaults_entry(path, entry())
    assert change[0] in path.read_text()
    path.write_text(path.read_text().replace(*change))
    with pytest.raises(ConfigError, match=message):
        read_defaults(path)


@given(st.decimals(min_value=0, max_value=10**9, places=6))
def test_a_coefficient_keeps_six_decimals_through_the_file(value: Decimal) -> None:
    assert Decimal(number(value)) == value


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_any_text_survives_as_a_yaml_scalar(text: str) -> None:
    assert yaml.safe_load(scalar(text)) == text
    assert "\n" not in scalar(text)


def test_versions_compare_as_numbers() -> None:
    assert version_number("0.10.1.1") > version_number("v0.8.4")
    assert version_text("vllm/vllm-openai:v0.8.4") == "0.8.4"


def extended_entry() -> DefaultsEntry:
    own = {"beta3": Decimal("0.000000123"), "kappa": Decimal("0.5"), "floor": Decimal("5400.25")}
    plain = entry()
    return replace(plain, latency_model="extended", coefficients={**plain.coefficients, **own})


def test_an_extended_entry_comes_back_with_its_tiny_coefficients(tmp_path: Path) -> None:
    write_defaults_entry(tmp_path / "d.yaml", entry())
    write_defaults_entry(tmp_path / "d.yaml", extended_entry())
    (back,) = read_defaults(tmp_path / "d.yaml")
    assert back == extended_entry()
    assert back.latency(seed=3) == Extended(
        **{name: back.coefficients[name] for name in COEFFICIENTS},
        beta3=1.23e-7,
        kappa=0.5,
        floor=5400.25,
        seed=3,
    )


@pytest.mark.parametrize("model", ["extended", "auto"])
def test_an_extended_entry_is_looked_up_by_its_own_name_or_by_none(tmp_path: Path, model: str) -> None:
    write_defaults_entry(tmp_path / "d.yaml", extended_entry())
    twin = tmp_path / "twin.yaml"
    twin.write_text(
        f"latency: {{model: {model}, defaults: {{model: acme/tiny, gpu: RTX 4090}}, defaults_file: d.yaml}}\n"
    )
    assert load_config(twin).latency == extended_entry().latency(seed=42)


def test_an_extended_entry_is_not_taken_for_a_blackbox(tmp_path: Path) -> None:
    write_defaults_entry(tmp_path / "d.yaml", extended_entry())
    twin = tmp_path / "twin.yaml"
    twin.write_text(
        "latency: {model: blackbox, defaults: {model: acme/tiny, gpu: RTX 4090}, defaults_file: d.yaml}\n"
    )
    with pytest.raises(
        ConfigError, match=r"latency.model: got blackbox, expected extended or auto.*twin.yaml:1"
    ):
        load_config(twin)


def test_a_step_shorter_than_reading_the_weights_is_said(tmp_path: Path) -> None:
    """Llama-3.1-8B's 15 GB from four H100s at 3,352 GB/s: 1.1 ms; the entry says 48 µs. That of one H100 can be."""
    notes = []
    for tp in (4, 1):
        path = tmp_path / f"{tp}.yaml"
        wanted = f"{{model: meta-llama/llama-3.1-8b-instruct, gpu: H100, tp: {tp}}}"
        path.write_text(f"latency: {{model: blackbox, defaults: {wanted}}}\n")
        notes.append([note for note in load_config(path).notes if "reading the weights alone" in note])
    assert len(notes[0]) == 1
    assert "a step of one token takes 48 µs; reading the weights alone takes 1,1" in notes[0][0]
    assert notes[1] == []
