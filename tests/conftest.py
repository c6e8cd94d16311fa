"""What every test shares: one compute thread, so that bits and timings do not depend on the host."""

import matplotlib as mpl
import torch

mpl.use("Agg")
torch.set_num_threads(1)
