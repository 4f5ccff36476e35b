"""The job: what a user wishes, as one frozen value that is made at launch and never changes.

A job file is described once, as a table in `fields`; reading, writing, checking, `--set` and the printed reference all
follow that table, so a field cannot be known to one of them and unknown to another. `load` makes a `Job` of TOML or a
dict, `rules` and `check` say what is wrong with it, and `columns` looks at the headers of the inputs.

Every fault is told at once, with its field, what was found and what is wanted; a fault of one field hides no other.
Values have one unit each, which ends their name: durations are integer nanoseconds, sizes integer bytes. Nothing below
this package reads the environment or holds a global setting.
"""
