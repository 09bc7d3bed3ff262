"""The methods as rows of one table: heads, loss terms, prediction and acquisition."""

from collections.abc import Callable
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, PRNGKeyArray, PyTree, Scalar

from ncprior.core.acquisition import SCORES, Acquisition
from ncprior.core.distributions import Bernoulli, Normal
from ncprior.core.input_priors import Gaussian, InputPrior, Uniform
from ncprior.core.networks import (
    GELU,
    MLP,
    Activation,
    BayesianMean,
    Heads,
    LeakyReLU,
    Network,
    Noise,
    Ood,
    PointMean,
    Trunk,
)
from ncprior.core.objectives import (
    NLL,
    Batch,
    InDistribution,
    MeanNCP,
    NoisedNLL,
    NoiseNCP,
    Objective,
    OutOfDistribution,
    PredictiveNCP,
    Term,
    View,
    Weighted,
    WeightKL,
    total,
)
from ncprior.core.output_priors import OutputPrior
from ncprior.core.prediction import MixturePrediction, Prediction, Predictive
from ncprior.core.registry import Style, style_of
from ncprior.core.settings import ABLATIONS, PAPER, Settings
from ncprior.core.table_priors import Radial
from ncprior.core.table_terms import AwayFromData, FadesWithLabels, NoiseTie

STYLES = {
    "det": Style("Det", "#D55E00", "--", "s"),
    "det+ncp": Style("Det+NCP", "#CC79A7", "-.", "s"),
    "bbb": Style("BBB", "#009E73", "--", "s"),
    "bbb+ncp": Style("BBB+NCP", "#0072B2", "-", "s"),
    "odc+ncp": Style("ODC+NCP", "#E69F00", "-", "s"),
}
"""Names of the methods, how the paper writes them, and how their curves are drawn.

The colours are those of Okabe and Ito (2008), which people with any kind of colour vision can tell apart; the dashes
tell the lines apart in grey print.
"""

TITLES = {name: style.title for name, style in STYLES.items()}
"""Names of the methods, and how the paper writes them."""


INPUT_NOISE: dict[str, Callable[[float], InputPrior]] = {"gaussian": Gaussian, "uniform": Uniform, "radial": Radial}
"""Input priors by the name that the settings give them."""


def split_name(name: str) -> tuple[str, str]:
    """The method and the variant in ``NAME@VARIANT``.

    A variant is a score by which labels are drawn in place of the method's own, or one of
    `ncprior.core.settings.ABLATIONS`.
    """
    base, _, variant = name.partition("@")
    return base, variant


def title(name: str) -> str:
    """How a method is written in figures. Other names are returned unchanged.

    >>> title("bbb+ncp@reverse")
    'BBB+NCP, reverse KL'
    """
    return method_style(name).title


def method_style(name: str) -> Style:
    """How ``NAME`` or ``NAME@VARIANT`` is written and drawn; dotted with another score than the method's own."""
    base, variant = split_name(name)
    base_style = STYLES.get(base, Style(base))
    if not variant:
        return base_style
    if variant in ABLATIONS:
        style = ABLATIONS[variant].style
        return style._replace(title=f"{base_style.title}, {style.title}")
    return base_style._replace(title=f"{base_style.title}, {style_of(variant, SCORES).title} labels", dash=":")


_BLEND_NOISE = 0.1
"""Noise of the released code's classifier where it is sure that an input is out of distribution."""


@dataclass(frozen=True)
class Method:
    """How to build, train and use a network. `methods` makes those of the paper; any other works the same way.

    Attributes:
        name: Name in records and messages.
        init: ``init(inputs, outputs, key=...)`` makes a network.
        objective: The weighted terms that training minimises.
        predict: Turns the outputs of the heads for one example into a prediction.
        acquisition: How rows are chosen for labelling.
        input_prior: Makes the noised inputs; None for methods without NCP.
    """

    name: str
    init: Callable[..., Network]
    objective: Objective
    predict: Callable[[dict[str, PyTree[Array]]], Predictive]
    acquisition: Acquisition = field(default_factory=Acquisition)
    input_prior: InputPrior | None = None

    def loss(self, network: Network, batch: Batch, *, key: PRNGKeyArray) -> tuple[Scalar, dict[str, Scalar]]:
        """The loss of a mini batch, and the value of every term by name."""
        return total(self.objective, View.of(network, batch, self.input_prior, key=key))

    def __call__(self, network: Network, inputs: Float[Array, "rows inputs"]) -> Predictive:
        """The prediction for rows ``[rows, inputs]``."""
        return jax.vmap(self.predict)(network.predict(inputs))


def methods(settings: Settings = PAPER, trunk: Callable[..., Trunk] | None = None) -> dict[str, Method]:
    """The paper's four models and the point-estimate form of NCP, by name, with these settings.

    ``trunk(inputs, key=...)``, if given, makes a trunk that replaces the hidden layers.

    >>> list(methods())
    ['det', 'det+ncp', 'bbb', 'bbb+ncp', 'odc+ncp']
    """
    s = settings
    noise = INPUT_NOISE[s.input_noise](s.input_noise_std)
    prior = OutputPrior(s.output_std, s.output_centre, s.direction)
    mixture = s.odc_prediction == "mixture"
    by_gain, by_proxy = acquire_by("information_gain", s), acquire_by(s.det_score, s)
    by_ood = acquire_by("ood_information_gain", s) if mixture else by_gain
    nll = Weighted(1.0, NLL(s.expectation))

    det = {"nll": nll}
    det_ncp = {"nll": nll, "ncp": ncp(s, s.gamma, PredictiveNCP(prior))}
    bbb = {"nll": nll, "weight_kl": Weighted(s.weight_kl, WeightKL(s.weight_prior_std))}
    bbb_ncp = bayesian_ncp(s, nll.term, MeanNCP(prior))
    odc_ncp = {
        "nll": nll,
        "in_distribution": Weighted(1.0, InDistribution()),
        "ncp": Weighted(1.0, OutOfDistribution()),
    }
    if s.odc_noised_nll:
        odc_ncp["noised_nll"] = Weighted(1.0, NoisedNLL())
    odc_predict = (lambda o: predict_mixture(o, prior)) if mixture else predict_blend

    point, bayes = make_init(s, trunk=trunk), make_init(s, belief=True, trunk=trunk)
    classifier = make_init(s, ood=True, trunk=trunk)
    table = [
        Method("det", point, det, predict_normal, by_proxy),
        Method("det+ncp", point, det_ncp, predict_normal, by_proxy, noise),
        Method("bbb", bayes, bbb, predict_normal, by_gain),
        Method("bbb+ncp", bayes, bbb_ncp, predict_normal, by_gain, noise),
        Method("odc+ncp", classifier, odc_ncp, odc_predict, by_ood, noise),
    ]
    return {method.name: method for method in table}


def ncp(settings: Settings, weight: float, term: Term) -> Weighted:
    """A term at noised inputs with its weight; settings may limit it to rows away from the data or let it fade."""
    term = AwayFromData(term) if settings.ncp_away else term
    return Weighted(weight, FadesWithLabels(term) if settings.gamma_per_label else term)


def bayesian_ncp(settings: Settings, nll: Term, mean_ncp: Term) -> Objective:
    """The objective of BBB+NCP and deep+ncp: likelihood and NCP, and the terms that the settings add."""
    s = settings
    objective = {"nll": Weighted(1.0, nll), "ncp": ncp(s, s.gamma, mean_ncp)}
    if s.noise_prior_std is not None:
        objective["noise_ncp"] = ncp(s, s.gamma, NoiseNCP(s.noise_prior_std))
    if s.noise_tie:
        objective["noise_tie"] = ncp(s, s.noise_tie, NoiseTie())
    if s.ncp_weight_kl:
        objective["weight_kl"] = Weighted(s.ncp_weight_kl, WeightKL(s.weight_prior_std))
    return objective


def acquire_by(score: str, settings: Settings) -> Acquisition:
    """Acquisition by the score of this name; ``gain_exponent`` applies to information gains only."""
    exponent = settings.gain_exponent if score.endswith("information_gain") else 1.0
    return Acquisition(SCORES[score].function, exponent, settings.temperature, settings.draw)


def activation_of(settings: Settings) -> Activation:
    """What follows each hidden layer."""
    return GELU() if settings.activation == "gelu" else LeakyReLU(settings.leaky_slope)


def make_init(
    settings: Settings, *, belief: bool = False, ood: bool = False, trunk: Callable[..., Trunk] | None = None
) -> Callable[..., Network]:
    """A function that makes networks with the trunk of the settings.

    Args:
        settings: Sizes and initial values.
        belief: Whether the output layer of the mean has a belief over its weights.
        ood: Whether there is a head ``ood``.
        trunk: ``trunk(inputs, key=...)`` makes a trunk that replaces the hidden layers.
    """
    s = settings

    def init(inputs: int, outputs: int, *, key: PRNGKeyArray) -> Network:
        keys = jax.random.split(key, 4)
        if trunk is None:
            body: Trunk = MLP.init(inputs, s.hidden, activation=activation_of(s), key=keys[0])
        else:
            body = trunk(inputs, key=keys[0])
        size = jax.eval_shape(body, jnp.zeros(inputs)).shape[0]
        heads: Heads = {"noise": Noise.init(size, outputs, floor=s.noise_floor, key=keys[2])}
        if belief:
            heads["mean"] = BayesianMean.init(size, outputs, std=s.belief_std, bias_belief=s.bias_belief, key=keys[1])
        else:
            heads["mean"] = PointMean.init(size, outputs, key=keys[1])
        if ood:
            heads["ood"] = Ood.init(size, outputs, key=keys[3])
        return Network(body, heads)

    return init


def predict_normal(outputs: dict[str, PyTree[Array]]) -> Prediction:
    """A normal prediction: uncertainty is the std of the belief over the mean, noise comes from its head."""
    mean: Normal = outputs["mean"]
    return Prediction(jnp.asarray(mean.mean), outputs["noise"], jnp.asarray(mean.std))


def predict_mixture(outputs: dict[str, PyTree[Array]], prior: OutputPrior) -> MixturePrediction:
    """A mixture of the network's normal, if in distribution, and the output prior, if not (Equation 8).

    There is no target when predicting: an output prior centred at the target is centred at the network's mean, like one
    centred at the prediction.
    """
    mean: Normal = outputs["mean"]
    ood: Bernoulli = outputs["ood"]
    inside = jnp.asarray(mean.mean)
    outside = prior(inside, inside)
    zeros = jnp.zeros_like(inside)

    def parts(first: Float[Array, "outputs"], second: Float[ArrayLike, "*outputs"]) -> Float[Array, "outputs 2"]:
        return jnp.stack([first, jnp.broadcast_to(jnp.asarray(second), first.shape)], axis=-1)

    weights = parts(jax.nn.sigmoid(-jnp.asarray(ood.logit)), ood.probability)
    noise = parts(outputs["noise"], zeros)
    uncertainty = parts(jnp.asarray(mean.std), outside.std)
    return MixturePrediction(weights, Prediction(parts(inside, outside.mean), noise, uncertainty))


def predict_blend(outputs: dict[str, PyTree[Array]]) -> Prediction:
    """Prediction of the released code's classifier: uncertainty ``pi``, noise ``(1 - pi) noise + 0.1 pi``."""
    mean: Normal = outputs["mean"]
    pi = outputs["ood"].probability
    return Prediction(jnp.asarray(mean.mean), (1 - pi) * outputs["noise"] + pi * _BLEND_NOISE, pi)
