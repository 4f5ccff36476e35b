"""The sliding-window join: kernels that find the results of fresh tuples in a table of the store, and the operator
around them."""
