"""What ranks record of their own work, and the ledger by which a run proves that no tuple was lost.

Records are columns of numbers, one row per distribution epoch or per move, written to Parquet files that have their
name only when they are whole. Nothing here is needed for the answer, with one exception: at the end of a run the ledger
must balance, or the run fails. None of its counts is derived from another; each is counted where the thing happens.
"""
