"""Arrow files, also called Feather or IPC, and a check that the batches of a file are valid.

Arrow takes the offsets and indices in a file as they are: those of a damaged file point anywhere, and the system ends a
process that maps a file which is cut off. So files are read, not mapped, and batches checked before their first use.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from ncprior.errors import UserError


class Opened(NamedTuple):
    """The schema and the batches of a file that is open."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


@contextmanager
def opened(file: Path, columns: Sequence[str] | None = None) -> Iterator[Opened]:
    """An Arrow file, or an Arrow stream that was saved as one, with all columns or the given ones, in their order.

    Batches are read one by one and not checked yet; columns of a file that are not wanted are not read at all.
    """
    with pa.OSFile(str(file)) as source:
        reader = _reader(source)
        if columns is not None:
            positions = {name: i for i, name in enumerate(reader.schema.names)}
            wanted = pa.ipc.IpcReadOptions(included_fields=sorted(positions[name] for name in columns))
            reader = _reader(source, wanted)
        yield Opened(reader.schema, _batches(reader))


def _reader(
    source: pa.NativeFile, options: pa.ipc.IpcReadOptions | None = None
) -> pa.ipc.RecordBatchFileReader | pa.ipc.RecordBatchStreamReader:
    source.seek(0)
    is_file = source.read(6) == b"ARROW1"
    source.seek(0)
    return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(source, options=options)


def _batches(reader: pa.ipc.RecordBatchFileReader | pa.ipc.RecordBatchStreamReader) -> Iterator[pa.RecordBatch]:
    if isinstance(reader, pa.ipc.RecordBatchStreamReader):
        return iter(reader)
    return (reader.get_batch(i) for i in range(reader.num_record_batches))


def check(file: Path, batch: pa.RecordBatch) -> None:
    """Raise if a batch that was read from a file points outside itself, or has text that is not UTF-8."""
    for name, values in zip(batch.schema.names, batch.columns, strict=True):
        try:
            values.validate(full=True)
        except pa.ArrowException as error:
            if "UTF8" in str(error):
                what = f"column {name!r} has letters that are not UTF-8; write them as UTF-8"
            else:
                what = f"column {name!r} is damaged ({' '.join(str(error).split())[:120]}); get the file anew"
            raise UserError(f"{file}: {what}") from error
    batch.validate()  # that all columns have as many rows
