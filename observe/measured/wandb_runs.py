"""Runs to Weights & Biases, or with WANDB_MODE=offline to a folder that ``wandb sync`` sends later. An extra."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from observe.measured.logged_run import LoggedRun
from traces import ConfigError, ServerError


def log_to_wandb(runs: Sequence[LoggedRun], project: str) -> list[str]:
    """Log each run to ``[ENTITY/]PROJECT``, and return each run's address, offline its folder.

    Files are copied into the folder, so that an offline run is whole. The library is told to keep no command
    line, code, terminal output or use of this machine; it keeps the names of its Python packages. Raises ConfigError
    without the library, ServerError where it refuses.
    """
    try:
        import wandb
    except ImportError as error:
        raise ConfigError(
            "--wandb: got no library wandb, expected the extra: pip install 'vtwin[wandb]'"
        ) from error
    entity, _, name = project.rpartition("/")
    settings = wandb.Settings(
        console="off",
        disable_git=True,
        save_code=False,
        silent=True,
        x_disable_meta=True,
        x_disable_stats=True,
    )
    places = []
    for run in runs:
        try:
            with wandb.init(
                project=name, entity=entity or None, name=run.name, config=dict(run.params), settings=settings
            ) as logged:
                logged.summary.update(dict(run.metrics))
                for file in run.files:
                    copied = shutil.copy(file, logged.dir)
                    logged.save(copied, base_path=logged.dir, policy="now")
                places.append(logged.url or str(Path(logged.dir).parent))
        except (wandb.Error, OSError) as fault:
            said = " ".join(str(fault).split())[:300]
            raise ServerError(f"--wandb {project}: got {said}, expected a project that takes runs") from fault
    return places
