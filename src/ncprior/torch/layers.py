"""Layers and wrappers that give a PyTorch model uncertainty: a belief over its last layer, or dropout."""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Generator, Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from ncprior.errors import UserError
from ncprior.torch.distributions import Normal, scale_kl
from ncprior.torch.predictions import Samples
from ncprior.torch.views import outputs_of

_SMALLEST_VARIANCE = 1e-12
"""Added to the variance of a belief: the root of 0 has no gradient, and zero features make it 0."""


class LinearSample(NamedTuple):
    """A linear layer that was drawn from a belief; gradients reach the belief."""

    weight: Tensor
    bias: Tensor

    def __call__(self, features: Tensor) -> Tensor:
        """The outputs of this layer."""
        return F.linear(features, self.weight, self.bias)


class BayesianLinear(nn.Module):
    """A linear output layer with a factorised normal belief over its weights (Equation 4).

    The belief is ``N(weight, softplus(rho)^2)``. As the layer is linear, the belief over its output is normal too, and
    its variance ``features^2 @ softplus(rho)^2`` needs no samples. It is `ncprior.core.networks.BayesianMean`, with
    weights ``[outputs, features]`` as `torch.nn.Linear` has them.

    Args:
        in_features: Size of the features.
        out_features: Number of outputs.
        std: Standard deviation of the belief to begin with, and of the initial values of its means.
        bias_belief: Whether the bias has a belief too, or is a point estimate.
        device: As for `torch.nn.Linear`.
        dtype: As for `torch.nn.Linear`.

    >>> mean, uncertainty = BayesianLinear(3, 1)(torch.ones(5, 3))
    >>> mean.shape, uncertainty.shape
    (torch.Size([5, 1]), torch.Size([5, 1]))
    """

    bias_rho: nn.Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        std: float = 0.1,
        bias_belief: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if std <= 0:
            raise UserError(f"the std of a belief must be positive, got {std}")
        self.in_features, self.out_features, self.std = in_features, out_features, std
        shape, place = (out_features, in_features), {"device": device, "dtype": dtype}
        self.weight = nn.Parameter(torch.empty(shape, **place))
        self.rho = nn.Parameter(torch.empty(shape, **place))
        self.bias = nn.Parameter(torch.empty(out_features, **place))
        self.bias_rho = nn.Parameter(torch.empty(out_features, **place)) if bias_belief else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initial values anew."""
        rho = math.log(math.expm1(self.std))
        nn.init.normal_(self.weight, std=self.std)
        nn.init.zeros_(self.bias)
        nn.init.constant_(self.rho, rho)
        if self.bias_rho is not None:
            nn.init.constant_(self.bias_rho, rho)

    def forward(self, features: Tensor) -> Normal:
        """The belief over the outputs, ``mean, std``, each ``[rows, outputs]``."""
        # Under autocast too: a variance in half precision has two digits.
        with torch.autocast(features.device.type, enabled=False):
            features = features.to(self.weight.dtype)
            bias_variance = None if self.bias_rho is None else F.softplus(self.bias_rho) ** 2
            variance = F.linear(features**2, F.softplus(self.rho) ** 2, bias_variance)
            return Normal(F.linear(features, self.weight, self.bias), torch.sqrt(variance + _SMALLEST_VARIANCE))

    def beliefs(self) -> list[Normal]:
        """The beliefs over the weights and, if there is one, over the bias."""
        found = [Normal(self.weight, F.softplus(self.rho))]
        return found if self.bias_rho is None else [*found, Normal(self.bias, F.softplus(self.bias_rho))]

    def kl(self, prior_std: float = 0.1) -> Tensor:
        """``KL(q(theta) || N(0, prior_std^2))``, summed over the weights; divide it by the number of training rows."""
        found = [(scale_kl(std, prior_std) + 0.5 * (mean / prior_std) ** 2).sum() for mean, std in self.beliefs()]
        return torch.stack(found).sum()

    def sample(self, *, generator: Generator | None = None) -> LinearSample:
        """Draw one layer from the belief, to be used for all rows."""
        weight, *bias = (
            mean + std * torch.randn(mean.shape, dtype=mean.dtype, device=mean.device, generator=generator)
            for mean, std in self.beliefs()
        )
        return LinearSample(weight, bias[0] if bias else self.bias)

    def deviations(self, features: Tensor) -> Tensor:
        """Change of the mean of every row by one standard deviation of each weight ``[rows, weights, outputs]``.

        The products of two rows, summed over the weights, are the covariance of their means: what the batch rules
        ``max_det`` and ``bait`` compare.
        """
        parts = features[:, :, None] * F.softplus(self.rho).T
        if self.bias_rho is None:
            return parts
        return torch.cat([parts, F.softplus(self.bias_rho).expand(len(features), 1, -1)], dim=1)

    def extra_repr(self) -> str:
        """The arguments."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, std={self.std}, "
            f"bias_belief={self.bias_rho is not None}"
        )


class MCDropout(nn.Module):
    """A model with dropout whose predictions are drawn several times (Gal and Ghahramani, 2016).

    Every row of the batch is repeated ``samples`` times, each with masks of its own, and the draws are returned as
    `Samples`. Dropout stays on after ``.eval()``.

    Args:
        model: Gives mean and noise, and has dropout layers (`torch.nn.Dropout` and its kind).
        samples: Draws of every row; `NCPLoss` needs at least 8.
    """

    def __init__(self, model: nn.Module, samples: int = 8) -> None:
        super().__init__()
        if samples < 2:
            raise UserError(f"a spread needs at least 2 samples, got {samples}")
        if not any(isinstance(module, _DropoutNd) for module in model.modules()):
            raise UserError("the model has no dropout layer: add torch.nn.Dropout (a call of F.dropout is not seen)")
        self.model, self.samples = model, samples
        self.train(model.training)

    def train(self, mode: bool = True) -> "MCDropout":
        """Set the mode of all layers but dropout, which stays on."""
        super().train(mode)
        for module in self.model.modules():
            if isinstance(module, _DropoutNd):
                module.train()
        return self

    def forward(self, inputs: Tensor) -> Samples:
        """Draws of mean and noise, each ``[samples, rows, outputs]``."""
        found = outputs_of(
            self.model(inputs.repeat(self.samples, *[1] * (inputs.ndim - 1))), self.samples * len(inputs)
        )
        if found.belief is not None:
            raise UserError("the model has an uncertainty of its own; MCDropout is for one that gives mean and noise")
        means, noises = (part.reshape(self.samples, len(inputs), -1) for part in (found.means, found.noises))
        return Samples(means, noises)
