"""Stand-alone commands: the reference loop and the scaling experiment."""
