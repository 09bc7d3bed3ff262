"""Neural networks with uncertainty in PyTorch: last-layer Laplace, VBLL, a deep ensemble and Monte Carlo dropout.

All have two hidden layers, see inputs and targets standardised by the training rows, and are trained by Adam for as
long as rows that they do not see get better.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.alternatives.metrics import Forecast, Mixture, normal
from benchmarks.alternatives.networks import Rows, Training, layers, squared, start

Predict = Callable[[np.ndarray], Forecast]

_PASSES = 1000
"""Draws of dropout masks for a prediction, fewer if there are more than 10,000 rows; the authors take 10,000."""


def laplace(inputs: np.ndarray, targets: np.ndarray, seed: int) -> Predict:
    """Last-layer Laplace of laplace-torch, as in the regression example of its documentation.

    From there: tanh units, 50 a layer, squared error, no weight decay; then the prior precision and the noise by 1000
    steps of Adam (rate 0.1) on the log marginal likelihood of all training rows; the closed-form (GLM) predictive, and
    a full covariance. That it is the one of the last layer is the package's default. New here: two layers, not one, and
    mini batches with early stopping in place of 1000 epochs.
    """
    from laplace import Laplace
    from torch.utils.data import DataLoader, TensorDataset

    start(seed)
    rows = Rows(inputs, targets)
    network = layers((inputs.shape[1], 50, 50, 1), nn.Tanh)
    Training(squared, squared).stop_early(network, rows, *rows.parts(seed))
    model = Laplace(network, "regression", subset_of_weights="last_layer", hessian_structure="full")
    model.fit(DataLoader(TensorDataset(rows.x, rows.y), batch_size=1024))
    prior, noise = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    optimizer = torch.optim.Adam([prior, noise], lr=0.1)
    for _ in range(1000):
        optimizer.zero_grad()
        (-model.log_marginal_likelihood(prior.exp(), noise.exp())).backward()
        optimizer.step()
    variance = float(noise.detach().exp()) ** 2

    def predict(inputs: np.ndarray) -> Forecast:
        parts: list[tuple[np.ndarray, np.ndarray]] = []
        with torch.no_grad():
            for block in rows.tensor(inputs).split(4096):
                mean, function = model(block, pred_type="glm")
                parts.append((mean[:, 0].numpy(), function[:, 0, 0].numpy()))
        means, functions = (np.concatenate(part) for part in zip(*parts, strict=True))
        return normal(means, np.sqrt(functions + variance)).rescale(rows.std, rows.mean)

    return predict


class _Vbll(nn.Module):
    def __init__(self, inputs: int, rows: int) -> None:
        from vbll import Regression

        super().__init__()
        self.trunk = nn.Sequential(layers((inputs, 64, 64), nn.ELU), nn.ELU())
        self.last = Regression(64, 1, 1 / rows, parameterization="dense", prior_scale=1.0, wishart_scale=0.1)

    def forward(self, x: torch.Tensor) -> Any:
        return self.last(self.trunk(x))

    def groups(self) -> list[dict[str, Any]]:
        """Weight decay for all but the last layer."""
        return [
            {"params": self.trunk.parameters(), "weight_decay": 1e-4},
            {"params": self.last.parameters(), "weight_decay": 0.0},
        ]


def vbll(inputs: np.ndarray, targets: np.ndarray, seed: int) -> Predict:
    """A variational Bayesian last layer, with the settings of the regression tutorial in its documentation.

    From there: ELU units, 64 a layer, batches of 32, AdamW with rate 1e-3 and weight decay 1e-4 (0 for the last layer),
    gradients clipped at 1, a dense covariance, prior scale 1, Wishart scale 0.1, regularisation 1 / rows. The layer
    starts with a random noise that is often far too small, and needs thousands of steps to leave it (the tutorial takes
    4000), so early stopping may not end the search before 6000.
    """
    start(seed)
    rows = Rows(inputs, targets)
    train, held_out = rows.parts(seed)
    network = _Vbll(inputs.shape[1], len(train))
    training = Training(
        loss=lambda model, x, y: model(x).train_loss_fn(y),
        score=lambda model, x, y: model(x).val_loss_fn(y),
        clip=1.0,
        least_steps=6000,
    )
    training.stop_early(network, rows, train, held_out)

    def predict(inputs: np.ndarray) -> Forecast:
        with torch.no_grad():
            prediction = network(rows.tensor(inputs)).predictive
        return normal(prediction.mean[:, 0].numpy(), prediction.scale[:, 0].numpy()).rescale(rows.std, rows.mean)

    return predict


def ensemble(inputs: np.ndarray, targets: np.ndarray, seed: int, members: int = 5) -> Predict:
    """A deep ensemble as in Lakshminarayanan et al. (2017): five networks that predict mean and variance.

    From there: ReLU units, 50 a layer, the negative log likelihood, a softplus plus 1e-6 for the variance, random
    starts and orders, one normal with the mean and the variance of the mixture as the prediction. Without adversarial
    training, which is optional there. New here: two layers, not one, and early stopping in place of 40 epochs; every
    member holds out a tenth of its own, so that the ensemble sees all rows.
    """
    start(seed)
    rows = Rows(inputs, targets)
    training = Training(_likelihood, _likelihood)
    networks = []
    for member in range(members):
        network = layers((inputs.shape[1], 50, 50, 2), nn.ReLU)
        training.stop_early(network, rows, *rows.parts(1000 * seed + member))
        networks.append(network)

    def predict(inputs: np.ndarray) -> Forecast:
        with torch.no_grad():
            outputs = [_moments(network(rows.tensor(inputs))) for network in networks]
        means, variances = (torch.stack(part, 1).double().numpy() for part in zip(*outputs, strict=True))
        mixture = Mixture(np.full(means.shape, 1 / members), means, np.sqrt(variances))
        return normal(mixture.mean, np.sqrt(mixture.variance)).rescale(rows.std, rows.mean)

    return predict


def _moments(outputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return outputs[:, 0], nn.functional.softplus(outputs[:, 1]) + 1e-6


def _likelihood(network: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    mean, variance = _moments(network(x))
    return nn.functional.gaussian_nll_loss(mean, y[:, 0], variance, eps=1e-6)


def dropout(inputs: np.ndarray, targets: np.ndarray, seed: int) -> Predict:
    """Monte Carlo dropout as in the UCI experiments of Gal and Ghahramani (2016, DropoutUncertaintyExps).

    From there: ReLU units, 50 a layer, dropout before every layer, batches of 32, Adam with rate 1e-3, the rates
    below, a fifth of the rows to choose rate and precision by likelihood, then a network trained on all rows. Their
    weight decay (1e-4 / (2 rows precision) and less) is too small to matter and left out, so one network serves all
    precisions. Theirs are a few numbers for each table; here they are a grid that is the same for all.
    """
    start(seed)
    rows = Rows(inputs, targets)
    train, held_out = rows.parts(seed, share=0.2)
    training = Training(squared, squared)
    tried: dict[tuple[float, float, int], float] = {}
    for rate in (0.005, 0.01, 0.05, 0.1):
        network = layers((inputs.shape[1], 50, 50, 1), nn.ReLU, rate)
        epochs = training.stop_early(network, rows, train, held_out)
        draws, y = _draw(network, rows.x[held_out]), rows.y[held_out, 0].double().numpy()
        for std in np.geomspace(0.02, 2.0, 41):
            tried[rate, float(std), epochs] = float(np.mean(_mixture(draws, float(std)).log_prob(y)))
    rate, std, epochs = max(tried, key=tried.__getitem__)
    network = layers((inputs.shape[1], 50, 50, 1), nn.ReLU, rate)
    training.train_for(network, rows, epochs)
    return lambda inputs: _mixture(_draw(network, rows.tensor(inputs)), std).rescale(rows.std, rows.mean)


def _draw(network: Any, x: torch.Tensor) -> np.ndarray:
    """Predictions ``[rows, passes]`` with new masks in every pass."""
    network.train()
    passes = min(_PASSES, max(50, 10_000 * _PASSES // len(x)))
    with torch.no_grad():
        return np.column_stack([network(x)[:, 0].double().numpy() for _ in range(passes)])


def _mixture(draws: np.ndarray, std: float) -> Mixture:
    return Mixture(np.full(draws.shape, 1 / draws.shape[1]), draws, np.full(draws.shape, std))


FITS: dict[str, Callable[[np.ndarray, np.ndarray, int], Predict]] = {
    "laplace": laplace,
    "vbll": vbll,
    "ensemble": ensemble,
    "dropout": dropout,
}
