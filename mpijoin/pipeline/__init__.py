"""The commands that work on data before a run, with Spark: they make streams, prepare raw data, and profile streams.
The engine never imports this package.

Spark is for what happens once, to all of the data, in any order: sorting, cleaning, counting. The engine alone knows
what is joined with what, and in which order; the two meet only in files and in the job file. Each command ends with the
part of a job that reads what it has made. The generator of synthetic streams and the meaning of a job are the engine's
own code, so both sides make the same rows of the same job.
"""
