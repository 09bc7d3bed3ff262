"""Variants of BBB+NCP on the 1-dimensional data that, by the paper, make no difference.

They are the other direction of the KL divergence (appendix B), and a normal prior on the weights in addition to NCP
(Section 2).
"""

from ncprior.core.settings import ABLATIONS
from ncprior.experiments.paper import toy
from ncprior.experiments.paper.learning_curves import Config

NAME = "ablations"
METHODS = ("bbb+ncp", *(f"bbb+ncp@{name}" for name in ABLATIONS))
"""BBB+NCP and its variants."""


def configure(preset: str = "reference", seeds: int | None = None, *, quick: bool = False) -> Config:
    """The configuration of `ncprior.experiments.paper.toy`, with the variants as methods."""
    return toy.configure(preset, METHODS, seeds, quick=quick)
