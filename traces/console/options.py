"""Options that commands of several rooms share word for word."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
ConfigOption = Annotated[
    Path, typer.Option(metavar="TWIN.yaml", help="What to simulate (docs/reference/config.md).")
]
DefaultsOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Your own defaults.yaml, read before the built-in one.")
]
LikeOption = Annotated[
    Path | None,
    typer.Option(
        metavar="STEM", help="Take lengths and prefixes from this trace (short for --lengths-from)."
    ),
]
PricesOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="YAML file of prices per GPU and hour, one per line (H100: 2.5). Default: the list prices that ship.",
    ),
]
DtypeOption = Annotated[str, typer.Option(help="As vLLM's flag: auto, bfloat16, float16, float32.")]
KvCacheDtypeOption = Annotated[str, typer.Option(help="As vLLM's flag: auto or fp8.")]
MambaSsmCacheDtypeOption = Annotated[
    str, typer.Option(help="As vLLM's flag: auto, float32, float16, bfloat16.")
]
ModelConfigOption = Annotated[
    str,
    typer.Option(
        metavar="CONFIG.json", help="A Hugging Face config.json, or a model that ships by its name."
    ),
]
