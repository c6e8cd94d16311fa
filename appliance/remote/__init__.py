"""A cluster that runs elsewhere: its commands travel over gRPC from the program that uses it.

The program keeps its Python, its model and its loop; weights, batches and steps are where the
cluster is. ``server`` lends the cluster of a ``host`` to one program at a time, and ``cluster`` is
what the program holds instead of a Coordinator: it has the same three methods. Commands are
pickles, since they carry kernels and the user's loader, so a server takes them from those alone who
show its token; answers are data of a few known classes and run no code (``pickles``).
"""
