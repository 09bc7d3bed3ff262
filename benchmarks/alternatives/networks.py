"""Training of small PyTorch networks until rows that they do not see stop getting better."""

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

Loss = Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]

_MOST_STEPS = 30_000


class Rows:
    """Training rows as standardised tensors, with the way back for predictions."""

    def __init__(self, inputs: np.ndarray, targets: np.ndarray) -> None:
        self._shift, self._scale = inputs.mean(axis=0), _positive(inputs.std(axis=0))
        self.mean, self.std = float(targets.mean()), float(_positive(targets.std()))
        self.x = self.tensor(inputs)
        self.y = torch.as_tensor((targets - self.mean) / self.std, dtype=torch.float32)[:, None]

    def tensor(self, inputs: np.ndarray) -> torch.Tensor:
        """Inputs in the scale of the training rows."""
        return torch.as_tensor((inputs - self._shift) / self._scale, dtype=torch.float32)

    def parts(self, seed: int, share: float = 0.1) -> tuple[torch.Tensor, torch.Tensor]:
        """Numbers of rows to train on, and of a share that is held out at random."""
        order = np.random.default_rng(seed).permutation(len(self.y))
        count = max(1, round(share * len(order)))
        return torch.as_tensor(order[count:]), torch.as_tensor(order[:count])


def _positive(values: Any) -> Any:
    return np.where(values > 0, values, 1.0)


@dataclass(frozen=True)
class Training:
    """How a network is trained; the batch is larger for more than 32,000 rows, to pass over them often enough."""

    loss: Loss
    score: Loss
    rate: float = 1e-3
    clip: float | None = None
    least_steps: int = 0
    """Steps that are taken in any case before the search for the best ones may end."""

    def stop_early(self, network: Any, rows: Rows, train: torch.Tensor, held_out: torch.Tensor) -> int:
        """Trains until held-out rows have not got better for 20 epochs and 1000 steps; the best weights are kept.

        Gives the number of epochs that led to them.
        """
        best, kept, passed, steps = np.inf, copy.deepcopy(network.state_dict()), 0, 0
        x, y = rows.x[held_out], rows.y[held_out]
        optimizer = self._optimizer(network)
        batches = -(-len(train) // _batch(len(train)))
        patience = max(20, -(-1000 // batches))
        epoch = 0
        while steps < self.least_steps or (steps < _MOST_STEPS and epoch - passed < patience):
            self._epoch(network, optimizer, rows, train)
            epoch, steps = epoch + 1, steps + batches
            network.eval()
            with torch.no_grad():
                score = float(self.score(network, x, y))
            if score < best:
                best, kept, passed = score, copy.deepcopy(network.state_dict()), epoch
        network.load_state_dict(kept)
        network.eval()
        return passed

    def train_for(self, network: Any, rows: Rows, epochs: int) -> None:
        """Trains on all rows for some epochs."""
        optimizer = self._optimizer(network)
        for _ in range(epochs):
            self._epoch(network, optimizer, rows, torch.arange(len(rows.y)))
        network.eval()

    def _optimizer(self, network: Any) -> Any:
        groups = network.groups() if hasattr(network, "groups") else network.parameters()
        return torch.optim.AdamW(groups, lr=self.rate, weight_decay=0.0, fused=True)

    def _epoch(self, network: Any, optimizer: Any, rows: Rows, train: torch.Tensor) -> None:
        network.train()
        order = train[torch.randperm(len(train))]
        for batch in order.split(_batch(len(order))):
            optimizer.zero_grad()
            self.loss(network, rows.x[batch], rows.y[batch]).backward()
            if self.clip is not None:
                nn.utils.clip_grad_norm_(network.parameters(), self.clip)
            optimizer.step()


def _batch(rows: int) -> int:
    return max(32, rows // 1000)


def start(seed: int) -> None:
    torch.manual_seed(seed)
    torch.set_num_threads(1)  # for networks as small as these, more threads are slower


def layers(sizes: Iterable[int], activation: type[Any], rate: float | None = None) -> Any:
    """Linear layers with activations between them, and dropout before each if a rate is given."""
    sizes = list(sizes)
    modules: list[Any] = []
    for i in range(len(sizes) - 1):
        modules += [nn.Dropout(rate)] if rate is not None else []
        modules += [nn.Linear(sizes[i], sizes[i + 1]), activation()]
    return nn.Sequential(*modules[:-1])


def squared(network: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.mse_loss(network(x), y)
