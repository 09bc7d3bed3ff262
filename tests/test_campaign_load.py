"""Many at once on both databases, and kills: `benchmarks/campaigns.py` in a small size."""

import threading
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks import campaigns as benchmark

from ncprior.campaigns import Campaign
from ncprior.campaigns.database import Database


def test_threads_on_connections_of_their_own_never_share_a_row_and_lose_nothing(storage, tmp_path):
    rows = 120
    pool = tmp_path / "pool.parquet"
    pq.write_table(pa.table({"id": [f"r{i}" for i in range(rows)], "x": [float(i) for i in range(rows)]}), pool)
    Campaign.create("load", pool=pool, id="id", target="y", storage=storage).database.close()
    told, failed = {}, []

    def label_rows(name):
        database = Database(storage)  # as another process has it
        campaign = Campaign.open("load", database)
        try:
            while asked := campaign.ask(3, person=name).rows:
                for row in asked:
                    for _ in range(2):  # every telling is repeated
                        campaign.tell(row.id, float(len(name)), person=name, key=f"{name} {row.id}")
                    assert told.setdefault(row.id, name) == name
        except Exception as error:
            failed.append(error)
        finally:
            database.close()

    threads = [threading.Thread(target=label_rows, args=(f"person {i}",)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    database = Database(storage)
    found = benchmark.check(database, {row: float(len(name)) for row, name in told.items()})
    assert found["labels"] == rows
    database.close()


def test_the_check_finds_lost_and_doubled_labels(tmp_path):
    pool = tmp_path / "pool.parquet"
    pq.write_table(pa.table({"id": ["a", "b", "c"], "x": [1.0, 2.0, 3.0]}), pool)
    campaign = Campaign.create("load", pool=pool, id="id", target="y", storage=f"sqlite:///{tmp_path / 'c.db'}")
    campaign.tell("a", 1.0, person="ann")
    with pytest.raises(AssertionError, match="lost"):
        benchmark.check(campaign.database, {"a": 1.0, "b": 2.0})
    with pytest.raises(AssertionError, match="were told"):
        benchmark.check(campaign.database, {})
    campaign.correct("a", 2.0, person="ann")
    with pytest.raises(AssertionError, match="doubled"):
        benchmark.check(campaign.database, {"a": 2.0})
    held = SimpleNamespace(item=1, asked_at=1, closed_at=None)
    with pytest.raises(AssertionError, match="held twice"):
        benchmark.check(SimpleNamespace(read=lambda _: ([held, held], [])), {})
    campaign.database.close()
