"""What programs written for the vendor's software import, under ``waferstream exec``.

``import_hook`` has the table of the vendor's names, most of which are those of ``cstorch``; the
modules here are those that only such programs import. What has a meaning on the emulated cluster is
built; what programs tell the vendor's compiler, servers or monitoring is accepted
without effect, as its docstring says; what would change results is refused with the code
``feature-not-here``.
"""
