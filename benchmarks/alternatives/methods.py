"""Every method by name: what it needs, and how it is fitted.

A fit takes the training rows and a seed, and gives a function from rows to a forecast. Inputs and targets come as they
are in the table; a method that wants them standardised does that itself, by the training rows.
"""

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.alternatives import shallow
from benchmarks.alternatives.metrics import Forecast, Mixture

Predict = Callable[[np.ndarray], Forecast]
Fit = Callable[[np.ndarray, np.ndarray, int], Predict]


@dataclass(frozen=True)
class Method:
    """One way to predict a distribution."""

    name: str
    about: str
    fit: Fit
    needs: dict[str, str]
    """Modules that must be there, and the packages that bring them."""
    seeded: bool = True
    """Whether another seed gives another result; if not, one seed is enough."""
    most_rows: int | None = None
    """Training rows above which the method is left out."""

    def obstacle(self) -> str | None:
        """Why the method cannot run, if it cannot; also imports what it needs, so that no fit has to wait for that."""
        found = {module: importlib.util.find_spec(module.partition(".")[0]) for module in self.needs}
        missing = [package for module, package in self.needs.items() if found[module] is None]
        if missing:
            return f"pip install {' '.join(missing)}"
        for module in self.needs:
            try:
                importlib.import_module(module)
            except Exception as error:  # a package that is there but broken fails in any way it likes
                return f"{module} cannot be imported ({error}), see README.md"
        return None


def ncprior(inputs: np.ndarray, targets: np.ndarray, seed: int) -> Predict:
    """The estimator of this project as it is without any setting."""
    from ncprior.tables.estimator import NCPRegressor

    model = NCPRegressor(random_state=seed).fit(inputs, targets)

    def predict(rows: np.ndarray) -> Forecast:
        shares, normals = model.predict_distribution(rows).predictive.components()  # [rows, outputs, components]
        parts = [np.asarray(array, np.float64) for array in (shares, normals.mean, normals.std)]
        weights, means, stds = (np.broadcast_to(array, parts[1].shape)[:, 0, :] for array in parts)
        return Mixture(weights / weights.sum(axis=1, keepdims=True), means, stds)

    return predict


def _neural(name: str) -> Fit:
    """A fit of `neural`, which is imported when it is needed, so that the others run without PyTorch."""

    def fit(inputs: np.ndarray, targets: np.ndarray, seed: int, name: str) -> Predict:
        from benchmarks.alternatives import neural

        return neural.FITS[name](inputs, targets, seed)

    return partial(fit, name=name)


_TORCH = {"torch": "torch==2.13.0"}
_SKLEARN = {"sklearn": "scikit-learn"}

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("ncprior", "NCPRegressor()", ncprior, {**_SKLEARN, "ncprior.tables.estimator": "-e ."}),
        Method(
            "laplace",
            "last-layer Laplace of laplace-torch, noise and prior by marginal likelihood",
            _neural("laplace"),
            {**_TORCH, "laplace": "laplace-torch"},
        ),
        Method("vbll", "variational Bayesian last layer", _neural("vbll"), {**_TORCH, "vbll": "vbll"}),
        Method("ensemble", "deep ensemble of five networks with a noise of their own", _neural("ensemble"), _TORCH),
        Method("dropout", "Monte Carlo dropout, rate and precision by validation", _neural("dropout"), _TORCH),
        Method("ngboost", "natural gradient boosting", shallow.ngboost, {"ngboost": "ngboost", **_SKLEARN}),
        Method("hgb-quantile", "HistGradientBoosting of 13 quantiles", shallow.quantile_boosting, _SKLEARN),
        Method(
            "hgb-constant",
            "HistGradientBoosting, one variance from 5 folds",
            shallow.constant_boosting,
            _SKLEARN,
            seeded=False,
        ),
        Method(
            "gp",
            "Gaussian process, RBF with a length for each input, white noise; up to 2000 training rows",
            shallow.gaussian_process,
            _SKLEARN,
            seeded=False,
            most_rows=2000,
        ),
        Method("train-mean", "mean and variance of the training targets", shallow.train_mean, {}, seeded=False),
    )
}


def chosen(names: list[str] | None) -> list[Method]:
    """The methods of these names that can run; one line for each that cannot says how to install it."""
    unknown = [name for name in names or [] if name not in METHODS]
    if unknown:
        raise SystemExit(f"unknown method {', '.join(unknown)}: choose from {', '.join(METHODS)}")
    methods = []
    for method in [METHODS[name] for name in names or METHODS]:
        if obstacle := method.obstacle():
            print(f"{method.name} is left out: {obstacle}")
        else:
            methods.append(method)
    return methods
