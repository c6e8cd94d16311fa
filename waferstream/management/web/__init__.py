"""Pages of the appliance for people."""
