"""The paper's 1-dimensional active learning experiment (Section 5.1): Figures 1 and 3."""

from collections.abc import Callable

import jax
import numpy as np

from ncprior.core.active import Schedule, Simulation
from ncprior.core.prediction import gather
from ncprior.core.settings import PRESETS
from ncprior.core.training import Learner
from ncprior.data import toy
from ncprior.engines.engine import Engine
from ncprior.experiments.paper.learning_curves import DEFAULT_METHODS, Config, Progress, run
from ncprior.experiments.records import Records

NAME = "toy"

SCHEDULE = Schedule(epochs=50_000, initial=10, select=1, select_every=1_000, evaluate_every=500)
"""10 labels, one more every 1,000 of 50,000 epochs; evaluated every 500 epochs, as in the released code."""

QUICK = Schedule(epochs=10_000, initial=10, select=1, select_every=200, evaluate_every=100)
"""The same 59 labels in a fifth of the epochs."""
SEEDS, QUICK_SEEDS = 20, 5


def configure(
    preset: str = "reference",
    methods: tuple[str, ...] = DEFAULT_METHODS,
    seeds: int | None = None,
    acquisition: str | None = None,
    *,
    quick: bool = False,
) -> Config:
    """The configuration of the experiment or, with ``quick``, of a shorter version.

    Args:
        preset: Name of the settings; see `ncprior.core.settings.PRESETS`.
        methods: Names of the methods to run.
        seeds: Number of seeds; None for the default.
        acquisition: A score for every method; None for each method's own.
        quick: Whether to run the shorter version.
    """
    seeds = seeds if seeds is not None else QUICK_SEEDS if quick else SEEDS
    return Config(preset, PRESETS[preset], QUICK if quick else SCHEDULE, methods, seeds, acquisition)


def experiment(
    config: Config,
    records: Records,
    show: Callable[[Progress], None] = lambda _: None,
    engine: Engine | None = None,
) -> None:
    """Run the methods that have not been recorded yet.

    Args:
        config: The configuration.
        records: Where results are recorded.
        show: Called with the progress at every evaluation.
        engine: Runs tasks of a few seeds each; None for this process.
    """
    data = toy.load()
    records.write_table(
        "data.parquet",
        {
            "x": np.concatenate([data.train_inputs[:, 0], data.test_inputs[:, 0]]),
            "y": np.concatenate([data.train_targets[:, 0], data.test_targets[:, 0]]),
            "train": np.repeat([True, False], [len(data.train_inputs), len(data.test_inputs)]),
        },
    )

    def record_curves(simulation: Simulation, learners: Learner, name: str) -> None:
        x = np.linspace(*toy.DOMAIN, 601, dtype=np.float32)
        prediction = simulation.predict(learners, x[:, None])
        score = jax.vmap(simulation.trainer.method.acquisition.score)(prediction)
        plain = jax.tree.map(lambda leaf: leaf[..., 0].ravel(), gather(prediction))
        records.write_table(
            f"curves/{name}.parquet",
            {
                "seed": np.repeat(simulation.seeds, len(x)),
                "x": np.tile(x, len(simulation.seeds)),
                **{field: getattr(plain, field) for field in ("mean", "noise", "uncertainty")},
                "score": np.asarray(score).ravel(),
            },
        )

    run(config, data, records, evaluate_unseen=True, show=show, finish=record_curves, engine=engine)
