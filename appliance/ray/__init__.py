"""The roles and the coordinator as Ray actors; only this package imports ray."""
