"""What loss terms are made of: likelihood, divergence in weight space, and distance from the data."""

import torch
from torch import Tensor, nn

from ncprior.errors import UserError
from ncprior.torch.distributions import Normal
from ncprior.torch.layers import BayesianLinear
from ncprior.torch.views import Model, Outputs, View


def nll(outputs: Outputs, targets: Tensor, view: View) -> Tensor:
    """``-E_q[ln p(y | x, theta)]``, in closed form for a belief, and as an average over members or draws."""
    if outputs.uncertainties is None:
        log_prob = Normal(outputs.means, outputs.noises).log_prob(targets)
    else:
        log_prob = Normal(outputs.means, outputs.uncertainties).expected_log_prob(targets, outputs.noises)
    return -view.average(outputs.average(log_prob))


def weight_kl(model: Model, prior_std: float) -> Tensor:
    """The KL divergence between the beliefs of all `BayesianLinear` layers of a model and ``N(0, prior_std^2)``."""
    layers = [one for one in model.modules() if isinstance(one, BayesianLinear)] if isinstance(model, nn.Module) else []
    if not layers:
        raise UserError("weight_kl needs a model, a torch.nn.Module, that has a BayesianLinear layer")
    return torch.stack([layer.kl(prior_std) for layer in layers]).sum()


@torch.no_grad()
def away_from_data(view: View) -> Tensor:
    """How far noised rows are from the rows of the mini batch, from 0 to 1.

    ``1 - exp(-d^2 / 2)``, with ``d`` the distance to the nearest row in units of the median nearest-neighbour distance
    of the rows; see `ncprior.core.table_terms.AwayFromData`.
    """
    rows, noised = (part.flatten(1).to(view.targets.dtype) for part in (view.inputs, view.noised_inputs))
    in_use = torch.ones(len(rows), dtype=torch.bool, device=rows.device) if view.weights is None else view.weights > 0
    origin = rows.mean(0)  # where products are rounded least
    rows, noised = rows - origin, noised - origin

    def nearest(some: Tensor, others: Tensor) -> Tensor:
        # |a|^2 + |b|^2 - 2 a . b is far faster than differences; what rounding can have made is no distance.
        sizes = (some**2).sum(-1)[:, None] + (rows**2).sum(-1)
        squares = sizes - 2 * some @ rows.T
        squares = torch.where(squares > 8 * torch.finfo(squares.dtype).eps * sizes, squares, 0.0)
        return torch.where(others, squares, torch.inf).amin(1)

    same = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
    own = nearest(rows, in_use[None] & ~same)
    spacing = torch.nanquantile(torch.where(in_use & torch.isfinite(own), own, torch.nan), 0.5)
    far = nearest(noised, in_use[None])
    return 1 - torch.exp(-0.5 * far / (torch.nan_to_num(spacing) + 1e-6))


def check_positive(outputs: Outputs) -> None:
    """Raise for standard deviations that are not positive, such as logarithms of them."""
    for name, values in (("noise", outputs.noises), ("uncertainty", outputs.uncertainties)):
        if values is None:
            continue
        try:
            wrong = bool((values <= 0).any())
        except RuntimeError:  # inside torch.func.vmap, where values cannot be looked at
            return
        if wrong:
            raise UserError(
                f"the model's {name} is not positive: it must be a standard deviation, such as softplus(.) or exp(.), "
                "and no logarithm of one"
            )
