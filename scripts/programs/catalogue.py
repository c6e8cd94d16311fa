"""The programs, by the names of their repositories."""

from __future__ import annotations

from scripts.programs.data import (
    LOCAL,
    write_images,
    write_language_model,
    write_text,
    write_tokens,
)
from scripts.programs.program import Program
from scripts.programs.vendor import VENDOR_PROGRAMS

SETTINGS = f"num_csx=2, cluster={LOCAL}"

HAND_OVER = f"import cstorch; cstorch.hand_over(model, optimizer, {SETTINGS})"

_NO_DROPOUT = tuple(f"--model.{part}_pdrop=0.0" for part in ("attn", "resid", "embd"))

NANO_GPT = (
    "--dataset=counted",
    "--device=cpu",
    "--compile=False",
    "--eval_iters=2",
    "--eval_interval=4",
    "--log_interval=1",
    "--block_size=16",
    "--batch_size=8",
    "--n_layer=2",
    "--n_head=2",
    "--n_embd=32",
    "--max_iters=8",
    "--lr_decay_iters=8",
    "--warmup_iters=2",
    "--learning_rate=0.01",
    "--dropout=0.0",
    "--gradient_accumulation_steps=1",
)

MIN_GPT = (
    "mingpt/trainer.py",
    "self.optimizer = model.configure_optimizers(config)",
    "self.optimizer = model.configure_optimizers(config); import cstorch; "
    f"cstorch.hand_over(model, self.optimizer, {SETTINGS})",
)

_MAKE_OPTIMIZER = "optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)"

RUN_CLM = (
    "--config_name=small",
    "--tokenizer_name=small",
    "--train_file=input.txt",
    "--cache_dir=cache",
    "--output_dir=out",
    "--do_train",
    "--max_steps=8",
    "--per_device_train_batch_size=8",
    "--block_size=16",
    "--learning_rate=0.01",
    "--logging_steps=1",
    "--report_to=none",
    "--use_cpu",
)

TIMM = (
    "--data-dir=images",
    "--val-split=",
    "--model=vit_tiny_patch16_224",
    "--model-kwargs",
    *("img_size=32", "patch_size=8", "depth=2", "embed_dim=32", "num_heads=2"),
    "--img-size=32",
    "--num-classes=4",
    "--batch-size=8",
    "--epochs=2",
    "--warmup-epochs=0",
    "--opt=adamw",
    "--lr=0.01",
    "--clip-grad=1.0",
    "--smoothing=0.1",
    "--no-aug",
    "--no-prefetcher",
    "--workers=1",
    "--device=cpu",
    "--log-interval=1",
    "--output=out",
)

PROGRAMS = (
    Program(
        "nanoGPT",
        "karpathy/nanoGPT",
        "train.py",
        (("train.py", "checkpoint = None # free up memory", f"checkpoint = None; {HAND_OVER}"),),
        r"iter \d+: loss ([\d.]+)",
        NANO_GPT,
        prepare=write_tokens,
    ),
    Program(
        "minGPT, adder",
        "karpathy/minGPT",
        "projects/adder/adder.py",
        (MIN_GPT,),
        r"train loss ([\d.]+)",
        ("--trainer.max_iters=31", "--trainer.num_workers=0", *_NO_DROPOUT),
        (
            ("projects/adder/adder.py", "trainer.iter_num % 500 == 0", "trainer.iter_num == -1"),
            ("projects/adder/adder.py", "trainer.iter_num % 10 == 0", "True"),
        ),
    ),
    Program(
        "minGPT, chargpt",
        "karpathy/minGPT",
        "projects/chargpt/chargpt.py",
        (MIN_GPT,),
        r"train loss ([\d.]+)",
        (
            "--trainer.max_iters=6",
            "--trainer.batch_size=8",
            "--trainer.num_workers=0",
            "--data.block_size=16",
            *_NO_DROPOUT,
        ),
        (
            ("projects/chargpt/chargpt.py", "'gpt-mini'", "'gpt-nano'"),
            ("projects/chargpt/chargpt.py", "trainer.iter_num % 10 == 0", "True"),
            ("projects/chargpt/chargpt.py", "x, 500, temp", "x, 5, temp"),
        ),
        write_text,
        "projects/chargpt",
    ),
    Program(
        "makemore, transformer",
        "karpathy/makemore",
        "makemore.py",
        (("makemore.py", "    # init dataloader\n", f"    {HAND_OVER}\n"),),
        r"\| loss ([\d.]+)",
        ("--max-steps=8", "--num-workers=0", "--n-layer=2", "--n-embd=16", "--batch-size=8"),
        (
            ("makemore.py", "from torch.utils.tensorboard import", "from tensorboardX import"),
            ("makemore.py", "step % 10 == 0", "True"),
        ),
    ),
    Program(
        "makemore, multi-layer perceptron",
        "karpathy/makemore",
        "makemore.py",
        (("makemore.py", "    # init dataloader\n", f"    {HAND_OVER}\n"),),
        r"\| loss ([\d.]+)",
        ("--type=mlp", "--max-steps=8", "--num-workers=0", "--batch-size=8"),
        (
            ("makemore.py", "from torch.utils.tensorboard import", "from tensorboardX import"),
            ("makemore.py", "step % 10 == 0", "True"),
        ),
    ),
    Program(
        "Let's build GPT, bigram",
        "karpathy/ng-video-lecture",
        "bigram.py",
        (("bigram.py", _MAKE_OPTIMIZER, f"{_MAKE_OPTIMIZER}; {HAND_OVER}"),),
        r"train loss ([\d.]+)",
        sizes=(
            ("bigram.py", "max_iters = 3000", "max_iters = 12"),
            ("bigram.py", "eval_interval = 300", "eval_interval = 3"),
            ("bigram.py", "eval_iters = 200", "eval_iters = 2"),
            ("bigram.py", "max_new_tokens=500", "max_new_tokens=5"),
        ),
        prepare=write_text,
    ),
    Program(
        "Let's build GPT",
        "karpathy/ng-video-lecture",
        "gpt.py",
        (("gpt.py", _MAKE_OPTIMIZER, f"{_MAKE_OPTIMIZER}; {HAND_OVER}"),),
        r"train loss ([\d.]+)",
        sizes=(
            ("gpt.py", "batch_size = 64", "batch_size = 8"),
            ("gpt.py", "block_size = 256", "block_size = 16"),
            ("gpt.py", "max_iters = 5000", "max_iters = 9"),
            ("gpt.py", "eval_interval = 500", "eval_interval = 2"),
            ("gpt.py", "eval_iters = 200", "eval_iters = 2"),
            ("gpt.py", "max_new_tokens=500", "max_new_tokens=5"),
            ("gpt.py", "n_embd = 384", "n_embd = 24"),
            ("gpt.py", "n_layer = 6", "n_layer = 2"),
            ("gpt.py", "dropout = 0.2", "dropout = 0.0"),
        ),
        prepare=write_text,
    ),
    Program(
        "Lightning, bug report",
        "Lightning-AI/pytorch-lightning",
        "examples/pytorch/bug_report/bug_report_model.py",
        (
            (
                "examples/pytorch/bug_report/bug_report_model.py",
                "    trainer = Trainer(\n",
                "    from waferstream.ecosystem.lightning import WaferStreamStrategy\n"
                f"    trainer = Trainer(strategy=WaferStreamStrategy({SETTINGS}),\n",
            ),
        ),
        r"valid_loss (-?[\d.]+)",
        sizes=(
            (
                "examples/pytorch/bug_report/bug_report_model.py",
                "from lightning.pytorch import LightningModule, Trainer",
                "from pytorch_lightning import LightningModule, Trainer",
            ),
            (
                "examples/pytorch/bug_report/bug_report_model.py",
                '        self.log("valid_loss", loss)',
                '        print("valid_loss", loss.item())',
            ),
            (
                "examples/pytorch/bug_report/bug_report_model.py",
                "limit_train_batches=1,",
                "limit_train_batches=8, val_check_interval=2,",
            ),
            (
                "examples/pytorch/bug_report/bug_report_model.py",
                "def run():\n",
                "def run():\n    torch.manual_seed(0)\n",
            ),
        ),
    ),
    Program(
        "transformers, run_clm",
        "huggingface/transformers",
        "examples/pytorch/language-modeling/run_clm.py",
        (
            (
                "examples/pytorch/language-modeling/run_clm.py",
                "    trainer = Trainer(\n",
                "    from waferstream.ecosystem.transformers import WaferStreamCallback\n"
                f"    trainer = Trainer(callbacks=[WaferStreamCallback({SETTINGS})],\n",
            ),
        ),
        r"'loss': '?([\d.]+)",
        RUN_CLM,
        prepare=write_language_model,
    ),
    Program(
        "timm, ViT",
        "huggingface/pytorch-image-models",
        "train.py",
        (("train.py", "    # optionally resume from a checkpoint\n", f"    {HAND_OVER}\n"),),
        r"Loss: ([\d.]+)",
        TIMM,
        (("train.py", "Loss: {loss_now:#.3g}", "Loss: {loss_now:.6f}"),),
        write_images,
    ),
    *VENDOR_PROGRAMS,
)
