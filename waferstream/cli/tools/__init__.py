"""Commands beside runs, such as ``waferstream checkpoint``: one module for each group."""
