"""Vision towers: as many weights as vLLM's own modules have, what an image is cut into, how long it takes.

The numbers of weights are those of vLLM 0.32.0's modules (products alone: ``nn.Parameter`` of two dimensions or more,
positions left out) for the fields below, built on torch's meta device: blocks, patches' embedding, projector.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from replay.model import Serving, find_gpu, kv_cache_size
from replay.model.config_json import read_model_fields
from replay.model.gpu_memory import tower_bytes
from replay.model.hf_config import read_model_config
from replay.model.operator_forms import forms
from replay.model.shipped_models import shipped_config
from replay.model.towers.tower_kernels import OnGpus, attention_us, encoding_us, on_gpus
from replay.model.towers.tower_times import TowerTimes, tower_times, usual_sizes
from replay.model.vision.audio_tower import audio_parameters
from replay.model.vision.read_tower import TOWERS, read_tower
from replay.model.vision.tower import VisionTower
from tests.studies.validation import layer_work
from tests.studies.validation.layer_operators import packed_rows

TEXT = {"text_config": {"hidden_size": 7168}}
K3 = {
    "vt_hidden_size": 1024, "vt_intermediate_size": 4096, "vt_num_attention_heads": 12, "vt_num_hidden_layers": 27,
    "qkv_hidden_size": 1536, "patch_size": 14, "merge_kernel_size": [2, 2],
}  # fmt: skip
INTERN = {"hidden_size": 1024, "num_hidden_layers": 24, "intermediate_size": 4096, "image_size": [448, 448]}
QWEN3_VL_2B = {
    "depth": 24,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "deepstack_visual_indexes": [5, 11, 17],
}
QWEN3_VL_2B |= {"out_hidden_size": 2048, "num_heads": 16, "patch_size": 16}
WEIGHTS = {
    "Qwen/Qwen3-VL-8B-Instruct": (411_070_464, 1_769_472, 40_108_032 + 120_324_096),
    "Qwen/Qwen3.5-397B-A17B": (411_070_464, 1_769_472, 40_108_032),
    "google/gemma-3-4b-it": (411_747_840 - 677_376, 677_376, 1152 * 2560),
    "google/gemma-4-26B-A4B": (544_942_080, 884_736, 1152 * 2816),
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": (808_845_312, 827_904, 39_845_888 + 20_971_520),
    "mistralai/Mistral-Small-3.1-24B-Instruct-2503": (
        402_653_184,
        602_112,
        4_194_304 + 5_242_880 + 26_214_400,
    ),
    "moonshotai/Kimi-K2.5": (411_070_464, 677_376, 21_233_664 + 33_030_144),
    "kimi_k3": (396_361_728, 602_112, 16_777_216 + 29_360_128),
    "qwen2_vl": (629_145_600, 1_505_280, 44_564_480),
    "qwen2_5_vl": (629_964_800, 1_505_280, 44_564_480),
    "qwen3_vl": (301_989_888, 1_572_864, 25_165_824 + 75_497_472),
    "glm4v": (679_477_248, 1_806_336, 185_073_664 + 25_165_824),
    "internvl": (301_989_888, 602_112, 4096 * 7168 + 7168 * 7168),
}
FILES: dict[str, dict[str, object]] = {
    "kimi_k3": {"vision_config": K3, **TEXT},
    "qwen2_vl": {"vision_config": {"hidden_size": 3584, "in_chans": 3}, **TEXT},
    "qwen2_5_vl": {"vision_config": {"hidden_size": 1280, "out_hidden_size": 3584}, **TEXT},
    "qwen3_vl": {"vision_config": QWEN3_VL_2B, **TEXT},
    "glm4v": {"vision_config": {"num_heads": 12}, **TEXT},
    "internvl": {"vision_config": INTERN, "downsample_ratio": 0.5, **TEXT},
}
"""Of those that do not ship."""
H100 = find_gpu("H100")
ON_GPUS_FILE = Path(__file__).with_name("tower_weights.json")
ON_GPUS: list[dict[str, Any]] = json.loads(ON_GPUS_FILE.read_text())
"""Everything but the language model on one of 1 and 4 GPUs, as the model class of vLLM 0.32.0 makes it on torch's meta
device, norms and biases included; with ``--mm-encoder-tp-mode data``, too."""


def tower_in(folder: Path, kind: str, **fields: object) -> tuple[VisionTower | None, str]:
    """Return the tower of a config.json, and why it is not known."""
    path = folder / "config.json"
    path.write_text(json.dumps({"model_type": kind, **fields}))
    return read_tower(read_model_fields(path))


def tower_of(name: str, folder: Path | None = None) -> VisionTower:
    """Return the tower of a model that ships, or of a file below."""
    if name in FILES:
        assert folder is not None
        tower, _ = tower_in(folder, name, **FILES[name])
    else:
        shipped = shipped_config(name)
        assert shipped is not None
        tower, _ = read_tower(read_model_fields(shipped))
    assert tower is not None
    return tower


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_tower_has_as_many_weights_as_vllms_own(name: str, tmp_path: Path) -> None:
    tower = tower_of(name, tmp_path)
    blocks = tower.num_layers * sum(inputs * outputs for inputs, outputs in tower.layer_products())
    patches = tower.patch_inputs * tower.hidden_size
    projector = sum(inputs * outputs for inputs, outputs in tower.projector)
    assert (blocks, patches, projector) == WEIGHTS[name]
    assert tower.parameters() == sum(WEIGHTS[name])


def test_a_tower_of_which_nothing_is_said_is_that_of_its_familys_defaults(tmp_path: Path) -> None:
    said, _ = tower_in(tmp_path, "qwen2_5_vl", vision_config={"out_hidden_size": 3584}, **TEXT)
    silent, why = tower_in(tmp_path, "qwen2_5_vl", vision_config={}, text_config={"hidden_size": 3584})
    assert (silent, why) == (said, "")
    assert tower_in(tmp_path, "qwen2_5_vl", vision_config=None, **TEXT) == (None, "")


@pytest.mark.parametrize("case", ON_GPUS, ids=lambda case: case["config"]["model_type"])
def test_a_gpu_has_as_many_of_its_weights_as_under_vllm(case: dict[str, Any], tmp_path: Path) -> None:
    config = case["config"]
    tower, why = tower_in(tmp_path, config.pop("model_type"), **config)
    assert tower is not None, why
    for told, weights in case["gpus"].items():
        tp, _, mode = told.partition(" ")
        ranks = tower.num_ranks(int(tp), is_data=mode == "data")
        missing = weights - tower.parameters(ranks) - tower.position_parameters
        if tower.kind == "llama4" and mode:  # its last product is split, all the same
            missing += tower.projector[-1][0] * tower.projector[-1][1] * 3 // 4
        assert 0 < missing < 0.0025 * weights


def test_a_server_counts_what_encodes_its_images_unless_it_is_told_to_have_none() -> None:
    shape = read_model_config("Qwen/Qwen3-VL-8B-Instruct")
    told = (Serving(), Serving(has_data_towers=True), Serving(language_model_only=True))
    split, data, none = (kv_cache_size(shape, H100, tp=4, serving=each) for each in told)
    assert none.tower_bytes == 0
    assert data.tower_bytes == 2 * (shape.vision.parameters() + shape.vision.position_parameters)
    assert data.tower_bytes / 4 < split.tower_bytes < data.tower_bytes / 3.9
    assert data.num_gpu_blocks < split.num_gpu_blocks < none.num_gpu_blocks
    for each in (split, data):
        block_bytes = none.kv_bytes / none.num_gpu_blocks
        assert each.num_gpu_blocks == pytest.approx((none.kv_bytes - each.tower_bytes) / block_bytes, abs=2)


def test_every_kind_is_checked_or_read_as_one_that_is() -> None:
    checked = {tower.kind for tower in map(tower_of, WEIGHTS.keys() - FILES.keys())} | FILES.keys()
    checked |= {case["config"].get("model_type", "qwen3_vl") for case in json.loads(ON_GPUS_FILE.read_text())}
    alike = {"qwen3_vl_moe", "qwen3_5", "glm4v_moe", "internvl_chat", "kimi_vl"}
    assert checked | alike == TOWERS.keys()


@pytest.mark.parametrize(
    ("name", "tokens", "sequences"),
    [
        ("Qwen/Qwen3-VL-8B-Instruct", 1024, (1, 4096)),
        ("google/gemma-3-4b-it", 256, (1, 4096)),
        ("google/gemma-3-4b-it", 1280, (5, 4096)),  # a picture and four crops of it
        ("google/gemma-4-26B-A4B", 280, (1, 2520)),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 5 * 144, (5, 577)),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 5 * 144 + 9, (5, 577)),  # separators are tokens, too
        ("mistralai/Mistral-Small-3.1-24B-Instruct-2503", 100, (1, 400)),
        ("internvl", 7 * 256, (7, 1025)),
    ],
)
def test_an_image_of_so_many_tokens_is_so_many_sequences_of_patches(
    name: str, tokens: int, sequences: tuple[int, int], tmp_path: Path
) -> None:
    assert tower_of(name, tmp_path).sequences(tokens) == sequences


def test_windows_of_qwen_2_5_are_eight_by_eight_patches_in_all_layers_but_four(tmp_path: Path) -> None:
    tower = tower_of("qwen2_5_vl", tmp_path)
    assert (tower.num_layers, tower.num_windowed_layers, tower.window_patches) == (32, 28, 64)


@pytest.mark.parametrize(
    ("kind", "fields", "said"),
    [
        ("mllama", {"vision_config": {"hidden_size": 8}}, "vision_config of model_type 'mllama' is no vision tower"),
        ("gemma3", {"vision_config": {"model_type": "clip"}}, "vision_config.model_type: got 'clip', expected siglip"),
        ("kimi_k25", {"vision_config": {"patch_size": 14}}, "vision_config.hidden_size: got nothing"),
        ("internvl", {"vision_config": {"image_size": [448, 224]}}, "image_size: got [448, 224], expected a square"),
        ("llama4", {"vision_config": {"pixel_shuffle_ratio": 3}}, "pixel_shuffle_ratio: got 3, expected a ratio"),
        ("llama", {}, ""),
        ("qwen3_vl", {"vision_config": None}, ""),
    ],
)  # fmt: skip
def test_a_tower_that_is_not_understood_is_named_and_no_other_stands_in(
    kind: str, fields: dict[str, object], said: str, tmp_path: Path
) -> None:
    tower, why = tower_in(tmp_path, kind, **{**TEXT, **fields})
    assert tower is None
    assert said in why
    assert bool(why) is bool(said)


def test_a_model_keeps_its_tower_and_says_what_of_it_is_not_counted() -> None:
    shape = read_model_config("Qwen/Qwen3-VL-8B-Instruct")
    assert shape.vision == tower_of("Qwen/Qwen3-VL-8B-Instruct")
    assert shape.left_out == ()


def test_whose_images_see_themselves_in_both_directions() -> None:
    found = {name: read_model_config(name).is_mm_prefix_lm for name in WEIGHTS if name not in FILES}
    assert {name for name, whole in found.items() if whole} == {
        "google/gemma-3-4b-it",
        "google/gemma-4-26B-A4B",
    }


# -- how long -----------------------------------------------------------------------------------------------------


def by_hand_us(tower: VisionTower, num_tokens: int) -> float:
    """Return the sum of the kernels of one image on an H100, by forms written out anew."""
    rate, bandwidth = H100.flops_per_us("16bit"), H100.bytes_per_us()
    product, attention = forms()["product in bfloat16"], forms()["vision encoder's attention"]

    def matmul(rows: int, inputs: int, outputs: int) -> float:
        x = product.products * 2 * rows * inputs * outputs / rate
        y = product.weights * 2 * (inputs * outputs + rows * inputs + rows * outputs) / bandwidth
        return float(product.launch_us + (x**product.p + y**product.p) ** (1 / product.p))

    patches, heads, width = num_tokens * tower.merge, tower.num_heads, tower.head_dim
    assert width == 72  # padded to 96
    blocks = heads * -(-patches // 192)
    pairs = blocks * 192 * -(-patches // 128) * 128
    seen = attention.launch_us + attention.wave_us * blocks / 132
    seen += attention.tensor * 4 * 96 * pairs / rate + attention.vector * pairs / (67e6 / 16)
    seen += attention.moved * 8 * heads * width * patches / bandwidth
    assert attention.p == 1
    layer = sum(matmul(patches, *each) for each in tower.layer_products())
    numbers = 10 * tower.hidden_size + 4 * heads * width + 2 * tower.intermediate_size
    layer += 7 * 2.0 + 2 * numbers * patches / (0.6 * bandwidth)
    ends = matmul(patches, tower.patch_inputs, tower.hidden_size)
    return (
        tower.num_layers * (layer + seen) + ends + sum(matmul(num_tokens, *each) for each in tower.projector)
    )


@pytest.mark.parametrize("num_tokens", [17, 256, 4000])
def test_an_image_takes_the_sum_of_its_kernels(num_tokens: int) -> None:
    tower = tower_of("Qwen/Qwen3-VL-8B-Instruct")
    assert encoding_us(on_gpus(tower, H100, tp=1), [num_tokens]) == pytest.approx(
        by_hand_us(tower, num_tokens)
    )


def test_its_attention_is_what_was_held_against_measured_kernels() -> None:
    """A layer more, less the same layer with other heads' attention: of twenty rows of the H100's table."""
    rows = next(
        rows for name, gpu, rows in packed_rows() if (name, gpu) == ("vision encoder's attention", "H100")
    )
    told = forms()["vision encoder's attention"].time_us(layer_work.encoder(rows, H100))
    plain = replace(tower_of("Qwen/Qwen3-VL-8B-Instruct"), merge=1)
    for row, us in list(zip(rows.itertuples(), told.tolist(), strict=True))[:20]:
        tower = replace(plain, num_heads=int(row.num_heads), head_dim=int(row.head_dim))
        images = [int(row.isl)] * int(row.batch_size)
        assert attention_us(on_gpus(tower, H100, tp=1), images) == pytest.approx(us)


@pytest.mark.parametrize("name", WEIGHTS)
def test_three_numbers_stand_for_the_sum_of_the_kernels(name: str, tmp_path: Path) -> None:
    """Within 6 % for images of every size, and for eight of them in a step, on GPUs of two generations."""
    tower = tower_of(name, tmp_path)
    for gpu in ("H100", "B200"):
        for tp in (1, 4):
            server = on_gpus(tower, find_gpu(gpu), tp=tp)
            times = tower_times(server)
            off = [times.one_us(size) / encoding_us(server, [size]) - 1 for size in usual_sizes(tower)]
            assert max(map(abs, off)) < 0.06
            size = tower.tile_tokens or 256
            eight = times.step_us + 8 * (times.one_us(size) - times.step_us)
            assert eight == pytest.approx(encoding_us(server, [size] * 8), rel=0.06)
            assert min(times.step_us, times.token_us, times.pair_us) >= 0
            assert (times.pair_us == 0) is (tower.tile_patches > 0)


def test_tensor_parallelism_splits_layers_and_data_mode_shares_images_out() -> None:
    tower = tower_of("Qwen/Qwen3-VL-8B-Instruct")
    alone, split = (encoding_us(on_gpus(tower, H100, tp=tp), [4096]) for tp in (1, 4))
    assert alone / 4 < split < alone / 2
    data = on_gpus(tower, H100, tp=4, is_data=True)
    assert data == OnGpus(tower=tower, gpu=H100, shares=4)
    assert tower_times(data).ranks == 4
    assert encoding_us(data, [4096]) == alone


def test_who_knows_no_data_mode_takes_no_notice_and_who_is_split_nowhere_is_whole() -> None:
    gemma3, gemma4 = tower_of("google/gemma-3-4b-it"), tower_of("google/gemma-4-26B-A4B")
    assert (
        on_gpus(gemma3, H100, tp=4, is_data=True)
        == on_gpus(gemma3, H100, tp=4)
        == OnGpus(tower=gemma3, gpu=H100, ranks=4)
    )
    assert on_gpus(gemma4, H100, tp=4) == OnGpus(tower=gemma4, gpu=H100)


def test_heads_that_cannot_be_divided_leave_kimis_tower_whole_and_share_its_images_out(
    tmp_path: Path,
) -> None:
    tower = tower_of("kimi_k3", tmp_path)
    assert on_gpus(tower, H100, tp=8) == OnGpus(tower=tower, gpu=H100, shares=8)
    assert on_gpus(tower, H100, tp=4) == OnGpus(tower=tower, gpu=H100, ranks=4)


def test_an_image_more_takes_longer_and_a_larger_one_more_per_token() -> None:
    times = tower_times(on_gpus(tower_of("Qwen/Qwen3-VL-8B-Instruct"), H100, tp=1))
    assert isinstance(times, TowerTimes)
    per_token = [times.one_us(size) / size for size in (4096, 8192, 16384)]
    assert per_token == sorted(per_token)


# -- audio --------------------------------------------------------------------------------------------------------

WHISPER = {"num_mel_bins": 128, "max_source_positions": 1500}
HEARD = {
    "qwen2_audio": (
        WHISPER | {"encoder_layers": 32, "encoder_ffn_dim": 5120, "d_model": 1280},
        4096,
        491_520 + 500_736 + 4_915_200 + 1_920_000 + 4 * 52_428_800 + 2 * 209_715_200 + 5_242_880,
    ),
    "audioflamingo3": (
        WHISPER | {"num_hidden_layers": 32, "intermediate_size": 5120, "hidden_size": 1280},
        4096,
        491_520 + 504_832 + 4_915_200 + 1_920_000 + 4 * 52_428_800 + 2 * 209_715_200 + 5_242_880 + 16_777_216,
    ),
    "gemma4": (
        {"hidden_size": 1024, "num_hidden_layers": 12, "output_proj_dims": 1536, "conv_kernel_size": 5},
        2304,
        1152 + 36_864 + 113_824 + 1_048_576 + 4 * 50_331_648 + 6 * 12_582_912 + 25_165_824 + 61_440
        + 1_572_864 + 3_538_944,
    ),
}  # fmt: skip
"""Fields, the language model's width, and all parameters of the modules that vLLM 0.32.0 makes of them."""


@pytest.mark.parametrize("kind", HEARD)
def test_an_audio_tower_has_as_many_weights_as_vllms_own(kind: str, tmp_path: Path) -> None:
    fields, width, counted = HEARD[kind]
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps({"model_type": kind, "audio_config": fields, "text_config": {"hidden_size": width}})
    )
    found, why = audio_parameters(read_model_fields(path))
    assert why == ""
    assert 0 < counted - found < 0.001 * counted


def test_a_tower_that_is_not_heard_of_is_told_and_a_known_one_takes_memory(tmp_path: Path) -> None:
    text = {"model_type": "qwen2", "hidden_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8}
    text |= {"intermediate_size": 1024, "vocab_size": 1000}
    fields, _, _ = HEARD["qwen2_audio"]
    path, took = tmp_path / "config.json", {}
    for kind in ("qwen2_audio", "mimi"):
        path.write_text(json.dumps({"model_type": kind, "audio_config": fields, "text_config": text}))
        shape = read_model_config(path)
        took[kind] = tower_bytes(shape, tp=2)
        (note,) = shape.left_out
        assert ("its weights are" in note) is (kind == "qwen2_audio")
    assert took == {
        "qwen2_audio": 2 * audio_parameters(read_model_fields(written(tmp_path, fields, text)))[0],
        "mimi": 0,
    }


def written(folder: Path, audio: dict[str, int], text: dict[str, object]) -> Path:
    path = folder / "again.json"
    path.write_text(json.dumps({"model_type": "qwen2_audio", "audio_config": audio, "text_config": text}))
    return path
