"""The emulated machine: hardware numbers, kernel costs, SRAM plans, timelines, attribution."""
