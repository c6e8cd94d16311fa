"""Compare the closed forms of kernel costs with the fabric simulator."""
