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
    rows, noised = (part.reshape(len(part), -1).to(view.targets) for part in (view.inputs, view.noised_inputs))
    origin = rows.mean(0)  # where products are rounded least
    rows, noised = rows - origin, noised - origin
    sizes = (rows**2).sum(-1)
    unused = None if view.weights is None else view.weights <= 0

    def distances(some: Tensor, sizes_of_some: Tensor) -> Tensor:
        # |a|^2 + |b|^2 - 2 a . b is far faster than differences; what rounding can have made is no distance.
        both = sizes_of_some[:, None] + sizes
        squares = torch.addmm(both, some, rows.T, alpha=-2)
        squares = torch.where(squares > 8 * torch.finfo(squares.dtype).eps * both, squares, 0.0)
        return squares if unused is None else squares.masked_fill(unused, torch.inf)

    same = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
    own = distances(rows, sizes).masked_fill(same, torch.inf).amin(1)
    far = distances(noised, (noised**2).sum(-1)).amin(1)
    return 1 - torch.exp(-0.5 * far / (_median(own if unused is None else own.masked_fill(unused, torch.inf)) + 1e-6))


def _median(values: Tensor) -> Tensor:
    """The median of those values that are finite; 0 without any."""
    ordered = values.sort().values
    count = torch.isfinite(ordered).sum()
    middle = torch.stack([(count - 1).clamp(min=0) // 2, count // 2 * (count > 0)])
    return torch.where(count > 0, ordered[middle.clamp(max=len(ordered) - 1)].mean(), 0.0)


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
