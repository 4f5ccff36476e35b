"""Policies: pure functions from what the master knows of the cluster to what shall be moved.

A policy gets a frozen view of the loads over one reorganization epoch and answers with a plan. A plan is data: a
sequence of `Move`, `Relocate`, `Spill` and `Resize`, which the master carries out or refuses as a whole. The policy
keeps nothing. What it has learned it hands over as a value (`memory`) that the next view brings back. So a policy is
tested by showing it a made-up history, tried on thousands of simulated slaves as it is, and saved in a checkpoint. What
looks random is a hash (`chance`), so it can be repeated.

`threshold` is the rule of the paper (WSJ, section IV-C), one group per overloaded slave; `balance` is this project's.
`lad` has the policies of LAD, by which state goes where memory is, and `flux` those of Flux, by time and by memory.
"""
