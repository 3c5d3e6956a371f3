"""Execution times from profiles: operators measured on a GPU, regressions per operator, tables of whole steps.

- ``read_profiles(paths, wanted)`` finds the operators of a model in Vidur's CSVs and in tables of vLLM kernels.
- ``train_operator(table)`` is one operator's regression, chosen by k-fold and scored on held-out points.
- ``build.train(profiles, wanted, gpu)`` is ``vtwin predictor train``: the table that ``latency.table`` names.

Needs scikit-learn: ``pip install 'vtwin[predictor]'``.
"""

from __future__ import annotations

from traces import ConfigError


def need_sklearn() -> None:
    """Raise ConfigError where scikit-learn is not installed."""
    try:
        import sklearn  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise ConfigError(
            "scikit-learn is not installed, expected the extra: pip install 'vtwin[predictor]'"
        ) from error
