"""The ways to train one workload on one host: each opens in processes of its own."""
