"""How long distribution epochs should be (WSJ, section VIII: tuning "distribution epoch" at run time is future work).

A shorter epoch means less delay and more communication (WSJ, figures 13 and 14). Of an epoch of t seconds a slave
spends about c(t) = a / t + b on communication: a seconds per epoch for its messages, whatever they carry, and b for the
bytes, which depends on the rate alone. Wanted is the shortest t with c(t) <= bound.

One measured share does not tell a from b. The advice takes all of it for a, so that t * c / aim is the epoch at which
the share would be `aim`. Where b > 0 this errs to the safe side when epochs get shorter (the share ends below the aim,
and the next advice goes on) and falls short when they get longer (likewise); in both cases the advice converges to a
share from ENOUGH to 1 of the bound. If most of that is b, an epoch that is longer than need be stays: its delay is the
price for no ping-pong. Where b alone exceeds the bound no epoch will do, and it grows to the longest.

A run that is far behind its time gets longer epochs, whatever they cost: of a longer one each row costs less to join,
and results are late anyway. So that it does not fall behind again at once, epochs get no shorter while a slave has
little time to spare.
"""

from __future__ import annotations

# Of all streams in an epoch of automatic length. With a quarter less, workload A took a twentieth longer; with a
# quarter more, two ranks waited longer for the first epoch and after the last one. The first ones are no smaller:
# memory that was used for a smaller one is of no use to a larger one, and short runs took longer.
AUTO_ROWS = 1 << 19
SHORTEST_NS = 20_000_000  # of those of a paced run whose length follows what communication costs
LONGEST_NS = 10_000_000_000
AIM = 0.8  # A new epoch is to cost this share of the bound.
ENOUGH = 0.6  # An epoch that costs between this share of the bound and all of it stays, so that noise changes nothing.
STEP_MAX = 2.0  # At once, an epoch gets longer or shorter at most by this factor.
BUSY = 0.7  # A slave that joins for this share of its time has little to spare.


def next_epoch_ns(current_ns: int, communication: float, bound: float, busy: float = 0.0, behind: bool = False) -> int:
    """The next distribution epoch, from `communication`, the measured share of the wall time that the slave with the
    most of it spent on communication at epochs of `current_ns`, and from `bound`, what it may spend, 0 < bound < 1.
    busy: the share that the slave with the most of it joined · behind: whether the run is far behind its time.

    >>> [next_epoch_ns(1_000_000_000, share, bound=0.1) for share in (0.08, 0.12, 0.01)]
    [1000000000, 1500000000, 500000000]
    >>> next_epoch_ns(1_000_000_000, 0.01, bound=0.1, busy=1.0, behind=True)
    2000000000
    """
    if behind:
        factor = STEP_MAX
    elif ENOUGH * bound <= communication <= bound:
        factor = 1.0
    else:
        factor = min(STEP_MAX, max(1 / STEP_MAX, communication / (AIM * bound)))
    if busy > BUSY:
        factor = max(factor, 1.0)
    return min(LONGEST_NS, max(SHORTEST_NS, round(current_ns * factor)))
