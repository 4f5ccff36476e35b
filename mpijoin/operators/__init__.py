"""The contract between an operator and everything that drives it (`base`); the operators are packages of their own.

Distribution, moving, checkpoints, simulation and tests know an operator by this contract alone. So a model of a join
can stand in for a join, and another operator needs nothing new around it.
"""
