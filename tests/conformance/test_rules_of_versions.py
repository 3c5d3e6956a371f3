"""Each rule that came with a version shows in a recording: with the other the engine differs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from sim.versions import rules_of
from tests.conformance.compare import compare
from tests.conformance.recording import read_recording

RECORDINGS = Path(__file__).parent / "recordings"

SHOWN: list[tuple[str, str, Any]] = [
    ("0.15.1_groups_3_0118", "state_chunks", "to the last state"),
    ("0.15.1_groups_3_0037", "defers_states_of_step", True),
    ("0.19.1_groups_3_0105", "caps_windows", True),
    ("0.19.1_groups_3_0100", "caches_to_alignment", True),
    ("0.22.0_groups_3_0018", "frees_skipped_first", True),
    ("0.23.0_groups_3_0018", "frees_skipped_first", False),
    ("0.23.0_groups_3_0042", "frees_windows_first", False),
    ("0.23.0_groups_3_0094", "state_chunks", "to junctions"),
    ("0.25.1_groups_3_0094", "state_chunks", "to the last state"),
    ("0.25.1_groups_3_0108", "excludes_tokens_in_flight", True),
    ("0.25.1_groups_3_0094", "keeps_junctions", True),
    ("0.26.0_groups_3_0106", "state_chunks", "to block ends"),
    ("0.26.0_groups_3_0108", "excludes_tokens_in_flight", False),
    ("0.26.0_groups_3_0094", "keeps_junctions", False),
    ("0.28.0_groups_3_0106", "state_chunks", "to known ends"),
    ("0.28.0_groups_3_0094", "retires_states_over_gaps", True),
    ("0.31.0_groups_3_0094", "retires_states_over_gaps", False),
    ("0.31.0_groups_3_0155", "leaves_token_behind_state", True),
    ("0.31.0_groups_3_0155", "enters_prompt_state_anew", True),
    ("0.33.0_groups_3_0155", "leaves_token_behind_state", False),
    ("0.33.0_groups_3_0155", "enters_prompt_state_anew", True),
    ("0.29.0_checkpoints_groups_291_0006", "prefill_checkpoints", "of every chunk"),
    ("0.30.0_checkpoints_groups_301_0014", "prefill_checkpoints", "of the last chunk"),
    ("0.31.0_checkpoints_groups_311_0000", "prefill_checkpoints", "of every chunk"),
    ("0.31.0_checkpoints_groups_311_0034", "prefill_checkpoints", "where hits end"),
    ("0.24.0_drafts_41_0249", "pads_admissions", "or waits"),
    ("0.25.1_drafts_41_0070", "pads_admissions", "never"),
    ("0.28.0_drafts_near_the_limit", "pads_admissions", "where it fits"),
    ("0.29.0_drafts_near_the_limit", "pads_admissions", "or waits"),
    ("0.29.0_drafts_41_0024", "pads_admissions", "beside hits"),
    ("0.31.0_drafts_41_0024", "pads_admissions", "where it fits"),
    ("0.22.0_drafts_41_0045", "gives_draft_slots_at_admission", True),
    ("0.23.0_drafts_41_0045", "gives_draft_slots_at_admission", False),
    ("0.19.1_groups_41_0091_drafts", "drops_last_block_once", True),
    ("0.22.0_groups_41_0091_drafts", "drops_last_block_once", False),
    ("0.22.0_groups_41_0103_drafts", "caches_past_hit", True),
    ("0.26.0_drafts_41_0253", "queues_freed_without_cache", True),
    ("0.27.0_drafts_41_0253", "queues_freed_without_cache", False),
    ("0.29.0_groups_41_0022_drafts", "keeps_ends_a_block_earlier", True),
    ("0.31.0_groups_41_0022_drafts", "keeps_ends_a_block_earlier", False),
    ("0.31.0_groups_41_0003_drafts", "looks_past_hit", True),
    ("0.31.0_drafts_41_0188", "hashes_ahead_of_drafts", True),
    ("0.33.0_drafts_41_0188", "hashes_ahead_of_drafts", False),
    ("0.31.0_drafts_41_0157", "caches_at_outputs", True),
    ("0.33.0_drafts_41_0188", "caches_at_outputs", False),
    ("0.30.0_adapters_1_0054", "queues_passed_over_apart", False),
    ("0.31.0_images_1_0018", "cuts_before_cached_images", True),
    ("0.31.0_images_1_0027", "holds_repeated_images", True),
    ("0.31.0_offload_groups_21_0072_drafts", "reserves_drafts_by_group", True),
    ("0.33.0_adapters_1_0016", "counts_adapters_of_all_running", False),
    ("0.33.0_images_1_0213", "passes_over_empty_shares", False),
    ("0.33.0_images_1_0022", "keeps_whole_images_together", False),
    ("0.33.0_drafts_3_0076_images", "encodes_without_lookahead", False),
    ("0.33.0_offload_groups_1_0117", "gives_up_by_place", False),
    ("0.33.0_offloading_1_0117", "offers_again", False),
    ("0.33.0_offload_groups_21_0036_drafts", "takes_surplus_back", False),
    ("0.33.0_offload_groups_21_0015_drafts", "keeps_junctions_a_block_earlier", False),
    ("0.26.0_adapters_1_0054", "sets_stale_output_aside", True),
    ("0.30.0_grammars_1_0051", "queues_passed_over_apart", False),
    ("0.28.0_images_1_0027", "holds_images_to_the_last", True),
    ("0.27.0_drafts_3_0035_images", "encodes_ahead", True),
    ("0.23.0_drafts_3_0008_images", "frees_images_once_read", True),
    ("0.23.0_groups_62_0034", "thins_states_out", True),
    ("0.25.1_groups_41_0003_drafts", "ends_states_at_hit", True),
    ("0.25.1_groups_41_0003_drafts", "excludes_tokens_in_flight", True),
]
"""The recording, a rule that its version has, and what it would be with the version before or behind."""


@pytest.mark.parametrize(("name", "rule", "other"), SHOWN)
def test_a_version_with_another_version_s_rule_decides_otherwise(name: str, rule: str, other: object) -> None:
    case = RECORDINGS / f"vllm_{name}"
    recording = read_recording(case, case, is_async=False)
    rules = rules_of(recording.config.vllm_version)
    assert getattr(rules, rule) != other
    changed = replace(rules, **{rule: other})
    with (
        mock.patch("sim.engine.initial_state.rules_of", return_value=changed),
        mock.patch("sim.engine_settings.rules_of", return_value=changed),
    ):
        assert compare(read_recording(case, case, is_async=False)) is not None
