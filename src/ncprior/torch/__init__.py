"""Noise contrastive priors for PyTorch modules: ``pip install "ncprior[torch]"``.

The maths are those of `ncprior.core`, term by term. What needs JAX is imported when it is first used, so that a
training loop, and the processes that load its data, run without it.
"""

import importlib.util

if importlib.util.find_spec("torch") is None:
    raise ImportError('ncprior.torch needs PyTorch, which is not installed: pip install "ncprior[torch]"')

from ncprior.torch.distributions import Normal
from ncprior.torch.input_priors import (
    DataShaped,
    FlipCategories,
    FromPool,
    Gaussian,
    NoisedShare,
    PerColumn,
    Radial,
    Uniform,
)
from ncprior.torch.layers import BayesianLinear, MCDropout
from ncprior.torch.losses import NCPLoss, OODLoss
from ncprior.torch.output_priors import OutputPrior
from ncprior.torch.predictions import Mixture, Prediction, Samples, prediction_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ncprior.torch.acquisition import draw, information_gain, pick, score

__all__ = [
    "BayesianLinear",
    "DataShaped",
    "FlipCategories",
    "FromPool",
    "Gaussian",
    "MCDropout",
    "Mixture",
    "NCPLoss",
    "NoisedShare",
    "Normal",
    "OODLoss",
    "OutputPrior",
    "PerColumn",
    "Prediction",
    "Radial",
    "Samples",
    "Uniform",
    "draw",
    "information_gain",
    "pick",
    "prediction_of",
    "score",
]

_WITH_JAX = ("draw", "information_gain", "pick", "score")


def __getattr__(name: str) -> object:
    """A name whose module needs JAX, imported now."""
    if name not in _WITH_JAX:
        raise AttributeError(f"module 'ncprior.torch' has no attribute {name!r}")
    from ncprior.torch import acquisition

    return getattr(acquisition, name)


def __dir__() -> list[str]:
    """The public names, for completion."""
    return sorted(__all__)
