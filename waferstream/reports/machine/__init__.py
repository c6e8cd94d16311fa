"""What a step uses of the emulated machine: layers, wafer, memory and tree, with drawings."""
