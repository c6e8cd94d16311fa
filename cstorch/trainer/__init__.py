"""``cstorch.Trainer``: train a PyTorch model in three lines, for example in a notebook.

trainer = cstorch.Trainer(
    model=model,
    optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3),
    config=cstorch.CSConfig(target_device="cs3", max_steps=100),
    loss_fn=torch.nn.functional.cross_entropy,
)
trainer.fit(dataloader)
"""

from cstorch.trainer.callbacks import BestCheckpoint, Callback, EarlyStopping
from cstorch.trainer.config import CSConfig
from cstorch.trainer.trainer import Trainer

__all__ = ["BestCheckpoint", "CSConfig", "Callback", "EarlyStopping", "Trainer"]
