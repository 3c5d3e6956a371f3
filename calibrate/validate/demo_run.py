"""``vtwin demo``: observe, calibrate and report against a server whose coefficients are known."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from calibrate.validate import demo as plan
from calibrate.validate.command_steps import RunCommand
from calibrate.validate.emulated import serving
from calibrate.validate.options import DemoOptions
from traces import make_folder, write_text
from traces.strict.tell import say, tell

if TYPE_CHECKING:
    from calibrate.findings import Calibration


def run_demo(asked: DemoOptions, run: RunCommand) -> None:
    """Serve, observe two loads, fit, compare with a third, report; print the coefficients beside the server's own."""
    output = asked.output
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # `kill` ends the server too, as Ctrl-C does
    make_folder(output, option="--output")
    _foretell(len(plan.RATES) * plan.SECONDS)
    server, guess = output / "server.yaml", output / "guess.yaml"
    # Traces of the emulated server, from an earlier demo, may be replaced; any others may not.
    is_repeated = server.is_file() and server.read_text() == plan.twin_yaml(plan.TRUTH)
    write_text(server, plan.twin_yaml(plan.TRUTH), option="--output")
    write_text(guess, plan.twin_yaml(plan.GUESS), option="--output")
    with serving(server) as url:
        for arguments in plan.observations(url, output, is_repeated=is_repeated):
            run("observe", arguments)
    calibration = cast("Calibration", run("calibrate", plan.calibration(output, guess=guess)))
    _show_recovery(calibration, plan.TRUTH)
    say("", f"report: {output / 'report' / 'report.html'}")


def _foretell(sending_s: float) -> None:
    """Print how long the demo will take, before any slow work."""
    from sim import is_compiled

    tell(f"{sending_s:.0f} s of sending, then a fit of 10 to 60 s")
    if not is_compiled():
        tell(
            "before that the simulator is compiled, once on this machine: half a minute on idle cores, a minute or "
            "two on busy ones"
        )


def _show_recovery(calibration: Calibration, truth: Mapping[str, float]) -> None:
    """Print the fitted coefficients next to those that the server used."""
    fitted = {} if calibration.fit is None else {each.name: each for each in calibration.fit.coefficients}
    say("", "coefficient    server    fitted   90 % interval")
    for name, value in truth.items():
        found = fitted[name]
        interval = found.reason if found.low is None else f"{found.low:,.1f} … {found.high:,.1f}"
        say(f"{name:<11}{value:>10,}{found.value:>10,.1f}   {interval}")
    say("alpha0 and alpha1 include the way between client and server, which the engine does not simulate.")
