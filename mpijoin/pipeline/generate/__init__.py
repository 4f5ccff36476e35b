"""`mpijoin generate`: the synthetic streams of a job as Parquet files, made by Spark."""
