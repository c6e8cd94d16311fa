"""What every test shares: one compute thread, so that bits and timings do not depend on the host."""

import matplotlib as mpl
import torch
from hypothesis import settings

mpl.use("Agg")
torch.set_num_threads(1)

# A first example may import or compile something; pytest's own timeout ends what hangs.
settings.register_profile("waferstream", deadline=None)
settings.load_profile("waferstream")
