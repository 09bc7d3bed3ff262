"""Losses with a noise contrastive prior for PyTorch models: the terms of `ncprior.core`, by the same names."""

import abc
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Generator, Tensor, nn

from ncprior.errors import UserError
from ncprior.torch.distributions import Normal, scale_kl
from ncprior.torch.input_priors import FromPool, InputPrior, NoisedShare
from ncprior.torch.output_priors import Centre, Direction, OutputPrior
from ncprior.torch.predictions import Mixture, Prediction, prediction_of
from ncprior.torch.terms import away_from_data, check_positive, nll, weight_kl
from ncprior.torch.views import Model, View

Weight = float | Callable[[int], float]
"""A weight, or a function of the number of labelled rows, such as ``lambda n: 10 / n`` for a prior that fades."""


class _ContrastiveLoss(nn.Module, abc.ABC):
    """A weighted sum of terms by name, of a model's outputs at clean and at noised rows."""

    def __init__(self, noise: InputPrior, rows: int | None, one_pass: bool | None, generator: Generator | None) -> None:
        super().__init__()
        if not callable(noise):
            raise UserError(f"noise must be an input prior, such as Gaussian(0.5), got {noise!r}")
        if rows is not None and rows < 1:
            raise UserError(f"rows, the number of labelled rows, must be at least 1, got {rows}")
        self.noise, self.rows, self.one_pass, self.generator = noise, rows, one_pass, generator
        self._checked = False

    def forward(
        self, model: Model, x: Tensor, y: Tensor, *, weights: Tensor | None = None, rows: int | None = None
    ) -> Tensor:
        """The loss of a model on a mini batch, one number.

        Args:
            model: Any function or module from inputs to mean, noise and uncertainty; see
                `ncprior.torch.predictions.prediction_of`.
            x: Inputs ``[rows, ...]``.
            y: Targets ``[rows]`` or ``[rows, outputs]``.
            weights: One for each row, None for equal ones; 0 leaves a row out.
            rows: Number of labelled rows in all, if another than that of the constructor.
        """
        return self.total(self.terms(model, x, y, weights=weights, rows=rows), rows=rows)

    def terms(
        self, model: Model, x: Tensor, y: Tensor, *, weights: Tensor | None = None, rows: int | None = None
    ) -> dict[str, Tensor]:
        """The value of every term by name, before its weight; `total` makes the loss of them."""
        view = View.of(model, x, y, weights, self.noise, generator=self.generator, one_pass=self.one_pass)
        if not self._checked and not torch.compiler.is_compiling():
            check_positive(view.clean)
            self._checked = True
        with torch.autocast(x.device.type, enabled=False):
            return self._terms(model, view, rows)

    @abc.abstractmethod
    def term_weights(self, rows: int | None = None) -> dict[str, float]:
        """The weight of every term by name."""

    @abc.abstractmethod
    def _terms(self, model: Model, view: View, rows: int | None) -> dict[str, Tensor]:
        """The terms of this loss."""

    def total(self, terms: dict[str, Tensor], *, rows: int | None = None) -> Tensor:
        """The loss: the weighted sum of the terms."""
        weights = self.term_weights(rows)
        return torch.stack([weights[name] * value for name, value in terms.items()]).sum()

    def _number_of_rows(self, rows: int | None, why: str) -> int:
        rows = self.rows if rows is None else rows
        if rows is None:
            raise UserError(f"{why} the number of labelled rows: give rows=len(training_set) to the loss")
        return rows


class NCPLoss(_ContrastiveLoss):
    """The likelihood of a mini batch and a noise contrastive prior (Equations 2 and 5 of the paper).

    The model predicts mean, noise and, unless it is a point estimate, the uncertainty of the mean. At the rows it
    learns the targets. At noised copies of them, ``x~``, it learns to be uncertain: its belief over the mean, or its
    whole prediction if it has no belief, is pulled towards the output prior ``N(centre, output_std^2)``.

    Clean and noised rows go through the model in one pass of twice the rows. Batch norm in training would mix their
    statistics: a model that has it gets two passes, and at noised rows it uses the running statistics and leaves them
    as they are. What else looks across rows cannot be seen; set ``one_pass=False`` for it.

    Args:
        noise: The input prior, which makes noised rows: `ncprior.torch.input_priors`, or a function of your own.
        output_std: Standard deviation of the output prior, in units of the target: how uncertain to be off the data.
        gamma: Weight of the NCP, a number or a function of the number of labelled rows ``rows``.
        centre: Centre of the output prior: ``"target"``, the label of the clean row, as in the paper;
            ``"prediction"``, the model's own mean, so that only the spread is taught; or a constant.
        direction: ``"forward"`` for ``KL(prior || model)``, ``"reverse"`` for ``KL(model || prior)``.
        away: Whether terms at noised rows count by how far these are from the rows of the batch. In few dimensions
            noised rows are often close to data.
        noise_tie: Weight of a term that keeps the noise at noised rows as it is at the clean ones, so that it cannot
            take the place of uncertainty; a number or a function of ``rows``.
        noise_prior_std: If given, the noise at noised rows is pulled towards it, with weight gamma.
        weight_kl: Weight of the KL divergence between the beliefs of all `BayesianLinear` layers and a normal prior,
            divided by ``rows``.
        weight_prior_std: Standard deviation of that prior.
        rows: Number of labelled rows in all, not of a mini batch; for weights that depend on it.
        one_pass: Whether clean and noised rows go through the model together; None for where that is right.
        generator: Source of random numbers, on the device of the inputs; None for PyTorch's own.

    >>> layer = torch.nn.Linear(1, 2)
    >>> def model(x):
    ...     mean, noise = layer(x).unbind(-1)
    ...     return mean, F.softplus(noise)
    >>> loss = NCPLoss(lambda x: x + 1, output_std=1.0, gamma=lambda n: 10 / n, rows=100)
    >>> sorted(loss.terms(model, torch.zeros(5, 1), torch.zeros(5))), loss.term_weights()
    (['ncp', 'nll'], {'nll': 1.0, 'ncp': 0.1})
    """

    def __init__(
        self,
        noise: InputPrior,
        *,
        output_std: float | Sequence[float] | Tensor = 1.0,
        gamma: Weight = 1.0,
        centre: Centre = "target",
        direction: Direction = "forward",
        away: bool = False,
        noise_tie: Weight = 0.0,
        noise_prior_std: float | None = None,
        weight_kl: float = 0.0,
        weight_prior_std: float = 0.1,
        rows: int | None = None,
        one_pass: bool | None = None,
        generator: Generator | None = None,
    ) -> None:
        super().__init__(noise, rows, one_pass, generator)
        self.output_prior = OutputPrior(output_std, centre, direction)
        within = noise.prior if isinstance(noise, NoisedShare) else noise
        if centre == "target" and isinstance(within, FromPool):
            raise UserError("rows from a pool have no target: give centre='prediction' or a number")
        for name, value in (("gamma", gamma), ("noise_tie", noise_tie), ("weight_kl", weight_kl)):
            if not callable(value) and not 0 <= value < float("inf"):
                raise UserError(f"{name} must be a number that is not negative, got {value}")
        for name, std in (("noise_prior_std", noise_prior_std), ("weight_prior_std", weight_prior_std)):
            if std is not None and not 0 < std < float("inf"):
                raise UserError(f"{name} must be positive, got {std}")
        self.gamma, self.noise_tie, self.away = gamma, noise_tie, away
        self.noise_prior_std, self.weight_kl, self.weight_prior_std = noise_prior_std, weight_kl, weight_prior_std

    def term_weights(self, rows: int | None = None) -> dict[str, float]:
        """The weight of every term by name."""

        def weight(name: str, value: Weight) -> float:
            return value(self._number_of_rows(rows, f"{name} is a function of")) if callable(value) else value

        gamma = weight("gamma", self.gamma)
        found = {"nll": 1.0, "ncp": gamma}
        if self.noise_prior_std is not None:
            found["noise_ncp"] = gamma
        if self.noise_tie:
            found["noise_tie"] = weight("noise_tie", self.noise_tie)
        if self.weight_kl:
            found["weight_kl"] = self.weight_kl
        return found

    def _terms(self, model: Model, view: View, rows: int | None) -> dict[str, Tensor]:
        clean, noised = view.clean, view.noised
        share = away_from_data(view) if self.away else None

        def contrast(losses: Tensor) -> Tensor:
            return view.average(losses if share is None else share[:, None] * losses)

        terms = {"nll": nll(clean, view.targets, view), "ncp": contrast(self._divergence(view))}
        if (self.noise_tie or self.noise_prior_std is not None) and noised.belief is None:
            option = "noise_tie" if self.noise_tie else "noise_prior_std"
            raise UserError(f"{option} keeps the noise off the data as it is, and this model has no other uncertainty")
        if self.noise_prior_std is not None:
            prior = torch.full_like(noised.noises, self.noise_prior_std)
            terms["noise_ncp"] = contrast(noised.average(scale_kl(prior, noised.noises)))
        if self.noise_tie:
            # No gradient flows to the noise at the rows, which is learned from the data alone.
            at_rows = clean.noises[:, : len(view.noised_inputs)].detach()
            terms["noise_tie"] = contrast(noised.average(scale_kl(at_rows, noised.noises)))
        if self.weight_kl:
            count = self._number_of_rows(rows, "weight_kl is divided by")
            terms["weight_kl"] = weight_kl(model, self.weight_prior_std) / count
        return terms

    def _divergence(self, view: View) -> Tensor:
        targets = view.of_noised(view.targets)
        if view.noised.drawn:
            return self.output_prior.estimated_divergence(targets, view.noised.means)
        model = view.noised.belief or Normal(view.noised.means[0], view.noised.noises[0])
        return self.output_prior.divergence(targets, model)


class OODLoss(_ContrastiveLoss):
    """The likelihood and a classifier that tells rows from noised rows (Equations 8 and 9 of the paper).

    The model gives mean, noise and ``ood``, the logit of the probability that a row is out of distribution, in a
    dictionary or a `ncprior.torch.predictions.Prediction`. `prediction` mixes its normal with the output prior.

    Args:
        noise: The input prior, which makes the rows that are out of distribution.
        output_std: Standard deviation of the output prior, which is predicted out of distribution.
        centre: Its centre, ``"prediction"`` for the model's own mean, or a constant.
        noised_nll: Whether the target of the clean row is learned at the noised one, too, as in the released code.
        one_pass: As for `NCPLoss`.
        generator: As for `NCPLoss`.
    """

    def __init__(
        self,
        noise: InputPrior,
        *,
        output_std: float | Sequence[float] | Tensor = 1.0,
        centre: Centre = "prediction",
        noised_nll: bool = False,
        one_pass: bool | None = None,
        generator: Generator | None = None,
    ) -> None:
        super().__init__(noise, None, one_pass, generator)
        if centre == "target":
            raise UserError("there is no target when predicting: give centre='prediction' or a number")
        self.output_prior = OutputPrior(output_std, centre)
        self.noised_nll = noised_nll

    def term_weights(self, rows: int | None = None) -> dict[str, float]:  # noqa: ARG002
        """The weight of every term by name: 1."""
        names = ["nll", "in_distribution", "ncp"] + ["noised_nll"] * self.noised_nll
        return dict.fromkeys(names, 1.0)

    def _terms(self, model: Model, view: View, rows: int | None) -> dict[str, Tensor]:  # noqa: ARG002
        if view.clean.ood is None or view.noised.ood is None:
            raise UserError("the model's output has no 'ood', the logit of being out of distribution: return one")
        terms = {
            "nll": nll(view.clean, view.targets, view),
            "in_distribution": view.average(F.softplus(view.clean.ood[0])),
            "ncp": view.average(F.softplus(-view.noised.ood[0])),
        }
        if self.noised_nll:
            terms["noised_nll"] = nll(view.noised, view.of_noised(view.targets), view)
        return terms

    def prediction(self, output: object) -> Mixture:
        """The mixture of Equation 8: what the model says if a row is in distribution, and the output prior if not.

        Args:
            output: What the model returned.
        """
        found = prediction_of(output)
        if not isinstance(found, Prediction) or found.ood is None:
            raise UserError("the model's output has no 'ood', the logit of being out of distribution: return one")
        mean = found.mean
        outside = self.output_prior(mean, mean)
        zeros, logit = torch.zeros_like(mean), found.ood.expand_as(mean)
        return Mixture(
            torch.stack([mean, outside.mean]),
            torch.stack([found.noise.expand_as(mean), zeros]),
            torch.stack([zeros if found.uncertainty is None else found.uncertainty, outside.std]),
            torch.stack([torch.sigmoid(-logit), torch.sigmoid(logit)]),
        )
