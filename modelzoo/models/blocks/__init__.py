"""Parts that several families of models share: layers, attention, positions, initial weights."""
