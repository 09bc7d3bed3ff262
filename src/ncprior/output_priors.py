"""Output priors: how uncertain to be at noised inputs (Equations 1 and 2)."""

from typing import Literal

import equinox as eqx
from jax import Array
from jax.typing import ArrayLike

from ncprior.distributions import Normal


class OutputPrior(eqx.Module):
    """``N(centre, std^2)``, and the direction in which a model is compared with it.

    ``centre`` is ``"target"`` for the label of the clean row (the paper's choice, ``mu_y = y``, which acts as data
    augmentation) or a constant, the default prediction outside the data. ``std`` is the sigma_y of the paper, in
    units of the (standardised) target. ``forward`` is ``KL(prior || model)`` as in Equations 2 and 5; ``reverse``
    is ``KL(model || prior)``, which the derivation in appendix B arrives at.
    """

    std: ArrayLike = 1.0
    centre: Literal["target"] | ArrayLike = "target"
    direction: Literal["forward", "reverse"] = eqx.field(static=True, default="forward")

    def __check_init__(self) -> None:
        if self.direction not in ("forward", "reverse"):
            raise ValueError(f"direction must be 'forward' or 'reverse', got {self.direction!r}")
        if isinstance(self.centre, str) and self.centre != "target":
            raise ValueError(f"centre must be 'target' or a number, got {self.centre!r}")

    def __call__(self, targets: Array) -> Normal:
        """The prior at the noised inputs of rows with these targets."""
        return Normal(targets if isinstance(self.centre, str) else self.centre, self.std)

    def divergence(self, targets: Array, model: Normal) -> Array:
        """The KL divergence between the prior and the model, one for each row and output."""
        prior = self(targets)
        return prior.kl(model) if self.direction == "forward" else model.kl(prior)
