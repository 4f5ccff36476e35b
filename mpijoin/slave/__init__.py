"""A slave: owns some of the partition groups, joins what the master sends of them, and hands groups over when told.

As with the master, `core` decides in which order the work is done, and `runtime` does it. Work is cut into slices of a
few milliseconds, between which the slave looks at the network: a large epoch delays neither a heartbeat nor an order.
A group changes hands only between two slices, when it holds no tuple that has not been joined yet.
"""
