"""Compare the closed-form kernel costs with the fabric simulator."""
