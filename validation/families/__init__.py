"""Benchmark families: predict the rows of one kind with one model."""
