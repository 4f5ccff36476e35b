"""The policy that a job names, and with which slaves its runs begin."""

from __future__ import annotations

from mpijoin.config.job import ACTIVE_DISK, FLUX_HYBRID, FLUX_LOAD, FLUX_MEMORY, LAZY_DISK, NO_POLICY, Balance, Memory
from mpijoin.errors import JobError
from mpijoin.policy.balance import balance as balance_loads
from mpijoin.policy.flux import flux_hybrid, flux_load, flux_memory
from mpijoin.policy.lad import active_disk, lazy_disk
from mpijoin.policy.plan import Policy
from mpijoin.policy.threshold import threshold as threshold_of


def make_policy(settings: Balance, memory: Memory = Memory()) -> Policy | None:
    """The policy that the job names; None where nothing ever moves. Raises JobError on a name that is none of them."""
    policies = {
        NO_POLICY: None,
        "threshold": threshold_of(settings),
        "balance": balance_loads,
        LAZY_DISK: lazy_disk(settings, memory),
        ACTIVE_DISK: active_disk(settings, memory),
        FLUX_LOAD: flux_load(settings),
        FLUX_MEMORY: flux_memory(settings),
        FLUX_HYBRID: flux_hybrid(settings),
    }
    if settings.policy not in policies:
        raise JobError([f"[balance] policy: got {settings.policy!r}, wanted one of {', '.join(policies)}"])
    return policies[settings.policy]


def first_active(settings: Balance, slaves_min: int | None, slaves: tuple[int, ...]) -> tuple[int, ...]:
    """The slaves that have groups when a run begins: as few as there may be, where a policy can add to them.

    >>> first_active(Balance("balance"), 2, (1, 2, 3)), first_active(Balance("none"), 2, (1, 2, 3))
    ((1, 2), (1, 2, 3))
    """
    return slaves if settings.policy == "none" else slaves[: slaves_min or len(slaves)]
