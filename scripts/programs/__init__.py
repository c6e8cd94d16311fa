"""Public training programs on the emulated cluster, with at most three changed lines.

    python -m scripts.programs --checkouts DIR [--only NAME] [--page docs/compatibility.md]

Each program of ``catalogue.py`` is copied from its checkout, made small by edits that both runs
share, and run twice: as plain PyTorch, and with the lines that hand its steps over. The losses that
it prints must be equal; the page gets the rows of what was run. Programs import what their
repositories ask for, and read nothing from the network. Exit codes: 0 all programs have equal
losses, 1 otherwise.
"""
