"""`mpijoin prepare`: raw CSV, JSON lines or Parquet, any size and order, to typed Parquet files sorted by time, by
Spark.

```
options.py   what is wanted, and every fault of it at once
conf.py      the settings of Spark that all of it relies on
files.py     which raw files there are, and what their heads say
schema.py    their columns and types, as far as they tell
read.py      raw files -> a frame of their columns, with file and place of each row
times.py     column expressions of a moment: ISO 8601, patterns, numbers, zones
clean.py     columns -> typed and normalised ones, and whether the row is good
kept.py      which of the good rows the filter leaves
pieces.py    the pieces in which files were read, and the number of a line in its file
scan.py      counts, the types of columns that nobody named, what of time the filter leaves
rejected.py  what was put aside: line, reason and raw
order.py     how far rows are out of order in their files
write.py     rows -> files sorted by time
report.py    what was found, as JSON and in words
```

Files are parsed once. What is kept of a row is small: its values, its time as (US, SUB), where it stood, and whether it
is good; Spark keeps that at hand for the passes that follow (types, filter, disorder, the bounds of the sort, the
sort). Reasons and lines of bad rows are worked out in a second look at the files that hold any: they cost nothing where
all is well.
"""
