"""The evaluation as a page: method, splits, errors, intervals, constants, ablations, failures."""
