"""Training: one step, many steps in one compiled loop, many seeds at once.

The visible labels of a learner are a buffer of row numbers of fixed size, and a count. Shapes never change, so nothing
compiles again as labels arrive. The count is the same for all seeds, which keeps them in step.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Float, Int, Key, PRNGKeyArray, PyTree, Scalar

from ncprior.core.input_priors import InputPrior
from ncprior.core.methods import Method
from ncprior.core.networks import Constants, Network
from ncprior.core.objectives import Batch, with_numbers
from ncprior.core.row_weights import RowWeights
from ncprior.core.settings import Remainder
from ncprior.errors import UserError

_CACHE_BYTES = 128 * 1024
"""Seeds run one after the other if one's weights, moments and gradients take more than this.

A network that fills a good part of a core's cache is faster alone, a small one together with others: with two layers
of 200 units one after the other wins by a third, with two of 50 several at once win by as much."""

_GROUP = 5
"""Seeds of a small network that are trained at once; more are hardly faster."""


T = TypeVar("T")

Count = int | np.int32 | Scalar
"""A whole number, which may be traced."""


class Rows(NamedTuple):
    """The rows that labels are drawn from. Without ``weights``, all count the same."""

    inputs: Float[Array, "rows inputs"]
    targets: Float[Array, "rows outputs"]
    weights: RowWeights | None = None


class Learner(NamedTuple):
    """State of one seed in training. Several seeds have a leading axis on every field."""

    params: PyTree[Float[Array, "..."]]  # the arrays of the network; see `combine`
    optimizer: optax.OptState
    key: PRNGKeyArray
    visible: Int[Array, "buffer"]  # numbers of the visible rows, of which only the first `Clock.labels` mean anything
    terms: dict[str, Scalar]  # mean of every loss term over the last stretch
    failed: Scalar  # epoch in which the loss was first not finite, or -1
    nonfinite_terms: Scalar  # bits of the loss terms that were not finite then
    input_prior: InputPrior | None = None  # replaces that of the method, so that runs in one batch can differ in it
    term_numbers: PyTree[Scalar] | None = None  # replaces the numbers of its loss terms; see `numbers_of`


class Failure(NamedTuple):
    """When a loss was first not finite, and which of its terms were not.

    >>> failure = Failure(jnp.array(-1), jnp.array(0)).updated(jnp.array([0.5, jnp.nan]), jnp.array(7))
    >>> int(failure.when), int(failure.terms)
    (7, 2)
    """

    when: Scalar  # epoch or step, or -1 if it has been finite so far
    terms: Scalar  # bit ``i`` is set if term ``i`` was not finite then

    def updated(self, values: Float[Array, "terms"], now: Scalar) -> "Failure":
        """The failure after one more step, given the values of all terms; the first one stays."""
        nonfinite = ~jnp.isfinite(values)
        first = jnp.any(nonfinite) & (self.when < 0)
        bits = jnp.sum(jnp.where(nonfinite, 2 ** jnp.arange(len(values)), 0)).astype(jnp.int32)
        return Failure(jnp.where(first, now, self.when), jnp.where(first, bits, self.terms))


class _State(NamedTuple):
    """What a training step changes."""

    params: PyTree[Float[Array, "..."]]
    optimizer: optax.OptState
    sums: Float[Array, "terms"]  # of every loss term over the steps so far
    failed: Scalar
    nonfinite_terms: Scalar


class Clock(NamedTuple):
    """Epochs done and number of visible labels, the same for all seeds."""

    epoch: Count
    labels: Count


class Trainer(NamedTuple):
    """Trains networks of a method with an optimiser, in mini batches."""

    method: Method
    optimizer: optax.GradientTransformation
    batch_size: int
    remainder: Remainder = "smaller"

    def static(self, inputs: int, outputs: int) -> PyTree:
        """The part of the network that is not trained: structure, functions, constants."""

        def split(network: Network) -> tuple[PyTree, PyTree]:
            return eqx.partition(network, lambda leaf: eqx.is_inexact_array(leaf) or _is_inexact_shape(leaf))

        init = partial(self.method.init, inputs, outputs, key=jax.random.key(0))
        _, static = split(eqx.filter_eval_shape(init))
        if any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(static)):
            _, static = split(init())  # constants such as whole numbers, whose values matter
        return static

    def buffer(self, labels: int) -> int:
        """Size of the buffer of row numbers: ``labels`` rounded up to whole mini batches."""
        return -(-labels // self.batch_size) * self.batch_size

    def check_labels(self, labels: int, what: str = "rows to train on") -> None:
        """Raise if there would be no training step, as with fewer labels than a mini batch if the remainder is dropped.

        Raises:
            UserError: If there would be none.
        """
        if self.steps(labels) < 1:
            raise UserError(
                f"{labels} {what} do not fill a mini batch of {self.batch_size}, and remainder 'dropped' leaves out "
                "what does not: take more of them, a smaller batch_size, or remainder 'filled'"
            )

    def start(
        self,
        rows: Rows,
        visible: Int[Array, "buffer"],
        *,
        key: PRNGKeyArray,
        prepare: Callable[[Network], Network] = lambda network: network,
    ) -> Learner:
        """Make a learner with a fresh network.

        Args:
            rows: All rows.
            visible: Buffer of the numbers of visible rows.
            key: Random key of initial weights and training.
            prepare: Changes the network before training.
        """
        key_init, key_train = jax.random.split(key)
        network = prepare(self.method.init(rows.inputs.shape[-1], rows.targets.shape[-1], key=key_init))
        params = eqx.filter(network, eqx.is_inexact_array)
        # Weak types would become strong ones in the first stretch, and the second would compile again.
        params = jax.tree.map(lambda leaf: leaf.astype(leaf.dtype), params)
        return Learner(
            params,
            self.optimizer.init(trained(params)),
            key_train,
            visible,
            {name: jnp.zeros(()) for name in self.method.objective},
            jnp.array(-1, jnp.int32),
            jnp.array(0, jnp.int32),
        )

    def steps(self, labels: Count) -> Count:
        """Number of mini batches in an epoch."""
        return labels // self.batch_size if self.remainder == "dropped" else -(-labels // self.batch_size)

    def train(self, learner: Learner, rows: Rows, static: PyTree, clock: Clock, epochs: Count) -> Learner:
        """Train for this many epochs on the visible rows, in one loop. All counts may be traced."""
        steps = self.steps(clock.labels)
        return self.train_steps(
            learner,
            rows,
            static,
            clock.labels,
            first=clock.epoch * steps,
            last=(clock.epoch + epochs) * steps,
        )

    def train_steps(
        self,
        learner: Learner,
        rows: Rows,
        static: PyTree,
        labels: Count,
        *,
        first: Count,
        last: Count,
    ) -> Learner:
        """Train from step ``first`` up to, but not including, step ``last``.

        Steps are counted from the beginning of training, so the number of visible rows must not have changed since.
        Splitting the steps over several calls gives the same result.
        """
        size, steps = self.batch_size, self.steps(labels)
        names = list(self.method.objective)
        position = jnp.arange(len(learner.visible))
        in_use = position < labels

        num_visible = jnp.asarray(labels)
        if rows.weights is not None:
            num_visible = rows.weights.num_labels(learner.visible, in_use)
            mean_weight = rows.weights.mean(learner.visible, in_use, labels)

        method = self.method
        if learner.input_prior is not None:
            method = dataclasses.replace(method, input_prior=learner.input_prior)
        if learner.term_numbers is not None:
            method = dataclasses.replace(method, objective=with_numbers(method.objective, learner.term_numbers))

        def loss(
            params: PyTree[Float[Array, "..."]], batch: Batch, key: PRNGKeyArray
        ) -> tuple[Scalar, dict[str, Scalar]]:
            return method.loss(combine(eqx.combine(params, learner.params), static), batch, key=key)

        def step(epoch: Scalar, order: Int[Array, "buffer"], key: PRNGKeyArray, i: Scalar, state: _State) -> _State:
            params, optimizer, sums, failed, nonfinite_terms = state
            begin = i * size
            if self.remainder == "filled":  # with the last rows of the batch before
                begin = jnp.minimum(begin, jnp.maximum(labels - size, 0))
            chosen = jax.lax.dynamic_slice(order, (begin,), (size,))
            weights = jax.lax.dynamic_slice(in_use, (begin,), (size,)).astype(jnp.float32)
            if rows.weights is not None:
                weights = weights * rows.weights.values[chosen] / mean_weight
            batch = Batch(rows.inputs[chosen], rows.targets[chosen], weights, num_visible)
            gradient = jax.grad(loss, has_aux=True)
            grads, terms = gradient(params, batch, jax.random.fold_in(key, i))
            updates, optimizer = self.optimizer.update(grads, optimizer, params)
            params = optax.apply_updates(params, updates)
            values = jnp.stack([terms[name] for name in names])
            failure = Failure(failed, nonfinite_terms).updated(values, epoch)
            return _State(params, optimizer, sums + values, failure.when, failure.terms)

        def one_epoch(i: Scalar, state: _State) -> _State:
            epoch = jnp.asarray(i, jnp.int32)
            key_order, key_steps = jax.random.split(jax.random.fold_in(learner.key, epoch))
            # A random permutation of the visible rows: sort random numbers, those not in use last.
            ticket = jax.random.bits(key_order, position.shape) >> 1
            order = learner.visible[jnp.argsort(jnp.where(in_use, ticket, jnp.uint32(0xFFFFFFFF)))]
            # What fills up the last batch has no weight, but must not be a row that nobody has seen either.
            order = jnp.where(in_use, order, order[0])
            begin, end = jnp.maximum(first - epoch * steps, 0), jnp.minimum(last - epoch * steps, steps)
            return jax.lax.fori_loop(begin, end, partial(step, epoch, order, key_steps), state)

        moved = trained(learner.params)
        state = _State(moved, learner.optimizer, jnp.zeros(len(names)), learner.failed, learner.nonfinite_terms)
        epoch_steps = jnp.maximum(steps, 1)
        params, optimizer, sums, failed, nonfinite_terms = jax.lax.fori_loop(
            first // epoch_steps, -(-last // epoch_steps), one_epoch, state
        )
        # A seed whose loss is not finite stays what it was before.
        params, optimizer = jax.tree.map(
            lambda new, old: jnp.where(failed >= 0, old, new),
            (params, optimizer),
            (moved, learner.optimizer),
        )
        params = eqx.combine(params, learner.params)
        means = sums / jnp.maximum(last - first, 1)
        terms = {name: means[i] for i, name in enumerate(names)}
        return learner._replace(
            params=params, optimizer=optimizer, terms=terms, failed=failed, nonfinite_terms=nonfinite_terms
        )


def trained(params: PyTree[Float[Array, "..."]]) -> PyTree[Float[Array, "..."]]:
    """The arrays that an optimiser moves; those of `Constants` are None.

    A step takes no time for constants, and neither moments nor averages of them are kept.
    """

    def is_constant(node: object) -> bool:
        return isinstance(node, Constants)

    def part(node: PyTree) -> PyTree:
        return jax.tree.map(lambda _: None, node) if is_constant(node) else node

    return jax.tree.map(part, params, is_leaf=is_constant)


def _is_inexact_shape(leaf: object) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct) and jnp.issubdtype(leaf.dtype, jnp.inexact)


def combine(params: PyTree[Float[Array, "..."]], static: PyTree) -> Network:
    """The network made of its trained arrays and the rest; see `Trainer.static`."""
    return eqx.combine(params, static)


def explain_failure(method: Method, failed: int, nonfinite_terms: int) -> str:
    """One line on why a seed stopped."""
    names = [name for i, name in enumerate(method.objective) if nonfinite_terms >> i & 1]
    return f"the loss was not finite in epoch {failed} (term {', '.join(names)})"


def seed_keys(seeds: Sequence[int]) -> Key[Array, "seeds"]:
    """One random key for each seed; a seed's key does not depend on the others."""
    return jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))


def train_seeds(
    trainer: Trainer, learners: Learner, rows: Rows, static: PyTree, *, clock: Clock, epochs: Count
) -> Learner:
    """Train the seeds of one device: in groups if their networks are small, else one after the other."""

    def train(learner: Learner) -> Learner:
        return trainer.train(learner, rows, static, clock, epochs)

    size = sum(leaf.nbytes // len(leaf) for leaf in jax.tree.leaves(learners.params))
    if 4 * size > _CACHE_BYTES:
        return jax.lax.map(train, learners)
    # Groups of always the same size: how XLA rounds may depend on how many seeds it computes at once, and a seed's
    # result must not. The last seed fills up the last group.
    count = len(learners.failed)
    filled = jnp.minimum(jnp.arange(-(-count // _GROUP) * _GROUP), count - 1)
    done = jax.lax.map(train, jax.tree.map(lambda leaf: leaf[filled], learners), batch_size=_GROUP)
    return jax.tree.map(lambda leaf: leaf[:count], done)


def seed_mesh(seeds: int) -> Mesh:
    """The devices that seeds are spread over, at most one for each seed."""
    devices = jax.devices()[: max(1, seeds)]
    return Mesh(np.array(devices), ("seeds",))


def padded(seeds: Sequence[int], mesh: Mesh) -> list[int]:
    """The seeds, with the last one repeated until every device has the same number of them."""
    missing = -len(seeds) % mesh.size
    return [*seeds, *[seeds[-1]] * missing]


def over_seeds(function: Callable[..., T], mesh: Mesh) -> Callable[..., T]:
    """Run a function of learners and shared values on all devices, each with its part of the learners.

    Args:
        function: Takes learners and then shared values, and returns arrays with a leading axis of learners.
        mesh: The devices, see `seed_mesh`.
    """

    @wraps(function)  # the program is known by the function's name
    def call(learners: PyTree[Array], *shared: PyTree[Array]) -> T:
        each, same = PartitionSpec("seeds"), PartitionSpec()
        specs = (each, *[same] * len(shared))
        return jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=each, check_vma=False)(learners, *shared)

    return call
