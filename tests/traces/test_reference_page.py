"""The field table and the door agree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import traces
from traces.schema import EVENT_FIELDS, FIELDS, REQUEST_FIELDS

ROOT = Path(__file__).parents[2]


def test_blis_columns_come_first_and_in_its_order() -> None:
    base = [field.name for field in REQUEST_FIELDS if field.origin == "base"]
    assert " ".join(base) == (
        "request_id client_id tenant_id slo_class session_id round_index prefix_group prefix_length "
        "streaming input_tokens output_tokens text_tokens image_tokens audio_tokens video_tokens "
        "reason_ratio model deadline_us server_input_tokens arrival_time_us send_time_us first_chunk_time_us "
        "last_chunk_time_us num_chunks status error_message finish_reason"
    )
    names = [field.name for field in REQUEST_FIELDS]
    assert names.index("vllm_priority") == names.index("slo_class") + 1
    assert names.index("slo_target_us") == names.index("deadline_us") + 1
    origins = [field.origin for field in REQUEST_FIELDS]
    assert origins.index("vtwin") > max(i for i, origin in enumerate(origins) if origin != "vtwin")


def test_a_name_ending_in_us_is_a_time_in_microseconds_and_the_other_way_round() -> None:
    for field in (*REQUEST_FIELDS, *EVENT_FIELDS):
        assert (field.unit == "µs") == field.name.endswith("_us"), field.name


def test_every_column_is_named_once() -> None:
    assert len(FIELDS) == len(REQUEST_FIELDS)


def test_every_public_name_can_be_had() -> None:
    for name in traces.__all__:
        assert getattr(traces, name) is not None


def test_importing_the_door_imports_nothing_heavy() -> None:
    code = "import sys, traces, traces.cli; print({'pandas', 'numpy', 'pyarrow'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert found.stdout.strip() == "set()"
