"""What loss terms are computed from: what a model says about a mini batch and about its noised copy."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ncprior.errors import UserError
from ncprior.torch.distributions import Normal
from ncprior.torch.input_priors import InputPrior, noised
from ncprior.torch.predictions import Mixture, Prediction, Samples, prediction_of

Model = Callable[[Tensor], object]


class Outputs(NamedTuple):
    """What a model says about rows, in one form for all models: members or draws first, then rows, then outputs.

    ``uncertainties`` is None where no member has one; ``drawn`` tells random draws from the members of an ensemble.
    """

    means: Tensor
    noises: Tensor
    uncertainties: Tensor | None
    shares: Tensor | None  # of the members, if they differ
    ood: Tensor | None
    drawn: bool

    def split(self, rows: int) -> tuple["Outputs", "Outputs"]:
        """The same for the first ``rows`` rows, and for the others."""
        tensors = {name: value for name, value in self._asdict().items() if isinstance(value, Tensor)}
        # One step back for each tensor; two slices would be two, each with a tensor of zeros.
        parts = {name: value.tensor_split([rows], dim=1) for name, value in tensors.items()}
        first, others = ({name: both[place] for name, both in parts.items()} for place in (0, 1))
        return self._replace(**first), self._replace(**others)

    def average(self, values: Tensor) -> Tensor:
        """The average over members or draws."""
        return values.mean(0) if self.shares is None else (self.shares * values).sum(0)

    @property
    def belief(self) -> Normal | None:
        """The belief over the mean, one for each row and output; None for a point estimate."""
        if self.drawn:
            samples = Samples(self.means, self.noises)
            return Normal(samples.mean, samples.uncertainty)
        if len(self.means) > 1:
            mixture = Mixture(self.means, self.noises, self.uncertainties, self.shares)
            return Normal(mixture.mean, mixture.uncertainty)
        return None if self.uncertainties is None else Normal(self.means[0], self.uncertainties[0])


class View(NamedTuple):
    """A mini batch, its noised inputs, and what a model says about both.

    An input prior may noise only the first rows of the batch.
    """

    inputs: Tensor
    targets: Tensor  # [rows, outputs]
    weights: Tensor | None
    clean: Outputs
    noised: Outputs
    noised_inputs: Tensor

    @classmethod
    def of(
        cls,
        model: Model,
        inputs: Tensor,
        targets: Tensor,
        weights: Tensor | None,
        noise: InputPrior,
        *,
        generator: Generator | None,
        one_pass: bool | None,
    ) -> "View":
        """Apply the model to the clean and the noised rows, in one pass of twice the rows where that is right."""
        check_batch(inputs, targets, weights)
        with torch.no_grad(), torch.autocast(inputs.device.type, enabled=False):
            noised_inputs = noised(noise, inputs, generator)
        check_noised(inputs, noised_inputs)
        rows, more = len(inputs), len(noised_inputs)
        norms = batch_norms(model)
        together = not norms if one_pass is None else one_pass
        if together:
            clean, at_noised = outputs_of(model(torch.cat([inputs, noised_inputs])), rows + more).split(rows)
        else:
            clean = outputs_of(model(inputs), rows)
            with frozen(norms):
                at_noised = outputs_of(model(noised_inputs), more)
        return cls(inputs, targets_like(targets, clean), weights, clean, at_noised, noised_inputs)

    def of_noised(self, values: Tensor) -> Tensor:
        """The values of those clean rows that have a noised copy."""
        return values[: len(self.noised_inputs)]

    def average(self, losses: Tensor) -> Tensor:
        """The average of losses ``[rows, outputs]``, or of those of the first rows: a sum over the outputs, and over
        the weighted rows divided by the number of rows whose weight is not 0.
        """
        losses = losses.flatten(1).sum(1)
        if self.weights is None:
            return losses.mean()
        weights = self.weights[: len(losses)].to(losses)
        return (weights * losses).sum() / (weights > 0).sum()


def outputs_of(output: object, rows: int) -> Outputs:
    """What a model returned for so many rows, in one form and at least single precision.

    Raises:
        UserError: If shapes do not fit.
    """
    found = prediction_of(output)
    single = isinstance(found, Prediction)
    means, noises = (found.mean[None], found.noise) if isinstance(found, Prediction) else (found.means, found.noises)
    if not isinstance(means, Tensor) or not means.is_floating_point():
        raise UserError(f"the model's mean must be a floating-point tensor, got {getattr(means, 'dtype', type(means))}")
    if means.ndim < 2 or means.shape[1] != rows:
        shape = tuple(means.shape[1:] if single else means.shape)
        raise UserError(f"the model's mean has shape {shape} for {rows} rows: give [rows] or [rows, outputs]")

    def fitted(name: str, value: Tensor) -> Tensor:
        value = torch.as_tensor(value, device=means.device)
        try:
            same = value.reshape(means.shape) if value.numel() == means.numel() else value.expand(means.shape)
        except RuntimeError:
            shapes = f"{tuple(value.shape)} and its mean {tuple(means.shape[single:])}"
            raise UserError(f"the model's {name} has shape {shapes}: give both the same") from None
        return flat(same)

    def flat(value: Tensor) -> Tensor:
        return as_single(value).reshape(len(value), rows, -1)

    if isinstance(found, Prediction):
        uncertainties, shares, ood = found.uncertainty, None, found.ood
    else:
        uncertainties, shares, ood = getattr(found, "uncertainties", None), getattr(found, "weights", None), None
    if ood is not None and (ood.ndim == 0 or len(ood) != rows):
        raise UserError(f"the model's ood has shape {tuple(ood.shape)} for {rows} rows: give [rows] or [rows, outputs]")
    return Outputs(
        flat(means),
        fitted("noise", noises),
        None if uncertainties is None else fitted("uncertainty", uncertainties),
        None if shares is None else fitted("weights", shares),
        None if ood is None else flat(ood[None]),
        isinstance(found, Samples),
    )


def targets_like(targets: Tensor, outputs: Outputs) -> Tensor:
    """The targets as ``[rows, outputs]``, in the precision of the model's outputs.

    Raises:
        UserError: If the model has another number of outputs.
    """
    flat = targets.reshape(len(targets), -1)
    if flat.shape[1] != outputs.means.shape[2]:
        raise UserError(f"the model has {outputs.means.shape[2]} outputs and the targets have {flat.shape[1]}")
    return flat.to(outputs.means.dtype)


def check_batch(inputs: Tensor, targets: Tensor, weights: Tensor | None) -> None:
    """Raise for a mini batch that is none."""
    for name, value in (("x", inputs), ("y", targets)):
        if not isinstance(value, Tensor):
            raise UserError(f"{name} must be a tensor, got {type(value).__name__}: convert it with torch.as_tensor")
    if inputs.device != targets.device:
        raise UserError(f"x is on {inputs.device} and y on {targets.device}: move one to the other's device")
    if not inputs.ndim or not targets.ndim or len(inputs) != len(targets) or not len(inputs):
        raise UserError(
            f"x and y need the same rows, at least one: got {tuple(inputs.shape)} and {tuple(targets.shape)}"
        )
    if weights is not None and weights.shape != targets.shape[:1]:
        raise UserError(f"weights have shape {tuple(weights.shape)}, there are {len(targets)} rows: give one for each")


def check_noised(inputs: Tensor, noised_inputs: Tensor) -> None:
    """Raise if an input prior did not give rows like the inputs."""
    rows = len(noised_inputs) if isinstance(noised_inputs, Tensor) and noised_inputs.ndim else 0
    if not 0 < rows <= len(inputs) or noised_inputs.shape[1:] != inputs.shape[1:]:
        got = tuple(noised_inputs.shape) if isinstance(noised_inputs, Tensor) else type(noised_inputs).__name__
        raise UserError(f"the input prior must give inputs {tuple(inputs.shape)}, or their first rows; it gave {got}")


def as_single(value: Tensor) -> Tensor:
    """A tensor in at least single precision: logarithms and squares of half precision have too few digits."""
    return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value


def batch_norms(model: Model) -> list[nn.Module]:
    """The layers of a model that would mix noised rows into the statistics of clean ones: batch norms in training."""
    if not isinstance(model, nn.Module):
        return []
    return [module for module in model.modules() if isinstance(module, _BatchNorm) and module.training]


@contextmanager
def frozen(norms: list[nn.Module]) -> Iterator[None]:
    """Batch norms use their running statistics, as in predictions, and do not learn from what they see."""
    for norm in norms:
        norm.training = False
    try:
        yield
    finally:
        for norm in norms:
            norm.training = True
