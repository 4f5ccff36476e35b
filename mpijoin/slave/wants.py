"""What a job wants of a slave's operator, as its tables tell."""

from __future__ import annotations

from mpijoin.config.job import COUNT, MAX, Job
from mpijoin.data.record import RecordLayout
from mpijoin.data.schema import JoinSchema
from mpijoin.store.read import KeyWords


def is_kept(job: Job) -> bool:
    """Whether anybody looks at the results, and does not only count them."""
    return job.output.results != COUNT or job.run.speed != MAX


def key_of(schema: JoinSchema) -> KeyWords:
    layout = RecordLayout(schema.streams[0])
    return KeyWords(layout.key_words, layout.key_fixed_words, layout.key_count_var)
