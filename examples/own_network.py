"""Adds a noise contrastive prior to a network that ncprior does not know.

The network below has a residual trunk and a belief over its output layer. Only three things tell ncprior about it: how
to make it (`init`), what to minimise (`objective`) and what its heads mean (`predict`). The loss term
`smoothness` is our own; it is recorded beside the others under its name.

Run it with `python examples/own_network.py`.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ncprior.core.active import Schedule, Simulation
from ncprior.core.input_priors import Gaussian
from ncprior.core.methods import Method, predict_normal
from ncprior.core.networks import BayesianMean, Heads, Network, Noise
from ncprior.core.objectives import NLL, MeanNCP, View, Weighted
from ncprior.core.optimizers import adam
from ncprior.core.output_priors import OutputPrior
from ncprior.core.training import Trainer
from ncprior.data import toy


class ResidualTrunk(eqx.Module):
    """Any Equinox module from an input vector to a feature vector can be a trunk."""

    first: eqx.nn.Linear
    second: eqx.nn.Linear

    def __init__(self, inputs: int, size: int, *, key: Array) -> None:
        keys = jax.random.split(key)
        self.first = eqx.nn.Linear(inputs, size, key=keys[0])
        self.second = eqx.nn.Linear(size, size, key=keys[1])

    def __call__(self, x: Array) -> Array:
        hidden = jax.nn.silu(self.first(x))
        return hidden + jax.nn.silu(self.second(hidden))


def init(inputs: int, outputs: int, *, key: Array) -> Network:
    keys = jax.random.split(key, 3)
    heads: Heads = {"mean": BayesianMean.init(64, outputs, key=keys[1]), "noise": Noise.init(64, outputs, key=keys[2])}
    return Network(ResidualTrunk(inputs, 64, key=keys[0]), heads)


def smoothness(view: View) -> Array:
    """A loss term of our own: the mean should not move far when the input is noised."""
    return jnp.sum((view.noised["mean"].mean - view.clean["mean"].mean) ** 2, axis=-1)


def make(gamma: float) -> Method:
    return Method(
        name="residual+ncp",
        init=init,
        objective={
            "nll": Weighted(1.0, NLL()),
            "ncp": Weighted(gamma, MeanNCP(OutputPrior(std=1.0))),
            "smoothness": Weighted(0.01, smoothness),
        },
        predict=predict_normal,
        input_prior=Gaussian(0.5),
    )


def uncertainty_off_the_data(gamma: float, epochs: int = 1000) -> float:
    """Trains on the toy data and gives the mean uncertainty between and beside its two bands."""
    trainer = Trainer(make(gamma), adam(1e-3), batch_size=10)
    schedule = Schedule(epochs, initial=50, select=10, select_every=epochs // 2, evaluate_every=epochs // 2)
    simulation = Simulation(trainer, toy.load(), schedule, seeds=[0])
    *_, (snapshot, evaluation) = simulation.run()
    print(f"gamma {gamma}:", {name: round(float(value[0]), 3) for name, value in evaluation.values.items()})
    outside = np.array([[-1.0], [0.0], [1.0]], np.float32)
    return float(simulation.predict(snapshot.learners, outside).uncertainty.mean())


if __name__ == "__main__":
    without, with_ncp = uncertainty_off_the_data(0.0), uncertainty_off_the_data(1.0)
    print(f"uncertainty off the data: {without:.2f} without NCP, {with_ncp:.2f} with it")
