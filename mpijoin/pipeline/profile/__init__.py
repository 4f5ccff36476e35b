"""`mpijoin profile` measures rates, bursts and skew of streams, and says which results to expect and what to set for
them.

```
scan.py         the streams in Spark; what they hold, their order, counts over time
scan_keys.py    counts by key
scan_results.py pairs and combinations in the windows
scan_pairs.py   what a type of join or a condition makes of them
scan_all.py     all of it: a Profile
worker.py       what Spark's Python workers run
pairing.py      and for a type of join or a condition: pairs, rows without any, samples of both
condition.py    the condition as workers ask it
seeking.py      the kernel that asks it
entropy.py      entropy plots, and the b of a b-model
arrivals.py     rates, dispersion, Hurst
keys.py         skew
results.py      counting results without making them; samples and their error
estimates.py    the same under a condition, and for each type of join
findings.py     the Profile
advice.py       what follows from it, and the job file
tables.py       the data of figures
figures.py      the figures
report.py       text and JSON
command.py      the command line
```
"""
