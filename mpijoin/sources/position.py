"""Where the reading of the input stands at a tick's border, so that another process can go on from there.

What has been decoded and not handed out yet is part of it, since it is little; what follows is read again from the
files.
"""

from __future__ import annotations

from dataclasses import astuple
from itertools import islice
from typing import Any, Iterator, Sequence

import numpy as np

from mpijoin.data.batch import Batch
from mpijoin.data.codec import decode, encode
from mpijoin.errors import CodecError, ProtocolError
from mpijoin.named import NamedTuple
from mpijoin.records import PartInfo
from mpijoin.sources.base import (
    TIME_MIN,
    Chunk,
    FilePosition,
    FileShare,
    Screened,
    ShareRange,
    SourceCounts,
    SourcePosition,
)
from mpijoin.sources.inputs import InputFile

POSITION_KIND = 32  # of the frame; messages between ranks and frames of groups have smaller ones
HELD_BUFFERS = len(Batch._fields) + 1  # with the running maxima


class StreamPosition(NamedTuple):
    """A stream between two ticks: its source, None where nothing has been read, and what has been read ahead of it.

    chunks: not yet handed out · horizon: of the last one read · ended: whether that was the end.
    """

    source: SourcePosition | None = None
    chunks: Sequence[Chunk] = ()
    horizon: int = TIME_MIN
    ended: bool = False


UNREAD = StreamPosition()


class Position(NamedTuple):
    """All streams, the inputs that they are read from, and the closed parts of their late files."""

    streams: tuple[StreamPosition, ...]
    inputs: tuple[list[InputFile], ...]
    late: tuple[list[PartInfo], ...]


def encode_position(position: Position) -> np.ndarray:
    """Makes one frame with a checksum; copies all rows. All sources must have been read, or be ready to be read."""
    buffers: list[np.ndarray] = []
    meta = {
        "streams": [_stream_meta(stream, buffers) for stream in position.streams],
        "inputs": position.inputs,
        "late": position.late,
    }
    return encode(POSITION_KIND, meta, buffers, checksum=True)


def decode_position(frame: np.ndarray, record_words: Sequence[int]) -> Position:
    """Reads what `encode_position` has made; all arrays are copies and writable. record_words: of a tuple of each
    stream.

    Raises CodecError if the frame is damaged, ProtocolError if it is of another kind or its tuples are of other
    streams.
    """
    kind, meta, buffers = decode(frame)
    if kind != POSITION_KIND:
        raise ProtocolError(f"position of the input: got a frame of kind {kind}, wanted {POSITION_KIND}")
    rest = iter(buffers)
    try:
        streams = [_stream(one, _held(rest, words)) for one, words in zip(meta["streams"], record_words, strict=True)]
        inputs = [[InputFile(*file) for file in files] for files in meta["inputs"]]
        late = [[PartInfo(*part) for part in parts] for parts in meta["late"]]
    except (KeyError, TypeError, ValueError, StopIteration) as error:
        raise CodecError(f"position of the input: its parts do not fit each other: {error!r}") from error
    if next(rest, None) is not None:
        raise CodecError("position of the input: more buffers than it names")
    return Position(tuple(streams), tuple(inputs), tuple(late))


def _stream_meta(stream: StreamPosition, buffers: list[np.ndarray]) -> dict[str, Any]:
    """Everything but the rows, which are added to `buffers` in the order in which `_stream` takes them."""
    source = stream.source
    assert source is not None  # all have been read, or are ready to be
    rest = [] if source.rest is None else [source.rest]
    held: list[Screened | Chunk] = [*(file.block for file in source.open), *rest, *stream.chunks]
    for rows in held:
        buffers += [*rows.batch, rows.running_max]
    return {
        "counts": astuple(source.counts),
        "open": [file[:-1] for file in source.open],
        "waiting": list(source.waiting),
        "rest": [chunk.horizon for chunk in rest],
        "source_ended": source.ended,
        "chunks": [chunk.horizon for chunk in stream.chunks],
        "horizon": stream.horizon,
        "ended": stream.ended,
    }


def _stream(meta: dict[str, Any], held: Iterator[Screened]) -> StreamPosition:
    opened = [
        FilePosition(index, first, _ranges(ranges), next(held)) for index, first, ranges in meta["open"]
    ]
    rest = [Chunk(*next(held), horizon) for horizon in meta["rest"]]
    chunks = [Chunk(*next(held), horizon) for horizon in meta["chunks"]]
    waiting = [FileShare(first, index, _ranges(ranges)) for first, index, ranges in meta["waiting"]]
    last = rest[0] if rest else None
    source = SourcePosition(SourceCounts(*meta["counts"]), opened, waiting, last, meta["source_ended"])
    return StreamPosition(source, chunks, meta["horizon"], meta["ended"])


def _ranges(plain: Any) -> tuple[ShareRange, ...]:
    return tuple(ShareRange(*one) for one in plain)


def _held(buffers: Iterator[np.ndarray], record_words: int) -> Iterator[Screened]:
    """The rows that were kept, piece by piece, of a stream whose tuples have `record_words` words."""
    while columns := [buffer.copy() for buffer in islice(buffers, HELD_BUFFERS)]:
        rows = Screened(Batch(*columns[:-1]), columns[-1])
        found, wanted = list(rows.batch.record.shape), [len(rows.running_max), record_words]
        if found != wanted:
            raise ProtocolError(f"position of the input: got records {found}, wanted {wanted}: it is of other streams")
        yield rows
