"""The paper's active learning experiment on flight delays (Section 5.2): Figure 4."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ncprior.core.active import Schedule
from ncprior.core.settings import FLIGHTS_PRESETS
from ncprior.data import flights
from ncprior.data.dataset import Dataset
from ncprior.experiments.paper.learning_curves import DEFAULT_METHODS, Config, Progress, run
from ncprior.experiments.records import Records

NAME = "flights"

SCHEDULE = Schedule(epochs=2_000, initial=10, select=10, select_every=50, evaluate_every=50)
"""10 labels, 10 more every 50 epochs; 2,000 epochs, evaluated every 50 as in the released code."""

QUICK = Schedule(epochs=1_000, initial=10, select=10, select_every=50, evaluate_every=50)
"""Half of the labels."""
SEEDS, QUICK_SEEDS = 10, 5

CONTROL = "bbb+ncp@random"
"""Always drawn beside the others: labels that no model has chosen."""


@dataclass(frozen=True)
class Source:
    """Where the flights come from and how they are split; see `ncprior.data.flights.load`."""

    source: str = "nyc2013"
    paths: tuple[str, ...] = ()
    split: str = "temporal"
    planes: str | None = None

    def load(self) -> Dataset:
        """The flights, standardised."""
        return flights.load(self.source, self.paths, split=self.split, planes=self.planes)


def configure(
    data: Source,
    preset: str = "reference",
    methods: Sequence[str] = DEFAULT_METHODS,
    seeds: int | None = None,
    acquisition: str | None = None,
    *,
    quick: bool = False,
) -> Config:
    """The configuration of the experiment, in full or in a quick version."""
    seeds = seeds if seeds is not None else QUICK_SEEDS if quick else SEEDS
    names = tuple(dict.fromkeys((*methods, CONTROL)))
    return Config(preset, FLIGHTS_PRESETS[preset], QUICK if quick else SCHEDULE, names, seeds, acquisition, data)


def experiment(
    config: Config, data: Dataset, records: Records, show: Callable[[Progress], None] = lambda _: None
) -> None:
    """Runs what is not in the records yet."""
    run(config, data, records, show=show)
