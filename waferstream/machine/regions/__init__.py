"""Inference on wafer regions: layers stay in SRAM, activations move.

A decoder's layers are mapped to regions of side x side PEs. The prompt goes through a region as
matrix products, each new token as a chain of matrix-vector products and all-reduces (``phases``);
``layout`` places a decoder on wafers, ``pipeline`` has the time of tokens that pass them, and
``service`` is what a vendor serves.

The programs are those of WaferLLM (He et al., OSDI'25, arXiv 2502.04563, and its published
programs): MeshGEMM, MeshGEMV with a tree of depth two, all heads run as one, every extent padded to
a multiple of the region's side. Clocks and grids are parameters; all formulas are in cycles.
"""
