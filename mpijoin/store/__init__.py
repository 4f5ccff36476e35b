"""Stored tuples: one pool of pages for all operators of a slave, and per operator a table of groups over it.

A group has a directory (extendible hashing, WSJ section IV-D) of mini-partition-groups, each with a chain of blocks per
stream. What comes is appended as fresh, leaves by whole blocks once it is too old for any tuple to come, and moves as
frames. The store knows neither what is joined nor why: an operator's kernels (package `join`) read the arrays of
`state.py` and are told there what holds of them. Everything is address space reserved once; a page given back by one
operator serves any other.
"""
