"""What models give: mean, noise and uncertainty, in whatever form they return them."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from ncprior.errors import UserError
from ncprior.torch.distributions import Normal

_SMALLEST_VARIANCE = 1e-12
"""Added below a root that has a gradient: that of 0 is infinite."""


class Prediction(NamedTuple):
    """What a model says about rows. All are tensors ``[rows, outputs]``, or ``[rows]`` for one output.

    Attributes:
        mean: The predicted mean.
        noise: Standard deviation of the observation noise, positive.
        uncertainty: Standard deviation of the belief over the mean, positive; None for a point estimate.
        ood: Logit of the probability that a row is out of distribution; for `OODLoss`.
    """

    mean: Tensor
    noise: Tensor
    uncertainty: Tensor | None = None
    ood: Tensor | None = None


class Mixture(NamedTuple):
    """Predictions of several models, such as the members of an ensemble, on the first axis of every field.

    Its noise is that of an average member, and what the members' means differ by is uncertainty (law of total
    variance), as in `ncprior.core.prediction.MixturePrediction`.

    >>> two = Mixture(torch.tensor([[1.0], [3.0]]), torch.ones(2, 1))
    >>> float(two.mean), float(two.noise), round(float(two.uncertainty), 4)
    (2.0, 1.0, 1.0)
    """

    means: Tensor
    noises: Tensor
    uncertainties: Tensor | None = None
    weights: Tensor | None = None

    def average(self, values: Tensor) -> Tensor:
        """The average of values over the members."""
        return values.mean(0) if self.weights is None else (self.weights * values).sum(0)

    @property
    def mean(self) -> Tensor:
        """Mean of the mixture."""
        return self.average(self.means)

    @property
    def noise(self) -> Tensor:
        """Root of the members' average noise variance."""
        return torch.sqrt(self.average(self.noises**2))

    @property
    def uncertainty(self) -> Tensor:
        """Root of the members' average uncertainty variance plus the variance of their means."""
        variances = (self.means - self.mean) ** 2
        if self.uncertainties is not None:
            variances = variances + self.uncertainties**2
        return torch.sqrt(self.average(variances) + _SMALLEST_VARIANCE)


class Samples(NamedTuple):
    """Draws from a model whose predictions are random, such as one with dropout: ``[samples, rows, outputs]``.

    Losses average over the draws, and correct the divergence from the output prior for there being few of them.
    """

    means: Tensor
    noises: Tensor

    @property
    def mean(self) -> Tensor:
        """Average of the draws."""
        return self.means.mean(0)

    @property
    def noise(self) -> Tensor:
        """Root of the average noise variance."""
        return torch.sqrt((self.noises**2).mean(0))

    @property
    def uncertainty(self) -> Tensor:
        """Standard deviation of the draws."""
        return torch.sqrt(self.means.var(0, correction=1) + _SMALLEST_VARIANCE)


def prediction_of(output: object) -> Prediction | Mixture | Samples:
    """The prediction in what a model returned.

    Args:
        output: A tuple ``(mean, noise)`` or ``(mean, noise, uncertainty)``; a dictionary or an object with these names,
            and ``ood``; a normal `torch.distributions.Distribution`, whose standard deviation is the noise; or one of
            the classes above. ``mean`` may be a normal itself, as `BayesianLinear` gives it: a belief over the mean.

    Raises:
        UserError: If it is none of these.

    >>> prediction_of((torch.zeros(3), torch.ones(3))).uncertainty is None
    True
    """
    if isinstance(output, Prediction | Mixture | Samples):
        return output
    if isinstance(output, torch.distributions.Distribution):
        normal = _normal(output)
        return Prediction(normal.mean, normal.std)
    if isinstance(output, Normal):
        raise UserError("the model gives a belief over the mean and no noise: return (mean, noise, uncertainty)")
    if isinstance(output, Mapping):
        fields = {name: output[name] for name in Prediction._fields if name in output}
    elif hasattr(output, "mean") and hasattr(output, "noise"):  # before tuples: a named one may have another order
        fields = {name: getattr(output, name) for name in Prediction._fields if hasattr(output, name)}
    elif isinstance(output, tuple | list) and len(output) in (2, 3):
        fields = dict(zip(Prediction._fields, output, strict=False))
    else:
        shape = f" of shape {tuple(output.shape)}" if isinstance(output, Tensor) else ""
        raise UserError(
            f"the model gives a {type(output).__name__}{shape}, which is no mean and noise: return (mean, noise) or "
            "(mean, noise, uncertainty), a dictionary with these names, or a torch.distributions.Normal"
        )
    missing = [name for name in ("mean", "noise") if fields.get(name) is None]
    if missing:
        raise UserError(f"the model's output has no {missing[0]!r}: it needs mean and noise, and may have uncertainty")
    if isinstance(fields["mean"], Normal | torch.distributions.Distribution):
        if fields.get("uncertainty") is not None:
            raise UserError(
                "the model gives an uncertainty and a belief over the mean, which is one too: leave one out"
            )
        belief = _normal(fields["mean"])
        fields |= {"mean": belief.mean, "uncertainty": belief.std}
    return Prediction(**fields)


def _normal(distribution: object) -> Normal:
    if isinstance(distribution, Normal):
        return distribution
    base = distribution
    while isinstance(base, torch.distributions.Independent):
        base = base.base_dist
    if not isinstance(base, torch.distributions.Normal):
        raise UserError(f"the model gives a {type(base).__name__} distribution; NCP is for a Normal")
    return Normal(base.loc, base.scale)
