"""Arrow's many types as few.

Views, run-end encoded columns, dictionaries of them, and some extensions hold what other types hold too, but much of
Arrow does not compute with them. `plain` gives the other type, in which tables are kept; all else stays as it is.
"""

import numpy as np
import pyarrow as pa


def plain_type(type_: pa.DataType) -> pa.DataType:
    """The type in which a column of this type is kept."""
    is_ = pa.types
    if is_.is_string_view(type_):
        return pa.large_string()
    if is_.is_binary_view(type_):
        return pa.large_binary()
    if is_.is_run_end_encoded(type_):
        return plain_type(type_.value_type)
    if is_.is_dictionary(type_):
        value_type = plain_type(type_.value_type)
        return type_ if value_type == type_.value_type else pa.dictionary(type_.index_type, value_type, type_.ordered)
    if isinstance(type_, pa.JsonType):
        return plain_type(type_.storage_type)
    if isinstance(type_, pa.Bool8Type):
        return pa.bool_()
    return type_


def plain(table: pa.Table) -> pa.Table:
    """The table with every column in its plain type."""
    schema, columns = table.schema, None
    for i, type_ in enumerate(schema.types):
        if (kept := plain_type(type_)) != type_:
            columns = table.columns if columns is None else columns
            columns[i] = pa.chunked_array([_plain(chunk) for chunk in columns[i].chunks], kept)
    return table if columns is None else pa.table(columns, names=schema.names)


def _plain(values: pa.Array) -> pa.Array:
    """The values in their plain type."""
    type_ = values.type
    if (kept := plain_type(type_)) == type_:
        return values
    if pa.types.is_run_end_encoded(type_):
        # A run ends before the row that its end names.
        rows = np.arange(values.offset, values.offset + len(values))
        runs = np.searchsorted(values.run_ends.to_numpy(), rows, side="right")
        return _plain(values.values).take(pa.array(runs))
    if pa.types.is_dictionary(type_):
        return pa.DictionaryArray.from_arrays(values.indices, _plain(values.dictionary), ordered=type_.ordered)
    if isinstance(type_, pa.BaseExtensionType):
        values = _plain(values.storage)
    return values.cast(kept)
