"""Which rows to label next, for predictions and features on tensors: the scores and rules of the package itself.

Tensors go to JAX as NumPy arrays and results come back as tensors on the device that they came from; nothing here has a
gradient.
"""

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import Tensor

from ncprior.core import acquisition, prediction
from ncprior.core.acquisition import Acquisition, Draw, Score
from ncprior.errors import UserError
from ncprior.tables.batch_features import pick as picked
from ncprior.tables.batch_features import pool_ranks, root_mean_square
from ncprior.tables.batches import DEFAULT_RULE, RULES, Pool
from ncprior.torch.predictions import Prediction, prediction_of
from ncprior.torch.views import Outputs, outputs_of


def information_gain(output: object) -> Tensor:
    """Expected information that the label of each row gives about the weights, in nats per output ``[rows]``.

    Args:
        output: What a model returned for a pool of rows; it needs an uncertainty.

    Raises:
        UserError: If the model is a point estimate.

    >>> gain = information_gain((torch.zeros(2), torch.ones(2), torch.tensor([0.1, 2.0])))
    >>> [round(float(one), 3) for one in gain]
    [0.005, 0.805]
    """
    return score(output, "information_gain")


def score(output: object, name: str | Score = "information_gain") -> Tensor:
    """The score of each row ``[rows]``, more is better: one of `ncprior.core.acquisition.SCORES`, or a function."""
    function, predicted, like = _score(name), *_prediction(output, name)
    return torch.from_numpy(np.array(function(predicted))).to(like.device)


def draw(
    output: object,
    count: int,
    *,
    score: str | Score = "information_gain",
    temperature: float = 0.5,
    how: Draw = "without_replacement",
    excluded: Tensor | None = None,
    seed: int = 0,
) -> Tensor:
    """Draw rows to label next from the softmax of their scores (Equation 7); `Acquisition` has the details.

    Args:
        output: What a model returned for a pool of rows.
        count: How many rows to draw.
        score: By which score.
        temperature: Of the softmax: the lower, the more often the best rows.
        how: ``"without_replacement"``, ``"with_replacement"`` or ``"greedy"``, the best rows.
        excluded: True for rows that must not be drawn ``[rows]``.
        seed: Of the draws.

    Returns:
        The numbers of the rows.
    """
    predicted, like = _prediction(output, score)
    rule = Acquisition(_score(score), temperature=temperature, draw=how)
    left = _excluded(excluded, len(predicted.mean), count)
    rows = rule(predicted, jnp.asarray(left), count, key=jax.random.key(seed))
    return torch.from_numpy(np.array(rows)).long().to(like.device)


def pick(
    pool: Tensor,
    count: int,
    *,
    rule: str = DEFAULT_RULE,
    labelled: Tensor | None = None,
    noise: Tensor | None = None,
    excluded: Tensor | None = None,
    seed: int = 0,
) -> Tensor:
    """Pick rows that are informative together, by one of `ncprior.tables.batches.RULES`.

    Args:
        pool: What the rule compares, for each row of the pool. ``kmeans_inputs`` and ``kmeans_greedy`` take the
            inputs and compare their ranks; ``kmeans_pp``, ``lcmd`` and ``k_center`` take features of the network;
            ``max_det`` and ``bait`` take `BayesianLinear.deviations`.
        count: How many rows to pick.
        rule: Name of the rule.
        labelled: The same of the rows that have labels; ``max_det`` and ``bait`` need none, as the belief knows them.
        noise: Standard deviation of the observation noise at the pool rows, which ``max_det`` and ``bait`` need.
        excluded: True for rows that must not be picked ``[rows]``.
        seed: Of the rules that draw rows.

    Returns:
        The numbers of the rows, in the order in which they were picked.

    >>> pool = torch.tensor([[3.0, 0.0], [3.0, 0.0], [0.0, 2.0]])
    >>> pick(pool, 2, rule="max_det", noise=torch.ones(3))
    tensor([0, 2])
    """
    if rule not in RULES:
        raise UserError(f"unknown rule {rule!r}: choose from {', '.join(RULES)}")
    entry = RULES[rule]
    if entry.compares == "covariances" and noise is None:
        raise UserError(
            f"{rule} weighs uncertainty against noise: give noise, one standard deviation for each pool row"
        )
    phi, left = _features(pool), _excluded(excluded, len(pool), count)
    seen = phi[:0] if labelled is None else _features(labelled)
    if seen.shape[1] != phi.shape[1]:
        raise UserError(f"pool rows have {phi.shape[1]} features and labelled rows {seen.shape[1]}: give the same")
    if entry.compares == "inputs":
        seen, phi = pool_ranks(seen, phi), pool_ranks(phi, phi)
    stds = np.ones(len(phi), np.float32) if noise is None else root_mean_square(_array(noise).reshape(len(noise), -1))
    if len(stds) != len(phi):
        raise UserError(f"noise has {len(stds)} rows and the pool {len(phi)}: give one for each row of the pool")
    rows = picked(entry.function, Pool.of(phi, stds, left), seen, count, key=jax.random.key(seed))
    return torch.from_numpy(np.array(rows)).long().to(pool.device)


def _score(name: str | Score) -> Score:
    if callable(name) or name not in acquisition.SCORES:
        return acquisition.score_of(name)
    return acquisition.SCORES[name].function


_OF_UNCERTAINTY = ("information_gain", "uncertainty")
"""Scores that are the same for all rows of a model without uncertainty."""


def _prediction(output: object, name: str | Score) -> tuple[prediction.Predictive, Tensor]:
    """The prediction of the package in what a model returned, and a tensor on the model's device."""
    given = prediction_of(output)
    found = outputs_of(given, len(given.mean) if isinstance(given, Prediction) else given.means.shape[1])
    like, belief = found.means, found.belief
    if found.shares is not None:
        return _mixture(found), like
    if belief is None and name in _OF_UNCERTAINTY:
        raise UserError(f"{name} needs a model with uncertainty, and this one has none: score it by predictive_std")
    mean = found.means[0] if belief is None else belief.mean
    noise = torch.sqrt(found.average(found.noises**2))
    uncertainty = torch.zeros_like(mean) if belief is None else belief.std
    return prediction.Prediction(*(jnp.asarray(_array(part)) for part in (mean, noise, uncertainty))), like


def _mixture(found: Outputs) -> prediction.MixturePrediction:
    """A mixture whose members have shares of their own, such as that of `OODLoss.prediction`."""
    uncertainties = torch.zeros_like(found.means) if found.uncertainties is None else found.uncertainties
    shares, *parts = (
        jnp.moveaxis(jnp.asarray(_array(part)), 0, -1)
        for part in (found.shares, found.means, found.noises, uncertainties)
    )
    return prediction.MixturePrediction(shares, prediction.Prediction(*parts))


def _features(rows: Tensor) -> np.ndarray:
    """Features ``[rows, features]``; of several outputs the average covariance counts."""
    if rows.ndim < 2:
        raise UserError(f"a rule compares rows of features [rows, features], got shape {tuple(rows.shape)}")
    outputs = rows.shape[2] if rows.ndim == 3 else 1
    return _array(rows).reshape(len(rows), -1) / np.float32(outputs**0.5)


def _excluded(excluded: Tensor | None, rows: int, count: int) -> np.ndarray:
    found = np.zeros(rows, bool) if excluded is None else excluded.detach().cpu().numpy().astype(bool)
    if found.shape != (rows,):
        raise UserError(f"excluded has shape {found.shape}, there are {rows} rows: give one for each")
    if not 1 <= count <= rows - found.sum():
        raise UserError(f"{count} rows were asked for and {rows - found.sum()} can be picked")
    return found


def _array(values: Tensor | None) -> np.ndarray:
    assert values is not None
    return values.detach().float().cpu().numpy()
