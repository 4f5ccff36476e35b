"""The offline side, on Spark: streams made, prepared and profiled before a run. The engine never imports it.

Spark is for what happens once, to all of the data, in any order: sorting, cleaning, counting. What is joined, with what
and in which order is the engine's alone; the two meet only in files and in the job file. Each command ends with the
part of a job that reads what it has made. The generator of synthetic streams and the meaning of a job are the engine's
own code, so both sides make the same rows of the same job.
"""
