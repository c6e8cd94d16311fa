"""Names of what a program of releases up to 2.4 does: the vendor's module ``core.modes``."""

TRAIN = "train"
EVAL = "eval"
TRAIN_AND_EVAL = "train_and_eval"
EVAL_ALL = "eval_all"
INFERENCE = "inference"
