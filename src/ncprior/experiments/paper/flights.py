"""The paper's active learning experiment on flight delays (Section 5.2): Figure 4."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ncprior.core.active import Schedule
from ncprior.core.settings import FLIGHTS_PRESETS
from ncprior.data import flights
from ncprior.data.dataset import Dataset
from ncprior.engines.engine import Engine
from ncprior.experiments.paper.learning_curves import DEFAULT_METHODS, Config, Progress, run
from ncprior.experiments.records import Records

NAME = "flights"

SCHEDULE = Schedule(epochs=2_000, initial=10, select=10, select_every=50, evaluate_every=50)
"""10 labels, 10 more every 50 of 2,000 epochs; evaluated every 50 epochs, as in the released code."""

QUICK = Schedule(epochs=1_000, initial=10, select=10, select_every=50, evaluate_every=50)
"""The first half of the schedule."""
SEEDS, QUICK_SEEDS = 10, 5

CONTROL = "bbb+ncp@random"
"""A control that is always run: BBB+NCP with labels drawn at random."""


@dataclass(frozen=True)
class Source:
    """Where the flights come from and how they are split; see `ncprior.data.flights.load`."""

    source: str = "nyc2013"
    paths: tuple[str, ...] = ()
    split: str = "temporal"
    planes: str | None = None

    def load(self) -> Dataset:
        """The flights, standardised.

        Raises:
            UserError: If they cannot be read.
        """
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
    """The configuration of the experiment or, with ``quick``, of a shorter version.

    Args:
        data: Where the flights come from.
        preset: Name of the settings; see `ncprior.core.settings.FLIGHTS_PRESETS`.
        methods: Names of the methods to run, to which the control is added.
        seeds: Number of seeds; None for the default.
        acquisition: A score for every method; None for each method's own.
        quick: Whether to run the shorter version.
    """
    seeds = seeds if seeds is not None else QUICK_SEEDS if quick else SEEDS
    names = tuple(dict.fromkeys((*methods, CONTROL)))
    return Config(preset, FLIGHTS_PRESETS[preset], QUICK if quick else SCHEDULE, names, seeds, acquisition, data)


def experiment(
    config: Config,
    data: Dataset,
    records: Records,
    show: Callable[[Progress], None] = lambda _: None,
    engine: Engine | None = None,
) -> None:
    """Run the methods that have not been recorded yet.

    Args:
        config: The configuration.
        data: The flights.
        records: Where results are recorded.
        show: Called with the progress at every evaluation.
        engine: Runs tasks of a few seeds each; None for this process.
    """
    run(config, data, records, show=show, engine=engine)
