"""`mpijoin generate` writes the synthetic streams of a job as Parquet files. Spark makes them.

A tuple depends on its stream and its number alone. So the pieces fit together whichever executor makes them, and they
hold the rows that a run of the same job would have made.
"""
