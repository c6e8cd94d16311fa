"""The explorer: a page over the simulator, whose sliders change model, batch and machine.

``knobs`` says what can be changed, ``settings`` which configuration that is, ``steps`` keeps the
captured steps, and ``explorer`` is a pure function from settings to an answer. The rest is thin:
``server`` answers on loopback, ``export`` writes a page that holds its answers.
"""
