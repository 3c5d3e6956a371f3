"""Reading measured tables beside plain second versions: picked and put together with lists."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from calibrate.predictor.measured import MissingRows, OperatorTable, ProfileError, ProfileQuery
from calibrate.predictor.profiles.kernel_tables import (
    DISTRIBUTIONS,
    _all_reduce,
    _attention_rows,
    _decode,
    _experts,
    _heads,
    _prefill,
)
from calibrate.predictor.profiles.latent_modules import between_heads
from calibrate.predictor.profiles.matmuls import matmul_table
from calibrate.predictor.profiles.other_heads_windows import windowed_decodes, windowed_prompts
from calibrate.predictor.profiles.profile_cells import MOST_COUNT, MOST_MS, sound_cells
from calibrate.predictor.profiles.sources import _of_version, _other_gpu, read_profiles
from calibrate.predictor.profiles.state_profiles import rows_of_heads
from calibrate.predictor.profiles.unmeasured import mixing, refuse_unmeasured
from calibrate.predictor.profiles.vidur_profiles import MLP_OPERATORS, _cpu, _network, read_vidur
from replay.model import Precision, read_model_config
from replay.model.matmuls import DELTA_NETS, FEWEST_POINTS, KIMI_DELTA, kinds_of_layers, needed_matmuls
from tests.calibrate.predictor import made_profiles
from tests.calibrate.predictor.made_profiles import wanted
from tests.examples import few_or_all

Row = dict[str, Any]
Times = dict[tuple[float, ...], float]
PATH = Path("table.parquet")


def grouped(rows: list[Row], axes: list[str], middle: Callable[[list[float]], float]) -> Times:
    """Return one time for each point of the axes."""
    found: dict[tuple[float, ...], list[float]] = {}
    for row in rows:
        found.setdefault(tuple(row[axis] for axis in axes), []).append(row["time_us"])
    return {point: middle(times) for point, times in found.items()}


def on_a_line(below: Times, above: Times, share: float) -> Times:
    return {point: below[point] * (1 - share) + above[point] * share for point in below if point in above}


def neighbours(have: list[int], asked: float) -> tuple[int, int] | None:
    low, high = [each for each in have if each < asked], [each for each in have if each > asked]
    return (max(low), min(high)) if low and high else None


def times_of(table: pd.DataFrame, axes: list[str]) -> Times:
    return {tuple(row[axis] for axis in axes): row["time_us"] for row in table.to_dict("records")}


def drawn(rng: random.Random, **choices: list[Any]) -> list[Row]:
    """Return rows with values of these, and a time; points are there often, and sometimes twice."""
    made = [{"time_us": float(rng.randint(1, 999))} for _ in range(rng.randint(1, 30))]
    return [row | {name: rng.choice(values) for name, values in choices.items()} for row in made]


def test_a_module_s_rows_are_the_fastest_of_its_heads_or_on_a_line_between() -> None:
    axes = ["batch_size", "isl", "step"]
    for seed in range(few_or_all(20, 1000)):
        rng = random.Random(seed)
        rows = drawn(rng, num_heads=rng.sample([2, 4, 8, 16], 3), batch_size=[1, 2], isl=[1], step=[0, 64])
        heads = rng.choice([1, 2, 3, 4, 6, 8, 12, 16, 32])
        fastest = {
            number: grouped([row for row in rows if row["num_heads"] == number], axes, min)
            for number in {row["num_heads"] for row in rows}
        }
        around = neighbours(list(fastest), heads)
        if heads in fastest:
            found, notes = between_heads(pd.DataFrame(rows), PATH, heads)
            assert (times_of(found, axes), notes) == (fastest[heads], ())
        elif around is None:
            near = min(fastest, key=lambda number: abs(number - heads))
            with pytest.raises(MissingRows, match=rf"num_heads={heads} \(nearest: num_heads={near}\)"):
                between_heads(pd.DataFrame(rows), PATH, heads)
        else:
            low, high = around
            found, notes = between_heads(pd.DataFrame(rows), PATH, heads)
            line = on_a_line(fastest[low], fastest[high], (heads - low) / (high - low))
            assert times_of(found, axes) == pytest.approx(line)
            assert notes == (f"table.parquet: num_heads={heads} between {low} and {high}",)


@pytest.mark.parametrize("axes", [["batch_size", "isl"], ["batch_size", "isl", "step"]])
def test_attention_is_of_its_heads_of_a_part_of_them_or_on_a_line_between(
    axes: list[str], tmp_path: Path
) -> None:
    asked = {tp: wanted(tmp_path, tp=tp) for tp in (1, 2)}
    for seed in range(few_or_all(40, 1000)):
        rng = random.Random(seed)
        window, tp = rng.choice([0, 128]), rng.choice([1, 2])
        pairs = [(2, 1), (3, 1), (4, 1), (6, 1), (9, 1), (4, 2), (6, 2), (8, 2), (16, 2), (24, 2)]
        rows = drawn(
            rng,
            heads=rng.sample(pairs, rng.randint(1, 6)),
            head_dim=[64, 64, 64, 128],
            kv_cache_dtype=["bfloat16", "bfloat16", "fp8"],
            window_size=[0, 128],
            **{axis: [1, 2, 4] for axis in axes},
        )
        for row in rows:
            row["num_heads"], row["num_key_value_heads"] = row.pop("heads")
        heads, kv_heads = 8 // tp, 2 // tp
        usable = [row for row in rows if row["window_size"] == window and row["kv_cache_dtype"] == "bfloat16"]
        wide = [row for row in usable if row["head_dim"] == 64]
        measured = {(row["num_heads"], row["num_key_value_heads"]) for row in wide}
        divisor = next((d for d in (1, 2) if (heads / d, kv_heads / d) in measured), None)
        of_groups = [row for row in wide if row["num_key_value_heads"] == kv_heads]
        around = neighbours([row["num_heads"] for row in of_groups], heads)
        table = pd.DataFrame(rows)
        if divisor is not None:
            found, widened, notes = _attention_rows(table, PATH, asked[tp], window=window)
            part = {"num_heads": heads / divisor, "num_key_value_heads": kv_heads / divisor}
            expected = [row for row in wide if {name: row[name] for name in part} == part]
            assert found["time_us"].tolist() == [row["time_us"] for row in expected]
            assert (widened, len(notes)) == (divisor, divisor - 1)
        elif around is not None:
            found, widened, notes = _attention_rows(table, PATH, asked[tp], window=window)
            low, high = (
                grouped([row for row in of_groups if row["num_heads"] == each], axes, statistics.median)
                for each in around
            )
            line = on_a_line(low, high, (heads - around[0]) / (around[1] - around[0]))
            assert times_of(found, axes) == pytest.approx(line)
            assert (widened, notes) == (
                1,
                (f"table.parquet: num_heads={heads} between {around[0]} and {around[1]}",),
            )
        else:
            told = "no rows of 'bfloat16'"
            if of_groups:
                near = min({row["num_heads"] for row in of_groups}, key=lambda number: abs(number - heads))
                told = rf"no rows of num_heads={heads} \(nearest: num_heads={near}\)"
            elif usable:
                told = "no rows of .*(nearest: .*)"
            with pytest.raises(MissingRows, match=told):
                _attention_rows(table, PATH, asked[tp], window=window)


@pytest.mark.parametrize("divisor", [1, 2, 4, 8, 16, 32])
def test_heads_may_be_divided_by_powers_of_two_up_to_32(divisor: int, tmp_path: Path) -> None:
    asked = wanted(tmp_path, tp=1)
    config = made_profiles.config(tmp_path, num_attention_heads=64, num_key_value_heads=32)
    asked = replace(asked, shape=read_model_config(config))
    rows = [
        {
            "num_heads": 64 // divisor,
            "num_key_value_heads": 32 // divisor,
            "head_dim": 64,
            "batch_size": 1,
            "isl": 1,
        }
        | {"kv_cache_dtype": "bfloat16", "time_us": 1.0}
    ]
    assert _attention_rows(pd.DataFrame(rows), PATH, asked)[1] == divisor


@pytest.mark.parametrize(
    ("tp", "heads", "kv_heads"), [(1, 8, 2), (2, 4, 1), (4, 2, 1), (8, 1, 1), (16, 1, 1)]
)
def test_a_gpu_has_one_head_at_least(tp: int, heads: int, kv_heads: int, tmp_path: Path) -> None:
    found = _heads(wanted(tmp_path, tp=tp))
    assert found == {"num_heads": heads, "num_key_value_heads": kv_heads, "head_dim": 64}


@pytest.mark.parametrize("missing", [0, 1])
def test_a_product_needs_so_many_points(missing: int, tmp_path: Path) -> None:
    product = needed_matmuls(wanted(tmp_path).shape, tp=2, are_modules_measured=True)[0]
    points = FEWEST_POINTS - missing
    same = {"n": product.n, "k": product.k, "gemm_dtype": "bfloat16", "time_us": 9.0}
    rows = [{**same, "m": m + 1} for m in range(points)]
    if missing:
        with pytest.raises(MissingRows, match="no bfloat16 rows around"):
            matmul_table(product, pd.DataFrame(rows), PATH)
    else:
        assert len(matmul_table(product, pd.DataFrame(rows), PATH).points) == points


def test_attention_of_twice_the_batch_is_read_at_its_own(tmp_path: Path) -> None:
    """Half as many heads were measured: rows of an odd batch are none of ours."""
    rows = [
        {"batch_size": batch, "isl": isl, "step": 3, "num_heads": 4, "num_key_value_heads": 1, "head_dim": 64}
        | {"kv_cache_dtype": "bfloat16", "time_us": 100.0 * batch + isl}
        for batch in (1, 2, 3, 4)
        for isl in (1, 7)
    ]
    table, asked = pd.DataFrame(rows), wanted(tmp_path, tp=1)
    for read, features in ((_prefill, ("keys", "tokens")), (_decode, ("batch", "keys"))):
        (found,) = read(table, PATH, asked)
        expected = {}
        for row in rows:
            if row["batch_size"] % 2 == 0:
                batch, isl = row["batch_size"] / 2, row["isl"]
                point = ((isl + 1) / 2, batch * isl) if read is _prefill else (batch, 3 + isl)
                expected[point] = row["time_us"]
        assert found.features == features
        assert points_of(found) == expected


def points_of(table: OperatorTable) -> Times:
    return {
        tuple(point): time for point, time in zip(table.points.tolist(), table.time_us.tolist(), strict=True)
    }


@pytest.mark.parametrize("name", [DELTA_NETS, KIMI_DELTA])
def test_a_recurrence_is_of_its_heads_of_a_part_of_them_or_on_a_line_between(name: str) -> None:
    axes = ["phase", "batch_size", "seq_len"]
    kernels = ["causal_conv1d_fn", "causal_conv1d_update", "chunk", "fused"]
    phases = ["context", "generation", "generation", "verify"]
    for seed in range(few_or_all(12, 1000)):
        rng = random.Random(seed)
        measured = rng.sample([(1, 2), (2, 4), (4, 8), (8, 16), (2, 2)], 3)
        rows = []
        for _ in range(3):
            rows += drawn(
                rng,
                heads=measured,
                phase=phases,
                batch_size=[2, 3, 4, 8],
                seq_len=[1, 16],
                kernel_source=kernels,
            )
        for row in rows:
            row["num_k_heads"], row["num_v_heads"] = row.pop("heads")

        def layer(keys: float, values: float, rows: list[Row] = rows) -> Times:
            its = [
                row for row in rows
                if (row["num_k_heads"], row["num_v_heads"]) == (keys, values) and row["phase"] != "verify"
            ]  # fmt: skip
            kinds = []
            for is_convolution in (True, False):
                some = [row for row in its if row["kernel_source"].startswith("causal") == is_convolution]
                each = grouped(some, [*axes, "kernel_source"], statistics.median)
                kinds.append(grouped([{**dict(zip(axes, point, strict=False)), "time_us": us}
                                      for point, us in each.items()], axes, min))  # fmt: skip
            return {point: kinds[0][point] + kinds[1][point] for point in kinds[0] if point in kinds[1]}

        keys, values = rng.choice([(1, 2), (2, 4), (3, 6), (4, 8), (6, 12), (8, 16), (16, 32)])
        part = None
        for divisor in (2, 4, 8):
            if part is None and (whole := layer(keys / divisor, values / divisor)):
                part = {
                    (point[0], point[1] // divisor, point[2]): us
                    for point, us in whole.items() if point[1] % divisor == 0
                }  # fmt: skip
        around = neighbours(
            [v for k, v in {(row["num_k_heads"], row["num_v_heads"]) for row in rows} if v == 2 * k], values
        )
        between = None
        if around is not None:
            low, high = (layer(each / 2, each) for each in around)
            between = on_a_line(low, high, (values - around[0]) / (around[1] - around[0]))
        ways = [part, between] if name == DELTA_NETS else [between, part]
        expected = layer(keys, values) or next((each for each in ways if each is not None), None)
        table = pd.DataFrame(rows)
        found = rows_of_heads(
            table, PATH, {"num_k_heads": float(keys), "num_v_heads": float(values)}, name=name
        )
        assert (found is None) == (expected is None), seed
        if found is not None:
            assert times_of(found[0], axes) == pytest.approx(expected), seed


def interpolated(points: Mapping[float, float], at: float) -> float:
    """Return the value between the two nearest points in proportion, and beyond the ends that of the end."""
    have = sorted(points)
    if at <= have[0] or at >= have[-1]:
        return points[have[0] if at <= have[0] else have[-1]]
    high = next(each for each in have if each >= at)
    low = max(each for each in have if each < at)
    return points[low] + (points[high] - points[low]) * (at - low) / (high - low)


def test_decodes_within_a_window_take_the_factor_of_other_heads_by_blocks() -> None:
    window, steps = 128, [31, 127, 128, 200, 400]
    for seed in range(few_or_all(10, 500)):
        rng = random.Random(seed)

        def made(heads: int, kv: int, size: int, rng: random.Random = rng) -> list[Row]:
            return [
                {"num_heads": heads, "num_key_value_heads": kv, "window_size": size, "batch_size": batch, "isl": 1,
                 "step": step, "time_us": float(rng.randint(10, 99))}
                for batch in (1, 2, 4) for step in steps if rng.random() < 0.9
            ]  # fmt: skip

        own, kv_heads = made(8, 2, 0), 2
        others = [
            row
            for heads in ((4, 1), (16, 4), (16, 8))
            for size in (0, window, 64)
            for row in made(*heads, size)
        ]
        factors: dict[float, list[float]] = {}
        for heads in ((4, 1), (16, 4), (16, 8)):
            its = [row for row in others if (row["num_heads"], row["num_key_value_heads"]) == heads]
            for batch in (1, 2, 4):
                full = {
                    row["step"] + 1: row["time_us"] for row in its
                    if row["window_size"] == 0 and row["batch_size"] == batch
                }  # fmt: skip
                longer = [
                    row["time_us"] for row in its
                    if row["window_size"] == window and row["batch_size"] == batch and row["step"] + 1 > window
                ]  # fmt: skip
                if full and longer and max(full) >= window:
                    factor = statistics.median(longer) / interpolated(full, window)
                    factors.setdefault(batch * heads[1], []).append(factor)
        middle = {float(np.log(blocks)): statistics.median(each) for blocks, each in factors.items()}
        found = windowed_decodes(pd.DataFrame(own), pd.DataFrame(others), kv_heads=kv_heads, window=window)
        assert (found is None) == (not middle)
        if found is None:
            continue
        expected = {}
        for batch in (1, 2, 4):
            curve = {row["step"] + 1: row["time_us"] for row in own if row["batch_size"] == batch}
            for keys, time_us in curve.items():
                factor = interpolated(middle, float(np.log(batch * kv_heads)))
                cut = interpolated(curve, window) * factor
                expected[batch, keys - 1] = cut if keys > window else time_us
        assert times_of(found, ["batch_size", "step"]) == pytest.approx(expected), seed


def test_prompts_within_a_window_take_the_factor_of_as_much_work_of_other_heads() -> None:
    """Twice as many heads take 1.2 times what their keys take, eight times as many 1.8; between them on a line."""

    def made(heads: int, window: int, factor: float) -> list[Row]:
        return [
            {
                "num_heads": heads,
                "num_key_value_heads": heads,
                "window_size": window,
                "batch_size": batch,
                "isl": isl,
                "time_us": heads
                * batch
                * isl
                * min((isl + 1) / 2, window or isl)
                * (factor if isl > window else 1),
            }
            for batch in (1, 4, 16)
            for isl in (32, 128, 129, 256, 512)
        ]

    own = pd.DataFrame(made(2, 0, 1.0))
    others = made(4, 0, 1.0) + made(4, 128, 1.2) + made(16, 0, 1.0) + made(16, 128, 1.8) + made(16, 64, 9.0)
    found = windowed_prompts(own, pd.DataFrame(others), heads=2, window=128)
    assert found is not None
    assert times_of(found[found["isl"] <= 128], ["batch_size", "isl"]) == {
        (batch, isl): 2 * batch * isl * (isl + 1) / 2 for batch in (1, 4, 16) for isl in (32, 128)
    }
    longer = found[found["isl"] > 128]
    assert set(longer["isl"]) == {129, 256, 512}
    for row in longer.itertuples():
        points: dict[float, list[float]] = {}
        for heads, factor in ((4, 1.2), (16, 1.8)):
            for batch in (1, 4, 16):
                points.setdefault(round(float(np.log(heads * batch * row.isl)), 1), []).append(factor)
        factor = interpolated(
            {work: statistics.median(each) for work, each in points.items()},
            float(np.log(2 * row.batch_size * row.isl)),
        )
        keys = min((row.isl + 1) / 2, 128)
        assert row.time_us == pytest.approx(2 * row.batch_size * row.isl * keys * factor)


def experts_table(**changed: Any) -> list[Row]:  # noqa: ANN401
    usual = {
        "hidden_size": 2048,
        "inter_size": 768,
        "topk": 8,
        "num_experts": 128,
        "moe_tp_size": 2,
        "moe_ep_size": 1,
    }
    usual |= {"moe_dtype": "bfloat16", "distribution": "balanced"}
    return [{**usual, "num_tokens": tokens, "time_us": 10.0 + tokens, **changed} for tokens in (1, 8, 64)]


def experts_of(rows: list[Row], asked: ProfileQuery) -> tuple[Times, tuple[str, ...]]:
    (found,) = _experts(pd.DataFrame(rows), PATH, asked)
    return points_of(found), found.notes


def test_experts_are_those_of_the_model_s_sizes_and_of_the_first_distribution(tmp_path: Path) -> None:
    asked = replace(wanted(tmp_path), shape=read_model_config("Qwen/Qwen3-30B-A3B"))
    rows = experts_table()
    law = {(1.0,): 11.0, (8.0,): 18.0, (64.0,): 74.0}
    said = "table.parquet: experts in bfloat16, tokens to them as"
    assert experts_of(rows, asked) == (law, (f"{said} balanced",))
    for name, other in (("hidden_size", 1024), ("topk", 4), ("moe_tp_size", 4), ("moe_ep_size", 2)):
        assert experts_of(rows + experts_table(time_us=1.0, **{name: other}), asked)[0] == law
        off = {"hidden_size": 2048, "topk": 8, "moe_tp_size": 2, "moe_ep_size": 1}[name]
        with pytest.raises(
            MissingRows, match=rf"no rows of {name}={off} in bfloat16 \(nearest: {name}={other}\)"
        ):
            experts_of(experts_table(**{name: other}), asked)
    for place, name in enumerate(DISTRIBUTIONS):
        others = [row for each in DISTRIBUTIONS[place:] for row in experts_table(distribution=each)]
        others += experts_table(distribution="aaa", time_us=1.0)
        quicker = [{**row, "time_us": row["time_us"] / 2} for row in others if row["distribution"] == name]
        found, notes = experts_of(others + quicker, asked)
        assert notes == (f"{said} {name}",)
        assert found == {point: us / 2 for point, us in law.items()}
    assert experts_of(experts_table(distribution="aaa"), asked)[1] == (f"{said} aaa",)
    with pytest.raises(MissingRows, match=r"no rows of 'bfloat16' \(nearest: 'fp8'\)"):
        experts_of(experts_table(moe_dtype="fp8"), asked)
    fp8 = Precision(name="fp8", bytes_per_weight=1.0, matmul="fp8")
    shares = (("moe", ((fp8, 0.75), (asked.shape.expert_precision, 0.25))),)
    mixed = replace(asked, shape=replace(asked.shape, products=shares))
    found, notes = experts_of(
        rows + [{**row, "moe_dtype": "fp8", "time_us": row["time_us"] / 2} for row in rows], mixed
    )
    assert found == pytest.approx({point: us * (0.75 / 2 + 0.25) for point, us in law.items()})
    assert len(notes) == 2
    assert _experts(pd.DataFrame(rows), PATH, wanted(tmp_path)) == []


def test_collectives_are_the_fastest_of_as_many_gpus_those_of_graphs_first(tmp_path: Path) -> None:
    rows = [
        {"num_gpus": gpus, "message_size": size, "kernel_source": kernel, "time_us": time_us}
        for gpus, size, kernel, time_us in (
            (2, 64, "eager", 1.0), (2, 64, "cuda_graph", 3.0), (2, 64, "graph", 4.0), (2, 128, "cuda_graph", 5.0),
            (4, 64, "eager", 7.0), (4, 64, "other", 6.0), (8, 64, "cuda_graph", 9.0),
        )
    ]  # fmt: skip
    table = pd.DataFrame(rows)
    read = {tp: _all_reduce(table, PATH, wanted(tmp_path, tp=tp)) for tp in (1, 2, 4)}
    assert read[1] == []
    assert points_of(read[2][0]) == {(128.0,): 3.0, (256.0,): 5.0}
    assert points_of(read[4][0]) == {(128.0,): 6.0}
    assert (
        points_of(_all_reduce(table.drop(columns="kernel_source"), PATH, wanted(tmp_path, tp=2))[0])[128.0,]
        == 1.0
    )
    with pytest.raises(MissingRows, match=r"no rows of 16 \(nearest: 8\)"):
        _all_reduce(table, PATH, wanted(tmp_path, tp=16))


def test_vidur_s_collectives_are_of_one_node_and_stages_of_two_where_the_model_takes_several(
    tmp_path: Path,
) -> None:
    rows = [
        {"collective": kind, "num_workers": workers, "devices_per_node": devices, "size": 64,
         f"time_stats.{kind}.median": time_ms}
        for kind, workers, devices, time_ms in (
            ("all_reduce", 2, 1, 0.9), ("all_reduce", 2, 2, 0.4), ("all_reduce", 8, 8, 0.7),
            ("send_recv", 2, 1, 0.5), ("send_recv", 2, 2, 0.2),
        )
    ]  # fmt: skip
    table = pd.DataFrame(rows)

    def read(tp: int, pp: int, table: pd.DataFrame = table) -> dict[str, float]:
        asked = wanted(tmp_path, tp=tp, pp=pp, gpus_per_node=8)
        return {each.operator: float(each.time_us[0]) for each in _network(table, PATH, asked)}

    assert read(1, 1) == {}
    assert read(2, 1) == {"tensor_parallel_comm": 400.0}
    assert read(1, 2) == {"pipeline_parallel_comm": 200.0}
    assert read(8, 2) == {"tensor_parallel_comm": 700.0, "pipeline_parallel_comm": 500.0}
    with pytest.raises(MissingRows, match=r"no rows of 7 \(nearest: 8\)"):
        read(7, 1)
    with pytest.raises(MissingRows, match="no send_recv of 1, measured between two nodes"):
        read(8, 2, table[(table["devices_per_node"] > 1) | (table["collective"] == "all_reduce")])


def test_an_operator_that_vidur_did_not_measure_is_left_out(tmp_path: Path) -> None:
    path = made_profiles.mlp_csv(tmp_path, **{"time_stats.emb.median": None})
    pd.read_csv(path).drop(columns="time_stats.add.median").to_csv(path, index=False)
    names = {each.operator for each in read_vidur(path, wanted(tmp_path))}
    assert names == {*MLP_OPERATORS} - {"embedding", "add"}


def test_of_vidur_s_prefills_those_of_one_prompt_count(tmp_path: Path) -> None:
    path = made_profiles.attention_csv(tmp_path)
    asked, table = wanted(tmp_path), pd.read_csv(path)
    alone = [(each.operator, points_of(each)) for each in read_vidur(path, asked)]
    more = table[table["is_prefill"]].assign(batch_size=2)
    more["time_stats.attn_prefill.median"] *= 7
    pd.concat([table, more]).to_csv(path, index=False)
    assert [(each.operator, points_of(each)) for each in read_vidur(path, asked)] == alone


def test_vidur_s_cpu_costs_are_of_the_model_s_name_and_its_number_of_gpus(tmp_path: Path) -> None:
    rows = [
        {"model_name": name, "batch_size": 1, "tensor_parallel_degree": tp, "schedule_median": time_ms,
         "ray_comm_time_mean": 1.0, "ray_comm_time_median": 2.0}
        for name, tp, time_ms in (("a", 1, 1.0), ("a", 4, 2.0), ("b", 4, 4.0), ("c", 4, 5.0))
    ]  # fmt: skip
    table = pd.DataFrame(rows)
    named = {each.operator: each for each in _cpu(table, PATH, wanted(tmp_path, tp=4, served_model="a"))}
    assert sorted(named) == ["inter_process", "schedule"]
    assert (named["schedule"].time_us.tolist(), named["schedule"].notes) == ([2000.0], ())
    assert named["inter_process"].time_us.tolist() == [2000.0]
    everyone = _cpu(table, PATH, wanted(tmp_path, tp=4))[0]
    assert (everyone.time_us.tolist(), everyone.notes) == (
        [4000.0],
        ("median over 3 models: none was named",),
    )
    with pytest.raises(MissingRows, match=r"no rows of 3 \(nearest: 4\)"):
        _cpu(table, PATH, wanted(tmp_path, tp=3))
    with pytest.raises(MissingRows, match=r"no rows of 'd' \(nearest: '"):
        _cpu(table, PATH, wanted(tmp_path, tp=4, served_model="d"))


@pytest.mark.parametrize("model", ["Qwen/Qwen3.5-397B-A17B", "deepseek-ai/DeepSeek-V3"])
def test_layers_are_measured_where_just_what_mixes_their_tokens_was(model: str, tmp_path: Path) -> None:
    asked = replace(wanted(tmp_path), shape=read_model_config(model))
    names = [kind.operator(name) for kind in kinds_of_layers(asked.shape) for name in mixing(kind)]
    refuse_unmeasured(names, [], asked, where="here")
    for missing in names:
        with pytest.raises(ProfileError, match="not in here; expected "):
            refuse_unmeasured([name for name in names if name != missing], [], asked, where="here")


def test_a_file_that_has_some_of_a_model_is_read_and_one_that_has_none_says_why(tmp_path: Path) -> None:
    path, asked = made_profiles.gemm_parquet(tmp_path), wanted(tmp_path)
    fp8 = Precision(name="fp8", bytes_per_weight=1.0, matmul="fp8")
    some = read_profiles([path], replace(asked, shape=replace(asked.shape, mlp_precision=fp8)))
    assert sorted(some.tables) == ["attn_post_proj", "attn_pre_proj", "lm_head"]
    assert some.complaints == ()
    pd.read_parquet(path).assign(gemm_dtype="int4").to_parquet(path)
    with pytest.raises(MissingRows, match="no rows of 'bfloat16' for "):
        read_profiles([path], asked)
    pd.read_parquet(path).assign(op_name="other").to_parquet(path)
    with pytest.raises(ProfileError, match="no operator of a step in it"):
        read_profiles([path], asked)


def test_of_the_versions_of_each_table_one_is_read() -> None:
    names = [
        "gemm/0.9.0/a.parquet", "gemm/0.10.0/a.parquet", "gemm/0.10.1/b.parquet", "moe/0.9.0/a.parquet",
        "moe/0.11.0/a.parquet", "moe/1.0/a.parquet", "a.parquet",
    ]  # fmt: skip
    files = list(map(Path, names))
    newest = {names[1], names[2], names[4], names[5], names[6]}
    assert {str(path) for path in _of_version(files, None)} == newest
    assert {str(path) for path in _of_version(files, "0.10.0")} == {names[1], names[3], names[5], names[6]}
    assert {str(path) for path in _of_version(files, "0.8.9")} == {names[5], names[6]}


@pytest.mark.parametrize(
    ("path", "gpu", "other"),
    [
        ("data/h100/gemm.parquet", "H100", None),
        ("data/h100/gemm.parquet", "H200", "H100"),
        ("a100_beside/h100-sxm.csv", "H100-SXM", None),
        ("h100/a100.csv", "H100", "A100"),
        ("data/gemm.parquet", "H100", None),
    ],
)
def test_the_gpu_that_a_path_names_last_is_whose_profile_it_is(
    path: str, gpu: str, other: str | None, tmp_path: Path
) -> None:
    assert _other_gpu(path, replace(wanted(tmp_path), gpu=gpu)) == other


@pytest.mark.parametrize(
    ("name", "cell", "said"),
    [
        ("tokens", float(MOST_COUNT), None),
        ("tokens", float(MOST_COUNT) + 2, "a whole number of 0 to"),
        ("tokens", 0, None),
        ("tokens", -1, "a whole number of 0 to"),
        ("latency", MOST_MS, None),
        ("latency", MOST_MS * 1.0001, "a time of 0 to"),
        ("latency", 0.0, None),
        ("latency", float("nan"), None),
        ("latency", -1e-9, "a time of 0 to"),
    ],
)
def test_a_cell_at_the_end_of_its_range_is_sound_and_one_beyond_is_not(
    name: str, cell: float, said: str | None
) -> None:
    table = pd.DataFrame({"tokens": [1.0, 1.0], "latency": [1.0, 1.0]})
    table.loc[1, name] = cell
    if said is None:
        assert sound_cells(table, PATH, needed=["tokens"], times=["latency"]).equals(table)
    else:
        with pytest.raises(ProfileError, match=rf"column '{name}'.*expected {said}.* \(row 12\)"):
            sound_cells(table, PATH, needed=["tokens"], times=["latency"], first_row=11)
