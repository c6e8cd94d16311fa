"""The executor loop below its public face: steps that wait for their job, cadences, progress."""
