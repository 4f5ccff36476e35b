"""`mpijoin why RUN` tells what became of one row of the input: it was late, it has no key, or it joined, and with whom.

The run directory says what the job was; all else is read once more from the inputs, as `verify` reads them.

- `command.py` has the arguments, and `choose.py` finds the row that is asked about.
- `partners.py` reads the rows of its key in the other streams. DuckDB says which of them it met and which it missed.
- `read.py` tells how far a run that has not finished had read.
- `answer.py` holds all that is known of the row. `text.py` and `plain.py` show it in a terminal and as JSON.
"""
