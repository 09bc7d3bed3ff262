"""Robustness to the choice of input noise (Section 5.3): Figure 5 and the figure of appendix C.

The active learning experiments, repeated with Gaussian and uniform input noise of ten sizes each. All twenty settings
and all seeds of a method run as one batch.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from ncprior.data.dataset import Dataset
from ncprior.engines.engine import Engine
from ncprior.experiments.paper import learning_curves
from ncprior.experiments.paper.learning_curves import Config, Progress, Sweep, run
from ncprior.experiments.records import Records, Summary, summary

NAMES = {"toy": "robustness-toy", "flights": "robustness-flights"}
METHODS = learning_curves.DEFAULT_METHODS
"""Two models whose input noise is varied, and two baselines, which are level lines in the figures."""
SEEDS = 5
VARIANCES = np.round(np.arange(0.1, 1.01, 0.1), 1)
"""Variances of the input noise, ``sigma_x^2`` in the paper."""


class Setting(NamedTuple):
    """One kind and size of input noise."""

    noise: str
    variance: float


NO_NOISE = Setting("", 0.0)
"""The setting of methods without NCP."""

Swept = dict[Setting, dict[str, np.ndarray]]
"""Metrics ``[seeds]`` by setting and name."""


class GaussianOrUniform(eqx.Module):
    """Gaussian or uniform noise, chosen by an array, so that runs of both kinds can share a batch.

    Attributes:
        std: Scale of the noise: a standard deviation, or half of the half-width of the uniform interval.
        uniform: Whether the noise is uniform.
    """

    std: ArrayLike
    uniform: ArrayLike

    def __call__(self, inputs: Array, *, key: Array) -> Array:
        """Noised inputs of the same shape."""
        key_normal, key_uniform = jax.random.split(key)
        normal = jax.random.normal(key_normal, inputs.shape, inputs.dtype)
        uniform = jax.random.uniform(key_uniform, inputs.shape, inputs.dtype, -2.0, 2.0)
        return inputs + self.std * jnp.where(self.uniform, uniform, normal)


def make_sweep(variances: np.ndarray = VARIANCES) -> Sweep:
    """A sweep over Gaussian noise of each variance, then uniform noise of each."""
    variance = np.tile(variances, 2)
    uniform = np.repeat([False, True], len(variances))
    priors = GaussianOrUniform(np.sqrt(variance).astype(np.float32), uniform)
    return Sweep(priors, {"variance": variance, "noise": np.where(uniform, "uniform", "gaussian")})


def configure(base: Config, seeds: int | None = None, *, quick: bool = False) -> Config:
    """The configuration ``base`` of an active learning experiment, with the methods and seeds of this one."""
    return dataclasses.replace(base, methods=METHODS, seeds=seeds if seeds is not None else 2 if quick else SEEDS)


def experiment(
    config: Config,
    data: Dataset,
    records: Records,
    show: Callable[[Progress], None] = lambda _: None,
    engine: Engine | None = None,
    *,
    evaluate_unseen: bool,
    variances: np.ndarray = VARIANCES,
) -> None:
    """Run the methods that have not been recorded yet.

    Args:
        config: The configuration.
        data: The data of the experiment that is repeated.
        records: Where results are recorded.
        show: Called with the progress at every evaluation.
        engine: Runs tasks of a few seeds each; None for this process.
        evaluate_unseen: Whether training rows without a label count as test rows, as on the toy data.
        variances: Variances of the input noise.
    """
    sweep = make_sweep(variances)
    run(config, data, records, evaluate_unseen=evaluate_unseen, sweep=sweep, show=show, engine=engine)
    write_results(records)


def write_results(records: Records) -> None:
    """Write ``results.json``: final values over all runs of a method, and over the seeds of each setting."""
    learning_curves.write_results(records)
    results = records.read_json("results.json")
    results["settings"] = [
        {"method": name, "noise": noise, "variance": variance, **values}
        for name, table in collect(records).items()
        for (noise, variance), values in table.items()
    ]
    records.write_json("results.json", results)


def collect(records: Records) -> dict[str, dict[Setting, dict[str, Summary]]]:
    """Final test RMSE and NLPD over the seeds that finished, by method and setting."""
    return {
        name: {setting: {key: summary(values) for key, values in of.items()} for setting, of in settings.items()}
        for name, settings in sweep(records).items()
    }


def sweep(records: Records) -> dict[str, Swept]:
    """Final test RMSE and NLPD of every seed, by method and setting; NaN for seeds that failed."""
    found: dict[str, Swept] = {}
    for name in records.config["methods"]:
        columns = learning_curves.final_values(records, name)
        count = len(columns["seed"])
        noise, variance = columns.get("noise", np.full(count, "")), columns.get("variance", np.zeros(count))
        found[name] = {}
        for setting in sorted({Setting(str(a), float(b)) for a, b in zip(noise, variance, strict=True)}):
            (chosen,) = np.nonzero((noise == setting.noise) & (variance == setting.variance))
            chosen = chosen[np.argsort(columns["seed"][chosen])]
            found[name][setting] = {key: columns[key][chosen] for key in ("test_rmse", "test_nlpd")}
    return found
