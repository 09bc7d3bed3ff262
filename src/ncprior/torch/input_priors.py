"""Input priors on tensors: noised inputs ``x~`` for a mini batch, where the model should be uncertain.

They are those of `ncprior.core.input_priors` and `ncprior.core.table_priors`. An input prior is any function
``(inputs, *, generator=None) -> noised`` from a batch to a batch of the same shape, or to one of its first rows only; a
plain function of the inputs will do if the loss has no generator. Scales are standard deviations in the units of the
inputs, one number or one for each column. Random numbers come from PyTorch's own generator (`torch.manual_seed`) unless
one is given.
"""

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import torch
from torch import Generator, Tensor, nn

from ncprior.errors import UserError

Scale: TypeAlias = float | Sequence[float] | Tensor


class InputPrior(Protocol):
    """Makes noised inputs ``x~`` from the inputs of a mini batch."""

    def __call__(self, inputs: Tensor, *, generator: Generator | None = None) -> Tensor:
        """Noised inputs of the same shape."""


class _Scaled(nn.Module):
    """Noise with a scale, which goes to the device and the precision of the inputs by itself."""

    std: Tensor

    def __init__(self, std: Scale) -> None:
        super().__init__()
        scale = torch.as_tensor(std, dtype=torch.get_default_dtype())
        if not bool((scale >= 0).all()) or not bool(torch.isfinite(scale).all()):
            raise UserError(f"the std of {type(self).__name__} must not be negative, got {std}")
        self.register_buffer("std", scale, persistent=False)

    def _scaled(self, inputs: Tensor, noise: Tensor) -> Tensor:
        # One number of the CPU goes with tensors of every device and precision as it is.
        number = self.std.ndim == 0 and self.std.device.type == "cpu"
        return inputs + (self.std if number else self.std.to(inputs)) * noise

    def extra_repr(self) -> str:
        """The scale."""
        return f"std={self.std.tolist()}"


class Gaussian(_Scaled):
    """``x~ = x + N(0, std^2)``.

    >>> Gaussian(0.0)(torch.ones(1, 2))
    tensor([[1., 1.]])
    """

    def forward(self, inputs: Tensor, *, generator: Generator | None = None) -> Tensor:
        """Noised inputs of the same shape."""
        return self._scaled(inputs, _randn(inputs, inputs.shape, generator))


class Uniform(_Scaled):
    """``x~ = x + U[-2 std, 2 std]``, the paper's uniform noise (Section 5.3)."""

    def forward(self, inputs: Tensor, *, generator: Generator | None = None) -> Tensor:
        """Noised inputs of the same shape."""
        return self._scaled(inputs, 4 * _rand(inputs, inputs.shape, generator) - 2)


class Radial(_Scaled):
    """``x~ = x + std |r| eps`` with standard normal ``eps``, and one standard normal ``r`` for each row.

    Noise of many sizes covers all distances from the data; Gaussian noise of a fixed size has one typical distance.
    """

    def forward(self, inputs: Tensor, *, generator: Generator | None = None) -> Tensor:
        """Noised inputs of the same shape."""
        radius = _randn(inputs, (len(inputs), *[1] * (inputs.ndim - 1)), generator).abs()
        return self._scaled(inputs, radius * _randn(inputs, inputs.shape, generator))


class FlipCategories(nn.Module):
    """Replaces a category, with this probability, by one of the others drawn uniformly (Section 2).

    With ``one_hot=False`` every column holds integer codes ``0 .. classes - 1``. With ``one_hot=True`` the columns
    together are one category in one-hot code, and ``classes`` is their number.
    """

    def __init__(self, classes: int, probability: float, *, one_hot: bool = False) -> None:
        super().__init__()
        if classes < 2:
            raise UserError(f"a category needs at least two classes to flip between, got {classes}")
        if not 0 <= probability <= 1:
            raise UserError(f"probability must lie between 0 and 1, got {probability}")
        self.classes, self.probability, self.one_hot = classes, probability, one_hot

    def forward(self, inputs: Tensor, *, generator: Generator | None = None) -> Tensor:
        """Noised inputs of the same shape."""
        if self.one_hot and inputs.shape[1:] != (self.classes,):
            raise UserError(f"{self.classes} classes in one-hot code need as many columns, got {inputs.shape[1:]}")
        shape = (len(inputs), 1) if self.one_hot else inputs.shape
        flip = torch.rand(shape, device=inputs.device, generator=generator) < self.probability
        # A shift by 1 to classes - 1 around the circle of classes reaches every other class and never the same.
        shift = flip * torch.randint(1, self.classes, shape, device=inputs.device, generator=generator)
        if not self.one_hot:
            return ((inputs.long() + shift) % self.classes).to(inputs.dtype)
        source = (torch.arange(self.classes, device=inputs.device) - shift) % self.classes
        return torch.gather(inputs, 1, source)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"classes={self.classes}, probability={self.probability}, one_hot={self.one_hot}"


class DataShaped(nn.Module):
    """Noise with the covariance of the data for a share of the rows: ``x~ = x + scale * (colours @ noise)``.

    Where columns are correlated, independent noise is too large in directions of small variance.

    Args:
        noise: Independent noise, equal on all columns.
        colours: Matrix ``[columns, components]`` that gives the noise the covariance of the data; `of` makes it.
        scale: Factor for each column, applied last.
        share: Probability that a row gets coloured noise; other rows get independent noise.
    """

    colours: Tensor
    scale: Tensor

    def __init__(self, noise: InputPrior, colours: Tensor, scale: Scale = 1.0, share: float = 0.5) -> None:
        super().__init__()
        if not 0 <= share <= 1:
            raise UserError(f"share must lie between 0 and 1, got {share}")
        self.noise, self.share = noise, share
        self.register_buffer("colours", torch.as_tensor(colours), persistent=False)
        self.register_buffer("scale", torch.as_tensor(scale, dtype=torch.get_default_dtype()), persistent=False)

    @classmethod
    def of(cls, inputs: Tensor, noise: InputPrior, scale: Scale = 1.0, share: float = 0.5) -> "DataShaped":
        """The prior with the covariance of these training inputs ``[rows, columns]``, which should be standardised."""
        from ncprior.tables.input_features import coloring_matrix, principal_components

        if inputs.ndim != 2:
            raise UserError(f"noise in the shape of the data needs inputs [rows, columns], got {tuple(inputs.shape)}")
        colours = coloring_matrix(principal_components(inputs.detach().double().cpu().numpy()))
        return cls(noise, torch.from_numpy(colours).to(inputs), scale, share)

    def forward(self, inputs: Tensor, *, generator: Generator | None = None) -> Tensor:
        """Noised inputs of the same shape."""
        noise = noised(self.noise, torch.zeros_like(inputs), generator)
        shaped = _chosen(inputs, self.share, generator)
        colours = self.colours.to(inputs)
        coloured = noise[:, : colours.shape[1]] @ colours.T
        return inputs + self.scale.to(inputs) * torch.where(shaped, coloured, noise)


class PerColumn(nn.Module):
    """A prior for each group of columns; other columns stay unchanged.

    >>> prior = PerColumn([((0, 1), Gaussian(0.5)), ((2, 3, 4), FlipCategories(3, 0.1, one_hot=True))])
    """

    def __init__(self, parts: Sequence[tuple[Sequence[int], InputPrior]]) -> None:
        super().__init__()
        self.columns = tuple(tuple(columns) for columns, _ in parts)
        self.priors = _held([prior for _, prior in parts])
        named = [column for columns in self.columns for column in columns]
        if len(named) != len(set(named)):
            raise UserError(f"a column has more than one input prior: {sorted(named)}")

    def forward(self, inputs: Tensor, *, generator: Generator | None = None) -> Tensor:
        """Noised inputs of the same shape."""
        if inputs.ndim != 2:
            raise UserError(f"a prior for each column needs inputs [rows, columns], got {tuple(inputs.shape)}")
        missing = [column for columns in self.columns for column in columns if not 0 <= column < inputs.shape[1]]
        if missing:
            raise UserError(f"no columns {missing} in inputs that have {inputs.shape[1]}")
        for columns, prior in zip(self.columns, self.priors, strict=True):
            index = torch.tensor(columns, device=inputs.device)
            inputs = inputs.index_copy(1, index, noised(prior, inputs[:, index], generator))
        return inputs


class FromPool(nn.Module):
    """Rows drawn from a pool of unlabelled rows, with replacement, so that the model is unsure where it will be asked.

    A drawn row has nothing to do with the target of the row that it replaces, so `NCPLoss` needs another ``centre``.

    Args:
        pool: The rows to draw from. It stays on its device; what is drawn goes to that of the inputs.
        noise: An input prior for the rows that are not drawn from the pool; None draws all of them.
        share: Probability that a row is drawn from the pool, if there is an input prior for the others.
    """

    pool: Tensor

    def __init__(self, pool: Tensor, noise: InputPrior | None = None, share: float = 0.5) -> None:
        super().__init__()
        if pool.ndim < 2 or not len(pool):
            raise UserError(f"a pool has rows and columns, got a tensor of shape {tuple(pool.shape)}")
        if not 0 <= share <= 1:
            raise UserError(f"share must lie between 0 and 1, got {share}")
        self.noise, self.share = noise, share
        self.register_buffer("pool", pool, persistent=False)

    def forward(self, inputs: Tensor, *, generator: Generator | None = None) -> Tensor:
        """Rows of the pool, as many as inputs."""
        if self.pool.shape[1:] != inputs.shape[1:]:
            raise UserError(
                f"rows of the pool have shape {tuple(self.pool.shape[1:])}, inputs {tuple(inputs.shape[1:])}"
            )
        rows = torch.randint(len(self.pool), (len(inputs),), device=inputs.device, generator=generator)
        drawn = self.pool[rows.to(self.pool.device)].to(inputs)
        if self.noise is None:
            return drawn
        from_pool = _chosen(inputs, self.share, generator)
        return torch.where(from_pool, drawn, noised(self.noise, inputs, generator))


class NoisedShare(nn.Module):
    """Noise on the first rows of a mini batch only: ``share`` of the rows, at least one.

    A noised row costs as much as a clean one. With many labels the prior counts little, and few noised rows are enough.
    """

    def __init__(self, prior: InputPrior, share: float) -> None:
        super().__init__()
        if not 0 < share <= 1:
            raise UserError(f"share must be above 0 and at most 1, got {share}")
        self.prior, self.share = prior, share

    def forward(self, inputs: Tensor, *, generator: Generator | None = None) -> Tensor:
        """Noised inputs of the first rows."""
        return noised(self.prior, inputs[: max(1, round(self.share * len(inputs)))], generator)


def noised(prior: InputPrior, inputs: Tensor, generator: Generator | None) -> Tensor:
    """What a prior makes of inputs; a plain function of the inputs will do if there is no generator."""
    return prior(inputs) if generator is None else prior(inputs, generator=generator)


def _held(priors: list[InputPrior]) -> Sequence[InputPrior]:
    """Priors as part of a module, so that they go to its device; plain functions have nothing that could go there."""
    if all(isinstance(prior, nn.Module) for prior in priors):
        return nn.ModuleList(priors)
    return priors


def _randn(inputs: Tensor, shape: Sequence[int], generator: Generator | None) -> Tensor:
    _check_floating(inputs)
    return torch.randn(shape, dtype=inputs.dtype, device=inputs.device, generator=generator)


def _rand(inputs: Tensor, shape: Sequence[int], generator: Generator | None) -> Tensor:
    _check_floating(inputs)
    return torch.rand(shape, dtype=inputs.dtype, device=inputs.device, generator=generator)


def _check_floating(inputs: Tensor) -> None:
    if not inputs.is_floating_point():
        raise UserError(
            f"noise is added to floating-point inputs, got {inputs.dtype}: convert them with .float(), or noise codes "
            "of categories with FlipCategories"
        )


def _chosen(inputs: Tensor, probability: float, generator: Generator | None) -> Tensor:
    """Which rows are chosen, each with this probability, in a shape that goes with the inputs."""
    shape = (len(inputs), *[1] * (inputs.ndim - 1))
    return torch.rand(shape, device=inputs.device, generator=generator) < probability
