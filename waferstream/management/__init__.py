"""The appliance as many users meet it: what they submit, when it runs, and what they see of it.

``model`` has the words, ``schedule`` decides what runs next, ``store`` keeps what has happened,
``launch`` starts and stops what was admitted, and ``manager`` leads all of them through the
operations of its users. ``door`` lets these in over gRPC and HTTP, ``web`` shows pages, and
``client`` is what commands, notebooks and running jobs use, with a service or without one.
Nothing here imports torch, and only ``launch.ray`` imports ray.
"""
