"""What the benchmarks share.

`data` makes streams whose answer is known, `launch` starts runs as a user would and watches them from outside, `paced`
searches for the capacity of paced runs, and `bench` compares cases that take turns.
"""
