"""`mpijoin generate`: the synthetic streams of a job as Parquet files, made by Spark.

A tuple depends on its stream and its number alone, so the pieces that executors make fit together whoever makes which,
and are the rows that a run of the same job would have made.
"""
