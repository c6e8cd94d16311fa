"""Where the tensors of a weight store lie: in DRAM, or in flash with a bounded part in DRAM."""
