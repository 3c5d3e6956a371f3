"""A step's tables: components found, counted, put together; a batch told from what was measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibrate.predictor.build import train
from calibrate.predictor.component_tables import StepTables, never_falling
from calibrate.predictor.components import COMPONENTS
from calibrate.predictor.measured import OperatorTable, ProfileError, operator_table
from calibrate.predictor.prefill import prefill_points, prefill_times
from replay.model import find_gpu
from replay.twin.profiled_table import StepTableFile, model_of, read_step_tables, write_step_tables
from sim.config import InvalidConfig
from sim.latency.profiled import axis_knots
from tests.calibrate.predictor import made_profiles as profiles
from tests.calibrate.predictor.made_profiles import CPU, MLP, decode_us, prefill_us, wanted
from tests.sim.step_batches import batch_of

A100 = find_gpu("A100")
LAYERS = 4


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[StepTableFile, StepTables]:
    """The whole profile of a GPU that obeys known laws, as Vidur writes it, with an LM head from a kernel table."""
    folder = tmp_path_factory.mktemp("profile")
    gemm = profiles.gemm_parquet(folder)
    asked = wanted(folder, served_model="org/model")
    return train([profiles.vidur_folder(folder), gemm], asked, A100, names=("polynomial",))


def of_tokens(tokens: float) -> float:
    """Return what a step's tokens take by the laws: four layers, two collectives each, the embedding and its own."""
    layer = sum(a + b * tokens for name, (a, b) in MLP.items() if name != "emb")
    collective = 5.0 + 1e-4 * tokens * 512 * 2
    saved = 2.0 + tokens * 2 * 128 * 2 / (A100.bytes_per_us() * 0.6)  # not measured: what stands in
    return LAYERS * (layer + saved) + (2 * LAYERS + 1) * collective + MLP["emb"][0] + MLP["emb"][1] * tokens


def of_sequences(sequences: float) -> float:
    """Return what the LM head and the CPU take; of fewer than 8, the profile's least, the CPU takes what 8 take."""
    head = 2.0 + 1e-6 * sequences * 1024 * 512
    return head + sum(CPU.values()) + len(CPU) * max(sequences, 8)


@pytest.mark.parametrize(
    "step",
    [
        [(1, 300, True)] * 10,
        [(256, 0, False)],
        [(100, 400, False)],
        [(200, 128, False), *[(1, 511, True)] * 20],
    ],
    ids=["decodes", "a prompt", "a chunk behind context", "both"],
)
def test_a_step_is_the_sum_of_its_components_by_the_laws(
    trained: tuple[StepTableFile, StepTables], step: list[tuple[int, int, bool]]
) -> None:
    tokens = sum(n for n, _, _ in step)
    expected = of_tokens(tokens) + of_sequences(len(step))
    decodes = [before + 1 for _, before, decodes in step if decodes]
    if decodes:
        expected += LAYERS * decode_us(len(decodes), float(np.mean(decodes)))
    expected += sum(LAYERS * prefill_us(before, n) for n, before, decodes in step if not decodes)
    assert model_of(trained[0]).durations_us(batch_of([step]))[0] == pytest.approx(expected, rel=0.01)


def test_there_are_nineteen_components_and_the_ends(trained: tuple[StepTableFile, StepTables]) -> None:
    others = ("moe", "router", "shared", "latent", "state", "gate", "connections", "qk_norm")
    nineteen = [
        each for each in COMPONENTS if each.group != "ends" and not any(name in each.name for name in others)
    ]
    assert len(nineteen) == 19
    made = {each.component.name: each for each in trained[1].components}
    assert {"embedding", "lm_head"} <= set(made)
    assert made["tensor_parallel_comm"].count == 2 * LAYERS + 1
    assert made["mlp_up_proj"].count == LAYERS
    assert made["schedule"].count == 1


def test_what_stands_in_is_said(trained: tuple[StepTableFile, StepTables]) -> None:
    assert trained[0].about["warnings"] == ["not measured, bytes over bandwidth stand in: attn_kv_cache_save"]


def test_the_edges_of_the_profile_are_kept(trained: tuple[StepTableFile, StepTables]) -> None:
    assert trained[0].domain == {"tokens": 1024.0, "decode_sequences": 32.0, "keys": 1024.0}


def test_the_tables_never_fall(trained: tuple[StepTableFile, StepTables]) -> None:
    for table in trained[0].tables.values():
        for axis in range(table.ndim):
            assert (np.diff(table, axis=axis) >= 0).all()


def test_a_table_is_read_back_as_it_was_written(
    trained: tuple[StepTableFile, StepTables], tmp_path: Path
) -> None:
    write_step_tables(tmp_path / "table.json", trained[0])
    again = read_step_tables(tmp_path / "table.json")
    assert again.domain == trained[0].domain
    for name, table in trained[0].tables.items():
        np.testing.assert_allclose(again.tables[name], table, rtol=1e-5)
    assert (tmp_path / "table.json").stat().st_size < 2_000_000
    assert [path.name for path in tmp_path.iterdir()] == ["table.json"]


def test_on_one_gpu_nothing_is_reduced(tmp_path: Path) -> None:
    asked = wanted(tmp_path, tp=1)
    folder = tmp_path / "a100"
    folder.mkdir()
    gemm = profiles.gemm_parquet(folder)
    file, made = train([gemm], asked, A100, names=("grid",))
    assert "tensor_parallel_comm" not in {each.component.name for each in made.components}
    assert "a roofline stands in: attn_prefill, attn_decode" in str(file.about["warnings"])


def test_strict_refuses_what_a_roofline_would_stand_in_for(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="attn_prefill, attn_decode: in none of the profiles"):
        train([profiles.mlp_csv(tmp_path)], wanted(tmp_path), A100, names=("grid",), strict=True)


def test_pipeline_stages_add_their_hops(tmp_path: Path) -> None:
    csv = profiles.mlp_csv(tmp_path)
    one, two = (train([csv], wanted(tmp_path, pp=pp), A100, names=("grid",))[1] for pp in (1, 2))
    hop = two.tokens_us - one.tokens_us
    assert hop[1] == pytest.approx(5.0 + 1024 / (A100.link_bytes_per_us() * 0.7), rel=1e-3)


def test_a_step_overhead_replaces_the_cpu_costs(tmp_path: Path) -> None:
    csvs = [profiles.mlp_csv(tmp_path), profiles.cpu_csv(tmp_path)]
    with_cpu, _ = train(csvs, wanted(tmp_path), A100, names=("grid",))
    without, _ = train(csvs, wanted(tmp_path), A100, names=("grid",), step_overhead_us=123.0)
    assert (with_cpu.step_us, without.step_us) == (0.0, 123.0)
    dropped = with_cpu.tables["sequences_us"] - without.tables["sequences_us"]
    assert dropped[16] == pytest.approx(sum(CPU.values()) + 5 * 16)


def test_experts_take_the_place_of_the_mlp(tmp_path: Path) -> None:
    config = {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
    profiles.config(tmp_path, **config)
    from dataclasses import replace

    from replay.model import read_model_config

    asked = replace(wanted(tmp_path), shape=read_model_config(profiles.config(tmp_path, **config)))
    _, made = train([profiles.gemm_parquet(tmp_path)], asked, A100, names=("grid",))
    counts = {each.component.name: each.count for each in made.components}
    assert counts["moe"] == LAYERS
    assert "mlp_up_proj" not in counts


# -- a batch from what was measured -----------------------------------------------------------------------------


def of_law(table: OperatorTable, points: list[tuple[float, float]]) -> np.ndarray:
    """Return the times of (tokens, keys) when predictions are the law of prefill attention itself."""
    rows = np.array(points)
    asked = prefill_points(table, rows)
    if table.features == ("kv", "chunk"):
        predicted = np.array([prefill_us(kv, chunk) for kv, chunk in asked])
    else:
        predicted = 10.0 + 0.001 * asked.prod(axis=1)
    return prefill_times(table, rows, predicted)


@pytest.fixture
def single_chunks() -> OperatorTable:
    return operator_table("attn_prefill", {"kv": [0.0, 512], "chunk": [1.0, 512]}, [10.0, 400], source="s")


@pytest.fixture
def whole_batches() -> OperatorTable:
    return operator_table(
        "attn_prefill", {"keys": [1.0, 512], "tokens": [1.0, 4096]}, [10.0, 400], source="s"
    )


def test_a_chunk_behind_context_is_asked_as_one(single_chunks: OperatorTable) -> None:
    """300 tokens behind 500: 650.5 keys each."""
    assert prefill_points(single_chunks, np.array([[300.0, 650.5]]))[0].tolist() == [500.0, 300.0]
    assert of_law(single_chunks, [(300, 650.5)])[0] == pytest.approx(prefill_us(500, 300))


def test_several_prompts_lie_between_vidur_s_rule_and_one_launch_for_all(
    single_chunks: OperatorTable,
) -> None:
    told = of_law(single_chunks, [(4 * 256, 128.5)])[0]
    vidurs = prefill_us(0, 512)
    one_launch = 4 * (prefill_us(0, 256) - prefill_us(0, 1)) + prefill_us(0, 1)
    assert min(vidurs, one_launch) <= told <= max(vidurs, one_launch)
    assert told == pytest.approx(np.sqrt(vidurs * one_launch), rel=1e-3)


def test_a_batch_that_was_measured_is_asked_as_it_is(whole_batches: OperatorTable) -> None:
    assert prefill_points(whole_batches, np.array([[1024.0, 128.5]]))[0].tolist() == [128.5, 1024.0]


def test_a_chunk_behind_context_is_a_share_of_a_prompt_with_as_many_keys(
    whole_batches: OperatorTable,
) -> None:
    """Of a law that is linear in pairs nothing is lost: 300 tokens behind 500 of context, measured or not."""
    assert of_law(whole_batches, [(300, 650.5)])[0] == pytest.approx(prefill_us(500, 300), rel=1e-3)


@pytest.mark.parametrize("kind", ["single_chunks", "whole_batches"])
def test_both_kinds_meet_where_a_step_is_one_whole_prompt(kind: str, request: pytest.FixtureRequest) -> None:
    table = request.getfixturevalue(kind)
    whole, more, fewer = of_law(table, [(256, 128.5), (256, 128.6), (256, 128.4)])
    assert whole == pytest.approx(prefill_us(0, 256))
    assert [more, fewer] == pytest.approx([whole, whole], rel=0.01)


def test_a_dip_becomes_flat_at_its_middle() -> None:
    assert never_falling(np.array([1.0, 5.0, 3.0, 4.0, 6.0])).tolist() == [1.0, 4.0, 4.0, 4.5, 6.0]
    rising = np.add.outer(np.arange(5.0), np.arange(4.0))
    np.testing.assert_array_equal(never_falling(rising), rising)


def test_products_jump_where_their_tiles_end(tmp_path: Path) -> None:
    """Every round of 256 rows takes 100 µs: 1,024 tokens fill four, the next token begins a fifth."""
    law = lambda m, n, k: 100.0 * np.ceil(m / 256) * n * k / 512**2  # noqa: E731 - a law in a line
    gemm = profiles.gemm_parquet(tmp_path, law)
    frame = pd.read_parquet(gemm)
    more = [
        frame.assign(m=m, latency=law(m, frame.n, frame.k) / 1e3)[frame.m == 1] for m in (1025, 1280, 2048)
    ]
    pd.concat([frame, *more]).to_parquet(gemm)
    profiles.attention_parquets(tmp_path)
    file, made = train([tmp_path], wanted(tmp_path), A100)
    products = [each for each in made.components if each.after_us is not None]
    assert {each.report.estimator for each in products if each.report} == {"grid"}
    knots = axis_knots(32_768)
    at = int(np.flatnonzero(knots == 1024)[0])
    assert made.tokens_after_us is not None
    jump = made.tokens_after_us - made.tokens_us
    assert jump[at] == pytest.approx(sum(each.count * each.time_us[at] / 4 for each in products), rel=1e-6)
    assert np.delete(jump, at).max() < jump[at] / 40  # nothing was measured just after any other edge
    write_step_tables(tmp_path / "table.json", file)
    model = model_of(read_step_tables(tmp_path / "table.json"))
    steps = batch_of([[(tokens, 0, False)] for tokens in (1024, 1025)])
    assert np.diff(model.durations_us(steps))[0] == pytest.approx(jump[at], rel=0.01)
    parts = model.operators(steps)
    assert sum(np.diff(parts[each.component.name])[0] for each in products) == pytest.approx(
        jump[at], rel=0.01
    )
    assert np.sum(list(parts.values()), axis=0) == pytest.approx(model.durations_us(steps), abs=0.51)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("time_us", ["a", 1, 2]),
        ("time_after_us", [[1], 1, 2]),
        ("runs_per_step", "x"),
        ("runs_per_step", None),
    ],
)
def test_components_that_are_no_numbers_are_refused_in_one_line(key: str, value: object) -> None:
    component = {"name": "mlp_up_proj", "axis": "tokens", "runs_per_step": 2, "time_us": [1, 2, 3]}
    file = StepTableFile(
        tables={
            "tokens_us": np.ones(3),
            "sequences_us": np.ones(3),
            "decode_us": np.ones((3, 3)),
            "prefill_us": np.ones((3, 3)),
        },
        step_us=0.0,
        domain={},
        about={"components": [component | {key: value}]},
    )
    with pytest.raises(InvalidConfig, match=r"components: .*, expected numbers: train it again") as error:
        model_of(file)
    assert "\n" not in str(error.value)
