"""What the paper says makes no difference to BBB+NCP, tried on the 1-dimensional data.

The direction of the KL divergence (appendix B), and a normal prior on the weights beside NCP (Section 2).
"""

from ncprior.core.settings import ABLATIONS
from ncprior.experiments.paper import toy
from ncprior.experiments.paper.learning_curves import Config

NAME = "ablations"
METHODS = ("bbb+ncp", *(f"bbb+ncp@{name}" for name in ABLATIONS))


def configure(preset: str = "reference", seeds: int | None = None, *, quick: bool = False) -> Config:
    """The configuration of `ncprior.experiments.paper.toy` with the variants as its methods."""
    return toy.configure(preset, METHODS, seeds, quick=quick)
