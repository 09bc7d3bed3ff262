"""Which settings have an effect on which method, so that those without one can be refused."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import NamedTuple

from ncprior.core.settings import Settings

TRAINING = frozenset({"learning_rate", "batch_size", "clip", "epsilon_hat", "remainder"})
"""Settings of the training of every method, also of one's own."""
_NETWORK = {"trunk", "hidden", "activation", "leaky_slope", "noise_floor"}
_BELIEF = {"belief_std", "bias_belief", "expectation", "weight_prior_std"}
_NOISE = {"input_noise", "input_noise_std"}
_OUTPUT_PRIOR = {"output_std", "output_centre"}
_NOISED_TERMS = {"gamma_per_label", "ncp_away"} | _NOISE
_GAMMA_TERMS = {"direction", "noise_prior_std"} | _OUTPUT_PRIOR
_NCP = {"gamma", "direction"} | _NOISED_TERMS | _OUTPUT_PRIOR
_MEAN_NCP = {"ncp_weight_kl", "noise_tie", "noise_prior_std"} | _NCP

USED: dict[str, frozenset[str]] = {
    "det": TRAINING | _NETWORK,
    "det+ncp": TRAINING | _NETWORK | _NCP,
    "bbb": TRAINING | _NETWORK | _BELIEF | {"weight_kl"},
    "bbb+ncp": TRAINING | _NETWORK | _BELIEF | _MEAN_NCP,
    "ncp": TRAINING | _NETWORK | _NOISE | {"gamma", "output_std"},
    "odc+ncp": TRAINING | _NETWORK | _NOISE | _OUTPUT_PRIOR | {"odc_noised_nll", "odc_prediction"},
    "deep+ncp": TRAINING | _NETWORK | _BELIEF | _MEAN_NCP,
}
"""Settings that change what a method learns or predicts, and whether it takes a trunk. ``ncp`` is the estimator's."""


def why_idle(setting: str, method: str, settings: Settings) -> str | None:
    """What keeps a setting from changing what a method learns or predicts; None if it does.

    >>> why_idle("gamma", "det", Settings())
    "method 'det'"
    >>> why_idle("output_std", "bbb+ncp", Settings(gamma=0.0))
    'gamma 0'
    """
    used = USED[method]
    if setting not in used:
        return f"method {method!r}"
    if setting == "leaky_slope" and settings.activation != "leaky_relu":
        return f"activation {settings.activation!r}"
    # The noise tie is a term at noised inputs too.
    tied = "noise_tie" in used and settings.noise_tie
    if setting in _GAMMA_TERMS | (set() if tied else _NOISED_TERMS) and "gamma" in used and settings.gamma == 0:
        return "gamma 0"
    if setting in _OUTPUT_PRIOR and method == "odc+ncp" and settings.odc_prediction == "blend":
        return "odc_prediction 'blend'"
    weight = "ncp_weight_kl" if "ncp" in method else "weight_kl"
    return f"{weight} 0" if setting == "weight_prior_std" and not getattr(settings, weight) else None


OF_CHOICE = frozenset({"det_score", "gain_exponent", "temperature", "draw"})
"""Settings of active learning: how rows are chosen."""


def why_idle_in_choice(setting: str, method: str, score: str | None, settings: Settings) -> str | None:
    """What keeps one of `OF_CHOICE` from changing which rows a method chooses, by a score that is not its own or None.

    >>> why_idle_in_choice("gain_exponent", "bbb", "random", Settings())
    "labels by 'random'"
    """
    by = score or (settings.det_score if method in ("det", "det+ncp") else "information_gain")
    idle = {
        "det_score": score is not None or by != settings.det_score,
        "gain_exponent": not by.endswith("information_gain"),
        "temperature": by == "random",
    }
    if idle.get(setting):
        return f"labels by {by!r}"
    return "draw 'greedy'" if setting in ("temperature", "gain_exponent") and settings.draw == "greedy" else None


class Learned(NamedTuple):
    """What learns in an experiment: a method by its name, with settings, and a score that replaces its own."""

    method: str
    settings: Settings
    score: str | None = None

    def why_idle(self, setting: str) -> str | None:
        """What keeps a setting from having an effect; None if it has one."""
        if setting in OF_CHOICE:
            return why_idle_in_choice(setting, self.method, self.score, self.settings)
        return why_idle(setting, self.method, self.settings)


def why_same(pairs: Iterable[tuple[Learned, Learned]]) -> str | None:
    """Why the first of each pair learns the same as the second, whose settings differ; None if one does not.

    >>> why_same([(Learned("det", Settings(gamma=3.0)), Learned("det", Settings()))])
    "method 'det'"
    """
    reasons: dict[str, None] = {}
    for one, other in pairs:
        for name, value in asdict(one.settings).items():
            if value == getattr(other.settings, name):
                continue
            why = one.why_idle(name)
            if why is None:
                return None
            reasons[why] = None
    return " and ".join(reasons) or "these methods"
