"""Campaigns under load: clients over HTTP and processes on the database, and kills at random moments.

    python -m benchmarks.campaigns load --storage sqlite        # 50 clients, 8 processes, 10,000 asks and tells
    python -m benchmarks.campaigns kill --storage postgresql    # kill -9 of server, worker and clients, 50 times
    python -m benchmarks.campaigns speed                        # ask with 1M rows in the pool and 10,000 labels
    python -m benchmarks.campaigns disk                         # a disk that is full (needs root, for a tmpfs)

Each prints one JSON object. Afterwards the database itself is asked: no row was ever held twice at a time, and every
label that a client was told about is there, once.
"""

import argparse
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import func, select, text

from benchmarks import postgres
from ncprior.campaigns import Campaign, people, schema
from ncprior.campaigns.database import Database
from ncprior.campaigns.times import utc_now
from ncprior.errors import UserError

NAME = "load"


def write_pool(path: Path, rows: int) -> None:
    """A pool with ten columns of numbers."""
    generator = np.random.default_rng(0)
    columns = {f"x{i}": generator.normal(size=rows).astype(np.float32) for i in range(10)}
    pq.write_table(pa.table({"id": [f"row-{i}" for i in range(rows)], **columns}), path)


@contextmanager
def storage_of(kind: str, folder: Path) -> Iterator[str]:
    """The URL of a new storage."""
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'campaign.db'}"
    else:
        with postgres.server() as url:
            yield url.format("postgres")


class Server:
    """`ncprior campaign serve` in a process of its own, which can be killed and started again."""

    def __init__(self, storage: str) -> None:
        self.storage = storage
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        command = [sys.executable, "-m", "ncprior", "campaign", "serve", "--port", str(self.port)]
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen([*command, "--storage", self.storage], stdout=quiet, stderr=quiet)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.1)
        raise TimeoutError("the server did not start")

    def peak_mb(self) -> float:
        """The most memory that it has used."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1e3 for line in lines if line.startswith("VmHWM"))

    def kill(self) -> None:
        """As a power cut does it."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def robot(address: str, token: str, name: str, *, rounds: int, stop: Callable[[], bool]) -> dict[str, Any]:
    """Asks and tells over HTTP, and tries again with the same key when no answer comes."""
    told: dict[str, float] = {}
    seconds: list[float] = []
    generator = random.Random(name)
    with httpx2.Client(base_url=address, headers={"authorization": f"Bearer {token}"}, timeout=120) as client:

        def call(word: str, body: dict[str, Any]) -> dict[str, Any]:
            while True:
                with suppress(httpx2.TransportError):
                    started = time.monotonic()
                    answer = client.post(f"/api/campaigns/{NAME}/{word}", json=body)
                    if answer.status_code == 200:
                        if word == "ask":
                            seconds.append(time.monotonic() - started)
                        return dict(answer.json())
                    if answer.status_code < 500:
                        raise RuntimeError(answer.text)
                time.sleep(0.2)

        for _ in range(rounds):
            if stop():
                break
            for row in call("ask", {"n": 1})["rows"]:
                value = generator.random()
                call("tell", {"id": row["id"], "value": value, "key": f"{name} {row['id']}"})
                told[row["id"]] = value
    return {"told": told, "seconds": seconds}


def processed(storage: str, name: str, rounds: int, out: str) -> None:
    """Asks and tells on the database itself, in a process of its own; notes each label before it is told."""
    campaign = Campaign.open(NAME, storage)
    generator = random.Random(name)
    with Path(out).open("a") as notes:
        for _ in range(rounds):
            for row in campaign.ask(1, person=name).rows:
                value = generator.random()
                campaign.tell(row.id, value, person=name, key=f"{name} {row.id}")
                notes.write(json.dumps([row.id, value]) + "\n")
                notes.flush()


def check(database: Database, told: dict[str, float], *, exactly: bool = True) -> dict[str, int]:
    """Raises unless the database has every label that was told, once, and no row was held twice at a time."""
    lease, label, item = schema.lease, schema.label, schema.item

    def look(connection: Any) -> tuple[list[Any], list[Any]]:
        leases = select(lease.c.item, lease.c.asked_at, lease.c.closed_at).order_by(lease.c.item, lease.c.id)
        labels = select(item.c.row_key, label.c.value).join(item, item.c.id == label.c.item)
        return list(connection.execute(leases)), list(connection.execute(labels))

    leases, labels = database.read(look)
    for before, after in pairwise(leases):
        if before.item == after.item and (before.closed_at is None or before.closed_at > after.asked_at):
            raise AssertionError(f"item {before.item} was held twice")
    kept = {row.row_key: row.value for row in labels}
    if len(kept) != len(labels):
        raise AssertionError("a label is doubled")
    if lost := [row for row, value in told.items() if kept.get(row) != value]:
        raise AssertionError(f"{len(lost)} labels are lost, such as {lost[0]}")
    if exactly and len(kept) != len(told):
        raise AssertionError(f"{len(kept)} labels are kept, and {len(told)} were told")
    return {"leases": len(leases), "labels": len(labels)}


def prepared(storage: str, folder: Path, rows: int, robots: int) -> tuple[Database, list[str]]:
    """A campaign, and tokens of its robots."""
    pool = folder / "pool.parquet"
    if not pool.exists():
        write_pool(pool, rows)
    database = Database(storage, create=True)
    Campaign.create(NAME, pool=pool, id="id", target="y", storage=database, lease="10m")
    names = [f"robot {i}" for i in range(robots)]
    return database, [
        database.write(lambda c, name=name: people.add_token(c, name, "labeller", utc_now()))  # type: ignore[misc]
        for name in names
    ]


def load(kind: str, folder: Path, *, clients: int, processes: int, pairs: int, rows: int) -> dict[str, Any]:
    """Asks and tells of many at once."""
    with storage_of(kind, folder) as storage:
        database, tokens = prepared(storage, folder, rows, clients)
        server = Server(storage)
        started = time.monotonic()
        share = pairs // (clients + processes)
        results: list[dict[str, Any]] = []
        threads = [
            threading.Thread(
                target=lambda i=i: results.append(
                    robot(server.address, tokens[i], f"robot {i}", rounds=share, stop=lambda: False)
                )
            )
            for i in range(clients)
        ]
        left = pairs - share * clients
        notes = [folder / f"told-{kind}-{i}" for i in range(processes)]
        rounds = [left // processes + (i < left % processes) for i in range(processes)] if processes else []
        workers = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.campaigns", "process", "--storage", storage, "--name",
                 f"process {i}", "--pairs", str(rounds[i]), "--out", str(notes[i])]
            )
            for i in range(processes)
        ]  # fmt: skip
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        codes = [worker.wait() for worker in workers]
        seconds = time.monotonic() - started
        memory = server.peak_mb()
        server.kill()
        if any(codes) or len(results) < clients:
            raise AssertionError(f"a client failed: processes {codes}, {len(results)} of {clients} robots")
        told = {row: value for one in results for row, value in one["told"].items()} | _noted(notes)
        found = check(database, told)
        asks = sorted(second for one in results for second in one["seconds"])
        database.close()
    return {
        "storage": kind, "clients": clients, "processes": processes, **found, "seconds": round(seconds, 1),
        "ask_median_ms": round(1e3 * statistics.median(asks), 1), "server_mb": round(memory),
        "load": os.getloadavg()[0],
    }  # fmt: skip


def kill(kind: str, folder: Path, *, times: int, rows: int) -> dict[str, Any]:
    """Kills server, worker and client processes at random moments while robots ask and tell, and tries again."""
    generator = random.Random(0)
    with storage_of(kind, folder) as storage:
        database, tokens = prepared(storage, folder, rows, 8)
        server = Server(storage)
        done = threading.Event()
        results: list[dict[str, Any]] = []
        threads = [
            threading.Thread(
                target=lambda i=i: results.append(
                    robot(server.address, tokens[i], f"robot {i}", rounds=10**6, stop=done.is_set)
                )
            )
            for i in range(8)
        ]
        for thread in threads:
            thread.start()
        notes: list[Path] = []
        killed, started = {"server": 0, "worker": 0, "client": 0}, time.monotonic()
        running = {word: _started(word, storage, folder, notes) for word in ("client", "worker")}
        for _ in range(times):
            time.sleep(generator.uniform(0.2, 2.0))
            victim = generator.choice(("server", "client", "worker"))
            if victim == "server":
                server.kill()
                server.start()
            else:
                running[victim].send_signal(signal.SIGKILL)
                running[victim].wait()
                running[victim] = _started(victim, storage, folder, notes)
            killed[victim] += 1
        for process in running.values():
            process.kill()
            process.wait()
        done.set()
        for thread in threads:
            thread.join()
        server.kill()
        told = {row: value for one in results for row, value in one["told"].items()} | _noted(notes)
        # A client that is killed after its label was written, and before it noted that, has one label more.
        found = check(database, told, exactly=False)
        if found["labels"] - len(told) > killed["client"] + 1 or len(results) < 8:
            raise AssertionError(f"{found['labels']} labels are kept, and {len(told)} were told")
        if kind == "sqlite":
            whole = database.read(lambda c: c.execute(text("PRAGMA integrity_check")).scalar())
            if whole != "ok":
                raise AssertionError(f"the database is damaged: {whole}")
        states = select(schema.model.c.state, func.count()).group_by(schema.model.c.state)
        models = database.read(lambda c: {str(state): int(count) for state, count in c.execute(states)})
        database.close()
    return {"storage": kind, "killed": killed, **found, "told": len(told), "models": models,
            "seconds": round(time.monotonic() - started, 1)}  # fmt: skip


def _started(word: str, storage: str, folder: Path, notes: list[Path]) -> "subprocess.Popen[bytes]":
    out = folder / f"notes-{len(notes)}"
    notes.append(out)
    command = [sys.executable, "-m", "benchmarks.campaigns"]
    if word == "client":
        more = ["process", "--name", f"client {len(notes)}", "--pairs", "1000000", "--out", str(out)]
    else:
        more = ["worker"]
    return subprocess.Popen([*command, *more, "--storage", storage], stderr=subprocess.DEVNULL)


def _noted(notes: list[Path]) -> dict[str, float]:
    """What processes noted; a line that was being written when its process was killed is left out."""
    told = {}
    for note in notes:
        for line in note.read_text().splitlines() if note.exists() else ():
            with suppress(json.JSONDecodeError):
                row, value = json.loads(line)
                told[row] = value
    return told


def working(storage: str) -> None:
    """A worker with a model that is trained in no time, again and again."""
    from ncprior.campaigns.predicted import Predicted
    from ncprior.campaigns.training import Ranked
    from ncprior.campaigns.worker import work

    class Average:
        def __init__(self, _: pa.Table, targets: np.ndarray, *__: object) -> None:
            self.mean = float(targets.mean())

        def predict(self, inputs: pa.Table) -> dict[str, list[Predicted]]:
            return {"y": [Predicted.normal(self.mean, 1.0, 1.0)] * inputs.num_rows}

        def rank(self, candidates: pa.Table, known: pa.Table, count: int, excluded: np.ndarray) -> Ranked:
            free = np.flatnonzero(~excluded)[:count]
            return Ranked(free, np.zeros(min(len(free), candidates.num_rows + known.num_rows)))

        def content(self) -> bytes:
            return repr(self.mean).encode()

        def metrics(self) -> dict[str, Any]:
            return {}

    campaign = Campaign.open(NAME, storage)
    while True:
        with suppress(UserError):  # another worker has given this one up
            work(campaign, Average, lambda content, *_: Average(pa.table({}), np.array([float(content)])))
        time.sleep(0.1)


def speed(folder: Path, *, rows: int = 1_000_000, labels: int = 10_000) -> dict[str, Any]:
    """How long `ask` takes, in this process and over HTTP, with many rows and labels."""
    with storage_of("sqlite", folder) as storage:
        started = time.monotonic()
        database, [token] = prepared(storage, folder, rows, 1)
        made = time.monotonic() - started
        campaign = Campaign.open(NAME, database)
        for _ in range(labels // 1_000):
            asked = campaign.ask(1_000, person="ann").rows
            from ncprior.campaigns.labels import Telling

            campaign.tell_rows([Telling(row.id, {"y": 1.0}) for row in asked], person="ann")
        asks = [_timed(lambda: campaign.ask(5, person="ann")) for _ in range(200)]
        server = Server(storage)
        with httpx2.Client(base_url=server.address, headers={"authorization": f"Bearer {token}"}) as client:
            over_http = []
            for _ in range(200):
                over_http.append(
                    _timed(lambda: client.post(f"/api/campaigns/{NAME}/ask", json={"n": 5}).json()["rows"])
                )
            client.get(f"/api/campaigns/{NAME}/status")
        memory = server.peak_mb()
        server.kill()
        kept = campaign.status().labelled
        database.close()
    return {
        "pool_rows": rows, "labels": kept, "create_seconds": round(made, 1),
        "ask_median_ms": round(1e3 * statistics.median(asks), 2), "ask_worst_ms": round(1e3 * max(asks), 1),
        "ask_http_median_ms": round(1e3 * statistics.median(over_http), 2),
        "ask_http_worst_ms": round(1e3 * max(over_http), 1), "server_mb": round(memory), "load": os.getloadavg()[0],
    }  # fmt: skip


def _timed(call: Callable[[], object]) -> float:
    started = time.monotonic()
    call()
    return time.monotonic() - started


def disk(folder: Path) -> dict[str, Any]:
    """A file system of 3 MB that fills up."""
    place = folder / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)], check=True)
    try:
        write_pool(folder / "pool.parquet", 2_000)
        database = Database(f"sqlite:///{place / 'campaign.db'}", create=True)
        campaign = Campaign.create(NAME, pool=folder / "pool.parquet", id="id", target="y", storage=database)
        told: dict[str, float] = {}
        line = ""
        try:
            while True:
                for row in campaign.ask(10, person="ann").rows:
                    campaign.tell(row.id, 1.0, person="ann", note="x" * 1_000)
                    told[row.id] = 1.0
        except UserError as error:
            line = str(error)
        found = check(database, told)
        database.close()
        again = Database(f"sqlite:///{place / 'campaign.db'}")
        check(again, told)
        again.close()
    finally:
        subprocess.run(["umount", str(place)], check=True)
    return {"line": line.replace(str(place), "..."), **found}


def main() -> None:
    """Runs one of the benchmarks and prints what it found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["load", "kill", "speed", "disk", "process", "worker"])
    parser.add_argument("--storage", default="sqlite")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--name", default="")
    parser.add_argument("--out", default="")
    given = parser.parse_args()
    if given.what == "process":
        processed(given.storage, given.name, given.pairs, given.out)
        return
    if given.what == "worker":
        working(given.storage)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if given.what == "load":
            sizes = {"clients": given.clients, "processes": given.processes, "pairs": given.pairs, "rows": given.rows}
            found = load(given.storage, folder, **sizes)
        elif given.what == "kill":
            found = kill(given.storage, folder, times=given.times, rows=given.rows)
        else:
            found = speed(folder) if given.what == "speed" else disk(folder)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
