"""Makes pickling raise, so that a run shows that it never pickles or unpickles anything on a wire or a disk."""

import pickle
import sys


def forbid_pickle():
    """Makes every pickling in this process fail from now on, also that of MPI's own messages of objects.

    Only Numba may still pickle while it compiles, because what it pickles never leaves the process.
    """
    for name in ("dump", "dumps", "load", "loads"):
        setattr(pickle, name, _guarded(name, getattr(pickle, name)))
    from mpi4py import MPI

    MPI.pickle.__init__(pickle.dumps, pickle.loads)


def _guarded(name, act):
    def guarded(*args, **kwargs):
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if not caller.startswith("numba."):
            raise AssertionError(f"pickle.{name} is called by {caller}: nothing here is to be pickled")
        return act(*args, **kwargs)

    return guarded
