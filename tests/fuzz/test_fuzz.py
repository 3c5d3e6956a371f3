"""Every fuzz target on its corpus and on a few inputs of a fixed seed; ``make fuzz`` runs them for longer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from replay.twin.config_keys import all_keys
from tests.fuzz.readers_targets import READERS
from tests.fuzz.run import CORPUS, all_targets, check, corpus_of, run_batch
from tests.fuzz.target import Target
from tests.fuzz.twin_files import twins

TARGETS = all_targets()


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_no_input_of_a_fixed_seed_is_a_fault(target: Target) -> None:
    outcome = run_batch(target, seed_number=1, number=target.num_in_suite)
    assert outcome.num_inputs >= target.num_in_suite // 2
    if outcome.failure is not None:
        raise AssertionError(f"{target.name}: {outcome.data!r}") from outcome.failure


@pytest.mark.parametrize(
    ("target", "path"),
    [
        pytest.param(target, path, id=f"{target.name}-{path.name}")
        for target in TARGETS
        for path in corpus_of(target)
    ],
)
def test_what_once_failed_does_so_no_more(target: Target, path: Path) -> None:
    check(target, path.read_bytes())


def test_every_key_of_a_twin_stands_in_a_file_that_is_damaged() -> None:
    """A key that is new has its text damaged from the first day on."""
    texts = "\n".join(files["twin.yaml"].decode() for files in twins())
    missing = [key.path for key in all_keys() if not re.search(rf"\b{key.path.rpartition('.')[2]}:\s", texts)]
    assert missing == []


@pytest.mark.parametrize("name", ["twin", "from-serve"])
def test_what_is_damaged_was_whole(name: str, tmp_path: Path) -> None:
    """What a reader refuses at once has nothing behind it that is tried."""
    originals, read = READERS[name]
    for number, files in enumerate(originals()):
        folder = tmp_path / str(number)
        folder.mkdir()
        for file, content in files.items():
            (folder / file).write_bytes(content)
        read(folder)


def test_each_folder_of_the_corpus_belongs_to_a_target() -> None:
    folders = {path.name for path in CORPUS.iterdir() if path.is_dir()}
    assert folders <= {target.name for target in TARGETS}
