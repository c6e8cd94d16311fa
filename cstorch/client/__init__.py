"""Modules that only programs written for the vendor's software import.

``cstorch.vendor`` has the table of the vendor's names for them. What has a meaning on the emulated
cluster is built; what programs tell the vendor's compiler, servers or monitoring is accepted
without effect, as its docstring says; what would change results is refused with the code
``feature-not-here``.
"""
