"""The session of a program: settings, model, cluster and steps, whichever door has opened it."""
