"""The settings of the methods, and the two presets: the text of the paper, and its authors' released code.

The published figures came from the released code, which differs from the text of the paper in the settings below.
`PAPER` follows the text and `REFERENCE` the code; each setting can be changed alone with `dataclasses.replace`.
Where the paper is silent and one must choose, `PAPER` takes the plainest reading, and `DIFFERENCES` says so.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Literal, NamedTuple

from ncprior.core.acquisition import Draw
from ncprior.core.registry import Style
from ncprior.errors import check_limits
from ncprior.schema import Length, Range, check_fields

Remainder = Literal["smaller", "dropped", "filled"]
"""The last rows of an epoch, if they do not fill a mini batch: ``smaller`` makes a batch of them, which counts as
much as any other; ``dropped`` leaves them out; ``filled`` adds rows of the batch before."""

_LARGEST = 1e9
"""Largest number in settings; its square is finite in single precision."""

Number = Annotated[float, Range(-_LARGEST, _LARGEST)]
NotNegative = Annotated[float, Range(0, _LARGEST)]
Positive = Annotated[float, Range(0, _LARGEST, above=True)]
Units = Annotated[int, Range(1, 1 << 16)]


@dataclass(frozen=True)
class PaperSettings:
    """What the paper and its released code say about the methods. The defaults are those of the paper's text."""

    hidden: Annotated[tuple[Units, ...], Length(1, 32)] = (200, 200)
    """Units of each hidden layer."""
    learning_rate: Positive = 3e-4
    batch_size: Annotated[int, Range(1, 1 << 24)] = 10
    leaky_slope: Annotated[float, Range(-1, 1)] = 0.01
    """Slope of the leaky ReLU below 0."""
    noise_floor: NotNegative = 1e-6
    """Smallest standard deviation of the predicted noise."""
    belief_std: Positive = 0.1
    """Standard deviation of the weight belief at the start, and of its means' initial values."""
    bias_belief: bool = True
    """Whether the belief over the mean's output layer includes its bias; for deep+ncp, those of all layers."""
    expectation: Literal["exact", "sampled"] = "exact"
    """The expected log likelihood in closed form, or with one weight sample for each batch. For deep+ncp, which has no
    closed form, ``exact`` averages over samples that every row has of its own."""
    weight_prior_std: Positive = 0.1
    """Standard deviation of the normal prior on the weights of BBB."""
    weight_kl: NotNegative = 1.0
    """Weight of BBB's KL divergence in weight space (divided by the number of visible labels)."""
    ncp_weight_kl: NotNegative = 0.0
    """The same for BBB+NCP and deep+ncp: above 0, the two priors are combined."""
    input_noise: Literal["gaussian", "uniform", "radial"] = "gaussian"
    input_noise_std: NotNegative = 0.5**0.5
    """sigma_x, the standard deviation of the input prior."""
    gamma: NotNegative = 1.0
    """Weight of the NCP term of BBB+NCP and Det+NCP."""
    output_std: Positive = 1.0
    """sigma_y (or sigma_mu), the standard deviation of the output prior."""
    output_centre: Literal["target", "prediction"] | Number = "target"
    """Centre of the output prior: the target of the clean row, the model's own mean (the prior then changes only the
    spread), or a constant."""
    direction: Literal["forward", "reverse"] = "forward"
    """Direction of the KL divergence of the NCP term."""
    noise_prior_std: Positive | None = None
    """If given, the noise of BBB+NCP and deep+ncp at noised inputs is pulled towards it, with weight gamma."""
    odc_noised_nll: bool = False
    """Whether ODC+NCP also learns to predict y at the noised inputs."""
    odc_prediction: Literal["mixture", "blend"] = "mixture"
    """ODC+NCP predicts the mixture of Equation 8, or the released code's blend of noise and OOD probability."""
    gain_exponent: Number = 2.0
    """Rows are drawn in proportion to exp(exponent * information gain / temperature)."""
    det_score: Literal["predictive_variance", "predictive_std"] = "predictive_variance"
    """Score for networks without uncertainty, which have no information gain."""
    temperature: Positive = 0.5
    """tau of the softmax over scores."""
    draw: Draw = "without_replacement"
    """How labels are drawn."""
    clip: Positive | None = None
    """Largest global norm of the gradient."""
    epsilon_hat: bool = False
    """Adam's epsilon as in TensorFlow rather than as in Kingma and Ba's Algorithm 1."""
    remainder: Remainder = "smaller"
    """The rows of an epoch that do not fill a mini batch."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_limits(weights=sum(before * after for before, after in pairwise(self.hidden)))


@dataclass(frozen=True)
class Settings(PaperSettings):
    """All settings of the methods: those of the paper, and of terms beyond it, which are off by default.

    See `ncprior.core.table_terms` for these terms.

    >>> Settings(gamma=0.1).gamma
    0.1
    """

    activation: Literal["leaky_relu", "gelu"] = "leaky_relu"
    """What follows each hidden layer; ``leaky_slope`` is of the first alone."""
    gamma_per_label: bool = False
    """Whether gamma and ``noise_tie`` are divided by the number of visible labels."""
    ncp_away: bool = False
    """Whether the NCP term counts only where noised inputs are away from the data."""
    noise_tie: NotNegative = 0.0
    """Weight of the term that keeps the noise of BBB+NCP and deep+ncp equal at clean and noised inputs."""


PAPER = Settings()
"""The text of the paper, on the toy data."""

REFERENCE = Settings(
    leaky_slope=0.2,
    bias_belief=False,
    expectation="sampled",
    weight_kl=0.1,
    input_noise_std=0.5,
    gamma=0.1,
    noise_prior_std=0.1,
    odc_noised_nll=True,
    odc_prediction="blend",
    gain_exponent=1.0,
    det_score="predictive_std",
    draw="with_replacement",
    clip=100.0,
    epsilon_hat=True,
    remainder="dropped",
)
"""The released code, on the toy data."""

PRESETS = {"paper": PAPER, "reference": REFERENCE}
"""Settings of the toy experiment by the name of the preset."""

FLIGHTS_PRESETS = {
    "paper": replace(PAPER, hidden=(50, 50), learning_rate=1e-4, input_noise_std=0.1**0.5),
    "reference": replace(
        REFERENCE,
        hidden=(50, 50),
        learning_rate=1e-4,
        input_noise_std=0.1,
        weight_kl=1.0,
        noise_prior_std=None,
    ),
}
"""Settings of the active learning experiment on flight delays, likewise."""


class Ablation(NamedTuple):
    """A variant of BBB+NCP that the paper mentions: how it is written and drawn, and its settings.

    Variants are drawn beside BBB+NCP alone, so that the colours of other methods are free.
    """

    style: Style
    change: Callable[[Settings], Settings]


ABLATIONS = {
    "reverse": Ablation(Style("reverse KL", "#E69F00", "--"), lambda settings: replace(settings, direction="reverse")),
    "weight_prior": Ablation(
        Style("weight prior too", "#009E73", "-."),
        lambda settings: replace(settings, ncp_weight_kl=settings.weight_kl),
    ),
}
"""What the paper says makes no difference: the KL divergence of appendix B, which has the other direction, and a normal
prior on the weights beside NCP, with the weight that it has in BBB."""

DIFFERENCES: dict[str, tuple[str, str]] = {
    "leaky_slope": (
        "leaky ReLU; its slope is not given, 0.01 is that of the work it cites",
        "slope 0.2",
    ),
    "bias_belief": ("belief over the mean's output layer, kernel and bias", "the bias is a point estimate"),
    "expectation": (
        "E_q[ln p(y|x, theta)], in closed form",
        "one weight sample for each mini batch",
    ),
    "gamma": ("Equation 5 has no weight on the NCP term", "weight 0.1"),
    "weight_kl": ("the variational bound, weight 1", "weight 0.1 (toy), 1 (flights)"),
    "input_noise_std": (
        "Normal(0, 0.5) on toy and Normal(0, 0.1) on flights, read as variances like the paper's other normals",
        "standard deviation 0.5 (toy), 0.1 (flights)",
    ),
    "noise_prior_std": (
        "not mentioned",
        "BBB+NCP also pulls the noise at x~ to 0.1, weight gamma (toy)",
    ),
    "odc_noised_nll": ("NLL and two Bernoulli terms (Equation 9)", "plus the NLL of y at x~"),
    "odc_prediction": (
        "the mixture of Equation 8, with the network's mean as mu_y",
        "noise = (1 - pi) sigma + 0.1 pi, and pi enters the density as if it were a std",
    ),
    "gain_exponent": ("(1 + Var / sigma^2)^(1 / tau)", "softmax of the gain / tau: exponent 1 / (2 tau)"),
    "det_score": ("Var[p(y|x)]", "the noise std"),
    "draw": ("a batch of labels, read as different ones", "with replacement, the first labels too"),
    "clip": ("Adam", "gradients clipped to global norm 100"),
    "epsilon_hat": ("Adam's Algorithm 1", "TensorFlow's epsilon hat"),
    "remainder": (
        "mini batches of 10; the last one of an epoch is smaller",
        "rows that do not fill a batch are dropped",
    ),
}
"""What differs between the presets: setting, what the paper says, what the released code does."""

NOT_FOLLOWED: dict[str, tuple[str, str, str]] = {
    "NLPD": (
        "the density of the prediction",
        "1e-8 is added to the variance of models with uncertainty",
        "nothing is added: it would make errors of a model that is all too certain look smaller, and changes no other",
    ),
    "evaluation": (
        "not said when",
        "after epochs 1, 501, ..., 49,501 (toy), and 1, 51, ..., 1,951 with at last 390 labels (flights)",
        "after epochs 500, 1,000, ..., 50,000, and 50, 100, ..., 2,000 with at last 400 labels: the run to its end",
    ),
    "selection": (
        "every 1,000 epochs (toy), every 50 (flights)",
        "one epoch later: after 1,001, 2,001, ... and 51, 101, ...",
        "after epochs 1,000, 2,000, ... and 50, 100, ..., as the paper says",
    ),
    "figures": (
        "not said",
        "axes end at the 20th evaluation from the last: 49 of 59 labels (toy), 200 of 390 (flights)",
        "up to the last evaluation: nothing that was measured is left out",
    ),
}
"""Where both presets differ from the released code: what the paper says, what the code does, what is done here."""
