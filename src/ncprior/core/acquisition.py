"""Which rows to label next: scores of predictions, and drawing a batch from them.

A score sees only a prediction and gives one number for each row; more is better. `Acquisition` turns scores into
logits and draws rows from their softmax (Equation 7).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from ncprior.core.prediction import MixturePrediction, Predictive
from ncprior.core.registry import Entry, Registry, Style
from ncprior.errors import UserError

Score = Callable[[Predictive], Float[Array, "rows"]]
Draw = Literal["without_replacement", "with_replacement", "greedy"]

_EPSILON = 1e-8
"""Added to the noise variance below a fraction, as in the released code; in both presets, for rows without noise."""


def information_gain(prediction: Predictive) -> Float[Array, "rows"]:
    """Expected information that a label gives about the weights, in nats per output.

    ``0.5 ln(1 + uncertainty^2 / noise^2)``, the Gaussian form of Equation 6 (MacKay, 1992). It is high where the model
    is uncertain and the label is not noisy.

    >>> from ncprior.core.prediction import Prediction
    >>> ones = jnp.ones((1, 1))
    >>> float(information_gain(Prediction(0 * ones, ones, 0 * ones))[0])
    0.0
    """
    return _gain(prediction.uncertainty**2, prediction.noise)


def ood_information_gain(prediction: Predictive) -> Float[Array, "rows"]:
    """``0.5 ln(1 + pi / noise^2)``: information gain with the OOD probability as variance (Section 5).

    For predictions of the OOD classifier: its mixture, whose first part is the network's own prediction, or the
    released code's blend, whose uncertainty is the probability.
    """
    if not isinstance(prediction, MixturePrediction):
        return _gain(prediction.uncertainty, prediction.noise)
    return _gain(prediction.weights[..., 1], prediction.parts.noise[..., 0])


def ood_probability(prediction: Predictive) -> Float[Array, "rows"]:
    """Probability that a row is out of distribution. For predictions of the OOD classifier only."""
    if isinstance(prediction, MixturePrediction):
        return prediction.weights[..., 1].mean(-1)
    return prediction.uncertainty.mean(-1)


def uncertainty(prediction: Predictive) -> Float[Array, "rows"]:
    """``ln uncertainty``. The noise does not matter, and the softmax does not depend on the unit of the target."""
    return jnp.log(prediction.uncertainty + _EPSILON).mean(-1)


def predictive_variance(prediction: Predictive) -> Float[Array, "rows"]:
    """``Var[p(y | x)]``, the paper's score for networks without uncertainty."""
    return (prediction.std**2).mean(-1)


def predictive_std(prediction: Predictive) -> Float[Array, "rows"]:
    """Standard deviation of the prediction, the released code's score for networks without uncertainty."""
    return prediction.std.mean(-1)


def random(prediction: Predictive) -> Float[Array, "rows"]:
    """0 for every row, so that rows are drawn at random. The baseline for all other scores."""
    return jnp.zeros_like(prediction.std).mean(-1)


SCORES: Registry[Score] = Registry(
    {
        "information_gain": Entry(
            information_gain,
            Style("information gain", "#0072B2", "-", "o"),
            "what a label is expected to tell about the weights: high uncertainty, low noise",
            "prediction",
        ),
        "ood_information_gain": Entry(
            ood_information_gain,
            Style("OOD information gain", "#0072B2", ":", "o"),
            "the information gain with the probability of being out of distribution as the variance",
            "ood_prediction",
        ),
        "ood_probability": Entry(
            ood_probability,
            Style("OOD probability", "#D55E00", "-.", "v"),
            "the probability of being out of distribution",
            "ood_prediction",
        ),
        "uncertainty": Entry(
            uncertainty,
            Style("uncertainty", "#D55E00", ":", "v"),
            "the logarithm of the uncertainty, whatever the noise",
            "prediction",
            logarithm=True,
        ),
        "predictive_variance": Entry(
            predictive_variance,
            Style("predictive variance", "#44AA99", "--", "<"),
            "the variance of the prediction, uncertainty and noise together",
            "prediction",
        ),
        "predictive_std": Entry(
            predictive_std,
            Style("predictive std", "#999933", "-.", ">"),
            "the standard deviation of the prediction",
            "prediction",
        ),
        "random": Entry(
            random,
            Style("random", "#000000", "--", "x"),
            "the same for every row: the control that every other choice must beat",
            "prediction",
            logarithm=True,
        ),
    },
    compares="prediction",
)
"""Every score by name. Add one of your own as an `Entry`, or as a plain function: ``SCORES["mine"] = function``.

The colours here and in `ncprior.tables.batches.RULES` are those of Okabe and Ito (2008) and of Tol (2021), which people
with any kind of colour vision can tell apart.
"""


def score_names() -> list[str]:
    """Names of the scores that work with every prediction: all but those of the OOD classifier."""
    return [name for name, entry in SCORES.items() if entry.compares == "prediction"]


def score_of(score: str | Score) -> Score:
    """The score of this name, or the function itself.

    Raises:
        UserError: If there is no score of this name.
    """
    if callable(score):
        return score
    if score not in score_names():
        raise UserError(f"unknown acquisition {score!r}: choose from {', '.join(score_names())}")
    return SCORES[score].function


@dataclass(frozen=True)
class Acquisition:
    """A rule for choosing rows to label: a score, its weight, and how rows are drawn.

    Rows are drawn with probability proportional to ``exp(exponent * score / temperature)``. For the information gain
    the paper's Equation 7, ``(1 + Var / sigma^2)^(1 / tau)``, is exponent 2, and the released code is exponent 1.
    """

    score: Score = information_gain
    exponent: float = 2.0
    temperature: float = 0.5
    draw: Draw = "without_replacement"

    def __call__(
        self, prediction: Predictive, excluded: Bool[Array, "rows"], count: int, *, key: PRNGKeyArray
    ) -> Int[Array, "count"]:
        """Draws rows to label next.

        Args:
            prediction: Predictions of all rows of the pool.
            excluded: True for rows that must not be drawn.
            count: How many rows to draw.
            key: Random key.

        Returns:
            The numbers of the rows.
        """
        return self.pick(self.logits(prediction), excluded, count, key=key)

    def logits(self, prediction: Predictive) -> Float[Array, "rows"]:
        """Unnormalised log probabilities of the rows."""
        return self.exponent * self.score(prediction) / self.temperature

    def pick(
        self, logits: Float[Array, "rows"], excluded: Bool[Array, "rows"], count: int, *, key: PRNGKeyArray
    ) -> Int[Array, "count"]:
        """Row numbers drawn by these logits; ``excluded`` rows are never drawn."""
        logits = jnp.where(excluded, -jnp.inf, logits)
        if self.draw == "greedy":
            return jax.lax.top_k(logits, count)[1]
        if self.draw == "without_replacement":
            return gumbel_top_k(logits, count, key=key)[0]
        return draw_with_replacement(logits, count, key=key)


def gumbel_top_k(
    logits: Float[Array, "rows"], count: int, *, key: PRNGKeyArray
) -> tuple[Int[Array, "count"], Float[Array, "count"]]:
    """Draws ``count`` rows from the softmax without replacement, in a single pass (Kool et al., 2019).

    Returns:
        Row numbers and their perturbed logits, largest first.
    """
    perturbed = logits + _gumbel(key, logits.shape)
    values, rows = jax.lax.top_k(perturbed, count)
    return rows, values


def draw_with_replacement(logits: Float[Array, "rows"], count: int, *, key: PRNGKeyArray) -> Int[Array, "count"]:
    """Draws ``count`` rows from the softmax with replacement: a row can be drawn more than once."""
    probabilities = jax.nn.softmax(logits)
    # The sums of a parallel scan wobble by their rounding: a row of probability 0 takes the largest sum before it.
    cumulative = jax.lax.cummax(jnp.where(probabilities > 0, jnp.cumsum(probabilities), 0.0))
    marks = jax.random.uniform(key, (count,)) * cumulative[-1]
    # The first row whose cumulative probability lies above the mark; a row of probability 0 never is.
    rows = jnp.searchsorted(cumulative, marks, side="right")
    # A mark that rounds up to the total belongs to the last row that has any probability.
    last = jnp.searchsorted(cumulative, cumulative[-1], side="left")
    return jnp.minimum(rows, last)


def _gumbel(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Gumbel noise with high resolution in its upper tail, which decides what is drawn.

    `jax.random.gumbel` has 2^23 levels, too few for large pools: rows would tie, and the first of them always win. Its
    mode ``high`` has enough, for twice the time.
    """
    uniform = (jax.random.bits(key, shape).astype(jnp.float32) + 0.5) * 2.0**-32
    return -jnp.log(-jnp.log1p(-jnp.minimum(uniform, 1 - 2.0**-24)))


def _gain(variance: Float[Array, "rows outputs"], noise: Float[Array, "rows outputs"]) -> Float[Array, "rows"]:
    return 0.5 * jnp.log1p(variance / (noise**2 + _EPSILON)).mean(-1)
