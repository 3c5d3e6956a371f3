"""Code that a configuration names: the only module that decides whether it may run, and loads it.

A TWIN.yaml may name a latency model or a routing function of the user's own. Loading either runs whatever is in the
file, so that reading a stranger's configuration would run a stranger's code. It is loaded only if the user has allowed
it: with ``--allow-code``, with ``VTWIN_ALLOW_CODE=1`` in the environment, or inside ``allowing_code()``.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from traces.console.users_code import note_users_file, told

T = TypeVar("T")

VARIABLE = "VTWIN_ALLOW_CODE"
"""Worker processes inherit it. Only the value 1 allows code."""

HOW = f"--allow-code (or {VARIABLE}=1) if you trust it: it would run on this machine"

AllowCodeOption = Annotated[
    bool,
    typer.Option(
        "--allow-code",
        help="Run the Python code that the configuration names (latency.model: FILE.py:Class, routing policies). Only "
        "for files that you trust.",
    ),
]


class CodeFault(Exception):  # noqa: N818 - callers translate it; the name says what it is
    """Why a module was not loaded: ``got`` and ``expected``, None where the caller knows what it expected."""

    def __init__(self, got: str, expected: str | None = None) -> None:
        super().__init__(got)
        self.got = got
        self.expected = expected


def is_allowed() -> bool:
    """Return whether code that a configuration names may run."""
    return os.environ.get(VARIABLE) == "1"


@contextmanager
def allowing_code(is_given: bool = True) -> Iterator[None]:
    """Allow configurations to load code inside the block; ``is_given=False`` leaves it as the environment says."""
    before = os.environ.get(VARIABLE)
    if is_given:
        os.environ[VARIABLE] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = before


def with_code_option(command: Callable[..., T]) -> Callable[..., T]:
    """Return the command with ``--allow-code`` added, in force while it runs."""

    @functools.wraps(command)
    def allowing(*args: Any, allow_code: bool = False, **options: Any) -> T:  # noqa: ANN401 - those of any command
        with allowing_code(allow_code):
            return command(*args, **options)

    hints = {**get_type_hints(command, include_extras=True), "allow_code": AllowCodeOption}
    signature = inspect.signature(command)
    option = inspect.Parameter("allow_code", inspect.Parameter.KEYWORD_ONLY, default=False)
    named = [each.replace(annotation=hints[each.name]) for each in (*signature.parameters.values(), option)]
    added: Any = allowing
    added.__signature__ = signature.replace(parameters=named)
    added.__annotations__ = hints
    return allowing


def load_module(name: str, *, folder: Path) -> ModuleType:
    """Return the module called ``name``, or that the file ``name`` (``*.py``, from ``folder``) makes.

    Raises CodeFault if no code may run, if there is none, and for any exception of the code itself.
    """
    if not is_allowed():
        raise CodeFault("code of its own", HOW)
    try:
        if name.endswith(".py"):
            return _of_file(folder / name)
        module = import_module(name)
        note_users_file(module.__file__ or name)
    except CodeFault:
        raise
    except Exception as fault:
        raise CodeFault(told(fault)) from fault
    return module


class _FromSource(SourceFileLoader):
    """Reads a file each time, and leaves no ``__pycache__`` beside it.

    Python uses stored bytecode if the file still has the same size and time in whole seconds: a sweep's worker could
    run the previous version.
    """

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the source as it is now."""
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def _of_file(file: Path) -> ModuleType:
    """Return a file's module, under a name that no other module has: ``json.py`` must not become ``json``."""
    digest = hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:16]
    name = f"vtwin_own_code_{digest}"
    spec = spec_from_file_location(name, file, loader=_FromSource(name, str(file)))
    if spec is None or spec.loader is None or not file.is_file():
        raise CodeFault(f"no file {file}")
    note_users_file(file)
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
