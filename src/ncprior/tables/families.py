"""Families of members: smooth ones are careful away from the data, sharp ones are more exact on it."""

import dataclasses
from typing import Literal, NamedTuple

import numpy as np

from ncprior.tables.holdout import Stopping


class Family(NamedTuple):
    """Members that have the same input features, and are stopped and calibrated together."""

    name: Literal["smooth", "sharp"]
    members: np.ndarray  # their indices in the ensemble
    stopping: Stopping  # when to stop their training


def families(members: int, *, quantiles: bool, stopping: Stopping | None = None) -> tuple[Family, ...]:
    """The families of an ensemble of so many members.

    Args:
        members: Their number.
        quantiles: Whether members can have quantile features. If so, every second member has them: these are sharp.
            Smooth and sharp members alternate, so that an ensemble of any size has both.
        stopping: When to stop smooth members. Sharp ones are scored by random rows alone, mostly by their mixture.

    Returns:
        The smooth family and, if it has members, the sharp one.

    >>> [(family.name, family.members.tolist()) for family in families(5, quantiles=True)]
    [('smooth', [0, 2, 4]), ('sharp', [1, 3])]
    """
    stopping = Stopping() if stopping is None else stopping
    everyone = np.arange(members)
    if not quantiles or members < 2:
        return (Family("smooth", everyone, stopping),)
    of_sharp = dataclasses.replace(stopping, gap_share=0.0, together=0.75)
    return Family("smooth", everyone[::2], stopping), Family("sharp", everyone[1::2], of_sharp)
