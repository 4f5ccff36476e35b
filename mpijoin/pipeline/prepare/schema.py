"""The columns of the input and their types, as far as its files say them: the names of CSV, the schema of Parquet, and
of JSON lines what a look at all of them finds."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Iterator, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from mpijoin.errors import InputError
from mpijoin.pipeline.prepare.files import Source, spark_path
from mpijoin.pipeline.prepare.options import CSV, JSONL, Wanted, asked_names

CORRUPT = "__corrupt"  # where Spark's parsers put what they cannot parse


@dataclass(frozen=True)
class Columns:
    """The columns of the input. types: Spark's, by name · paths: for columns in objects of JSON, such as user.id, the
    names that lead there from the outside in."""

    types: Mapping[str, T.DataType]
    paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return list(self.types)


def find_columns(spark: Any, source: Source, wanted: Wanted) -> Columns:
    """Finds the columns. JSON lines are all read once for it. Raises InputError if there is no row."""
    if source.format == CSV:
        return Columns({name: T.StringType() for name in source.names})
    paths = [spark_path(path) for path in source.paths]
    if source.format == JSONL:
        return _json_columns(spark, paths, source, wanted)
    return Columns({field.name: field.dataType for field in spark.read.parquet(*paths).schema})


def _json_columns(spark: Any, paths: list[str], source: Source, wanted: Wanted) -> Columns:
    found = _inferred(spark, spark.read.text(paths).where(without_twins(F.col("value"))))
    types = {field.name: _json_type(field.name, field.dataType, wanted) for field in found if field.name != CORRUPT}
    if not types:
        raise InputError(f"{source.paths[0]}: got no JSON object in any line, wanted one in each{source.hint}")
    inside = {}
    for name in asked_names(wanted):
        if name not in types and (leaf := _leaf(found, name)) is not None:
            inside[name] = leaf
    types |= {name: _json_type(name, kind, wanted) for name, (_, kind) in inside.items()}
    return Columns(types, {name: path for name, (path, _) in inside.items()})


def _inferred(spark: Any, lines: DataFrame) -> T.StructType:
    """The schema that Spark finds in a frame with one column of text. In Python, `spark.read.json` takes such a frame
    only row by row through Python."""
    encoder = spark._jvm.org.apache.spark.sql.Encoders.STRING()
    texts = getattr(lines._jdf, "as")(encoder)
    reader = spark._jsparkSession.read().option("columnNameOfCorruptRecord", CORRUPT)
    return T.StructType.fromJson(json.loads(reader.json(texts).schema().json()))


def _leaf(found: T.StructType, name: str) -> tuple[tuple[str, ...], T.DataType] | None:
    """Where a name with points in it leads, and the type there. Names in objects may have points of their own."""
    for own in found:
        if own.name == name:
            return (name,), own.dataType
        if name.startswith(f"{own.name}.") and isinstance(own.dataType, T.StructType):
            inner = _leaf(own.dataType, name.removeprefix(f"{own.name}."))
            if inner is not None:
                return (own.name, *inner[0]), inner[1]
    return None


def _json_type(name: str, kind: T.DataType, wanted: Wanted) -> T.DataType:
    """The type that was found. But nested values are read as their JSON text, and what this command converts is read as
    text or as an exact number."""
    if name == wanted.time and isinstance(kind, T.DoubleType):
        return T.DecimalType(38, 9)
    if wanted.declared(name) is not None or isinstance(kind, (T.StructType, T.ArrayType)):
        return T.StringType()
    return kind


def json_schema(columns: Columns) -> T.StructType:
    """The schema of a whole line. An object in it is read as text, also where a column is taken out of it."""
    fields = {name: kind for name, kind in columns.types.items() if name not in columns.paths}
    return T.StructType([T.StructField(name, kind) for name, kind in (fields | {CORRUPT: T.StringType()}).items()])


def json_values(line: Column, columns: Columns) -> Iterator[Column]:
    """The columns, in order, of lines parsed by `json_schema`."""
    for name, kind in columns.types.items():
        path = columns.paths.get(name, (name,))
        value = line.getField(path[0])
        if path[1:]:
            value = F.from_json(value, _around(path[1:], kind))
        for part in path[1:]:
            value = value.getField(part)
        yield value.alias(name)


def _around(path: tuple[str, ...], kind: T.DataType) -> T.StructType:
    """The schema of objects within objects. path: their names from the outside in, at least one."""
    inner = _around(path[1:], kind) if path[1:] else kind
    return T.StructType([T.StructField(path[0], inner)])


def is_one_object(line: Column) -> Column:
    # Without the brackets, Spark's parser takes the first object of a line and ignores what comes behind it.
    count = F.json_array_length(F.concat(F.lit("["), line, F.lit("]")))
    return F.coalesce((count == 1) & F.ltrim(line).startswith("{"), F.lit(False))


def without_twins(line: Column) -> Column:
    """False for an object that has a name twice, since nobody can tell which of the two values is meant."""
    names = F.json_object_keys(line)
    return F.coalesce(F.size(names) == F.size(F.array_distinct(names)), F.lit(True))
