"""Checks of a trunk, an input prior, a method or a score of the user's own, with messages of one line.

Shapes are found without computing anything; then one mini batch is computed, to see that its numbers are finite.
"""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ncprior.core.acquisition import Score
from ncprior.core.methods import Method
from ncprior.core.networks import Network
from ncprior.core.objectives import Batch, View, Weighted
from ncprior.core.prediction import Predictive
from ncprior.errors import UserError

Result = TypeVar("Result")

_ROWS = 8
"""Of the mini batch that parts are tried on."""

_TRUNK = "trunk must be a function (inputs, *, key) -> module that makes a network"
_PRIOR = "input_prior must be a function (inputs, *, key) -> noised of rows"
_INIT = "init must be a function (inputs, outputs, *, key) -> Network"


def check_trunk(trunk: Callable[..., object], inputs: int) -> None:
    """Raise unless this makes modules from an input vector to a vector of features."""
    _check_call(_TRUNK, trunk, inputs)

    def features(key: Array) -> object:
        module = _run(_TRUNK, lambda: trunk(inputs, key=key))
        if not callable(module):
            raise UserError(f"{_TRUNK}, and it made {_described(module)}")
        return _run("trunk: its module must take one example", lambda: module(_batch(inputs, 1).inputs[0]))

    found = _shape(features)
    if not _is_float(found) or found.ndim != 1 or not found.size:
        what = f"a vector of features for one example of {inputs} inputs"
        raise UserError(f"trunk: its module must give {what}, and it gave {_described(found)}")
    _check_finite("trunk: its module", features)


def check_input_prior(prior: Callable[..., object], inputs: int) -> None:
    """Raise unless this makes noised rows of a mini batch, all or the first of them."""
    _check_call(_PRIOR, prior, np.zeros((_ROWS, inputs), np.float32))

    def noised(key: Array) -> object:
        return _run(_PRIOR, lambda: prior(_batch(inputs, 1).inputs, key=key))

    found = _shape(noised)
    if not _is_float(found) or found.ndim != 2 or found.shape[1] != inputs or not 1 <= len(found) <= _ROWS:
        shape = f"[{_ROWS}, {inputs}]"
        raise UserError(
            f"input_prior must give rows of the shape that it gets, {shape}, and it gave {_described(found)}"
        )
    _check_finite("input_prior", noised)


def check_method(method: Method, inputs: int, outputs: int) -> None:
    """Raise unless its networks can be trained and predict rows with so many inputs and outputs."""
    name = f"method {method.name!r}"
    _check_call(f"{name}: {_INIT}", method.init, inputs, outputs)
    if method.input_prior is not None:
        check_input_prior(method.input_prior, inputs)
    for term, weighted in method.objective.items():
        if not isinstance(weighted, Weighted) or not callable(weighted.term):
            raise UserError(f"{name}: term {term!r} must be Weighted(weight, function of a View), got {weighted!r:.80}")
    batch = _batch(inputs, outputs)

    def network_of(key: Array) -> Network:
        network = _run(f"{name}: {_INIT}", lambda: method.init(inputs, outputs, key=key))
        if not isinstance(network, Network):
            raise UserError(f"{name}: {_INIT}, and it made {_described(network)}")
        return network

    def terms(key: Array) -> dict[str, Array]:
        network = network_of(key)
        view = _run(
            f"{name}: its network must take rows of {inputs} inputs",
            lambda: View.of(network, batch, method.input_prior, key=key),
        )
        return {
            term: _run(f"{name}: term {term!r} must be a function of a View", lambda: weighted.term(view))  # noqa: B023
            for term, weighted in method.objective.items()
        }

    def predicted(key: Array) -> dict[str, Array]:
        network = network_of(key)
        prediction = _run(f"{name}: predict must take what the heads say", lambda: method(network, batch.inputs))
        if not isinstance(prediction, Predictive):
            raise UserError(
                f"{name}: predict must give a Predictive, such as a Prediction, got {_described(prediction)}"
            )
        return {part: getattr(prediction, part) for part in ("mean", "noise", "uncertainty")}

    for term, found in _shape(terms).items():
        if not _is_float(found) or found.ndim > 1 or (found.ndim and not 1 <= len(found) <= _ROWS):
            what = f"one loss for each of {_ROWS} rows, or one number"
            raise UserError(f"{name}: term {term!r} must give {what}, and it gave {_described(found)}")
    for part, found in _shape(predicted).items():
        if not _is_float(found) or found.shape != (_ROWS, outputs):
            what = f"one number for each of {outputs} outputs of an example"
            raise UserError(
                f"{name}: the {part} that predict gives must be {what}, got {_described(found)} for {_ROWS}"
            )
    _check_finite(f"{name}: its loss or prediction", lambda key: (terms(key), predicted(key)))


def check_score(score: Score, name: object, prediction: Predictive) -> None:
    """Raise unless this gives one number for each row of a prediction; ``name`` is how it was given."""
    found = _run(
        f"a score must be a function of a prediction, written with jax.numpy; {name!r} was tried",
        lambda: eqx.filter_eval_shape(score, prediction),
    )
    rows = len(prediction.mean)
    if getattr(found, "shape", None) != (rows,) or not jnp.issubdtype(found.dtype, jnp.number):
        raise UserError(f"a score must give one number for each of {rows} rows, and {name!r} gives {_described(found)}")


def _batch(inputs: int, outputs: int) -> Batch:
    """Rows as they are after standardising."""
    rng = np.random.default_rng(0)
    rows, targets = (jnp.asarray(rng.normal(size=(_ROWS, width)), jnp.float32) for width in (inputs, outputs))
    return Batch(rows, targets, jnp.ones(_ROWS), jnp.asarray(float(_ROWS)))


def _check_call(expected: str, function: object, *arguments: object) -> None:
    """Raise unless this can be called with these arguments and a keyword ``key``."""
    if not callable(function):
        raise UserError(f"{expected}, got {_described(function)}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some have none
        return
    try:
        signature.bind(*arguments, key=None)
    except TypeError as error:
        raise UserError(f"{expected}, and {_described(function)} does not take these arguments ({error})") from error


def _run(expected: str, call: Callable[[], Result]) -> Result:
    """What a call of the user's code gives."""
    try:
        return call()
    except UserError:
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UserError(f"{expected}, and failed ({why:.200})") from error


def _shape(function: Callable[[Array], object]) -> Any:
    """The shapes of what a function of a key gives; what is no array is given as it is."""
    return eqx.filter_eval_shape(function, jax.random.key(0))


def _is_float(found: object) -> bool:
    return hasattr(found, "dtype") and hasattr(found, "ndim") and bool(jnp.issubdtype(found.dtype, jnp.floating))


def _check_finite(what: str, function: Callable[[Array], object]) -> None:
    found = jax.jit(function)(jax.random.key(0))
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found)):
        raise UserError(f"{what} gives numbers that are not finite before any training; mend its initial weights")


def _described(value: object) -> str:
    """What something is, in few words."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype} of shape {list(value.shape)}"
    return f"{getattr(value, '__name__', None) or type(value).__name__}"
