"""Data parallel training of one large network on all rows.

A mini batch is split over all devices, and so are Adam's moments: each device sums the gradients of its share of the
weights, updates them, and sends the new weights to the others. Input noise is drawn for the whole batch, so that the
number of devices changes results only by rounding.
"""

import copy
import dataclasses
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from ncprior.core.blocks import predict_in_blocks
from ncprior.core.methods import Method
from ncprior.core.metrics import METRICS
from ncprior.core.networks import Network
from ncprior.core.objectives import Batch, View, Weighted, total
from ncprior.core.optimizers import AdamState, adam, sum_of_squares
from ncprior.core.prediction import Predictive
from ncprior.core.settings import Settings
from ncprior.core.training import Failure, Rows, combine, explain_failure
from ncprior.data.dataset import Dataset
from ncprior.errors import UserError, check_limits
from ncprior.tables.input_features import Bins, in_bins

_AXIS = "rows"

_SPLIT, _SAME = PartitionSpec(_AXIS), PartitionSpec()

_EVALUATED = 50_000
"""Number of training rows, drawn at random, on which training metrics are computed."""

_STRETCHES = 10
"""Calls of the training program in an epoch; in between, progress is shown and Ctrl-C is handled."""

MIN_SPLIT_SIZE = 65_536
"""Arrays with at least this many weights have their moments split over the devices."""


@dataclass(frozen=True)
class Schedule:
    """How a network is trained."""

    epochs: int = 10
    decay: Literal["none", "cosine"] = "none"
    """Constant learning rate, or cosine decay to 0."""
    bins: int = 0
    """Number of quantile bins that inputs are encoded by, see `Bins`; 0 for none."""
    validation: float = 0.0
    """Share of the training rows, the last ones in the order of the split, that is held out to choose the epoch."""
    beta: float = 0.0
    """Exponent of `balanced`: 0 for the plain likelihood, 1 for a mean that is learned as with squared errors."""

    def __post_init__(self) -> None:
        check_limits(epochs=self.epochs, bins=self.bins)
        if not 0 <= self.validation < 1:
            raise UserError(f"validation must be at least 0 and below 1, got {self.validation}")
        if not 0 <= self.beta <= 1:
            raise UserError(f"beta must be between 0 and 1, got {self.beta}")

    def training_rows(self, data: Dataset) -> int:
        """Number of rows that are trained on, which are the first ones; the others are for validation."""
        count = len(data.train_inputs)
        return count - int(count * self.validation)


def steps_in_epoch(rows: int, settings: Settings) -> int:
    """Mini batches in one pass over this many rows.

    Raises:
        UserError: If there is none, as the rows do not fill one and the remainder is dropped.
    """
    size = settings.batch_size
    steps = rows // size if settings.remainder == "dropped" else -(-rows // size)
    if not steps:
        raise UserError(f"{rows} training rows do not fill a mini batch of {size}: choose a smaller --batch-size")
    return steps


def balanced(method: Method, beta: float) -> Method:
    """The method with the likelihood of each row weighted by ``noise^(2 beta)`` (Seitzer et al., 2022).

    The likelihood divides errors by the noise, so a network learns little from rows that it predicts to be noisy: here
    the late flights, which dominate the RMSE. The weights balance that. No gradient flows through them.
    """
    weight, plain = method.objective["nll"]

    def nll(view: View) -> Array:
        noise = jax.lax.stop_gradient(view.clean["noise"])
        return plain(view) * jnp.mean(noise ** (2 * beta), axis=-1)

    return dataclasses.replace(method, objective={**method.objective, "nll": Weighted(weight, nll)})


class State(NamedTuple):
    """A network in training. Large arrays of Adam's moments are split over the devices; all else is replicated."""

    params: PyTree
    optimizer: AdamState
    sums: Array  # sum of every loss term over the steps of this epoch
    failed: Array  # first step of the run at which the loss was not finite, or -1
    nonfinite_terms: Array  # one bit for each loss term that was not finite then


class Regression:
    """Training of one method on all rows, with every mini batch split over all devices.

    Args:
        method: The method.
        settings: Sizes, learning rate and mini batches.
        schedule: Epochs, decay and validation.
        data: Training and test rows.
        seed: Seed of weights, batches and noise.

    Raises:
        UserError: If the rows do not fill a mini batch.
    """

    def __init__(self, method: Method, settings: Settings, schedule: Schedule, data: Dataset, seed: int) -> None:
        self.settings, self.schedule, self.data, self.seed = settings, schedule, data, seed
        self.rows = schedule.training_rows(data)
        self.steps = steps_in_epoch(self.rows, settings)
        self.mesh = row_mesh(settings.batch_size)
        inputs, targets = data.train_inputs[: self.rows], data.train_targets[: self.rows]
        method = in_bins(method, Bins.find(inputs, schedule.bins)) if schedule.bins else method
        self.method = balanced(method, schedule.beta) if schedule.beta else method
        network = eqx.filter_jit(self.init)()
        self.static = eqx.filter(network, eqx.is_inexact_array, inverse=True)
        self._train = Rows(self._everywhere(inputs), self._everywhere(targets))
        self._begin = jax.tree.map(np.asarray, eqx.filter(network, eqx.is_inexact_array))
        self._evaluated, self._parts = self._rows_to_evaluate()
        moments = jax.tree.map(lambda leaf: _SPLIT if self._is_split(leaf) else _SAME, self._begin)
        self._specs: PyTree = State(
            params=jax.tree.map(lambda _: _SAME, self._begin),
            optimizer=AdamState(_SAME, moments, moments),  # type: ignore[arg-type]
            **dict.fromkeys(("sums", "failed", "nonfinite_terms"), _SAME),  # type: ignore[arg-type]
        )
        shared = (_SAME,) * 4
        self._run = jax.jit(
            jax.shard_map(
                self.train_steps,
                mesh=self.mesh,
                in_specs=(self._specs, *shared),
                out_specs=self._specs,
                check_vma=False,
            ),
            donate_argnums=0,
        )
        self._shuffle = jax.jit(self.shuffle_rows, out_shardings=NamedSharding(self.mesh, _SAME))
        self._measure = jax.jit(self.measure_parts)

    def with_seed(self, seed: int) -> "Regression":
        """The same training with another seed of weights, batches and noise. Programs and rows are shared."""
        if seed == self.seed:
            return self
        other = copy.copy(self)
        other.seed = seed
        other._begin = jax.tree.map(np.asarray, eqx.filter(eqx.filter_jit(other.init)(), eqx.is_inexact_array))
        other._evaluated, other._parts = other._rows_to_evaluate()
        return other

    def start(self) -> State:
        """The network before training."""
        none = np.zeros((), np.int32)
        moments = jax.tree.map(np.zeros_like, self._begin)
        sums = np.zeros(len(self.method.objective), np.float32)
        state: PyTree = (self._begin, AdamState(none, moments, moments), sums, none - 1, none)  # type: ignore[arg-type]
        return self.place(State(*state))

    def place(self, state: State) -> State:
        """The state, placed on the devices as the program expects it."""
        shardings = jax.tree.map(lambda spec: NamedSharding(self.mesh, spec), self._specs)
        return jax.device_put(state, shardings, may_alias=False)

    def train(self, state: State, epoch: int) -> Iterator[tuple[State, int]]:
        """Train one epoch.

        Yields:
            The state and the number of steps done, several times and at the end. The next step reuses the memory of the
            state: copy what must last.
        """
        key_order, key_steps = jax.random.split(jax.random.fold_in(self._key(1), epoch))
        order = self._shuffle(key_order)
        state = state._replace(sums=jnp.zeros_like(state.sums))
        marks = np.unique(np.linspace(0, self.steps, _STRETCHES + 1).astype(np.int32))
        for first, last in itertools.pairwise(marks):
            state = self._run(state, self._train, order, key_steps, (first, last))
            jax.block_until_ready(state.sums)
            yield state, int(last)

    def evaluate(self, state: State) -> dict[str, float]:
        """Every metric on every part of the data, in units of the target, and the mean of every loss term."""
        values = {
            f"loss_{name}": float(value) / self.steps
            for name, value in zip(self.method.objective, np.asarray(state.sums), strict=True)
        }
        return values | {name: float(value) for name, value in self._measure(state.params, *self._evaluated).items()}

    def failure(self, state: State) -> str | None:
        """Why training has failed; None if it has not."""
        failed = int(state.failed)
        if failed < 0:
            return None
        return explain_failure(self.method, failed // self.steps + 1, int(state.nonfinite_terms))

    def learning_rate(self, step: int | Array) -> Array:
        """The learning rate at this step of the run."""
        rate = jnp.asarray(self.settings.learning_rate)
        if self.schedule.decay == "none":
            return rate
        done = step / (self.steps * self.schedule.epochs)
        return rate * 0.5 * (1 + jnp.cos(jnp.pi * done))

    def init(self) -> Network:
        """A new network."""
        shapes = self.data.train_inputs.shape[1], self.data.train_targets.shape[1]
        return self.method.init(*shapes, key=self._key(0))

    def _key(self, purpose: int) -> Array:
        return jax.random.fold_in(jax.random.key(self.seed), purpose)

    def _everywhere(self, array: np.ndarray) -> Array:
        """The array, replicated on every device."""
        placed: Array = jax.device_put(array, NamedSharding(self.mesh, _SAME))
        return placed

    def _is_split(self, leaf: Array | np.ndarray) -> bool:
        devices = self.mesh.size
        return devices > 1 and leaf.size >= MIN_SPLIT_SIZE and leaf.shape[0] % devices == 0

    def shuffle_rows(self, key: Array) -> Array:
        """All rows in random order, padded with row 0 to fill the last mini batch."""
        order = jax.random.permutation(key, self.rows)
        return jnp.pad(order, (0, max(0, self.steps * self.settings.batch_size - self.rows)))

    def train_steps(self, state: State, rows: Rows, order: Array, key: Array, steps: tuple[Array, Array]) -> State:
        """The program of one device: steps ``steps[0]`` to ``steps[1] - 1`` of an epoch."""
        s, method, names = self.settings, self.method, list(self.method.objective)
        size, devices = s.batch_size, self.mesh.size
        device = jax.lax.axis_index(_AXIS)

        def mine(leaf: Array) -> Array:
            """The device's share of an array, along its first axis."""
            share = leaf.shape[0] // devices
            return jax.lax.dynamic_slice_in_dim(leaf, device * share, share)

        def loss(params: PyTree, i: Array) -> tuple[Array, Array]:
            """The device's share of the loss of the mini batch, and of every term."""
            chosen = jax.lax.dynamic_slice(order, (i * size,), (size,))
            inputs, targets = rows.inputs[chosen], rows.targets[chosen]
            in_use = (i * size + jnp.arange(size) < self.rows).astype(jnp.float32)
            weight = jnp.sum(mine(in_use))
            # A share without any row in use has weight 0 below; weights that are all 0 would make its mean NaN.
            weights = jnp.where(weight > 0, mine(in_use), 1.0)
            batch = Batch(mine(inputs), mine(targets), weights, jnp.asarray(self.rows))
            prior = method.input_prior
            # Drawn for the whole mini batch, so that the noise does not depend on the number of devices.
            noised = None if prior is None else lambda _, *, key: mine(prior(inputs, key=key))
            view = View.of(combine(params, self.static), batch, noised, key=jax.random.fold_in(key, i))
            value, terms = total(method.objective, view)
            share = weight / jnp.sum(in_use)
            return share * value, share * jnp.stack([terms[name] for name in names])

        def add_up(grad: Array) -> Array:
            """Sum gradients over the devices. Of a split array, each device gets its share only."""
            if devices == 1:
                return grad  # avoids a copy
            if self._is_split(grad):
                return jax.lax.psum_scatter(grad, _AXIS, scatter_dimension=0, tiled=True)
            return jax.lax.psum(grad, _AXIS)

        def step(i: Array, state: State) -> State:
            params, optimizer, sums, failed, nonfinite_terms = state
            grads, terms = jax.grad(loss, has_aux=True)(params, i)
            split = [self._is_split(leaf) for leaf in jax.tree.leaves(params)]
            grads, terms = jax.tree.map(add_up, grads), add_up(terms)
            rate, norm = self.learning_rate(optimizer.steps), partial(norm_of_parts, split=split)
            rule = adam(rate, clip=s.clip, norm=norm, epsilon_hat=s.epsilon_hat)
            updates, new = rule.update(grads, optimizer)

            def apply(leaf: Array, update: Array) -> Array:
                if self._is_split(leaf):
                    return jax.lax.all_gather(mine(leaf) + update, _AXIS, tiled=True)
                return leaf + update

            failure = Failure(failed, nonfinite_terms).updated(terms, optimizer.steps)
            assert isinstance(new, AdamState)
            return State(jax.tree.map(apply, params, updates), new, sums + terms, failure.when, failure.terms)

        return jax.lax.fori_loop(*steps, step, state)

    def _rows_to_evaluate(self) -> tuple[tuple[Array, Array], dict[str, slice]]:
        """Inputs and targets of all rows that are evaluated, and the slice of each part of the data."""
        data, count = self.data, self.rows
        drawn = np.random.default_rng(self.seed).choice(count, min(count, _EVALUATED), replace=False)
        inputs = [data.train_inputs[drawn], data.train_inputs[count:], data.test_inputs]
        targets = [data.train_targets[drawn], data.train_targets[count:], data.test_targets]
        ends = itertools.accumulate(map(len, inputs), initial=0)
        bounds = zip(("train", "valid", "test"), itertools.pairwise(ends), strict=True)
        parts = {name: slice(*ends) for name, ends in bounds if ends[0] < ends[1]}
        # Padded with rows of zeros, so that every device predicts the same number of rows.
        missing = -sum(map(len, inputs)) % self.mesh.size
        filled = np.concatenate([*inputs, np.zeros_like(data.test_inputs, shape=(missing, data.test_inputs.shape[1]))])
        spread = jax.device_put(filled, NamedSharding(self.mesh, _SPLIT))
        return (spread, self._everywhere(np.concatenate(targets))), parts

    def measure_parts(self, params: PyTree, inputs: Array, targets: Array) -> dict[str, Array]:
        """Every metric on every part of the data, by name."""

        def predict(params: PyTree, inputs: Array) -> Predictive:
            return predict_in_blocks(partial(self.method, combine(params, self.static)), inputs)

        specs = (self._specs.params, _SPLIT)
        prediction = jax.shard_map(predict, mesh=self.mesh, in_specs=specs, out_specs=_SPLIT, check_vma=False)(
            params, inputs
        )
        prediction = jax.lax.with_sharding_constraint(prediction, NamedSharding(self.mesh, _SAME))
        prediction = prediction.rescale(self.data.target_scale, self.data.target_shift)
        truth = self.data.target_shift + self.data.target_scale * targets
        return {
            f"{part}_{name}": metric(jax.tree.map(lambda leaf: leaf[where], prediction), truth[where])  # noqa: B023
            for part, where in self._parts.items()
            for name, metric in METRICS.items()
        }


def row_mesh(batch_size: int) -> Mesh:
    """The devices that a mini batch is split over: the largest number that divides it into equal shares."""
    devices = jax.devices()
    count = max(n for n in range(1, len(devices) + 1) if batch_size % n == 0)
    return Mesh(np.array(devices[:count]), (_AXIS,))


def norm_of_parts(grads: PyTree, split: list[bool]) -> Array:
    """The global norm of gradients, some of which are only the share of a device.

    Args:
        grads: The gradients.
        split: For each leaf, whether it is split over the devices.
    """
    squares = [sum_of_squares(leaf) for leaf in jax.tree.leaves(grads)]
    parts = sum((square for square, is_part in zip(squares, split, strict=True) if is_part), jnp.zeros(()))
    total_square = sum((square for square, is_part in zip(squares, split, strict=True) if not is_part), jnp.zeros(()))
    return jnp.sqrt(jax.lax.psum(parts, _AXIS) + total_square)
