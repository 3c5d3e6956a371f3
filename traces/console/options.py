"""Options that commands of several rooms share word for word."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from traces.strict.option_table import option_table
from traces.strict.swapped import check_twin_file

JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
FormatOption = Annotated[
    Literal["markdown", "csv"] | None,
    typer.Option(
        "--format",
        help="Print the table as Markdown, for a pull request, or its numbers as CSV, for a sheet.",
    ),
]
ConfigOption = Annotated[
    Path,
    typer.Option(
        metavar="TWIN.yaml",
        help="What to simulate (docs/reference/config.md).",
        callback=check_twin_file,  # before a workload is looked at: its errors would hide the file's
    ),
]
DefaultsOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Your own defaults.yaml, read before the built-in one.")
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
QuantizationOption = Annotated[
    str,
    typer.Option(
        "--quantization",
        "-q",
        help="As vLLM's flag: auto (what the config.json says), or of a checkpoint in 16 bits fp8_per_tensor, "
        "fp8_per_block, fp8_per_channel, mxfp8, mxfp4, int8_per_channel_weight_only, nvfp4_per_token.",
    ),
]
ModelConfigOption = Annotated[
    str,
    typer.Option(
        metavar="CONFIG.json", help="A Hugging Face config.json, or a model that ships by its name."
    ),
]


@option_table
class AnswerForm:
    """The forms in which an answer is written. A file that could not be written is refused at once, by ConfigError."""

    as_json: JsonOption = False
    markdown: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.md", help="Also write the answer as Markdown, for a pull request or a wiki."
        ),
    ] = None

    def __post_init__(self) -> None:
        """Refuse a file that is not vtwin's own Markdown, or cannot be written."""
        if self.markdown is None:
            return
        from traces.atomic import check_place, refuse_foreign
        from traces.errors import ConfigError

        if self.markdown.suffix != ".md":
            raise ConfigError(f"--markdown: got {self.markdown}, expected a name that ends in .md")
        refuse_foreign(self.markdown, option="--markdown")
        check_place(self.markdown, option="--markdown")
