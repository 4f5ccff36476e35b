"""A disk that fills up, without a disk: no file of this process may grow beyond so many bytes."""

import resource
from contextlib import contextmanager


@contextmanager
def file_size_limit(octets):
    """Within this context, writing beyond so many bytes is refused with "File too large"."""
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (octets, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))
