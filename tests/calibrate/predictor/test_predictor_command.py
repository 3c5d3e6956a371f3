"""``vtwin predictor train``, and TWIN.yaml with what it wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import vtwin
from replay import dump_config, load_config
from replay.twin.config_write import config_digest
from replay.twin.profiled_table import ways_in
from sim import Blackbox, Physics, Profiled
from tests.calibrate.predictor import made_profiles as profiles
from traces.errors import ConfigError


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a profile, a model's config, and a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("calibrate.predictor.cache.default_cache", lambda: tmp_path / "cache")
    profiles.vidur_folder(tmp_path)
    profiles.config(tmp_path)
    return tmp_path


def train(*more: str, profile: str = "a100", gpu: str = "A100") -> int:
    common = ["--model-config", "config.json", "--gpu", gpu, "--tp", "2", "--output", "table.json"]
    return vtwin.main(["predictor", "train", "--profile", profile, *common, "--estimator", "grid", *more])


def twin(folder: Path, latency: str = "{model: profiled, table: table.json}") -> Path:
    path = folder / "twin.yaml"
    path.write_text(f"engine: {{num_gpu_blocks: 4000, max_model_len: 1024}}\nlatency: {latency}\n")
    return path


def test_a_table_is_trained_and_simulated_with(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train("--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["domain"] == {"tokens": 1024.0, "decode_sequences": 32.0, "keys": 1024.0}
    assert {each["name"] for each in said["components"]} >= {"attn_prefill", "lm_head", "schedule"}
    config = load_config(twin(here))
    assert isinstance(config.latency, Profiled)
    assert any("max_num_seqs 256 (measured to 32)" in note for note in config.notes)
    assert any("stand in: attn_kv_cache_save" in note for note in config.notes)


def test_the_second_training_is_answered_from_the_cache_until_a_csv_changes(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train()
    first = (here / "table.json").read_text()
    capsys.readouterr()
    train()
    kept = capsys.readouterr().out
    assert kept.count(", cached)") == 18
    assert (here / "table.json").read_text() == first
    profiles.mlp_csv(here / "a100", **{"time_stats.mlp_act.median": 1.0})
    train()
    assert capsys.readouterr().out.count(", cached)") == 17
    assert (here / "table.json").read_text() != first


def test_a_configuration_with_a_table_is_written_out_and_read_back(here: Path) -> None:
    train()
    twin(here, "{model: profiled, table: table.json, coefficients: {alpha0: 1500.5, scale: 1.25, step: 80}}")
    config = load_config(here / "twin.yaml")
    (here / "sub").mkdir()
    (here / "sub" / "again.yaml").write_text(dump_config(config))
    again = load_config(here / "sub" / "again.yaml")
    assert again == config
    assert (again.latency.alpha0, again.latency.scale, again.latency.step) == (
        config.latency.alpha0,
        1.25,
        80.0,
    )


def test_another_table_under_the_same_name_is_another_configuration(here: Path) -> None:
    train()
    before = config_digest(load_config(twin(here)))
    train("--step-overhead-us", "900")
    assert config_digest(load_config(twin(here))) != before


def test_a_table_beside_another_model_is_there_to_be_compared(here: Path) -> None:
    """As ``calibrate models --models blackbox,profiled`` loads it, the file's coefficients left aside."""
    train()
    six = "{alpha0: 1, alpha1: 0, alpha2: 0, beta0: 5000, beta1: 9, beta2: 9}"
    twin(here, f"{{model: blackbox, coefficients: {six}, table: table.json}}")
    assert isinstance(load_config(here / "twin.yaml").latency, Blackbox)
    compared = load_config(here / "twin.yaml", latency_model="profiled").latency
    assert isinstance(compared, Profiled)
    assert compared.alpha0 == ways_in()["dense"]["alpha0"]


@pytest.mark.parametrize(
    ("more", "model", "told"),
    [
        ("", Profiled, "latency.model auto: profiled, since neither"),
        (", model_config: Qwen/Qwen3-14B", Physics, "it is nearer to measured servers than latency.table"),
        (
            ", model_config: microsoft/Phi-3.5-MoE-instruct",
            Profiled,
            "latency.model auto: profiled, since no",
        ),
    ],
)
def test_auto_takes_a_table_where_physics_is_not_nearer_and_says_so(
    here: Path, more: str, model: type, told: str
) -> None:
    train()
    path = twin(here, f"{{model: auto, table: table.json{more}}}")
    if more:
        path.write_text(path.read_text() + "hardware: {gpu: A100, tp: 2}\n")
    config = load_config(path)
    assert type(config.latency) is model
    assert any(told in note for note in config.notes)


@pytest.mark.parametrize(
    ("component", "alphas", "expected"),
    [
        ("", "", ways_in()["dense"]),
        ("moe", "", ways_in()["MoE"]),
        ("", "alpha0: 0", {"alpha0": 0, "alpha1": ways_in()["dense"]["alpha1"]}),
    ],
)
def test_a_table_has_the_way_in_of_its_class_unless_it_is_given(
    here: Path, component: str, alphas: str, expected: dict[str, float]
) -> None:
    train()
    text = (here / "table.json").read_text()
    if component:
        text = text.replace('"components":[', f'"components":[{{"name":"{component}","runs_per_step":1}},')
    (here / "table.json").write_text(text)
    config = load_config(twin(here, f"{{model: profiled, table: table.json, coefficients: {{{alphas}}}}}"))
    assert {name: getattr(config.latency, name) for name in expected} == expected
    assert any("alpha0 is not given" in note for note in config.notes) == (not alphas)
    assert all(8 * value % 1 == 0 for value in ways_in()["MoE"].values())  # exact in binary


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("no JSON", "not JSON"),
        ('{"kind": "a cake"}', "kind: got 'a cake', expected a table that"),
        (
            '{"kind": "profiled step times", "schema_version": 99}',
            "schema_version: got 99, expected 1: train it again",
        ),
        ('{"kind": "profiled step times", "schema_version": 1, "tables": {}}', "tables: 'tokens_us'"),
    ],
)
def test_a_file_that_is_no_table_is_refused_in_one_line(here: Path, text: str, complaint: str) -> None:
    (here / "table.json").write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        load_config(twin(here))


def test_profiled_without_a_table_says_what_it_needs(here: Path) -> None:
    with pytest.raises(ConfigError, match=r"latency\.table: got nothing, expected the file that"):
        load_config(twin(here, "{model: profiled}"))


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        ({"profile": "nowhere"}, 3, "nowhere: no such file or folder"),
        ({"gpu": "Z9000"}, 2, "--gpu: got 'Z9000'"),
        ({"gpu": "H100"}, 3, "no profile of H100"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_nothing_is_written(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: dict[str, str], code: int, complaint: str
) -> None:
    assert train(**arguments) == code
    captured = capsys.readouterr().err.strip()
    assert complaint in captured
    assert "\n" not in captured
    assert not (here / "table.json").exists()


def test_strict_says_what_is_lacking(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "a100" / "attention.csv").unlink()
    assert train("--strict") == 3
    assert "attn_prefill, attn_decode: in none of the profiles" in capsys.readouterr().err


def test_what_a_collective_takes_is_a_coefficient_here_and_the_key_of_the_hardware_is_said_to_do_nothing(
    here: Path,
) -> None:
    assert train() == 0
    path = twin(here, "{model: profiled, table: table.json, model_config: config.json}")
    path.write_text(f"hardware: {{gpu: A100-80, tp: 2, nccl_skew_us: 50}}\n{path.read_text()}")
    said = "hardware.nccl_skew_us: instead: latency.coefficients.nccl_skew; here it has no effect"
    assert said in load_config(path).notes
