"""`mpijoin prepare`: raw CSV, JSON lines or Parquet, any size and order, to typed Parquet files sorted by time, by Spark.

```
options.py  what is wanted, and every fault of it at once
files.py    which raw files there are, and what their heads say
read.py     raw files -> a frame of their columns, with file and place of each row
times.py    column expressions of a moment: ISO 8601, patterns, numbers, zones
clean.py    columns -> typed and normalised ones, with the reasons for which a row is put aside
scan.py     one pass: counts, and the types of columns that nobody named
order.py    how far rows are out of order in their files
write.py    rows -> files sorted by time, and what was put aside
report.py   what was found, as JSON and in words
```
"""
