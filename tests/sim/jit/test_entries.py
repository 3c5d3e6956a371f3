"""Entries: machine code from disk that Python calls at its address, with what numba would have given."""

from __future__ import annotations

import copy
import math
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest

from sim.engine.control import hold_requests
from sim.engine.run_variants import run_plain
from sim.jit import numba_settings
from sim.jit.code_cache import CodeFolder
from sim.jit.entries import Entry, hear_of_compiles
from sim.jit.machine_code import place_of
from sim.jit.numba_settings import IS_PLAIN_PYTHON, numba_version, processor
from sim.jit.object_file import needs_of

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.skipif(IS_PLAIN_PYTHON, reason="nothing is compiled without the JIT")


def entry_in(folder: Path, function: Callable[..., Any]) -> Entry:
    return Entry(function, None, lambda: [CodeFolder(folder)])


class Pair(NamedTuple):
    records: Any
    square: np.ndarray[Any, Any]


RECORD = np.dtype([("first", np.int32), ("second", np.float64)], align=True)


def mixed(numbers: Any, pair: Any, count: int, factor: float, is_added: bool) -> float:
    total = factor * count
    for i in range(len(numbers)):
        total += numbers[i]
        numbers[i] += 1
    for i in range(pair.square.shape[0]):
        for j in range(pair.square.shape[1]):
            total += 1000 * i * pair.square[i, j] + pair.square[i, j]
    if is_added:
        total += pair.records[1].first + pair.records[0].second
    return total


def arguments() -> tuple[Any, ...]:
    records = np.zeros(2, RECORD)
    records["first"], records["second"] = (3, 4), (0.25, 0.5)
    square = np.arange(12, dtype=np.uint32).reshape(3, 4)
    return np.arange(5), Pair(records.view(np.recarray), square), 7, 0.5, True


def test_arrays_tuples_records_and_numbers_arrive_as_in_python(tmp_path: Path) -> None:
    for entry in (entry_in(tmp_path, mixed), entry_in(tmp_path, mixed)):  # compiled, and loaded
        given, expected = arguments(), arguments()
        assert entry(*given) == mixed(*expected)
        assert (given[0] == expected[0]).all()
        numbers, pair, *_ = arguments()
        assert entry(numbers, pair, np.int32(-7), np.float32(0.5), np.bool_(0)) == mixed(
            np.arange(5), pair, -7, 0.5, False
        )
    assert (entry.num_compiled, entry.num_loaded) == (0, 1)


def test_other_kinds_of_arguments_are_compiled_apart(tmp_path: Path) -> None:
    entry = entry_in(tmp_path, lambda numbers, place: numbers[place] + 1)
    every = np.arange(10)
    assert [entry(every, 2), entry(every[::2], 2), entry(every.astype(np.int32), 2)] == [3, 5, 3]
    assert (entry(every.astype(float), 2), entry(every > 1, 2)) == (3.0, 2)
    assert entry.num_compiled == 5
    with pytest.raises(TypeError, match="got str, expected an array"):
        entry(every, "2")


def test_an_array_that_comes_again_is_read_where_it_lies_and_another_elsewhere(tmp_path: Path) -> None:
    entry = entry_in(tmp_path, lambda numbers, place: numbers[place] + 1)
    for length in (3, 30, 300):
        numbers = np.arange(length)
        assert [entry(numbers, place) for place in (0, 2, 1)] == [1, 3, 2]
        numbers[1] = 77
        assert entry(numbers, 1) == 78
        del numbers


def test_a_number_that_no_word_holds_is_refused(tmp_path: Path) -> None:
    entry = entry_in(tmp_path, lambda number: number)
    assert [entry(each) for each in (-(1 << 63), (1 << 63) - 1)] == [-(1 << 63), (1 << 63) - 1]
    with pytest.raises(struct.error):
        entry(1 << 63)


def test_what_is_returned_has_one_of_four_types(tmp_path: Path) -> None:
    def nothing(number: int) -> None:
        number += 1

    functions: list[Callable[[int], Any]] = [lambda n: n, lambda n: n > 3, lambda n: n / 4, nothing]
    for function in functions:
        for entry in (entry_in(tmp_path / str(id(function)), function) for _ in range(2)):
            for number in (-2, 9):
                assert entry(number) == function(number)
                assert type(entry(number)) is type(function(number))
    with pytest.raises(TypeError, match="expected int64, bool, float64, none"):
        entry_in(tmp_path, lambda n: (n, n))(1)


def test_an_error_of_a_function_is_raised(tmp_path: Path) -> None:
    def small(number: int) -> int:
        if number > 3:
            raise ValueError("too large")
        return number

    for entry in (entry_in(tmp_path, small), entry_in(tmp_path, small)):
        assert entry(3) == 3
        with pytest.raises(ValueError, match="too large"):
            entry(4)


def formulas(x: float) -> float:
    return math.pow(x, 1.7) + math.exp(-x) + math.log(x) + math.cos(x)


def test_loaded_code_gives_what_compiled_code_gives_to_the_last_bit(tmp_path: Path) -> None:
    """What it needs of the C library is taken from the same place, with numba and without."""
    x = np.random.default_rng(3).uniform(1e-9, 700, 200).tolist()
    compiled = entry_in(tmp_path, formulas)
    expected = [compiled(each).hex() for each in x]
    assert (compiled.num_compiled, [numba.njit(formulas)(each).hex() for each in x]) == (1, expected)
    source = f"""
import sys
from pathlib import Path
from tests.sim.jit.test_entries import entry_in, formulas
found = entry_in(Path({str(tmp_path)!r}), formulas)
print(*(found({x}[i]).hex() for i in range(200)), found.num_loaded)
"""
    told = subprocess.run(
        [sys.executable, "-c", source],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert told.stdout.split() == [*expected, "1"]


# -- what an object file needs ------------------------------------------------------------------------------------


def only_file(folder: Path) -> tuple[str, Any]:
    (path,) = folder.rglob("*.code")
    name = str(path.relative_to(folder).with_suffix(""))
    return name, CodeFolder(folder).load(name)


def test_code_that_needs_what_this_process_lacks_is_compiled_again(tmp_path: Path) -> None:
    """LLVM would end the process."""
    first = entry_in(tmp_path, formulas)
    first(2.0)
    name, stored = only_file(tmp_path)
    assert {"pow", "exp", "log", "cos"} == set(stored.needs) == set(needs_of(stored.code))
    lacking = stored._replace(needs=(*stored.needs, "a_function_of_nobody"))
    assert place_of(lacking) is None
    CodeFolder(tmp_path).save(name, lacking)
    again = entry_in(tmp_path, formulas)
    assert again(2.0) == first(2.0)
    assert (again.num_compiled, again.num_loaded) == (1, 0)


NEEDS_NUMBA = """
import sys
from pathlib import Path
from sim.jit.code_cache import CodeFolder
from sim.jit.machine_code import place_of
stored = CodeFolder(Path({folder!r})).load({name!r})
assert place_of(stored) is not None and "numba" not in sys.modules
print(place_of(stored._replace(needs=(*stored.needs, "NRT_Free"))) is not None, "numba" in sys.modules)
"""


def test_what_numba_gives_is_asked_of_numba(tmp_path: Path) -> None:
    entry_in(tmp_path, formulas)(2.0)
    name, _ = only_file(tmp_path)
    source = NEEDS_NUMBA.format(folder=str(tmp_path), name=name)
    told = subprocess.run(
        [sys.executable, "-c", source],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert told.stdout.split() == ["True", "True"]


def test_an_object_file_that_cannot_be_read_needs_numba() -> None:
    assert needs_of(b"\xcf\xfa\xed\xfe" + bytes(100)) == ("NRT_Free",)  # the test above: numba gives it


# -- what is asked of numba's settings ------------------------------------------------------------------------------


def test_the_processor_and_the_version_are_those_that_numba_goes_by(monkeypatch: pytest.MonkeyPatch) -> None:
    codegen = numba.core.registry.cpu_target.target_context.codegen()
    assert processor() == codegen.magic_tuple()
    assert numba_version() == numba.__version__
    monkeypatch.setattr(numba.config, "CPU_NAME", "znver3")
    monkeypatch.setattr(numba.config, "CPU_FEATURES", "")
    assert processor() == (*codegen.magic_tuple()[:1], "znver3", "")


@pytest.mark.parametrize("name", ["DISABLE_JIT", "BOUNDSCHECK", "CPU_NAME", "CPU_FEATURES"])
def test_what_is_taken_for_numba_s_usual_settings_is(name: str, tmp_path: Path) -> None:
    source = f"import numba; print(repr(numba.config.{name}))"
    usual = {key: value for key, value in os.environ.items() if not key.startswith("NUMBA_")}
    told = subprocess.run(
        [sys.executable, "-c", source], check=True, capture_output=True, text=True, env=usual, cwd=tmp_path
    )
    assert told.stdout.strip() == repr(getattr(numba_settings._USUAL, name))


@pytest.mark.parametrize("told", ["variable", "file"])
def test_whoever_sets_something_for_numba_has_it_asked(told: str, tmp_path: Path) -> None:
    if told == "file":
        (tmp_path / ".numba_config.yaml").write_text("disable_jit: 1\n")
    variables = {"NUMBA_DISABLE_JIT": "1"} if told == "variable" else {}
    done = subprocess.run(
        [sys.executable, "-c", "from sim.jit.numba_settings import IS_PLAIN_PYTHON; print(IS_PLAIN_PYTHON)"],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        cwd=tmp_path,
    )
    assert done.stdout.strip() == "True"


# -- as objects ---------------------------------------------------------------------------------------------------


def test_who_listens_is_told_before_a_compile_and_not_of_a_load(tmp_path: Path) -> None:
    heard: list[Entry] = []
    hear_of_compiles(heard.append)
    entries = [entry_in(tmp_path, formulas) for _ in range(2)]
    for entry in entries:
        entry(1.0)
    assert [each for each in heard if each in entries] == entries[:1]


def test_an_entry_is_copied_and_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(hold_requests)) is hold_requests  # noqa: S301 - its own
    assert copy.deepcopy(run_plain) is run_plain
