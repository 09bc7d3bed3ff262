"""Large tables: rate and memory of ``ncprior predict``, ``suggest`` and ``fit``, against the machine's multiply rate.

    python -m benchmarks.pools --rows 1000000 --folder /tmp/pools
    python -m benchmarks.pools --rows 1000000 100000000 --folder /tmp/pools --commands fit
    python -m benchmarks.pools --rows 2000 --columns 3000 --folder /tmp/pools --commands fit

``fit`` reads a folder of files with a million rows each, and is measured beside reading them alone.

Rates are by seconds of CPU, as those of the multiplies, so that a busy machine changes them little. Tables are written
piece by piece, and a table that is there already is not written again.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.speed import make_probe, median

COLUMNS, GROUP = 8, 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--commands", nargs="+", default=["predict", "suggest"])
    parser.add_argument("--columns", type=int, default=COLUMNS, help="of tables that are learned from")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for rows in options.rows:
        for command in options.commands:
            if command == "fit":
                found = measure_fit(make_training_table(options.folder, rows, options.columns))
            else:
                model = make_model(options.folder)
                table = make_table(options.folder / f"pool-{rows}.parquet", rows)
                found = measure(command, model, table, rows)
            print(json.dumps({"rows": rows, "command": command, **found}), flush=True)


def piece(rows: int, seed: int, columns: int = COLUMNS) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, columns)).astype(np.float32)


def make_model(folder: Path) -> Path:
    from ncprior.tables.estimator import NCPRegressor

    path = folder / "model.ncp"
    if not path.exists():
        inputs = piece(10_000, 0)
        table = pa.table({f"x{i}": column for i, column in enumerate(inputs.T)})
        NCPRegressor(epochs=2, random_state=0).fit(table, np.sin(inputs).sum(1)).save(path)
    return path


def make_table(path: Path, rows: int) -> Path:
    if path.exists():
        return path
    draft = path.with_suffix(".draft")
    writer = None
    for number, start in enumerate(range(0, rows, GROUP)):
        inputs = piece(min(GROUP, rows - start), number + 1)
        columns = {f"x{i}": column for i, column in enumerate(inputs.T)}
        part = pa.table({"id": np.arange(start, start + len(inputs)), **columns})
        writer = writer or pq.ParquetWriter(draft, part.schema)
        writer.write_table(part)
    assert writer is not None
    writer.close()
    draft.rename(path)
    return path


def make_training_table(place: Path, rows: int, columns: int) -> Path:
    folder = place / f"table-{rows}-{columns}"
    folder.mkdir(exist_ok=True)
    for number, start in enumerate(range(0, rows, GROUP)):
        path = folder / f"{number:05d}.parquet"
        if path.exists():
            continue
        inputs = piece(min(GROUP, rows - start), number + 1, columns)
        noise = np.random.default_rng([number, 1]).normal(size=len(inputs))
        named = {f"x{i}": column for i, column in enumerate(inputs.T)}
        target = (np.sin(2 * inputs[:, :COLUMNS]).sum(1) + 0.3 * noise).astype(np.float32)
        draft = path.with_suffix(".draft")
        pq.write_table(pa.table({**named, "y": target}), draft)
        draft.rename(path)
    return folder


def measure_fit(folder: Path) -> dict[str, Any]:
    out = folder.with_suffix(".ncp")
    arguments = [sys.executable, "-m", "ncprior", "fit", str(folder), "--target", "y", "--out", str(out), "--force"]
    read = (
        f"from ncprior.data import table_files\nfor piece in table_files.stream({str(folder)!r}, None, 1 << 20): pass"
    )
    alone = run([sys.executable, "-c", read])
    whole = run([*arguments, "--json"])
    summary = json.loads(whole.printed)
    return {
        "seconds": round(whole.seconds, 1),
        "reading_alone_seconds": round(alone.seconds, 1),
        "training_seconds": round(summary["seconds"], 1),
        "cpu_seconds": round(whole.cpu, 1),
        "peak_mb": round(whole.peak_mb),
        "rows_kept": summary["rows"],
        "steps": max(summary["steps"]),
        "rmse": summary["held_out"]["rmse"],
        "load": round(os.getloadavg()[0], 1),
    }


class Run(NamedTuple):
    """What a process printed and took."""

    printed: str
    seconds: float
    cpu: float
    peak_mb: float


def run(arguments: list[str]) -> Run:
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    printed = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0, arguments
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(printed, time.monotonic() - started, cpu, used.ru_maxrss / 1024)


def flops_of_a_row(model: Path) -> int:
    """Multiplies and additions of the layers of all members and contrast networks; everything else is overhead.

    Members without quantile features leave out the part of their first layer that would read these.
    """
    import jax

    from ncprior.tables.estimator import NCPRegressor

    fitted = NCPRegressor.load(model).fitted_
    assert fitted.contrast is not None
    trunks: list[Any] = [fitted.weights.trunk, fitted.contrast.weights.trunk]
    features = trunks[0].features
    networks = [trunk.trunk for trunk in trunks], fitted.weights.heads, fitted.contrast.weights.heads
    kernels = sum(leaf.size for leaf in jax.tree.leaves(networks) if leaf.ndim == 3)  # members, inputs, outputs
    unused = np.count_nonzero(features.quantile_scale == 0) * features.lower[0].size * fitted.spec.settings.hidden[0]
    return int(2 * (kernels - unused))


def measure(command: str, model: Path, table: Path, rows: int) -> dict[str, Any]:
    out = table.with_suffix(f".{command}.out.parquet")
    how = {"predict": [], "suggest": ["-n", "20", "--id", "id"]}[command]
    arguments = [sys.executable, "-m", "ncprior", command, str(model), str(table), *how, "--out", str(out), "--force"]
    probe = make_probe()
    rates = [probe() for _ in range(3)]
    whole = run([*arguments, "--json"])
    rates += [probe() for _ in range(3)]
    gflops = flops_of_a_row(model) * rows / whole.cpu / 1e9
    return {
        "seconds": round(whole.seconds, 1),
        "cpu_seconds": round(whole.cpu, 1),
        "rows_per_cpu_second": round(rows / whole.cpu),
        "peak_mb": round(whole.peak_mb),
        "share_of_multiply_rate": round(gflops / median(rates), 3),
        "probe_gflops": round(median(rates), 1),
        "load": round(os.getloadavg()[0], 1),
    }


if __name__ == "__main__":
    main()
