"""The hosts of a Ray cluster: facts, reservations, processes, pulses, disks."""
