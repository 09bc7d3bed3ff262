"""How a run differs from the paper's experiment: quick runs, fewer seeds, changed settings.

A page says so above its verdicts, as they are then about this run and not about the paper.
"""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from ncprior.core.active import Schedule
from ncprior.core.settings import FLIGHTS_PRESETS, PRESETS, Settings
from ncprior.experiments.paper import ablations, flights, regression, robustness, toy
from ncprior.experiments.records import Records
from ncprior.report.sections import plain


class Experiment(NamedTuple):
    """An active learning experiment: schedules of the full and the quick version, seeds and presets of the full one."""

    schedule: Schedule
    quick: Schedule
    seeds: int
    presets: Mapping[str, Settings]


_TOY = Experiment(toy.SCHEDULE, toy.QUICK, toy.SEEDS, PRESETS)
_FLIGHTS = Experiment(flights.SCHEDULE, flights.QUICK, flights.SEEDS, FLIGHTS_PRESETS)
EXPERIMENTS = {
    toy.NAME: _TOY,
    ablations.NAME: _TOY,
    flights.NAME: _FLIGHTS,
    robustness.NAMES["toy"]: _TOY._replace(seeds=robustness.SEEDS),
    robustness.NAMES["flights"]: _FLIGHTS._replace(seeds=robustness.SEEDS),
}


def active_learning_note(records: Records) -> str:
    """A sentence on how a run of active learning differs from the paper's; empty if it does not."""
    config, experiment = records.config, EXPERIMENTS[records.experiment]
    changed = _changed(config["schedule"], dataclasses.asdict(experiment.schedule))
    changed += _changed(config["settings"], dataclasses.asdict(experiment.presets[config["preset"]]))
    if config.get("acquisition"):
        changed.append(f"labels by {config['acquisition'].replace('_', ' ')}")
    changed += _fewer_seeds(config["seeds"], experiment.seeds)
    return _note(config["schedule"] == dataclasses.asdict(experiment.quick), changed)


def regression_note(records: Records) -> str:
    """A sentence on how a run of the regression on all rows differs from the paper's; empty if it does not."""
    config = records.config
    paper = dataclasses.asdict(regression.configure(preset=config["preset"]))
    changed = _changed(config, {name: paper[name] for name in ("recipe", "rows", "times")})
    for part in ("schedule", "settings"):
        changed += _changed(config[part], paper[part])
    changed += _fewer_seeds(config["seeds"], regression.SEEDS)
    return _note(config["rows"] is not None, changed)


def quick_note(config: Mapping[str, object], quick: Mapping[str, object], estimator: Mapping[str, object]) -> str:
    """A sentence that says so if a run of ``evaluate`` or ``simulate`` is a quick one; otherwise empty.

    Args:
        config: The configuration of the run.
        quick: What ``--quick`` changes in the configuration.
        estimator: Arguments of the estimator that ``--quick`` changes.
    """
    arguments = config["estimator"]
    assert isinstance(arguments, Mapping)
    given = {**config, **arguments}
    if any(given.get(name) != value for name, value in {**quick, **estimator}.items()):
        return ""
    listed = ", ".join(f"{name} {value}" for name, value in {**quick, **estimator}.items())
    return f"This is a quick run ({listed}): run it without --quick for numbers to rely on."


def _note(quick: bool, changed: list[str]) -> str:
    if not changed:
        return ""
    begin = "This is a quick run" if quick else "This run is not the paper's experiment"
    return f"{begin} ({', '.join(changed)}). The verdicts below are about this run, not about the paper."


def _fewer_seeds(seeds: int, paper: int) -> list[str]:
    return [f"seeds {seeds} instead of {paper}"] if seeds < paper else []


def _words(value: object) -> str:
    """A value of a configuration, lists and tuples alike."""
    return " x ".join(map(plain, value)) if isinstance(value, list | tuple) else plain(value)


def _changed(settings: Mapping[str, object], paper: Mapping[str, object]) -> list[str]:
    """Values that differ from the paper's, as words. Names that the run has not recorded are passed over."""
    return [
        f"{name.replace('_', ' ')} {_words(settings[name])} instead of {'all' if value is None else _words(value)}"
        for name, value in paper.items()
        if name in settings
        and settings[name] != (list(value) if isinstance(value, tuple) else value)  # JSON has no tuples
    ]
