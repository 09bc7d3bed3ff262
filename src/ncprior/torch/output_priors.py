"""Output priors on tensors: `ncprior.core.output_priors`, how uncertain to be at noised inputs."""

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from ncprior.errors import UserError
from ncprior.torch.distributions import Normal, normal_kl, scale_kl

Centre: TypeAlias = Literal["target", "prediction"] | float | Sequence[float] | Tensor
Direction: TypeAlias = Literal["forward", "reverse"]

_SMALLEST_VARIANCE = 1e-12
"""Added to the variance of samples: equal samples would have an infinite divergence."""

_FEWEST_SAMPLES = 8
"""The fewest with which the gradient of the estimated divergence has a finite variance."""


class OutputPrior(nn.Module):
    """``N(centre, std^2)``, and the direction of the KL divergence between it and the model.

    Args:
        std: Standard deviation, in units of the target: one number, or one for each output.
        centre: ``"target"`` for the label of the clean row, as in the paper; ``"prediction"`` for the model's own mean,
            to which then no gradient flows, so that only the spread is taught; or a constant.
        direction: ``"forward"`` is ``KL(prior || model)`` as in Equations 2 and 5, ``"reverse"`` is
            ``KL(model || prior)`` as in appendix B.
    """

    std: Tensor
    constant: Tensor | None

    def __init__(
        self,
        std: float | Sequence[float] | Tensor = 1.0,
        centre: Centre = "target",
        direction: Direction = "forward",
    ) -> None:
        super().__init__()
        if direction not in ("forward", "reverse"):
            raise UserError(f"direction must be 'forward' or 'reverse', got {direction!r}")
        if isinstance(centre, str) and centre not in ("target", "prediction"):
            raise UserError(f"centre must be 'target', 'prediction' or a number, got {centre!r}")
        scale = torch.as_tensor(std, dtype=torch.get_default_dtype())
        if not bool((scale > 0).all()) or not bool(torch.isfinite(scale).all()):
            raise UserError(f"output_std must be positive, got {std}")
        self.direction = direction
        self.centre = centre if isinstance(centre, str) else "constant"
        self.register_buffer("std", scale, persistent=False)
        constant = None if isinstance(centre, str) else torch.as_tensor(centre, dtype=torch.get_default_dtype())
        self.register_buffer("constant", constant, persistent=False)

    def forward(self, targets: Tensor, prediction: Tensor) -> Normal:
        """The prior at the noised inputs of rows with these targets, where the model predicts these means."""
        std = self.std.to(prediction).expand_as(prediction)
        if self.centre == "target":
            return Normal(targets, std)
        if self.constant is None:
            return Normal(prediction.detach(), std)
        return Normal(self.constant.to(prediction).expand_as(prediction), std)

    def divergence(self, targets: Tensor, model: Normal) -> Tensor:
        """The KL divergence between the prior and the model, one for each row and output."""
        prior = self(targets, model.mean)
        one, other = (prior, model) if self.direction == "forward" else (model, prior)
        return scale_kl(one.std, other.std) if self.centre == "prediction" else normal_kl(one, other)

    def estimated_divergence(self, targets: Tensor, samples: Tensor) -> Tensor:
        """The divergence of a model given by samples ``[samples, rows, outputs]``, without bias if they are normal.

        The estimate of `ncprior.core.output_priors.OutputPrior.estimated_divergence`.
        """
        count = len(samples)
        if count < _FEWEST_SAMPLES:
            raise UserError(f"a divergence needs at least {_FEWEST_SAMPLES} samples, got {count}: draw more of them")
        freedom = count - 1
        mean = samples.mean(0)
        prior = self(targets, mean)
        centred = self.centre == "prediction"
        square = torch.zeros_like(mean) if centred else (mean - prior.mean) ** 2
        excess = 0.0 if centred else 1 / count  # of the square, in units of the variance
        variance = samples.var(0, correction=1) + _SMALLEST_VARIANCE
        excess_of_log = float(torch.digamma(torch.tensor(freedom / 2, dtype=torch.float64))) - math.log(freedom / 2)
        log_ratio = 0.5 * (torch.log(variance) - excess_of_log) - torch.log(prior.std)
        if self.direction == "forward":
            inverse = (freedom - 2) / freedom / variance
            return log_ratio + 0.5 * (inverse * (prior.std**2 + square) - excess - 1)
        return 0.5 * ((variance + square - excess * variance) / prior.std**2 - 1) - log_ratio

    def extra_repr(self) -> str:
        """The arguments."""
        centre = self.centre if self.constant is None else self.constant.tolist()
        return f"std={self.std.tolist()}, centre={centre!r}, direction={self.direction!r}"
