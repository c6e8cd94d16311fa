"""Decide what runs where; pure, on frozen data of its own (``state``).

    actions = decide(now_s, inventory, jobs, usage)      # Start, Resize, Pause, Wait

``jobs`` are all that have not ended: those that wait (one that was paused has ``left`` below 1),
those that run (``holds``, ``group``, ``starts_s``), and compile jobs (``compiles``). A ``Start``
may name systems that a ``Resize`` or ``Pause`` of the same decision frees: the job holds them from
then on, and is launched when they are free. While a resize is under way, ``ready_s`` lies in the
future, and the job is left alone. ``used`` brings ``Usage`` up to date, and ``ForecastErrors``
makes the intervals of expected starts from those of the past. ``simulate`` does the same on an
emulated clock.
"""
