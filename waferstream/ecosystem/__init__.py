"""Trainers of others on the cluster: each with one line, and no other change of a program.

    pytorch_lightning.Trainer(strategy=WaferStreamStrategy(num_csx=4))     lightning
    transformers.Trainer(..., callbacks=[WaferStreamCallback(num_csx=4)])  transformers
    accelerator = Accelerator(num_csx=4)                                   accelerate

Each hands model and optimizer over (``cstorch.handover``) where training begins, and takes them
back where it ends. Losses are those of plain PyTorch; evaluation runs in the process of the
program, with the newest weights.
"""
