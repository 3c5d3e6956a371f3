"""The options of ``vtwin calibrate`` and of its subcommands: tables, each of related options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import click
import typer

from traces.console.options import JsonOption
from traces.strict.option_table import option_table
from traces.strict.swapped import check_twin_file

ConfigOption = Annotated[
    Path,
    typer.Option(metavar="TWIN.yaml", help="The twin that simulates the requests.", callback=check_twin_file),
]
ReportOption = Annotated[
    Path, typer.Option(metavar="DIR", help="Folder for report.json, report.md, report.html.")
]
HoldoutOption = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="STEM",
        help="A trace that the fit does not see, for the held-out errors; may be repeated. "
        "Default: fit the first half of each trace, hold out the second.",
    ),
]
RepeatOption = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="STEM",
        help="A second run of one trace's load. Shows run-to-run noise next to every error. "
        "Detected automatically if two of the traces sent the same requests.",
    ),
]
InferAsyncOption = Annotated[
    bool, typer.Option("--infer-async", help="Fit with and without async scheduling and take the better fit.")
]


@option_table
class TraceOptions:
    """The observed traces, and where the report goes."""

    observed: Annotated[
        list[Path], typer.Argument(metavar="OBSERVED…", help="Observed traces: stems, headers or tables.")
    ]
    report: ReportOption


@option_table
class CalibratedTraces:
    """The observed traces, and where the report goes; neither is needed with ``--steps``."""

    observed: Annotated[
        list[Path] | None,
        typer.Argument(metavar="OBSERVED…", help="Observed traces: stems, headers or tables."),
    ] = None
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder for report.json, report.md, report.html; needed with a trace."
        ),
    ] = None

    @property
    def paths(self) -> list[Path]:
        """The observed traces, none where there are none."""
        return self.observed or []

    @property
    def folder(self) -> Path:
        """Where the report goes. Raises click.UsageError, as for any missing option."""
        if self.report is None:
            raise click.UsageError("Missing option '--report'.")
        return self.report


@option_table
class FitTwinOptions:
    """The twin, whether it is fitted, and traces kept out of the fit."""

    config: Annotated[
        Path | None,
        typer.Option(
            metavar="TWIN.yaml",
            help="The twin to simulate the traces with. Default with --fit: what the first trace's header says.",
            callback=check_twin_file,
        ),
    ] = None
    fit: Annotated[bool, typer.Option("--fit", help="Fit the twin's coefficients to the traces.")] = False
    from_twin: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="OLD.yaml",
            help="Another server's fitted twin of this model, on another GPU or with other flags: its coefficients, "
            "scaled by physics of both, corrected by the traces: 20 requests one at a time do.",
            callback=check_twin_file,
        ),
    ] = None
    steps: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Fit the steps to the server's own: vLLM's log of them, a .steps.csv, Dynamo's forward-pass metrics; "
            "may be repeated. auto: those beside the traces. The traces show the way in; without a trace that stays.",
        ),
    ] = None
    holdout: HoldoutOption = None
    repeat: RepeatOption = None


@option_table
class MeasureOptions:
    """How the two sides are compared."""

    slo: Annotated[
        str | None,
        typer.Option(
            metavar="LIMITS", help="Latency limits (SLO); count requests that meet all: ttft=500ms,tpot=30ms."
        ),
    ] = None
    network: Annotated[
        str | None,
        typer.Option(
            metavar="NETWORK",
            help="Add the client's network to the simulated side: rtt=2ms,bandwidth=100 (Mbit/s). "
            "rtt=measured takes the round trip that the trace recorded.",
        ),
    ] = None
    max_concurrency: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="The traces' client sent with at most N requests in flight, and their headers do not say it: simulate "
            "from due times, with this cap.",
        ),
    ] = None
    margin: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=10,
            metavar="FRAC",
            help="Test equivalence of the means: their ratio within 1 ± this fraction.",
        ),
    ] = None


@option_table
class WriteOptions:
    """Where a fitted twin is written."""

    write_config: Annotated[
        Path | None, typer.Option(metavar="TWIN2.yaml", help="Write the fitted twin to this file.")
    ] = None
    write_defaults: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Add the fit to this defaults.yaml.")
    ] = None
    model: Annotated[
        str | None, typer.Option(help="Model name for --write-defaults. Default: from the trace.")
    ] = None


@option_table
class ModelGpuOptions:
    """Model and GPU, which no server reports."""

    model_config: Annotated[
        str | None,
        typer.Option(
            metavar="CONFIG.json",
            help="The model's config.json, or the name of a model that ships with vtwin. With the GPU, it gives priors "
            "for coefficients that the traces cannot determine. Default: the trace's model, if it ships.",
        ),
    ] = None
    gpu: Annotated[
        str | None,
        typer.Option(help="The server's GPU, for priors and for --write-defaults. Default: from the trace."),
    ] = None
    tp: Annotated[
        int | None,
        typer.Option(min=1, max=65_536, help="Tensor parallelism, as --gpu. Default: from the trace."),
    ] = None


@option_table
class FitOptions:
    """What a fit finds."""

    infer_async: InferAsyncOption = False
    accept_flags: Annotated[
        bool,
        typer.Option(
            "--accept-flags",
            help="Continue although the twin's flags differ from the server's flags in a trace's header.",
        ),
    ] = False
    latency_model: Annotated[
        Literal["auto", "blackbox", "extended", "physics", "profiled", "roofline"] | None,
        typer.Option(
            help="Latency model to fit. auto compares blackbox, the extended model's terms, physics if model and GPU "
            "are known, and the profile if the twin has one, on held-out requests, and takes the best. physics starts "
            "from the twin's model_config and hardware, and its corrections are fitted; of profiled, the factor on its "
            "tables and the time between steps. roofline is not fitted. Default: auto. "
            "Without --fit: as configured."
        ),
    ] = None


@option_table
class AlphaOptions:
    """Whether a fit finds alpha2, too."""

    fit_alpha2: Annotated[
        bool, typer.Option("--fit-alpha2", help="Also fit alpha2. Default: held at its configured value.")
    ] = False


@option_table
class GateOptions:
    """Limits on the errors, and the verdict on them."""

    thresholds: Annotated[
        Path | None,
        typer.Option(
            metavar="GATE.yaml",
            help="Error limits: exit 1 if one is exceeded, 5 if inconclusive.",
        ),
    ] = None
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the gate's verdict to this file as JUnit XML.")
    ] = None
    baseline: Annotated[
        Path | None,
        typer.Option(
            metavar="REPORT.json",
            help="An older report. Only errors that were within their limit there and no longer are fail the gate.",
        ),
    ] = None


@option_table
class PairOptions:
    """How requests are matched."""

    pair_by: Annotated[
        Literal["request_id", "order"],
        typer.Option(help="How requests are matched: by id, or by order of arrival."),
    ] = "request_id"


@option_table
class FitResultOptions:
    """The seed of random draws, and what is printed."""

    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the bootstrap and the search (physics draws nothing).")
    ] = 42
    as_json: Annotated[
        bool, typer.Option("--json", help="Print report.json on stdout, the tables on stderr.")
    ] = False


@option_table
class OldSpelling:
    """Options of ``vtwin calibrate`` that are subcommands now: kept for one release, and hidden in the help."""

    compare_latency: Annotated[str | None, typer.Option(hidden=True)] = None
    fit_guided: Annotated[Path | None, typer.Option(hidden=True)] = None
    fit_host: Annotated[Path | None, typer.Option(hidden=True)] = None


@option_table
class CalibrateOptions:
    """All options of ``vtwin calibrate``, in the order of its help."""

    traces: CalibratedTraces
    simulated: Annotated[
        Path | None, typer.Option(metavar="STEM", help="A trace to compare the observed one with.")
    ] = None
    twin: FitTwinOptions
    measure: MeasureOptions
    write: WriteOptions
    server: ModelGpuOptions
    fitting: FitOptions
    alpha: AlphaOptions
    gate: GateOptions
    pair: PairOptions
    result: FitResultOptions
    form: Annotated[
        Literal["vtwin", "blis"],
        typer.Option(
            "--format",
            help="blis: also write report.blis.json with that tool's fields and quality labels; --json prints it.",
        ),
    ] = "vtwin"
    old: OldSpelling


@option_table
class ModelsOptions:
    """All options of ``vtwin calibrate models``."""

    traces: TraceOptions
    config: ConfigOption
    models: Annotated[
        str,
        typer.Option(
            metavar="NAMES", help="Latency models, commas between: blackbox,roofline,physics,profiled."
        ),
    ]
    fit: Annotated[
        bool, typer.Option("--fit", help="Fit those of them that can be fitted; else all are as configured.")
    ] = False
    holdout: HoldoutOption = None
    repeat: RepeatOption = None
    measure: MeasureOptions
    server: ModelGpuOptions
    infer_async: InferAsyncOption = False
    alpha: AlphaOptions
    pair: PairOptions
    result: FitResultOptions


@option_table
class CostOptions:
    """All options of ``vtwin calibrate guided`` and ``host``, the two runs aside."""

    config: ConfigOption
    report: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for the result, guided.json or host.json.")
    ]
    write_config: Annotated[
        Path | None,
        typer.Option(metavar="TWIN2.yaml", help="Write the twin with what was found to this file."),
    ] = None
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 42
    as_json: JsonOption = False
