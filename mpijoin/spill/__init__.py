"""State that does not fit into memory: where it lies on disk, and how what is owed is found later.

Read in this order:

1. `scratch` (a folder of this rank's own on a disk of its node, and what becomes of it when the rank is killed), `runs`
   (frames one after the other in files of that folder, read from front to back), and `packs` (frames of many owners in
   few runs).
2. What "generations" does: `ranking` says which groups go first, `leaving` is their queue, `generations` what a group
   has on disk and owes, and `owed` counts at least how many results that are. `work` is what all clean-ups do,
   `cleanup` finds what a group owes, `marked` does so where rows have marks, `abreast` for many small groups at once,
   `comeback` brings groups back into memory, and `spiller` puts these together for a slave.
3. What "rotate" does: `rotation` decides which groups are in memory and when they change places, and `rotator` carries
   it out.
4. `forms`: what both have in common.

The split is between whether, where and how. A policy or the slave's core says whether something is spilled. Scratch and
runs only keep bytes, and know neither groups nor tuples. Who appended a run holds it, and reads it back once.
"""
