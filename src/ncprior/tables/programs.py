"""The programs behind an estimator, compiled once for all tables of the same shape."""

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ncprior.core.blocks import predict_in_blocks
from ncprior.core.deep import deep_ncp
from ncprior.core.input_priors import InputPrior
from ncprior.core.methods import Method, methods
from ncprior.core.networks import MLP, Network, transposed_kernels, with_transposed_layers
from ncprior.core.objectives import numbers_of
from ncprior.core.optimizers import adam_of_state, averaged, warmed_up
from ncprior.core.prediction import MixturePrediction, Prediction, Predictive, add_uncertainty, heavy_tailed, mix
from ncprior.core.settings import Settings
from ncprior.core.training import Trainer, combine
from ncprior.data.encoding import Group
from ncprior.errors import UserError
from ncprior.processes import check_process
from ncprior.tables.calibration import Calibration
from ncprior.tables.compiled import Program
from ncprior.tables.contrast import contrast_method
from ncprior.tables.custom_parts import check_input_prior, check_method, check_trunk
from ncprior.tables.ensemble import Ensemble, TrainingNumbers, in_threads
from ncprior.tables.input_features import FeatureTrunk, with_input_features

_WARM_UP = 50
"""Steps in which the learning rate rises."""

_ROWS = 64
"""Rows that are predicted together; always as many, so that a row's rounding does not depend on the others."""

CHUNKS = (64, 1024, 16384)
"""Numbers of rows that programs are compiled for; others are padded."""

_MEDIUM, _SEVERAL = 1024, 8
"""Of this size there may be so many chunks before there is one of the next."""

_PLACED = 4
"""Models whose weights stay where programs compute."""


# Programs on predictions, compiled once for each size of chunk. Errors of regression have heavier tails than the
# members' normals.
MEAN, NOISE, UNCERTAINTY, STD = (
    Program(lambda whole, name=name: getattr(whole, name), name, brief=True)
    for name in ("mean", "noise", "uncertainty", "std")
)
QUANTILES = Program(lambda whole, probabilities: _quantiles(whole, probabilities), "quantiles")
LOG_PROB = Program(lambda whole, y: heavy_tailed(whole).log_prob(y), "log_prob")
CDF = Program(lambda whole, y: heavy_tailed(whole).cdf(y), "cdf")


def _quantiles(whole: MixturePrediction, probabilities: Array) -> Array:
    """Quantiles ``[rows, outputs, probabilities]``, some rows at a time: they are found until all of these are."""

    def of_block(part: MixturePrediction) -> Array:
        tailed = heavy_tailed(part)
        return jnp.stack([tailed.quantile(probability) for probability in probabilities], axis=-1)

    return predict_in_blocks(of_block, whole, block=_ROWS)


CONTRAST = "contrast"
"""The method of the networks in `ncprior.tables.contrast`, which is for no one to choose."""

TrunkFactory = Callable[..., Callable[[Array], Array]]
"""A function ``(inputs, *, key) -> module`` that makes a trunk, a module from an input vector to features."""

Result = TypeVar("Result")


class Spec(NamedTuple):
    """What the programs of an estimator depend on: those of equal specifications are compiled once."""

    settings: Settings
    method: str | Method
    trunk: TrunkFactory | None  # of the user's own
    input_prior: InputPrior | None  # likewise
    groups: tuple[Group, ...]
    width: int  # columns of the encoded rows
    outputs: int
    bins: int  # quantile bins of every number; 0 for none


class Engine:
    """The compiled programs that train an ensemble and predict with it."""

    def __init__(self, spec: Spec) -> None:
        s = spec.settings
        check_custom_parts(spec)
        self.spec, self.method = spec, make_method(spec)
        optimizer = averaged(
            warmed_up(adam_of_state(s.learning_rate, clip=s.clip, epsilon_hat=s.epsilon_hat), _WARM_UP)
        )
        self.about = about = _Key(spec).text
        """What the programs depend on, in words; None if a part is of the user's own."""
        trainer = Trainer(self.method, optimizer, s.batch_size, s.remainder)
        self.ensemble = Ensemble(trainer, spec.width, spec.outputs, widened=spec.method == "ncp", about=about)

        def program(function: Callable[..., Any], **options: Any) -> Program:
            return Program(function, about and f"{function.__name__} of {about}", **options)

        self.further: dict[Hashable, Program] = {}
        """Programs that need this engine and others, by what they do."""
        self.ahead: set[Hashable] = set()
        """What was compiled before it was needed."""
        self._placed: list[tuple[Network, Network]] = []  # weights, and the same on the device
        self.predict = program(self.predict_of)
        self.spread = program(self.spread_of)
        self.sample = program(self._sample)
        self.features = program(self._features)
        self.sketches = program(self._sketches, static=["size"])

    @staticmethod
    def of(spec: Spec) -> "Engine":
        """The engine of a specification, the same one for the same specification."""
        check_process()
        return _engine(_Key(spec))

    @staticmethod
    def clear_cache() -> None:
        """Forgets all engines, whose compiled programs take memory."""
        _engine.cache_clear()

    def on_device(self, weights: Network) -> Network:
        """The weights where programs compute, as `predict` and `spread` read them; the last ones stay there."""
        for given, placed in self._placed:
            if given is weights:
                return placed
        placed = jax.device_put(transposed_kernels(weights))
        self._placed = [(weights, placed), *self._placed][:_PLACED]
        return placed

    def _network(self, placed: Network) -> Network:
        """One network of those that are on the device."""
        return with_transposed_layers(combine(placed, self.ensemble.static))

    def predict_of(
        self, placed: Network, calibration: Calibration, inputs: Array, contrast: Array | None = None
    ) -> MixturePrediction:
        """The mixture of the members' predictions of the standardised target; their weights are `on_device`."""

        def one(member: Network, scales: Calibration) -> Predictive:
            network = self._network(member)
            if contrast is None:
                prediction = predict_in_blocks(partial(self.method, network), inputs, block=_ROWS)
                return prediction.inflate(scales.noise_scale, scales.uncertainty_scale)

            def widened(rows: Array) -> Predictive:
                own = self.method(network, rows[:, :-1]).inflate(scales.noise_scale, scales.uncertainty_scale)
                assert isinstance(own, Prediction)
                return add_uncertainty(own, scales.contrast_std(rows[:, -1:]))

            return predict_in_blocks(widened, jnp.concatenate([inputs, contrast[:, None]], axis=1), block=_ROWS)

        return mix(jax.lax.map(lambda pair: one(*pair), (placed, calibration)), jnp.asarray(calibration.share))

    def spread_of(self, placed: Network, inputs: Array) -> Array:
        """The root of the networks' mean variance of the first output ``[rows]``: what contrast networks say."""

        def together(rows: Array) -> Array:
            def one(member: Network) -> Array:
                return self.method(self._network(member), rows).uncertainty[:, 0]

            return jnp.sqrt(jnp.mean(jax.lax.map(one, placed) ** 2, axis=0))

        return predict_in_blocks(together, inputs, block=_ROWS)

    def _sample(self, member: Network, inputs: Array, key: Array) -> tuple[Array, Array]:
        """One function from a member's belief at rows ``[rows, outputs]``, and the member's mean."""
        network = combine(member, self.ensemble.static)
        features = jax.vmap(network.trunk)(inputs)
        head = network.heads["mean"]
        layer = head.sample(key=key) if hasattr(head, "sample") else head
        return jax.vmap(layer)(features).mean, jax.vmap(head)(features).mean

    def _features(
        self, weights: Network, calibration: Calibration, inputs: Array, output_weights: Array | None = None
    ) -> Array:
        """Features ``[rows, n]`` whose dot products are the covariances of the mean in standardised units.

        They are the deviations of every member's belief, and those of the members from their mean. With several
        outputs, the covariances are averaged over them, with weights of average 1 if there are any.
        """

        def one(member: Network) -> tuple[Array, Array]:
            network = combine(member, self.ensemble.static)
            head, features = network.heads["mean"], jax.vmap(network.trunk)(inputs)
            if not hasattr(head, "deviations"):
                raise UserError(
                    f"the head 'mean' of {self.method.name} ({type(head).__name__}) has no `deviations`, of which "
                    "max_det and bait make covariances: see docs/guides/own_network.md, or choose another acquisition"
                )
            return jax.vmap(head.deviations)(features), jax.vmap(head)(features).mean

        deviations, means = jax.lax.map(one, weights)
        scales, shares = (part.reshape(-1, 1, 1, 1) for part in (calibration.uncertainty_scale, calibration.share))
        apart = (means - jnp.sum(shares[..., 0] * means, axis=0))[:, :, None]
        each = jnp.ones(self.spec.outputs) if output_weights is None else output_weights
        parts = (jnp.sqrt(shares * each / self.spec.outputs) * part for part in (scales * deviations, apart))
        return jnp.concatenate([jnp.moveaxis(part, 0, 1).reshape(len(inputs), -1) for part in parts], axis=1)

    def _sketches(
        self,
        weights: Network,
        calibration: Calibration,
        inputs: Array,
        key: Array,
        output_weights: Array | None = None,
        *,
        size: int,
    ) -> Array:
        """Sketches ``[rows, size]`` of gradients and activations, for rules that go by distances.

        Their dot products are ``(1 + a . a') (1 + d . d')``, summed over layers, and over members by their shares:
        ``a`` is the input of a layer, and ``d`` the gradient of the mean by its output. So they hold the gradients by
        all weights, whose outer products are sketched by products of projections (as in Holzmueller et al., 2023), and
        also the layers' inputs: rows with different inputs are apart even where the mean is flat. Of several outputs it
        is the sum, with weights if there are any. Of a trunk of the user's own, only its output counts.
        """

        def one(member: Network, key: Array) -> Array:
            network = combine(member, self.ensemble.static)
            trunk, features = network.trunk, inputs
            if isinstance(network.trunk, FeatureTrunk):
                trunk, features = network.trunk.trunk, jax.vmap(network.trunk.expand)(inputs)
            if not isinstance(trunk, MLP):
                return project(jax.vmap(trunk)(features), key)
            if not isinstance(network.trunk, FeatureTrunk):
                return of_layers(trunk, network.heads["mean"], features, key)
            return jax.lax.cond(
                network.trunk.features.quantile_scale > 0,
                lambda: of_layers(FeatureTrunk.with_kinks(trunk), network.heads["mean"], features, key),
                lambda: of_layers(trunk, network.heads["mean"], features, key),
            )

        def of_layers(trunk: MLP, head: Callable[[Array], Any], features: Array, key: Array) -> Array:
            def mean(biases: list[Array], row: Array) -> Array:
                whole = eqx.tree_at(lambda mlp: [layer.bias for layer in mlp.layers], trunk, biases)
                outputs = head(whole(row)).mean
                return jnp.sum(outputs if output_weights is None else output_weights * outputs)

            effects = jax.vmap(jax.grad(mean), (None, 0))([layer.bias for layer in trunk.layers], features)
            *layers, last = jax.vmap(trunk.activations)(features)
            keys = jax.random.split(key, 2 * len(layers) + 1)
            parts = [
                size**0.5 * project(layer, keys[2 * i]) * project(effect, keys[2 * i + 1])
                for i, (layer, effect) in enumerate(zip(layers, effects, strict=True))
            ]
            return sum(parts, project(last, keys[-1]))

        def project(rows: Array, key: Array) -> Array:
            with_one = jnp.concatenate([rows, jnp.ones((len(rows), 1))], axis=1)
            return with_one @ (jax.random.normal(key, (with_one.shape[1], size)) / size**0.5)

        keys = jax.random.split(key, len(calibration.share))
        parts = jax.lax.map(lambda pair: one(*pair), (weights, keys))
        return jnp.tensordot(jnp.sqrt(calibration.share), parts, axes=1)


TERM_NUMBERS = ("gamma", "noise_tie", "weight_kl", "ncp_weight_kl", "weight_prior_std", "output_std", "noise_prior_std")
"""Settings that are numbers of loss terms, and part of nothing else but for what `_argument_settings` says."""


def training_numbers(spec: Spec) -> TrainingNumbers:
    """The numbers that the programs of a specification take as arguments."""
    rate = np.float32(spec.settings.learning_rate)
    if isinstance(spec.method, Method):  # its terms may do with their numbers what a program cannot
        return TrainingNumbers(rate, None)
    floats: dict[str, Any] = {name: float(getattr(spec.settings, name)) for name in _argument_settings(spec)}
    exact = spec._replace(settings=dataclasses.replace(spec.settings, **floats))
    return TrainingNumbers(rate, numbers_of(make_method(exact).objective))


def _argument_settings(spec: Spec) -> list[str]:
    """Settings whose values are arguments of the programs: all that have an effect but for switching a term off."""
    if isinstance(spec.method, Method):
        return ["learning_rate"]
    in_predictions = {"output_std"} if spec.method == "odc+ncp" else set()
    used = [name for name in TERM_NUMBERS if getattr(spec.settings, name) and name not in in_predictions]
    return ["learning_rate", *used]


class _Key:
    """What programs depend on, as a key: a user's method, trunk or input prior is compared by identity."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        own = {"method": spec.method, "trunk": spec.trunk, "input_prior": spec.input_prior}
        identities = {name: part if isinstance(part, str | None) else id(part) for name, part in own.items()}
        arguments = _argument_settings(spec)
        fixed = tuple((name, value) for name, value in vars(spec.settings).items() if name not in arguments)
        self.key = spec._replace(settings=fixed, **identities)  # type: ignore[arg-type]  # compared, not used

    @property
    def text(self) -> str | None:
        """The key in words; None if a part is of the user's own."""
        spec = self.spec
        own = not isinstance(spec.method, str) or spec.trunk is not None or spec.input_prior is not None
        return None if own else repr(self.key)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.key == other.key


# Compiled programs hold pieces of memory of which Linux gives a process 65,530: here about 1,000 for each engine.
@lru_cache(maxsize=16)
def _engine(key: _Key) -> Engine:
    return Engine(key.spec)


def check_custom_parts(spec: Spec) -> None:
    """Raise if a trunk, an input prior or a method of the user's own does not work."""
    if spec.trunk is not None:
        check_trunk(spec.trunk, spec.width)
    if spec.input_prior is not None:
        check_input_prior(spec.input_prior, spec.width)
    if isinstance(spec.method, Method):
        check_method(spec.method, spec.width, spec.outputs)


def make_method(spec: Spec) -> Method:
    """The method with the table's trunk and, if the user gave one, an input prior of their own."""
    if isinstance(spec.method, Method):
        method = spec.method
    elif spec.method == "deep+ncp":
        method = deep_ncp(spec.settings, spec.trunk)
    elif spec.method == CONTRAST:
        method = contrast_method(spec.settings)
    elif spec.method == "ncp":
        method = dataclasses.replace(methods(spec.settings, spec.trunk)["det"], name="ncp")
    else:
        method = methods(spec.settings, spec.trunk)[spec.method]
    if spec.input_prior is not None and method.input_prior is not None:
        method = dataclasses.replace(method, input_prior=spec.input_prior)
    if not spec.bins and spec.method != CONTRAST:
        return method
    columns = tuple(group.columns[0] for group in spec.groups if group.kind == "number")
    return with_input_features(method, columns, spec.bins)


def padded_size(rows: int) -> int:
    """The size that arrays of so many rows are padded to, so that tables of about the same size share a program.

    Small tables, which grow label by label, have two sizes for all: a step takes as long for both.

    >>> [padded_size(rows) for rows in (3, 300, 1500, 70_000)]
    [256, 1024, 2048, 131072]
    """
    if rows <= 1 << 10:
        return 256 if rows <= 256 else 1024
    return 1 << (rows - 1).bit_length() if rows <= 1 << 16 else -(-rows >> 16) << 16


def chunked(function: Callable[..., Result], *arrays: object, sizes: Sequence[int] = CHUNKS) -> Result:
    """``function(*arrays)`` a chunk of rows at a time, with chunks of few sizes.

    Args:
        function: A function of arrays with a leading axis of rows, which works row by row.
        arrays: Arrays or trees of them, all with as many rows.
        sizes: Numbers of rows, in ascending order, that the function is compiled for, whatever the number of rows.

    Returns:
        The results as NumPy arrays.

    >>> chunked(lambda x: 2 * x, np.arange(3))
    array([0, 2, 4])
    """
    check_process()
    rows = len(jax.tree.leaves(arrays)[0])
    # Rather several chunks than one that is mostly padding: to fill 16,384 rows takes as long as to predict them.
    size = next((size for size in sizes if rows <= (size if size < _MEDIUM else _SEVERAL * size)), sizes[-1])

    def run(start: int) -> Result:
        """The function of the chunk that begins at this row, without what it was padded with."""
        results = function(*jax.tree.map(lambda leaf: _padded(leaf[start : start + size], size), arrays))
        return jax.tree.map(lambda leaf: np.asarray(leaf)[: rows - start], results)

    starts = range(0, max(rows, 1), size)
    parts = [run(0)] if len(starts) == 1 else in_threads(run, starts)
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


def _padded(rows: Array | np.ndarray, size: int) -> np.ndarray:
    """The rows with the last one repeated, or zeros if there is none, so that they are so many."""
    given = np.asarray(rows)
    if len(given) == size:
        return given
    filled = np.empty((size, *given.shape[1:]), given.dtype)
    filled[: len(given)] = given
    filled[len(given) :] = given[-1] if len(given) else 0
    return filled
