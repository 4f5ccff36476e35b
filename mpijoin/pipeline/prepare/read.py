"""Raw files -> one frame of their columns, with the file and place of each row and what the row looked like.

Text is UTF-8. CSV is read as Latin-1, in which every byte is a letter, and decoded here: a decoder that meets bad bytes would
put U+FFFD in their place and say nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from mpijoin.errors import InputError
from mpijoin.pipeline.prepare.files import Source, spark_path
from mpijoin.pipeline.prepare.options import CSV, JSONL, Wanted

# Columns that live only inside this command; no column of the input begins with these two letters.
FILE = "__file"  # its URI
BLOCK = "__block"  # byte at which the piece of the file begins that was read in one go
ROW = "__row"  # int64, rising with the row's place in that piece
BROKEN = "__broken"  # why the line is no row; null: it is one
FOREIGN = "__foreign"  # true: not UTF-8
CORRUPT = "__corrupt"  # the line as it was read
LATIN = "ISO-8859-1"
REPLACEMENT = "\ufffd"


@dataclass(frozen=True)
class Raw:
    """frame: the columns `names`, those above, and what `shown` needs · types: Spark's, by name · shown: the line, or the values
    as JSON, for rows that are put aside; dear, so not a column of all rows · untyped: columns whose type nobody has told."""

    frame: DataFrame
    types: dict[str, T.DataType]
    shown: Column
    untyped: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        return list(self.types)


def col(name: str) -> Column:
    """A column by its name, whatever letters are in it."""
    return F.col(quoted(name))


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def source_path() -> Column:
    """The path of a row's file, which Spark writes as a URI; a "+" in it must stay what it is."""
    return F.regexp_replace(F.url_decode(F.regexp_replace(FILE, r"\+", "%2B")), "^file:(//)?", "")


def read_raw(spark: Any, source: Source, wanted: Wanted) -> Raw:
    """Nothing is read yet but, of JSON lines, all rows once for the names and types in them. InputError: there are none."""
    reading = {CSV: _csv, JSONL: _json}.get(source.format, _parquet)
    return reading(spark, [spark_path(path) for path in source.paths], source, wanted)


def _placed(frame: DataFrame) -> DataFrame:
    place = {FILE: F.col("_metadata.file_path"), BLOCK: F.col("_metadata.file_block_start"), ROW: F.monotonically_increasing_id()}
    return frame.select("*", *[column.alias(name) for name, column in place.items()])


def _csv(spark: Any, paths: list[str], source: Source, wanted: Wanted) -> Raw:
    fields = [T.StructField(name, T.StringType()) for name in (*source.names, CORRUPT)]
    reader = spark.read.schema(T.StructType(fields)).options(
        header=True,
        sep=source.delimiter,
        quote='"',
        escape='"',
        mode="PERMISSIVE",
        columnNameOfCorruptRecord=CORRUPT,
        multiLine=wanted.multiline,
        # Over several lines the reader follows a byte order mark whatever it is told, so one encoding must fit both cases.
        encoding="UTF-8" if wanted.multiline else LATIN,
    )
    frame = _placed(reader.csv(paths))
    broken = F.when(col(CORRUPT).isNotNull(), F.lit(_wanted_fields(source, wanted)))
    decoded = _as_utf8 if wanted.multiline else _decoded
    texts = {name: decoded(col(name)) for name in source.names}
    foreign = F.coalesce(F.greatest(*[bad for _, bad in texts.values()], F.lit(False)), F.lit(False))
    as_read = {f"__read{i}": name for i, name in enumerate(source.names)}
    frame = frame.select(
        *[text.alias(name) for name, (text, _) in texts.items()],
        *[col(name).alias(own) for own, name in as_read.items()],
        *map(col, (FILE, BLOCK, ROW, CORRUPT)),
        broken.alias(BROKEN),
        foreign.alias(FOREIGN),
    )
    line = F.coalesce(col(CORRUPT), F.to_json(F.struct(*[col(own).alias(name) for own, name in as_read.items()])))
    untyped = tuple(name for name in source.names if wanted.declared(name) is None and name != wanted.time)
    return Raw(frame, {name: T.StringType() for name in source.names}, _shown(line, *decoded(line)), untyped)


def _wanted_fields(source: Source, wanted: Wanted) -> str:
    hint = "" if wanted.multiline else " (line breaks between quotes need --multiline)"
    return f"line: got fewer or more fields than the header, wanted {len(source.names)}{hint}"


def _decoded(latin: Column) -> tuple[Column, Column]:
    """(text, true where its bytes are not UTF-8) of bytes read as Latin-1."""
    text, foreign = _decoded_bytes(F.encode(latin, LATIN))
    plain = F.octet_length(latin) == F.char_length(latin)  # most texts are, and to see it costs next to nothing
    return F.when(plain, latin).otherwise(text), F.when(~plain, foreign).otherwise(False)


def _decoded_bytes(data: Column) -> tuple[Column, Column]:
    text = F.decode(data, "UTF-8")
    return text, F.encode(text, "UTF-8") != data


def _shown(undecoded: Column, text: Column, bad: Column) -> Column:
    """What is kept of a bad row: no byte is lost, even where they make no text."""
    return F.when(bad, undecoded).otherwise(text)


def _as_utf8(text: Column) -> tuple[Column, Column]:
    return text, F.contains(text, F.lit(REPLACEMENT))


def _json(spark: Any, paths: list[str], source: Source, wanted: Wanted) -> Raw:
    found = spark.read.option("columnNameOfCorruptRecord", CORRUPT).json(paths).schema
    types = {field.name: _json_type(field, wanted) for field in found if field.name != CORRUPT}
    if not types:
        raise InputError(f"{source.paths[0]}: got no JSON object in any line, wanted one in each")
    schema = T.StructType([T.StructField(name, kind) for name, kind in (types | {CORRUPT: T.StringType()}).items()])
    lines = spark.read.text(paths).where(F.length(F.trim("value")) > 0)
    foreign = _decoded_bytes(F.col("value").cast("binary"))[1]
    frame = _placed(lines).select(
        F.from_json("value", schema, {"columnNameOfCorruptRecord": CORRUPT}).alias("__object"),
        *map(col, (FILE, BLOCK, ROW)),
        F.col("value").cast("binary").alias(CORRUPT),
        F.when(~_is_one_object(F.col("value")), F.lit("line: wanted one JSON object")).alias(BROKEN),
        foreign.alias(FOREIGN),
    )
    corrupt = F.when(F.col(f"__object.{CORRUPT}").isNotNull(), F.lit("line: its values do not fit the columns of the others"))
    values = [F.col("__object").getField(name).alias(name) for name in types]
    frame = frame.select(*values, *map(col, (FILE, BLOCK, ROW, CORRUPT, FOREIGN)), F.coalesce(col(BROKEN), corrupt).alias(BROKEN))
    return Raw(frame, types, _shown(F.decode(CORRUPT, LATIN), *_decoded_bytes(col(CORRUPT))))


def _is_one_object(line: Column) -> Column:
    # Alone, Spark's parser takes the first object of a line and leaves what comes behind it.
    count = F.json_array_length(F.concat(F.lit("["), line, F.lit("]")))
    return F.coalesce((count == 1) & F.ltrim(line).startswith("{"), F.lit(False))


def _json_type(field: T.StructField, wanted: Wanted) -> T.DataType:
    """As found, but nested values as their JSON text, and what is converted here as text or exact number."""
    kind = field.dataType
    if field.name == wanted.time and isinstance(kind, T.DoubleType):
        return T.DecimalType(38, 9)
    if wanted.declared(field.name) is not None or isinstance(kind, (T.StructType, T.ArrayType)):
        return T.StringType()
    return kind


def _parquet(spark: Any, paths: list[str], source: Source, wanted: Wanted) -> Raw:
    frame = spark.read.parquet(*paths)
    types = {field.name: field.dataType for field in frame.schema}
    frame = _placed(frame).withColumns({BROKEN: F.lit(None).cast("string"), FOREIGN: F.lit(False)})
    return Raw(frame, types, F.to_json(F.struct(*map(col, source.names))))
