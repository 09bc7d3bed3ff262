"""The container of a model: a safetensors file with notes in JSON, and a checksum over all of it, in its header."""

import hashlib
import json
import math
import reprlib
from collections.abc import Mapping
from typing import Annotated, BinaryIO, Literal, NamedTuple, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save as to_safetensors

from ncprior.errors import UserError
from ncprior.schema import Length, Range, conform, read_json

FORMAT = 9
"""Version of the format; a file of another one is refused."""

_MOST_HEADER = 1 << 24
"""Bytes of a header, nearly all of which are notes: about half a million values of categories."""

_MOST_ARRAYS = 10_000
"""Arrays in a file: two for each layer, and some thirty others."""

_TYPES = {
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(jnp.bfloat16),
    "F32": np.dtype(np.float32),
    "F64": np.dtype(np.float64),
    "C64": np.dtype(np.complex64),
}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}
"""Types of arrays, and what safetensors calls them."""

_Size = Annotated[int, Range(0, 1 << 48)]


class _Metadata(TypedDict):
    ncprior: str  # the notes
    sha256: str


class _Entry(TypedDict):
    """What the header says about an array."""

    dtype: Literal["F16", "BF16", "F32", "F64", "C64"]
    shape: Annotated[tuple[_Size, ...], Length(0, 32)]
    data_offsets: Annotated[tuple[_Size, ...], Length(2, 2)]


class OtherFileError(UserError):
    """The file may be whole, but is not a model that this version reads."""


class Header(NamedTuple):
    """The header of a file; the arrays that it describes are not in memory yet."""

    notes: dict[str, object]
    shapes: dict[str, jax.ShapeDtypeStruct]  # of the arrays, in the file's order
    text: str  # the notes as they are in the file
    checksum: str


def to_bytes(notes: Mapping[str, object], arrays: Mapping[str, np.ndarray]) -> bytes:
    """The content of a file with these notes and arrays."""
    if odd := [name for name, array in arrays.items() if array.dtype not in _NAMES]:
        raise UserError(f"{odd[0]} is of type {arrays[odd[0]].dtype}, which a model file does not hold")
    text = json.dumps(notes)
    content = to_safetensors(dict(arrays), {"ncprior": text, "sha256": _digest(text, arrays)})
    if (length := int.from_bytes(content[:8], "little")) > _MOST_HEADER:
        what = f"its header would have {length:,} bytes, where {_MOST_HEADER:,} are the most"
        raise UserError(f"{what}; group or leave out columns with very many categories")
    return content


def read_header(stream: BinaryIO, size: int) -> Header:
    """The header of a file of ``size`` bytes: of bounded size, and in agreement with that of the file."""
    length = int.from_bytes(stream.read(8), "little")
    if size < 8 or length > size - 8:
        raise UserError("it is shorter than it says")
    if length > _MOST_HEADER:
        raise UserError(f"its header has {length:,} bytes, where {_MOST_HEADER:,} are the most")
    entries = read_json(stream.read(length), "its header")
    metadata = entries.pop("__metadata__", None) if isinstance(entries, dict) else None
    text = metadata.get("ncprior") if isinstance(metadata, dict) else None
    if not isinstance(text, str):
        raise OtherFileError("is not an ncprior model; give a file that `save` or `ncprior fit` wrote")
    notes = read_json(text.encode(errors="surrogatepass"), "its notes")
    if (found := notes.get("format") if isinstance(notes, dict) else None) != FORMAT:
        what = f"has format {reprlib.repr(found)}, and this version reads {FORMAT}"
        raise OtherFileError(f"{what}; update ncprior or fit again")
    checksum = conform(metadata, _Metadata, "its metadata")["sha256"]
    return Header(notes, _shapes(entries, size - 8 - length), text, checksum)


def read_arrays(stream: BinaryIO, header: Header) -> dict[str, np.ndarray]:
    """The arrays that follow the header; raises if they or the notes are not those that were written."""
    arrays = {}
    for name, expected in header.shapes.items():
        arrays[name] = np.empty(expected.shape, expected.dtype)
        stream.readinto(arrays[name].reshape(-1).view(np.uint8).data)  # type: ignore[attr-defined]
    if _digest(header.text, arrays) != header.checksum:
        raise UserError("its checksum is wrong: something in it has changed")
    return arrays


def _shapes(entries: Mapping[str, object], size: int) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes and types by name; the arrays follow each other and fill the ``size`` bytes that there are."""
    if len(entries) > _MOST_ARRAYS:
        raise UserError(f"it has {len(entries):,} arrays, where {_MOST_ARRAYS:,} are the most")
    arrays: dict[str, _Entry] = conform(entries, dict[str, _Entry], "its header")
    shapes, end = {}, 0
    for name, entry in sorted(arrays.items(), key=lambda item: item[1]["data_offsets"]):
        dtype = _TYPES[entry["dtype"]]
        begin, end_before = entry["data_offsets"][0], end
        end = entry["data_offsets"][1]
        if begin != end_before or end - begin != math.prod(entry["shape"]) * dtype.itemsize:
            raise UserError(f"the place of {name!r:.80} in it does not fit its shape")
        shapes[name] = jax.ShapeDtypeStruct(entry["shape"], dtype)
    if end != size:
        raise UserError(f"its arrays take {end:,} bytes, and it has {size:,}")
    return shapes


def _digest(text: str, arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of the notes, of the arrays' names, types and shapes, and of their bytes, by name."""
    names = sorted(arrays)
    about = [[name, _NAMES[arrays[name].dtype], arrays[name].shape] for name in names]
    digest = hashlib.sha256(json.dumps([text, about]).encode())
    for name in names:
        digest.update(np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
