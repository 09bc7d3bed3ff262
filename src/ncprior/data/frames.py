"""Tables of other libraries, and other data that has rows and columns, as Arrow tables."""

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from pyarrow.interchange import from_dataframe

from ncprior.data.column_types import plain
from ncprior.errors import UserError


def as_table(data: object) -> pa.Table:
    """Convert data to a table; numbers are shared, not copied, where possible.

    Takes Arrow tables, batches, readers and data sets, data frames of pandas, polars (also lazy), DuckDB and others
    with the Arrow or data frame protocol, dictionaries of columns, lists of rows and 2-D NumPy arrays, whose columns
    are named x0, x1, and so on.

    >>> as_table([[1.0, 2.0]]).column_names
    ['x0', 'x1']
    """
    try:
        table = _converted(data)
    except UserError:
        raise
    except (pa.ArrowException, TypeError, ValueError, NotImplementedError) as error:
        what = f"{type(data).__name__} cannot be read as a table ({one_line(error)})"
        raise UserError(f"{what}; give rows and columns of numbers, text or dates") from error
    names = table.column_names
    check_names("the table", names, ())
    return plain(table)


def is_frame(data: object) -> bool:
    """Whether data has columns with names, so that `as_table` takes them from it; an array or a series has none."""
    if isinstance(data, Mapping) or hasattr(data, "collect_schema"):  # which a lazy frame of polars has
        return True
    if isinstance(data, pa.Array | pa.ChunkedArray) or hasattr(data, "dtype"):
        return False
    return any(hasattr(data, name) for name in ("columns", "column_names", *_PROTOCOLS)) or _is_data_set(data)


_PROTOCOLS = ("__arrow_c_stream__", "__arrow_c_array__", "__dataframe__")


def _is_data_set(data: object) -> bool:
    """Whether this is a data set or a scanner of Arrow, which knows its columns and reads them when asked."""
    return hasattr(data, "to_table") and hasattr(data, "count_rows")


def check_names(where: str, names: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise if a name stands for two columns, or a wanted column is not there."""
    different = set(names)
    if len(different) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise UserError(f"{where}: more than one column is called {twice!r}; give each a name of its own")
    if missing := [name for name in wanted if name not in different]:
        close = {match: None for name in missing for match in difflib.get_close_matches(name, names, 3, 0.5)}
        listed = ", ".join(map(repr, close or names[:9]))
        hint = f"did you mean {listed}?" if close else f"it has {listed}"
        raise UserError(f"{where}: no column {', '.join(map(repr, missing))}; {hint} (case matters)")


def one_line(error: object) -> str:
    """A message as one printable line."""
    line = " ".join(str(error).split())[:200]
    return "".join(letter if letter.isprintable() else "?" for letter in line)


def _converted(data: object) -> pa.Table:
    """A table from anything that holds one, its names not yet checked."""
    if hasattr(data, "collect") and hasattr(data, "collect_schema"):  # a lazy frame of polars
        data = data.collect()
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if hasattr(data, "columns") and any(base.__module__.partition(".")[0] == "pandas" for base in type(data).__mro__):
        check_names("the data frame", [str(name) for name in data.columns], ())
        return pa.Table.from_pandas(data, preserve_index=False).replace_schema_metadata(None)
    if _is_data_set(data):
        return data.to_table()  # type: ignore[attr-defined]
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return pa.table(data)
    if hasattr(data, "__dataframe__"):
        return from_dataframe(data)
    if isinstance(data, Mapping):
        check_names("the dictionary", [str(name) for name in data], ())
        columns = {str(name): values for name, values in data.items()}
    elif isinstance(data, list | tuple):
        if not data or not all(isinstance(row, list | tuple | np.ndarray) and len(row) for row in data):
            raise UserError("a list is read as a table row by row; give a list of rows, each a list of values")
        if (bad := next((i for i, row in enumerate(data) if len(row) != len(data[0])), None)) is not None:
            raise UserError(f"row {bad + 1} has {len(data[bad])} values, but row 1 has {len(data[0])}; make them equal")
        columns = {f"x{i}": values for i, values in enumerate(zip(*data, strict=True))}
    else:
        array = data if isinstance(data, np.ndarray) else np.asarray(data)
        if array.ndim != 2 or not array.shape[1]:
            what = f"{type(data).__name__} of shape {array.shape} is not a table"
            raise UserError(f"{what}; give rows and columns, as by reshape(-1, 1) of an array")
        columns = {f"x{i}": array[:, i] for i in range(array.shape[1])}
    return pa.table({name: _column(name, values) for name, values in columns.items()})


def _column(name: str, values: object) -> pa.Array | pa.ChunkedArray:
    """One column. The type of Python objects is inferred from their values, and NaN among them is missing."""
    if isinstance(values, np.ndarray):
        native = values.dtype.newbyteorder("=")
        values = values.tolist() if values.dtype.kind in "OT" else values.astype(native, copy=False)
    try:
        return pa.array(values, from_pandas=not isinstance(values, np.ndarray))
    except (pa.ArrowException, TypeError, ValueError, OverflowError, NotImplementedError) as error:
        what = f"column {name!r} cannot be read ({one_line(error)})"
        raise UserError(f"{what}; make all its values numbers, text or dates") from error
