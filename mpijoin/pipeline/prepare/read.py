"""Raw files become one frame of their columns, with the file and place of each row and what the row looked like.

Lines of CSV and JSON are read as they are and parsed here, so that a line that is put aside can be shown, and fed back,
letter by letter. Text is UTF-8. A decoder that meets bad bytes puts U+FFFD in their place; where one is found, the
bytes of the line are looked at.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from mpijoin.pipeline.prepare.files import Source, spark_path
from mpijoin.pipeline.prepare.options import CSV, JSONL, Wanted
from mpijoin.pipeline.prepare.schema import CORRUPT, Columns, is_one_object, json_schema, json_values, without_twins

# Columns that live only inside this command; no column of the input begins with these two letters.
FILE = "__file"  # its URI
FILE_ID = "__file_id"  # bigint, of the URI
BLOCK = "__block"  # byte at which the piece of the file begins that was read in one go
# int64 that rises with the row's place in that piece. Lines of text that are no rows count, too. `clean.rules` adds it.
ROW = "__row"
BROKEN = "__broken"  # why the line is no row; null: it is one
FOREIGN = "__foreign"  # true: not UTF-8
SKIP = "__skip"  # HEADER, BLANK: a line that is meant to be no row; null: any other
LINE = "__line"  # as it is in the file, without what ends it
HEADER, BLANK = 3, 4
QUOTE = '"'
MULTILINE_HINT = " (line breaks between quotes need --multiline)"
OPEN_QUOTE = f"line: a quote is not closed{MULTILINE_HINT}"
LATIN = "ISO-8859-1"  # in which every byte is a letter
REPLACEMENT = "\ufffd"
BLANKS = "".join(map(chr, range(33)))


@dataclass(frozen=True)
class Raw:
    """The raw rows. frame: the columns of `types`, those above, and what `shown` needs · types: Spark's, by name ·
    shown: the line, or the values as CSV or JSON, for rows that are put aside · untyped: columns whose type nobody has
    given."""

    frame: DataFrame
    types: Mapping[str, T.DataType]
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


def read_raw(spark: Any, source: Source, wanted: Wanted, columns: Columns, paths: Sequence[str]) -> Raw:
    """The rows of the files; nothing is read yet. paths: those of the source's files that are wanted · columns: from
    `schema.find_columns`."""
    reading = {CSV: _multiline if wanted.multiline else _csv, JSONL: _json}.get(source.format, _parquet)
    return reading(spark, [spark_path(path) for path in paths], source, wanted, columns)


def _place() -> list[Column]:
    """Where a row is, to be asked of files while they are read."""
    # Spark's _metadata has the same, but copies it into every row, and the row with it.
    file = F.input_file_name()
    return [file.alias(FILE), F.xxhash64(file).alias(FILE_ID), F.input_file_block_start().alias(BLOCK)]


def _lines(spark: Any, paths: list[str]) -> DataFrame:
    return spark.read.text(paths).withColumnRenamed("value", LINE)


def _skip(headers: Sequence[str]) -> Column:
    line = col(LINE)
    # Most lines begin with a letter above the blank, so that one look is enough.
    blank = F.when(line > " ~", F.lit(False)).otherwise(F.length(F.btrim(line, F.lit(BLANKS))) == 0)
    header = line.isin(*headers) if headers else F.lit(False)
    return F.when(header, HEADER).when(blank, BLANK)


def _csv(spark: Any, paths: list[str], source: Source, wanted: Wanted, columns: Columns) -> Raw:
    """In most lines quotes, if there are any, only surround fields. The fields are then what is between the delimiters,
    which `split` finds several times as fast as a parser of CSV. The parser gets the other lines.

    Spark compiles all that is done with a row into one loop, but not with the parser in it. So the parser comes first,
    when a row is no more than its line.
    """
    line, row, fields = col(LINE), F.col("__object"), F.col("__fields")
    delimiter = re.escape(source.delimiter)
    options = {name: str(value) for name, value in _csv_options(source).items()}
    parsed = F.from_csv(line, _csv_schema(source).simpleString(), options)
    parsed = F.when(~_is_simple(line, delimiter), parsed)
    frame = _lines(spark, paths).select(line, *_place(), parsed.alias("__object"))
    frame = frame.withColumn("__fields", F.when(row.isNull(), F.split(line, delimiter, -1)))
    values = {
        name: F.coalesce(row.getField(_anonymous(i)), _unquoted(F.get(fields, F.lit(i))))
        for i, name in enumerate(source.names)
    }
    misfit = row.getField(CORRUPT).isNotNull() | (F.array_size(fields) != len(source.names))
    broken = F.when(row.isNotNull() & ~_is_closed(line, delimiter), F.lit(OPEN_QUOTE))
    broken = broken.when(misfit, F.lit(_wanted_fields(source, wanted)))
    frame = frame.select(
        *[value.alias(name) for name, value in values.items()],
        *map(col, (FILE, FILE_ID, BLOCK, LINE)),
        _skip(source.headers).alias(SKIP),
        broken.alias(BROKEN),
    )
    return Raw(
        frame.withColumn(FOREIGN, _is_foreign(source.names)), columns.types, _shown_line(), _untyped(source, wanted)
    )


def _is_simple(line: Column, delimiter: str) -> Column:
    """True for a line of CSV where each field either has no quotes, or is between two and has no other quote and no
    delimiter inside. False for any other line, and for one that begins with a letter below the quote: a NUL there means
    more than itself.

    delimiter: as a regular expression. The possessive repetition (`*+`) keeps Java from recursion on long lines.
    """
    quoted_field = f'(?<![^{delimiter}])"[^"{delimiter}]*"(?![^{delimiter}])'
    is_simple = ~F.contains(line, F.lit(QUOTE)) | line.rlike(f'^[^"]*(?:{quoted_field}[^"]*)*+$')
    return (line > QUOTE) & is_simple


def _is_closed(line: Column, delimiter: str) -> Column:
    """True for a line of CSV whose quotes are all closed, as Spark's parser sees them, which closes an open one itself
    where the line ends. delimiter: as a regular expression."""
    rest = f"[^{delimiter}]*+"
    field = f'(?:"[^"]*+(?:""[^"]*+)*+"{rest}|(?!"){rest})'
    return line.rlike(f"^{field}(?:{delimiter}{field})*+$")


def _unquoted(field: Column) -> Column:
    """A field of a simple line without its quotes; null if nothing is in it."""
    bare = F.when(field.startswith(QUOTE), F.replace(field, F.lit(QUOTE))).otherwise(field)
    return F.when(~field.isin("", QUOTE + QUOTE), bare)


def _anonymous(number: int) -> str:
    # Names of the input may hold letters that a schema written as text would stumble over.
    return f"c{number}"


def _csv_schema(source: Source) -> T.StructType:
    names = [*map(_anonymous, range(len(source.names))), CORRUPT]
    return T.StructType([T.StructField(name, T.StringType()) for name in names])


def _csv_options(source: Source) -> dict[str, Any]:
    return {
        "sep": source.delimiter,
        "quote": '"',
        "escape": '"',
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": CORRUPT,
    }


def _untyped(source: Source, wanted: Wanted) -> tuple[str, ...]:
    return tuple(name for name in source.names if wanted.declared(name) is None and name != wanted.time)


def _is_foreign(names: Sequence[str]) -> Column:
    """True where a text has a U+FFFD and the bytes of its line are not UTF-8. That letter may also stand in good
    text."""
    suspect = F.lit(False)
    for name in names:
        suspect = suspect | F.coalesce(F.contains(col(name), F.lit(REPLACEMENT)), F.lit(False))
    return F.when(suspect, _decoded(col(LINE).cast("binary"))[1]).otherwise(F.lit(False))


def _decoded(data: Column) -> tuple[Column, Column]:
    """The text of some bytes, and true where they are not UTF-8."""
    text = F.decode(data, "UTF-8")
    return text, F.encode(text, "UTF-8") != data


def _shown_line() -> Column:
    """The line as text. No byte is lost, even where the bytes make no text."""
    data = col(LINE).cast("binary")
    text, bad = _decoded(data)
    return F.when(bad, F.decode(data, LATIN)).otherwise(text)


def _wanted_fields(source: Source, wanted: Wanted) -> str:
    hint = "" if wanted.multiline else MULTILINE_HINT
    return f"line: got fewer or more fields than the header, wanted {len(source.names)}{hint}"


def multiline_options(source: Source) -> dict[str, Any]:
    """How Spark reads CSV with line breaks between quotes. Lines end with LF, before which a CR may stand: what a
    reader guesses from the first line is wrong where they are mixed."""
    return {**_csv_options(source), "multiLine": True, "lineSep": "\n", "encoding": "UTF-8"}


def _multiline(spark: Any, paths: list[str], source: Source, wanted: Wanted, columns: Columns) -> Raw:
    options = multiline_options(source)
    frame = spark.read.schema(_csv_schema(source)).options(**options, header=True).csv(paths).select("*", *_place())
    values = {name: col(_anonymous(i)) for i, name in enumerate(source.names)}
    last = source.names[-1]
    values[last] = F.nullif(F.regexp_replace(values[last], "\r$", ""), F.lit(""))
    lone = F.lit(False)
    for value in values.values():
        lone = lone | F.coalesce(F.contains(value, F.lit("\r")) & value.rlike("\r(?!\n)"), F.lit(False))
    broken = F.when(col(CORRUPT).isNotNull(), F.lit(_wanted_fields(source, wanted)))
    broken = broken.when(lone, F.lit("line: got a carriage return alone, wanted lines that end with LF or CR LF"))
    foreign = F.lit(False)
    for value in values.values():
        foreign = foreign | F.coalesce(F.contains(value, F.lit(REPLACEMENT)), F.lit(False))
    record = F.to_csv(
        F.struct(*[value.alias(_anonymous(i)) for i, value in enumerate(values.values())]), _csv_writing(source)
    )
    frame = frame.select(
        *[value.alias(name) for name, value in values.items()],
        *map(col, (FILE, FILE_ID, BLOCK)),
        F.lit(None).cast("int").alias(SKIP),
        F.coalesce(col(CORRUPT), record).alias(LINE),
        broken.alias(BROKEN),
        foreign.alias(FOREIGN),
    )
    return Raw(frame, columns.types, col(LINE), _untyped(source, wanted))


def _csv_writing(source: Source) -> dict[str, str]:
    return {"sep": source.delimiter, "quote": QUOTE, "escape": QUOTE, "emptyValue": ""}


def _json(spark: Any, paths: list[str], source: Source, wanted: Wanted, columns: Columns) -> Raw:
    line = col(LINE)
    frame = _lines(spark, paths).select(
        line,
        *_place(),
        F.from_json(line, json_schema(columns), {"columnNameOfCorruptRecord": CORRUPT}).alias("__object"),
        _skip(()).alias(SKIP),
        F.when(~is_one_object(line), F.lit("line: wanted one JSON object"))
        .when(~without_twins(line), F.lit("line: got a name twice in one object, wanted each once"))
        .alias(BROKEN),
        _decoded(line.cast("binary"))[1].alias(FOREIGN),
    )
    row = F.col("__object")
    misfit = F.when(row.getField(CORRUPT).isNotNull(), F.lit("line: its values do not fit the columns of the others"))
    own = [*map(col, (FILE, FILE_ID, BLOCK, SKIP, LINE, FOREIGN)), F.coalesce(col(BROKEN), misfit).alias(BROKEN)]
    frame = frame.select(*json_values(row, columns), *own)
    return Raw(frame, columns.types, _shown_line())


def _parquet(spark: Any, paths: list[str], source: Source, wanted: Wanted, columns: Columns) -> Raw:
    nothing = {BROKEN: F.lit(None).cast("string"), FOREIGN: F.lit(False), SKIP: F.lit(None).cast("int")}
    frame = spark.read.parquet(*paths).select("*", *_place()).withColumns(nothing)
    return Raw(frame, columns.types, F.to_json(F.struct(*map(col, source.names))))
