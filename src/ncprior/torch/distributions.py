"""The normal distribution on tensors: the formulas of `ncprior.core.distributions`."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


class Normal(NamedTuple):
    """A normal distribution. ``std`` is a standard deviation, never a variance.

    A tuple of tensors, so that `torch.func.vmap` and `torch.compile` take it apart and put it together.
    """

    mean: Tensor
    std: Tensor

    def log_prob(self, value: Tensor) -> Tensor:
        """``ln N(value; mean, std^2)``."""
        return -0.5 * ((value - self.mean) / self.std) ** 2 - torch.log(self.std) - _LOG_SQRT_2PI

    def expected_log_prob(self, value: Tensor, noise: Tensor) -> Tensor:
        """``E[ln N(value; mu, noise^2)]`` for a mean ``mu`` that is distributed as this normal."""
        return Normal(self.mean, noise).log_prob(value) - 0.5 * (self.std / noise) ** 2


def scale_kl(std: Tensor, other: Tensor | float) -> Tensor:
    """``KL(N(m, std^2) || N(m, other^2))`` for equal means.

    >>> float(scale_kl(torch.tensor(2.0), torch.tensor(2.0)))
    0.0
    """
    ratio = std / other
    # (ratio - 1) (ratio + 1) instead of ratio^2 - 1: no cancellation where the scales agree.
    return 0.5 * (ratio - 1) * (ratio + 1) - torch.log(ratio)


def normal_kl(one: Normal, other: Normal) -> Tensor:
    """``KL(one || other)``, the expectation of the log ratio under ``one``."""
    return scale_kl(one.std, other.std) + 0.5 * ((one.mean - other.mean) / other.std) ** 2
