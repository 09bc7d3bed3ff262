"""Runs the same splits through ncprior and the alternatives, and makes the table.

    python -m benchmarks.alternatives --data FOLDER_OF_CSV --split gap --out gap.jsonl

Every result is a line of the output file as soon as it is there, so that ``--resume`` goes on after an interruption;
the table is printed and written beside it as Markdown. Without ``--data`` it runs on scikit-learn's diabetes table.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.alternatives import report
from benchmarks.alternatives.check import check
from benchmarks.alternatives.methods import METHODS, Method, chosen
from benchmarks.alternatives.metrics import scores
from benchmarks.alternatives.tables import Split, Table, load, split


class Job(NamedTuple):
    """One fit: a method, on a split of a table, with a seed."""

    table: Table
    kind: str
    split: Split
    seed: int
    method: Method

    def record(self) -> report.Record:
        """What the result is filed under."""
        return {
            "set": self.table.name,
            "kind": self.kind,
            "split": self.split.name,
            "seed": self.seed,
            "method": self.method.name,
            "rows": len(self.split.train),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with CSV files of numbers; default: scikit-learn's diabetes")
    parser.add_argument("--sets", type=_names, help="names of the files without .csv, by commas; default: all")
    parser.add_argument("--target", default="y", help="column to predict (%(default)s)")
    parser.add_argument("--methods", type=_names, help=f"by commas, from {','.join(METHODS)}; default: all")
    parser.add_argument("--split", choices=("gap", "random"), default="gap", help="(%(default)s)")
    parser.add_argument("--splits", type=int, help="only the first so many splits of each table")
    parser.add_argument("--seeds", type=int, default=3, help="training seeds for each split (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("alternatives.jsonl"), help="(%(default)s)")
    parser.add_argument("--resume", action="store_true", help="go on with --out and leave out what it holds")
    parser.add_argument("--table", action="store_true", help="make the table of what --out holds, and run nothing")
    parser.add_argument("--check", action="store_true", help="try every method on a small made-up table, and stop")
    arguments = parser.parse_args()
    if arguments.check:
        sys.exit(not check(chosen(arguments.methods)))
    if not arguments.table:
        run(arguments)
    records = report.read(arguments.out)
    kinds = sorted({record["kind"] for record in records})
    arguments.out.with_suffix(".md").write_text(report.markdown(records, f"Alternatives, {' and '.join(kinds)} splits"))
    report.show(records)
    print(f"written to {arguments.out} and {arguments.out.with_suffix('.md')}")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def run(arguments: argparse.Namespace) -> None:
    """Runs every job that the output file does not hold yet, and appends its result."""
    out: Path = arguments.out
    if out.exists() and not arguments.resume:
        raise SystemExit(f"{out} exists; give --resume to go on with it, or another --out")
    old = report.read(out) if out.exists() else []
    if any(record["kind"] != arguments.split for record in old):
        raise SystemExit(f"{out} holds splits of another kind; give another --out")
    done = {report.key(record) for record in old if "error" not in record}
    todo = [job for job in jobs(arguments) if report.key(job.record()) not in done]
    out.parent.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    with out.open("a") as file:
        if old and not out.read_text().endswith("\n"):
            file.write("\n")
        for i, job in enumerate(todo):
            record = fit(job)
            file.write(json.dumps(record) + "\n")
            file.flush()
            _tell(record, i + 1, len(todo), time.perf_counter() - start)


def jobs(arguments: argparse.Namespace) -> Iterator[Job]:
    """All fits, split by split, so that methods can be compared at any time."""
    methods = chosen(arguments.methods)
    for table in load(arguments.data, arguments.sets, arguments.target):
        for part in split(table, arguments.split, arguments.splits):
            for seed in range(arguments.seeds):
                for method in methods:
                    small = method.most_rows is None or len(part.train) <= method.most_rows
                    if small and (method.seeded or seed == 0):
                        yield Job(table, arguments.split, part, seed, method)


def fit(job: Job) -> report.Record:
    """Trains on the training rows only, predicts the test rows, and scores the predictions."""
    inputs, targets = job.table.inputs, job.table.targets
    record = job.record()
    start = time.perf_counter()
    try:
        predict = job.method.fit(inputs[job.split.train], targets[job.split.train], job.seed)
        record["seconds"] = round(time.perf_counter() - start, 3)
        reached = scores(predict(inputs[job.split.test]), targets[job.split.test])
    except Exception as error:  # one fit that fails is a line of the table, not the end of the run
        return record | {"error": f"{type(error).__name__}: {error}"}
    if not all(np.isfinite(value) for value in reached.values()):
        return record | {"error": f"not finite: {reached}"}
    return record | reached


def _tell(record: report.Record, number: int, jobs: int, passed: float) -> None:
    left = passed / number * (jobs - number)
    where = f"{record['set']}, {record['split']}, seed {record['seed']}, {record['method']}"
    result = record.get("error") or f"log likelihood {record['log_likelihood']:.3f}, {record['seconds']:.1f} s"
    print(f"{number}/{jobs} {where}: {result}; about {left / 60:.0f} min left", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
